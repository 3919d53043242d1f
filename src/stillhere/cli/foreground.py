"""`stillhere worker -p 0`: one worker in this very process, with its terminal, so that handlers can `breakpoint()`.

It is the worker that other programs embed, with a keeper process beside it: while somebody sits in the debugger the
loop stands still and the lease is kept. This program is ours, so it hears signals: the first drains, the second ends
now, the third kills. While the loop is blocked none of them is heard; leave the debugger by `q`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from stillhere.cli.exits import Code
from stillhere.discovery import load_app, load_tasks
from stillhere.worker.formatters import formatter
from stillhere.worker.supervisor.main import install_signals
from stillhere.worker.supervisor.stopping import Stopping

if TYPE_CHECKING:
    from stillhere.embedding.worker import EmbeddedWorker
    from stillhere.worker.settings import WorkerSettings

log = logging.getLogger("stillhere.worker")

_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run(settings: WorkerSettings) -> int:
    """Work until told to stop, or until there is nothing left (burst); the exit code."""
    app = load_app(settings.app)
    load_tasks(app)
    if not logging.getLogger().handlers:  # else the app has set it up
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(formatter(settings.log, "worker"))
        logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])
    if settings.url is not None or settings.namespace is not None:
        app.link.redirect(settings.url, settings.namespace)
    worker: EmbeddedWorker = app.worker(
        queues=settings.queues or None,
        slots=settings.slots,
        lease=settings.lease_ms / 1000,
        grace=settings.grace_ms / 1000,
        long_after=settings.long_after_ms / 1000,
        overflow=settings.overflow,
        burst=settings.burst,
        name=settings.name,
    )
    if not _take_signals_over():
        asyncio.run(_work(worker, Stopping(settings.grace_ms / 1000)))
    return Code.FAULT if worker.left else Code.WELL


def _take_signals_over() -> bool:
    """Whether one that means "stop" has come already. From here on this is a usual program, for all other signals."""
    read, _ = install_signals()
    came = b""
    with contextlib.suppress(BlockingIOError):
        came = os.read(read, 4096)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTSTP, signal.SIGUSR1, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    return any(number in came for number in _STOP)


async def _work(worker: EmbeddedWorker, stopping: Stopping) -> None:
    loop = asyncio.get_running_loop()
    for number in _STOP:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            loop.add_signal_handler(number, _signalled, worker, stopping, signal.Signals(number))
    async with worker:
        if stopping.ordered:
            worker.hurry(stopping.timeline)
        await worker.wait()


def _signalled(worker: EmbeddedWorker, stopping: Stopping, number: signal.Signals) -> None:
    counts = stopping.signal(asyncio.get_running_loop().time())
    if not counts:
        return
    log.info("%s: %s.", number.name, "stopping" if counts == 1 else "ending now")
    if worker.id:  # else it is still starting
        worker.hurry(stopping.timeline)
    if counts > 1:
        for each in _STOP:
            asyncio.get_running_loop().remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
