"""What the worker child's tests share: a store that answers as it is told, tasks, grants, and waiting without sleeping.

`FakeStore` maps a class of verbs to a function of the verb; the function may be a coroutine function (then the reply
waits for whatever the test decides), may raise, or may be replaced in mid test. Both faces, for the loop and for
threads, share one list of what was asked.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from stillhere.domain.errors import StoreUnavailable
from stillhere.domain.job import Grant
from stillhere.domain.options import TaskOptions
from stillhere.domain.task import TaskDef, Tasks
from stillhere.ports.backend import (
    Beat,
    BeatReply,
    Checkpoint,
    Claim,
    Claimed,
    End,
    Ended,
    Hint,
    Progress,
    Register,
    Settle,
    SettledOne,
)
from stillhere.worker.board import Board
from stillhere.worker.child.identity import Identity
from stillhere.worker.child.runs import Holdings, Run
from stillhere.worker.clock import boottime_ns

R = TypeVar("R")

LEASE_MS = 2_000
AWAY = StoreUnavailable("the store is away")


class FakeStore:
    """See the module. By default everything goes well and there is no work."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.trips: list[list[Any]] = []
        """Each round trip with its verbs."""
        self.reply: dict[type, Callable[[Any], Any]] = {
            Register: lambda _: "ok",
            Claim: lambda _: Claimed(standing="ok"),
            Beat: lambda _: BeatReply(standing="ok"),
            Settle: lambda verb: [SettledOne(status="ok") for _ in verb.outcomes],
            Checkpoint: lambda _: "ok",
            Progress: lambda verb: ["ok" for _ in verb.items],
            End: lambda _: Ended(status="ended"),
        }

    def of(self, kind: type[R]) -> list[R]:
        """The verbs of one class, in the order in which they were asked."""
        return [verb for verb in self.asked if type(verb) is kind]

    def note(self, verbs: Sequence[Any]) -> None:
        """Remember a round trip."""
        self.trips.append(list(verbs))
        self.asked += verbs


class AsyncFace:
    """`AsyncStore` on a `FakeStore`."""

    def __init__(self, store: FakeStore) -> None:
        self.store = store
        self.ears: list[FakeHints] = []

    async def call(self, verb: Any, *, timeout: float | None = None) -> Any:
        return (await self.call_many([verb], timeout=timeout))[0]

    async def call_many(self, verbs: Sequence[Any], *, timeout: float | None = None) -> list[Any]:
        self.store.note(verbs)
        try:
            async with asyncio.timeout(timeout):
                return [await self._answer(verb) for verb in verbs]
        except TimeoutError:
            raise StoreUnavailable("no answer in time") from None

    async def _answer(self, verb: Any) -> Any:
        answer = self.store.reply[type(verb)](verb)
        return await answer if inspect.isawaitable(answer) else answer

    def hints(self, worker: str, queues: Sequence[str]) -> FakeHints:
        self.ears.append(FakeHints(worker, queues))
        return self.ears[-1]

    async def aclose(self) -> None:
        """Nothing is open."""


class SyncFace:
    """`SyncStore` on a `FakeStore`; functions only, called in whatever thread calls."""

    def __init__(self, store: FakeStore) -> None:
        self.store = store

    def call(self, verb: Any, *, timeout: float | None = None) -> Any:
        return self.call_many([verb], timeout=timeout)[0]

    def call_many(self, verbs: Sequence[Any], *, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "a worker bounds each of its calls"
        self.store.note(verbs)
        return [self.store.reply[type(verb)](verb) for verb in verbs]

    def close(self) -> None:
        """Nothing is open."""


class FakeHints:
    """`Hints` that a test feeds: hints, or exceptions to raise."""

    def __init__(self, worker: str, queues: Sequence[str]) -> None:
        self.worker, self.queues = worker, list(queues)
        self.feed: asyncio.Queue[Hint | Exception | None] = asyncio.Queue()
        self.wants: list[bool] = []
        self.closed = False

    def want(self, wake: bool) -> None:
        self.wants.append(wake)

    async def next(self, timeout: float) -> Hint | None:
        news = await self.feed.get()
        if isinstance(news, Exception):
            raise news
        return news

    async def aclose(self) -> None:
        self.closed = True


class NoHost:
    """The host of runs whose handlers want nothing."""

    def in_doubt(self) -> bool:
        return False

    def note_progress(self, run: Run, done: float, total: float | None, note: str) -> None:
        raise AssertionError("not expected")

    async def checkpoint(self, run: Run, value: object) -> None:
        raise AssertionError("not expected")

    def checkpoint_sync(self, run: Run, value: object) -> None:
        raise AssertionError("not expected")

    def log(self, run: Run, line: str) -> None:
        raise AssertionError("not expected")


def grant(id: str = "j1", *, queue: str = "q", token: int = 1, task: str = "t", **fields: Any) -> Grant:
    """A grant as a claim brings it."""
    known: dict[str, Any] = {"id": id, "queue": queue, "token": token, "task": task, "args": "{}"}
    return Grant(**known | fields)


def task_of(fn: Callable[..., Any], **options: Any) -> TaskDef:
    """A task made of this function, in a registry of its own."""
    given: TaskOptions = options  # type: ignore[assignment]  # the test knows the options
    definition = TaskDef(fn, given)
    Tasks().add(definition)
    return definition


def tasks_named(*names: str) -> Tasks:
    """A registry of tasks that do nothing."""
    tasks = Tasks()
    for name in names:
        tasks.add(TaskDef(nothing, {"name": name}))
    return tasks


async def nothing() -> None:
    """Do it."""


def run_of(fn: Callable[..., Any] = nothing, *, host: Any = None, slot: int = 0, **fields: Any) -> Run:
    """A run of this function that is in no book."""
    definition = task_of(fn)
    return Run(grant(**({"task": definition.name} | fields)), definition, host or NoHost(), slot)


class Desk:
    """A board, an identity and a book, trusted as of now: what most parts need."""

    def __init__(self, *queues: str, slots: int = 300, lease_ms: int = LEASE_MS) -> None:
        self.board = Board.create(slots)
        self.identity = Identity(self.board, lease_ms)
        self.identity.confirm(boottime_ns())
        self.holdings = Holdings(queues or ("q",), self.board)

    def take(self, granted: Grant | None = None, fn: Callable[..., Any] = nothing, host: Any = None) -> Run:
        """Put a grant into the book."""
        return self.holdings.add(granted or grant(), task_of(fn), host or NoHost())


async def soon(condition: Callable[[], object], *, within: float = 5.0) -> None:
    """Let the loop turn until this is so."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 - a look at each turn of the loop, at whatever the test asks
            await asyncio.sleep(0)


class Gate:
    """A reply that waits: `await gate(...)` in a reply function; `waiting` counts who stands there."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self.waiting = 0

    def open(self) -> None:
        self._open.set()

    def holds(self, reply: Callable[[Any], Any]) -> Callable[[Any], Coroutine[Any, Any, Any]]:
        """The same reply, behind this gate."""

        async def wait(verb: Any) -> Any:
            self.waiting += 1
            await self._open.wait()
            return reply(verb)

        return wait
