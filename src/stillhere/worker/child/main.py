"""The program of a worker child: from exec to exit.

    python -m stillhere.worker.child --board FD --control FD --dump FD

In this order: handlers for the signals that mean "stop" (so that one which comes during a slow import is not lost), the
inherited descriptors made private, the start message, the user's app, the store; `hello`, and after the supervisor's
`go` the worker itself. A mistake of the user's up to `hello` is one line to the supervisor and exit code 78.

The end, whatever the reason, begins with the phase EXIT on the board: from there on nobody vouches for this process.
If a job's thread is still in a call, the interpreter would wait for it or be stuck in it, so exit handlers are run by
hand and the process leaves at once. Otherwise it ends as Python programs do, under a watchdog in C that ends it if an
exit handler hangs.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import contextlib
import faulthandler
import logging
import os
import select
import sys
from typing import NoReturn

from stillhere.worker import processes
from stillhere.worker.board import Board, Phase
from stillhere.worker.child.signals import Signals
from stillhere.worker.control import PROTOCOL, Channel, Message

DRAINED, CRASHED, ORPHANED, MISCONFIGURED = 0, 70, 75, 78
HANGING_EXIT_S = 2.0

log = logging.getLogger("stillhere.worker")


class Stopped(Exception):
    """Told to stop before there was anything to stop."""


def main(signals: Signals, arguments: list[str]) -> int:
    """Run a child; its exit code."""
    parser = argparse.ArgumentParser(prog="stillhere.worker.child")
    parser.add_argument("--board", type=int, required=True)
    parser.add_argument("--control", type=int, required=True)
    parser.add_argument("--dump", type=int, required=True)
    given = parser.parse_args(arguments)
    os.set_inheritable(given.board, False)
    _leave_word_of_crashes(given.dump)
    board, channel = Board.attach(given.board), Channel.inherit(given.control)
    left, code = 0, CRASHED
    try:
        left, code = _work(board, channel, signals)
    except Stopped:
        code = DRAINED
    except BaseException as error:  # noqa: BLE001 - whatever ended the main loop, the end is orderly
        code = _explain(channel, error)
    board.phase = Phase.EXIT
    channel.send(m="bye", code=code, left=left)
    return _exit(code, at_once=left > 0 or code == CRASHED)


def _leave_word_of_crashes(dump: int) -> None:
    """Have a fatal signal write the stacks of all threads there: the supervisor reads whose step or thread it was in.

    Not a forked process's: its crash is not this one's.
    """
    os.set_inheritable(dump, False)
    faulthandler.enable(file=dump, all_threads=True)
    os.register_at_fork(after_in_child=faulthandler.disable)


def _work(board: Board, channel: Channel, signals: Signals) -> tuple[int, int]:
    from stillhere.worker.child.boot import Boot  # noqa: PLC0415 - after the handlers: this imports everything

    start = _receive(channel, "start", signals)
    if start.get("lanes") == "solo":
        processes.die_with_parent(start["supervisor"])
    processes.be_the_first_to_go()
    boot = Boot(start)
    channel.send(m="hello", proto=PROTOCOL, pid=os.getpid(), **boot.hello())
    _receive(channel, "go", signals)
    loop = boot.new_loop()
    asyncio.set_event_loop(loop)
    try:
        left, orphan = loop.run_until_complete(boot.serve(board, channel, signals))
        loop.run_until_complete(loop.shutdown_asyncgens())
        return left, ORPHANED if orphan else DRAINED
    finally:
        board.phase = Phase.EXIT


def _receive(channel: Channel, kind: str, signals: Signals) -> Message:
    """Wait for one message; the supervisor's end, or a signal, ends this process before it has begun.

    What comes before it or with it is for later: an order to drain, or what this child is for.
    """
    waiting = select.poll()
    waiting.register(channel.fileno(), select.POLLIN)
    others: list[Message] = []
    while True:
        came = channel.receive()
        for place, message in enumerate(came):
            if message.get("m") == "drain":
                raise Stopped
            if message.get("m") == kind:
                channel.unread(others + came[place + 1 :])
                return message
            others.append(message)
        if channel.eof or signals.came:
            raise Stopped
        waiting.poll(100)


def _explain(channel: Channel, error: BaseException) -> int:
    """Say in one line what ended this process; a mistake of the user's is 78, anything else a crash."""
    from stillhere.domain.errors import ConfigurationError  # noqa: PLC0415 - as above

    if isinstance(error, ConfigurationError):
        channel.send(m="crashed", type="configuration", text=str(error)[:3000])
        return MISCONFIGURED
    channel.send(m="crashed", type=type(error).__name__, text=str(error)[:3000])
    log.critical("The worker's main loop ended: %s: %s", type(error).__name__, error, exc_info=error)
    return CRASHED


def _exit(code: int, *, at_once: bool) -> int:
    """Leave: orderly under a watchdog, or at once when a thread would be waited for."""
    logging.shutdown()
    if at_once:
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()  # noqa: SLF001 - exporters and coverage still get their turn
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)
    faulthandler.dump_traceback_later(HANGING_EXIT_S, exit=True)
    return code


def run(signals: Signals) -> NoReturn:
    """The entry of `python -m stillhere.worker.child`."""
    sys.exit(main(signals, sys.argv[1:]))
