"""The worker's own background tasks: their failure is the worker's end, never a silence.

A flush that dies on a mistake of ours would leave its jobs held for ever, and an asyncio task whose exception nobody
reads tells it to nobody. So each service and each flush is started here; the first exception is kept, and whoever
waits by `first` gets it raised. Handlers do not run here: their exceptions belong to their jobs.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any


class Crew:
    """Tasks that live and fail together. Used on the loop; `fail` may be passed to it from a thread."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._context = contextvars.copy_context()  # work that a handler's call sets off is not the job's
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task; it is held here, so that the collector cannot take it in mid work."""
        task = asyncio.get_running_loop().create_task(work, context=self._context)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def fail(self, error: BaseException) -> None:
        """Keep the first failure."""
        if not self._failure.done():
            self._failure.set_exception(error)
            self._failure.exception()  # it may be that nobody waits any more: then nobody needs to hear of it

    async def first(self, *futures: asyncio.Future[Any], timeout: float | None = None) -> None:
        """Wait until one of these is done, or the time is up; raises the crew's failure."""
        await asyncio.wait({self._failure, *futures}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if self._failure.done():
            self._failure.result()

    async def disband(self) -> None:
        """Cancel all that still runs, and wait for it."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)
