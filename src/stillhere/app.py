"""The app: a program's tasks and its store, in one object that is made at import and connects at first use.

Making an `App` opens nothing, imports no driver and starts no loop; modules can be imported anywhere, by a web server
before it forks, by a worker, by a test. The store is found when the first job is sent: the argument, else
``STILLHERE_URL``, else the embedded one.

A worker imports the modules named in ``include`` (packages with all that is in them), enters the lifespan once per
process, and keeps what it yields in ``app.state`` for the handlers: pools, clients, models. Outside a worker there is
no state, and asking for it says so.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, overload

from stillhere.blueprint import Blueprint, HasTasks
from stillhere.domain.errors import ConfigurationError, WrongDoor
from stillhere.domain.options import check_id, check_name
from stillhere.domain.task import TaskDef, Tasks
from stillhere.link import Link
from stillhere.sender import Sender, Task, loop_is_running

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from typing_extensions import TypeVar as TypeVarWithDefault

    from stillhere.domain.codec import Codec
    from stillhere.domain.durations import Duration
    from stillhere.embedding.worker import EmbeddedWorker
    from stillhere.handle import Handle, NewJob, SyncHandle

    S_co = TypeVarWithDefault("S_co", covariant=True, default=Any)
else:
    S_co = TypeVar("S_co", covariant=True)

R = TypeVar("R")
R1 = TypeVar("R1")
R2 = TypeVar("R2")
R3 = TypeVar("R3")
R4 = TypeVar("R4")

_NOTHING: Any = object()


class App(HasTasks, Generic[S_co]):
    """Tasks and a store."""

    @overload
    def __init__(
        self: App[None],
        url: str | None = None,
        *,
        lifespan: None = None,
        include: Sequence[str] = (),
        namespace: str | None = None,
        codecs: Mapping[type, Codec] | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        url: str | None = None,
        *,
        lifespan: Callable[[], AbstractAsyncContextManager[S_co]],
        include: Sequence[str] = (),
        namespace: str | None = None,
        codecs: Mapping[type, Codec] | None = None,
    ) -> None: ...
    def __init__(
        self,
        url: str | None = None,
        *,
        lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None = None,
        include: Sequence[str] = (),
        namespace: str | None = None,
        codecs: Mapping[type, Codec] | None = None,
    ) -> None:
        """Describe the app; see the class's module for what happens when."""
        if isinstance(include, str):
            raise ConfigurationError(f"include={include!r}: write a list of module names: [{include!r}].")
        self._link = Link(url, namespace)
        self._lifespan = lifespan
        self._modules = tuple(include)
        self._tasks = Tasks(_checked(codecs or {}))
        self._state: Any = _NOTHING

    # ---------------------------------------------------------------------------------------------- what is in it

    @property
    def tasks(self) -> Tasks:
        """All tasks of the app, by name and alias."""
        return self._tasks

    @property
    def link(self) -> Link:
        """The way to the store."""
        return self._link

    def relink(self, link: Link) -> Link:
        """Send through another link from now on, and return the one before: how a test takes the app elsewhere."""
        before, self._link = self._link, link
        return before

    @property
    def url(self) -> str:
        """The store's URL, by the argument, ``STILLHERE_URL`` or the default; with its password, if it has one."""
        return self._link.address.url

    @property
    def namespace(self) -> str:
        """The first part of every key in the store."""
        return self._link.namespace

    def include(self, blueprint: Blueprint) -> None:
        """Take in the tasks of a blueprint, those it will define later too."""
        if not isinstance(blueprint, Blueprint):
            raise ConfigurationError(
                f"app.include takes a Blueprint, not {blueprint!r}; modules go to App(include=[...])."
            )
        blueprint.included_by(self)

    def load(self) -> None:
        """Import the modules of ``App(include=[...])``; a package with everything in it. A worker does this first."""
        for name in self._modules:
            try:
                module = importlib.import_module(name)
            except ModuleNotFoundError as error:
                if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                    raise  # the module is there, and what it imports is not: its own traceback says more
                raise ConfigurationError(f"App(include=[{name!r}]): no module named {error.name!r}.") from None
            for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{name}."):
                importlib.import_module(found.name)

    def sender(self, name: str) -> Sender[..., Any]:
        """Enqueue a task by name that this program may not have; arguments by keyword, as plain JSON values."""
        return Sender(self, check_name("sender", name), self._tasks.get(name), {})

    # -------------------------------------------------------------------------------------------------- in a worker

    @property
    def state(self) -> S_co:
        """What the lifespan yielded; only inside a worker."""
        if self._state is _NOTHING:
            raise ConfigurationError(
                "app.state is there only inside a worker, while the lifespan of App(lifespan=...) runs. "
                "In a test enter it yourself: async with app.lifespan(): ..."
            )
        return cast("S_co", self._state)

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Enter the app's lifespan and keep what it yields in `state`; a worker process does this once."""
        if self._lifespan is None:
            self._state = None
            yield
            return
        async with self._lifespan() as state:
            self._state = state
            try:
                yield
            finally:
                self._state = _NOTHING

    def worker(
        self,
        *,
        queues: Sequence[str] | Mapping[str, int] | None = None,
        slots: int = 20,
        lease: Duration = "30s",
        grace: Duration = "8s",
        long_after: Duration = "10s",
        overflow: int | None = None,
        keeper: Literal["process", "thread"] = "process",
        burst: bool = False,
        name: str = "",
    ) -> EmbeddedWorker:
        """Make a worker for this very process: ``async with app.worker(slots=4) as worker: ...``.

        It runs the app's jobs on the loop of the block (`def` tasks in threads of its own) until the block is left,
        which takes up to `grace`; nothing is left behind then. `queues`: all of the app's tasks, unless named, with
        weights if given as a mapping. `overflow` places (as many as slots) take over jobs that run longer than
        `long_after` (0: never). `burst`: end when the queues are empty; see `EmbeddedWorker.wait`.

        A job whose thread is in a call that cannot be cut short outlives the block: its lease is kept while it runs,
        so that nobody runs it a second time beside it, and it is handed over when this process ends.

        ``keeper="process"`` starts a small process beside this one, which keeps the lease while a handler holds the
        GIL, and releases the jobs within a second when this process is killed. ``"thread"`` does without: a held GIL
        then costs the lease, and a killed host is noticed after 1.3 leases.

        Raises `ConfigurationError` for options that cannot be, here or when the block is entered.
        """
        from stillhere.embedding.options import EmbeddingOptions  # noqa: PLC0415 - only a worker needs all of this
        from stillhere.embedding.worker import EmbeddedWorker  # noqa: PLC0415 - as above

        options = EmbeddingOptions.checked(
            queues=queues,
            slots=slots,
            lease=lease,
            grace=grace,
            long_after=long_after,
            overflow=overflow,
            keeper=keeper,
            burst=burst,
            name=name,
        )
        return EmbeddedWorker(self, options)

    # ---------------------------------------------------------------------------------------------- jobs in numbers

    @overload
    def enqueue_many(self, jobs: Iterable[NewJob[R]]) -> Coroutine[Any, Any, list[Handle[R]]]: ...
    @overload
    def enqueue_many(self, jobs: Iterable[NewJob[Any]]) -> Coroutine[Any, Any, list[Handle[Any]]]: ...
    def enqueue_many(self, jobs: Iterable[NewJob[Any]]) -> Coroutine[Any, Any, list[Handle[Any]]]:
        """Send prepared jobs in a few round trips; handles in the same order.

        A hundred jobs at a time are stored whole or not at all. After an error the same list may be sent again: what
        is there already makes no second job.
        """
        if not loop_is_running():
            raise WrongDoor(
                "app.enqueue_many() was called without a running event loop, so nothing was sent. "
                "Use app.enqueue_many_sync(...) here."
            )
        from stillhere.sending import own_jobs, send_many  # noqa: PLC0415 - msgspec comes with the first job

        coroutine: Any = send_many(self._link, own_jobs(self._link, jobs))
        coroutine.__qualname__ = "app.enqueue_many"
        return cast("Coroutine[Any, Any, list[Handle[Any]]]", coroutine)

    def enqueue_many_sync(self, jobs: Iterable[NewJob[R]]) -> list[SyncHandle[R]]:
        """As `enqueue_many`, blocking."""
        if loop_is_running():
            raise WrongDoor(
                "app.enqueue_many_sync() was called inside a running event loop, which it would block; "
                "nothing was sent. Use await app.enqueue_many(...) here."
            )
        from stillhere.sending import own_jobs, send_many_sync  # noqa: PLC0415 - as above

        return send_many_sync(self._link, own_jobs(self._link, jobs))

    @overload
    def handle(self, id: str) -> Handle[Any]: ...
    @overload
    def handle(self, id: str, task: Task[..., R]) -> Handle[R]: ...
    def handle(self, id: str, task: Task[..., Any] | None = None) -> Handle[Any]:
        """A handle on a job by its id; with its task the result is decoded by the task's annotation."""
        from stillhere.handle import Handle  # noqa: PLC0415 - as above

        return Handle(self._link, check_id("id", id), task=None if task is None else task.definition)

    @overload
    def handle_sync(self, id: str) -> SyncHandle[Any]: ...
    @overload
    def handle_sync(self, id: str, task: Task[..., R]) -> SyncHandle[R]: ...
    def handle_sync(self, id: str, task: Task[..., Any] | None = None) -> SyncHandle[Any]:
        """As `handle`, for code that blocks."""
        from stillhere.handle import SyncHandle  # noqa: PLC0415 - as above

        return SyncHandle(self._link, check_id("id", id), task=None if task is None else task.definition)

    async def dead(self, *, queue: str | None = None, task: str | None = None, limit: int = 100) -> list[Handle[Any]]:
        """Dead letters, of all queues unless one is named: each handle has `info`, `retry` and `purge`."""
        from stillhere.handle import Handle, find_dead  # noqa: PLC0415 - as above

        found = await self._link.run(find_dead(queue, task, limit))
        return [Handle(self._link, job, queue=name) for job, name in found]

    def dead_sync(
        self, *, queue: str | None = None, task: str | None = None, limit: int = 100
    ) -> list[SyncHandle[Any]]:
        """As `dead`, for code that blocks."""
        from stillhere.handle import SyncHandle, find_dead  # noqa: PLC0415 - as above

        found = self._link.run_sync(find_dead(queue, task, limit))
        return [SyncHandle(self._link, job, queue=name) for job, name in found]

    @overload
    def gather(self, a: Handle[R1], /) -> Coroutine[Any, Any, tuple[R1]]: ...
    @overload
    def gather(self, a: Handle[R1], b: Handle[R2], /) -> Coroutine[Any, Any, tuple[R1, R2]]: ...
    @overload
    def gather(self, a: Handle[R1], b: Handle[R2], c: Handle[R3], /) -> Coroutine[Any, Any, tuple[R1, R2, R3]]: ...
    @overload
    def gather(
        self, a: Handle[R1], b: Handle[R2], c: Handle[R3], d: Handle[R4], /
    ) -> Coroutine[Any, Any, tuple[R1, R2, R3, R4]]: ...
    @overload
    def gather(
        self, a: Handle[R], b: Handle[R], c: Handle[R], d: Handle[R], e: Handle[R], /, *rest: Handle[R]
    ) -> Coroutine[Any, Any, list[R]]: ...
    async def gather(self, *handles: Handle[Any]) -> Any:
        """Wait for all of these jobs and return their results in order; the first failure is raised at once."""
        import asyncio  # noqa: PLC0415 - the loop is there already, the import of this module must not need it

        waiting = [asyncio.ensure_future(handle.result()) for handle in handles]
        try:
            results = await asyncio.gather(*waiting)
        finally:
            for task in waiting:
                task.cancel()
        return tuple(results) if len(results) <= 4 else results

    # ---------------------------------------------------------------------------------------------------- its end

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._link.aclose()

    def close(self) -> None:
        """Close the blocking client of this process; the next use opens a new one."""
        self._link.close()

    def _add(self, definition: TaskDef) -> None:
        self._tasks.add(definition)

    def __repr__(self) -> str:
        return f"<App with {len(self._tasks)} tasks>"


def _checked(codecs: Mapping[type, Codec]) -> Mapping[type, Codec]:
    for kind, codec in codecs.items():
        pair = isinstance(codec, tuple) and len(codec) == 2 and all(map(callable, codec))
        if not isinstance(kind, type) or not pair:
            raise ConfigurationError(f"codecs={{{kind!r}: {codec!r}}}: write {{Path: (str, Path)}}: to JSON, and back.")
    return codecs
