"""Between the start message and the first job: the user's app, the log, the store, the event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from typing import Any, Protocol

from stillhere import __version__
from stillhere.domain.errors import ConfigurationError
from stillhere.domain.plan import DEFAULT_QUEUE
from stillhere.domain.task import Tasks
from stillhere.ports.backend import AsyncStore, Lanes, SyncStore
from stillhere.worker.board import MAX_QUEUES, Board, Phase
from stillhere.worker.child.lifespan import leave_lifespan
from stillhere.worker.child.options import Options
from stillhere.worker.child.signals import STOP
from stillhere.worker.child.steps import Cutter, TaskFactory
from stillhere.worker.child.worker import Worker
from stillhere.worker.control import Channel, Message
from stillhere.worker.formatters import formatter
from stillhere.worker.processes import MARK
from stillhere.worker.settings import WorkerSettings


class Door(Protocol):
    """What this floor must be given from above, since it may not import upwards: the app and the stores."""

    def load_app(self, path: str) -> Any:
        """The app of this name, its modules imported."""

    def open_async(self, url: str, namespace: str) -> AsyncStore:
        """The store for the loop."""

    def open_sync(self, url: str, namespace: str) -> SyncStore:
        """The store for threads."""


class SignalsSeen(Protocol):
    """Whether a signal came before the loop could be told."""

    came: bool


class _Door:
    """The real one; imported here, as the program is the place where everything meets."""

    def load_app(self, path: str) -> Any:
        """Import the app and all its task modules."""
        from stillhere.discovery import load_app, load_tasks  # noqa: PLC0415 - user code comes last

        app = load_app(path)
        load_tasks(app)
        return app

    def open_async(self, url: str, namespace: str) -> AsyncStore:
        """From the URL."""
        from stillhere.stores import open_async  # noqa: PLC0415 - the driver comes with its first use

        return open_async(url, namespace)

    def open_sync(self, url: str, namespace: str) -> SyncStore:
        """From the URL."""
        from stillhere.stores import open_sync  # noqa: PLC0415 - as above

        return open_sync(url, namespace)


class Boot:
    """A child that has read its start message."""

    def __init__(self, start: Message, door: Door | None = None) -> None:
        """Import the app; raises `ConfigurationError` for the user's mistakes."""
        self.settings = WorkerSettings.from_json(start["settings"])
        self._worker: str = start["worker"]
        self._lanes: Lanes = start.get("lanes", "pool")
        self._door = door or _Door()
        self.app = self._door.load_app(self.settings.app)
        start_logging(self.settings.log, self.settings.log_level)
        if self.settings.url is not None or self.settings.namespace is not None:
            self.app.link.redirect(self.settings.url, self.settings.namespace)
        if len(self.queues) > MAX_QUEUES:
            raise ConfigurationError(
                f"{len(self.queues)} queues are too many for one worker (at most {MAX_QUEUES}): name some with -q."
            )

    @property
    def tasks(self) -> Tasks:
        """The app's tasks."""
        tasks: Tasks = self.app.tasks
        return tasks

    @property
    def queues(self) -> dict[str, int]:
        """Asked for, else all that the app's tasks name."""
        return self.settings.queues or dict.fromkeys(
            sorted({task.options.queue for task in self.tasks} or {DEFAULT_QUEUE}), 1
        )

    def options(self) -> Options:
        """What this process is."""
        settings, solo = self.settings, self._lanes == "solo"
        return Options(
            slots=1 if solo else settings.slots,
            long_places=0 if solo else settings.long_places,
            queues=self.queues,
            lease_ms=settings.lease_ms,
            grace_ms=settings.grace_ms,
            long_after_ms=settings.long_after_ms,
            lanes=self._lanes,
            burst=settings.burst and not solo,
            max_jobs=settings.max_jobs,
            max_memory=settings.max_memory,
            mark=os.environ.get(MARK, ""),
            name=settings.name,
            worker=self._worker,
        )

    def hello(self) -> dict[str, Any]:
        """What the supervisor needs to speak for this process. Over the socket only: the URL may hold a password."""
        address = self.app.link.address
        return {
            "worker": self._worker,
            "url": address.url,
            "origin": address.origin,
            "namespace": self.app.namespace,
            "lease_ms": self.settings.lease_ms,
            "queues": self.queues,
            "tasks": len(self.tasks),
            "task_names": self.tasks.names()[:50],
            "solo": "solo" in self.tasks.lanes().values(),
            "version": __version__,
        }

    @staticmethod
    def new_loop() -> asyncio.AbstractEventLoop:
        """The faster loop where it is installed."""
        try:
            import uvloop  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415 - optional
        except ImportError:
            return asyncio.new_event_loop()
        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        return loop

    async def serve(self, board: Board, channel: Channel, signals: SignalsSeen) -> tuple[int, bool]:
        """Work until told to stop; how many runs have not ended, and whether the supervisor is dead."""
        url, namespace = self.app.link.address.url, self.app.namespace
        store, own = self._door.open_async(url, namespace), self._door.open_sync(url, namespace)
        lifespan = self.app.lifespan()
        await lifespan.__aenter__()
        try:
            worker = Worker(store, own, self.tasks, board, self.options(), channel=channel)
            loop = asyncio.get_running_loop()
            loop.set_task_factory(TaskFactory(board))
            board.write("loop_thread", threading.get_ident())
            Cutter(board)
            for number in STOP:
                loop.add_signal_handler(number, _drain, worker, channel)
            if signals.came:
                worker.drain()
            left = await worker.run()
        except BaseException:
            board.phase = Phase.EXIT  # nobody vouches for a worker that has crashed, whatever its clean-up does
            raise
        finally:
            await leave_lifespan(lifespan, self.settings.grace_ms / 1000)
        await store.aclose()
        if not left:
            own.close()
        return left, worker.orphan


def _drain(worker: Worker, channel: Channel) -> None:
    channel.send(m="draining", why="signal")
    worker.drain()


def start_logging(form: str, level: str) -> None:
    """Log to standard error, unless the app has set up logging of its own by now."""
    if logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(form, str(os.getpid())))
    logging.basicConfig(level=level.upper(), handlers=[handler])
