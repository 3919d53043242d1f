"""The program of `stillhere worker`: signals first, then everything else.

As process 1 of a container this process gets no default reactions: a TERM that comes before its handler is lost, and it
does not come again. So the handlers stand before any import that takes time; whoever gets here by a longer way (the
command line) may call `install_signals` before setting out.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stillhere.worker.settings import WorkerSettings

_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1, signal.SIGTSTP)
_pipe: list[int] = []


def install_signals() -> tuple[int, int]:
    """Have every signal of ours write its number into a pipe; returns both ends, the same ones when it is repeated.

    SIGHUP stays ignored where it was (nohup). SIGCHLD gets a handler: some launchers start programs with it ignored,
    and then no exit status of a child would ever be seen.
    """
    if not _pipe:
        _pipe[:] = os.pipe()
        for end in _pipe:
            os.set_blocking(end, False)
    signal.set_wakeup_fd(_pipe[1], warn_on_full_buffer=False)
    for number in _HANDLED:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _nothing)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    return _pipe[0], _pipe[1]


def _nothing(*_: object) -> None:
    """The number is in the pipe already."""


def run(settings: WorkerSettings) -> int:
    """Run a worker with these settings; its exit code."""
    wakeup = install_signals()
    from stillhere.stores import open_sync  # noqa: PLC0415 - after the handlers
    from stillhere.worker.supervisor.log import start_logging  # noqa: PLC0415 - as above
    from stillhere.worker.supervisor.service import ServiceManager  # noqa: PLC0415 - as above
    from stillhere.worker.supervisor.supervisor import Supervisor  # noqa: PLC0415 - as above

    log = start_logging(settings.log, settings.log_level)
    try:
        return Supervisor(settings, open_sync, wakeup, service=ServiceManager()).run()
    finally:
        log.finish()
