"""The worker that `app.worker` gives: a block in a program, or a thread with a loop of its own.

    async with app.worker(slots=4) as worker:      # a web server's lifespan, a script
        ...
    worker = app.worker(); worker.start_in_thread(); ...; worker.stop()      # a notebook, whose cells block its loop

One object may be started again after it has ended, and then it is another worker, with another id. An app has at most
one worker in a process at a time, since `app.state` is the state of *the* worker; its slots are what it needs more of.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import weakref
from typing import TYPE_CHECKING, Any

from stillhere.domain.errors import ConfigurationError
from stillhere.embedding.life import Life

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from stillhere.app import App
    from stillhere.embedding.options import EmbeddingOptions
    from stillhere.worker.timeline import Timeline

_busy: weakref.WeakSet[App[Any]] = weakref.WeakSet()
_lock = threading.Lock()


class EmbeddedWorker:
    """See the module; made by `app.worker`, where its options are explained."""

    def __init__(self, app: App[Any], options: EmbeddingOptions) -> None:
        self._app, self._options = app, options
        self._life: Life | None = None
        self._thread: _Thread | None = None

    @property
    def id(self) -> str:
        """The id under which the store and other workers know it now; "" when it has not been started."""
        return "" if self._life is None else self._life.id

    @property
    def running(self) -> int:
        """How many of its jobs run now."""
        return 0 if self._life is None else self._life.running

    async def drain(self) -> None:
        """Take no more jobs, let those that run end within the grace period, and wait for that. Safe to repeat."""
        life = self._started()
        life.drain()
        await life.ended()

    async def wait(self) -> None:
        """Wait until it has ended by itself: `burst=True` ends when the queues are empty."""
        await self._started().ended()

    async def __aenter__(self) -> Self:
        """Start; raises `ConfigurationError` for what has to be mended. A store that is away is waited for."""
        self._take()
        try:
            life = Life(self._app, self._options)
            await life.enter()
        except BaseException:
            self._give_back()
            raise
        self._life = life
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Drain, settle, close. What made the worker itself fail is raised here, unless the block has raised."""
        try:
            await self._started().leave()
        except Exception:
            if error is None:
                raise
        finally:
            self._give_back()

    # ------------------------------------------------------------------------------------------------- in a thread

    def start_in_thread(self) -> None:
        """Run the worker on a loop of its own, in a thread; returns when it works.

        Raises what the start has raised. Handlers run in that thread or in others, never in the caller's.
        """
        if self._thread is not None:
            raise ConfigurationError("This worker runs already; stop() ends it.")
        thread = _Thread(self)
        thread.start()
        thread.started.result()
        self._thread = thread

    def stop(self) -> None:
        """Drain and end what `start_in_thread` has started; nothing if it was not. Raises what it has failed of."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.finish()

    # --------------------------------------------------------------------------------------------------- inside

    def hurry(self, timeline: Timeline) -> None:
        """End by this timeline: for a program of ours, which hears signals."""
        self._started().drain(timeline)

    @property
    def left(self) -> bool:
        """Whether code of its jobs ran on when it ended."""
        return self._life is not None and self._life.left_something

    def _started(self) -> Life:
        if self._life is None:
            raise ConfigurationError("This worker has not been started: async with app.worker() as worker: ...")
        return self._life

    def _take(self) -> None:
        with _lock:
            if self._app in _busy:
                raise ConfigurationError("This app has a worker in this process already: give that one more slots.")
            _busy.add(self._app)

    def _give_back(self) -> None:
        with _lock:
            _busy.discard(self._app)


class _Thread(threading.Thread):
    """The thread of `start_in_thread`."""

    def __init__(self, worker: EmbeddedWorker) -> None:
        super().__init__(name="stillhere-worker", daemon=True)
        self._worker = worker
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told: asyncio.Event | None = None
        self._error: BaseException | None = None
        self.started: concurrent.futures.Future[None] = concurrent.futures.Future()

    def run(self) -> None:
        """The thread's whole life."""
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - raised again where somebody waits for it
            self._error = error
            if not self.started.done():
                self.started.set_exception(error)

    async def _serve(self) -> None:
        self._loop, self._told = asyncio.get_running_loop(), asyncio.Event()
        async with self._worker:
            self.started.set_result(None)
            await self._told.wait()

    def finish(self) -> None:
        """Have it end, and wait for it."""
        if self._loop is not None and self._told is not None and self.is_alive():
            self._loop.call_soon_threadsafe(self._told.set)
        self.join()
        if self._error is not None:
            raise self._error
