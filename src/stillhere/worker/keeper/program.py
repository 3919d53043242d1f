"""The program of a keeper: from exec to exit.

    python -m stillhere.worker.keeper --board FD --control FD --host PID

Where the store is, comes over the control socket, since a URL may hold a password and a command line is read by
everybody. A host that ends before it has said anything had nothing that could be released.
"""

from __future__ import annotations

import argparse
import logging
import os
import select
import sys
from typing import NoReturn

import msgspec

from stillhere.stores import open_sync
from stillhere.worker.board import Board
from stillhere.worker.control import PROTOCOL, Channel
from stillhere.worker.keeper.host import Host, Pulse
from stillhere.worker.keeper.watch import Watch
from stillhere.worker.supervisor.log import start_logging

log = logging.getLogger("stillhere.supervisor")

OK, FAULT = 0, 70


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """What a keeper is told: the worker it speaks for. It travels as JSON over the control socket."""

    url: str
    namespace: str
    queues: list[str]
    lease_ms: int
    log_level: str = "WARNING"
    proto: int = PROTOCOL


def run() -> NoReturn:
    """Be the keeper."""
    parser = argparse.ArgumentParser(prog="stillhere.worker.keeper")
    for name in ("--board", "--control", "--host"):
        parser.add_argument(name, type=int, required=True)
    given = parser.parse_args()
    os.set_inheritable(given.board, False)
    pulse = Pulse(given.host)
    channel = Channel.inherit(given.control)
    charge = _wait_for_charge(channel, pulse)
    if charge is None:
        sys.exit(OK)
    queue_log = start_logging("plain", charge.log_level, "keeper")
    try:
        sys.exit(_keep(charge, Board.attach(given.board), channel, pulse, given.host))
    finally:
        queue_log.finish()


def _keep(charge: Charge, board: Board, channel: Channel, pulse: Pulse, pid: int) -> int:
    host = Host(
        pid,
        board,
        charge.queues,
        lambda worker: _tell(channel, worker),
        lambda question, job: _ask(channel, question, job),
    )
    watch = Watch(host, pulse, channel, lambda: open_sync(charge.url, charge.namespace), charge.lease_ms)
    channel.send(m="up")
    try:
        watch.run()
    except Exception:
        log.exception("This is a fault of stillhere: the keeper ends, the worker goes on with its own voice.")
        return FAULT
    return OK


def _tell(channel: Channel, worker: str) -> None:
    channel.send(m="gone", worker=worker)


def _ask(channel: Channel, question: str, job: str) -> None:
    channel.send(m="stack", req=question, job=job)


def _wait_for_charge(channel: Channel, pulse: Pulse) -> Charge | None:
    """The first message; None when the host has ended, or has nothing to keep any more."""
    waiting = select.poll()
    waiting.register(channel, select.POLLIN)
    while not channel.eof and not pulse.is_over:
        for message in channel.receive():
            if message.get("m") != "start":
                return None  # only "bye" may come before it
            return msgspec.json.decode(message["charge"], type=Charge)
        waiting.poll(250)
    return None
