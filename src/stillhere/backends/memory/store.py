"""The two faces of the store in memory, and the ear of a worker.

A URL's name and a namespace are one `Space`, shared by all who open it in this process. One lock stands around each
verb, so a verb is atomic; nothing in a verb waits, so no call can outlast its deadline, and `timeout` has no work here.

Hints cross threads: a verb may run in any of them, and whoever listens is told on its own event loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from stillhere.backends.memory import inspector, producer, supervisor, worker
from stillhere.backends.memory.audit import audit
from stillhere.backends.memory.claim import claim
from stillhere.backends.memory.model import Queue
from stillhere.backends.memory.moves import Turn
from stillhere.domain.errors import StoreUnavailable
from stillhere.ports.backend import (
    Beat,
    Cancel,
    Checkpoint,
    Claim,
    End,
    Enqueue,
    Hint,
    Hints,
    Lengthen,
    Look,
    Progress,
    Register,
    Renew,
    Retry,
    Settle,
    Sweep,
    Tick,
    Verb,
)
from stillhere.ports.inspector import Answer, Answered, Ask, Audit, Jobs, Pause, Purge, Queues, Status, Workers

R = TypeVar("R")
Clock = Callable[[], int]

_WRITES: dict[type[Verb[Any]], Callable[[Turn, Any], Any]] = {
    Enqueue: producer.enqueue,
    Cancel: producer.cancel,
    Retry: producer.retry,
    Register: worker.register,
    Claim: claim,
    Beat: worker.beat,
    Settle: worker.settle,
    Lengthen: worker.lengthen,
    Checkpoint: worker.checkpoint,
    Progress: worker.progress,
    Renew: supervisor.renew,
    Tick: supervisor.tick,
    Sweep: supervisor.sweep,
    End: supervisor.end,
    Answer: supervisor.answer,
    Ask: inspector.ask,
    Pause: inspector.pause,
    Purge: inspector.purge,
}
_READS: dict[type[Verb[Any]], Callable[[Turn, Any], Any]] = {
    Look: producer.look,
    Jobs: inspector.jobs,
    Status: inspector.status,
    Workers: inspector.workers,
    Answered: inspector.answered,
    Audit: audit,
}


class Space:
    """All queues of one namespace."""

    def __init__(self) -> None:
        self.aged_ms = 0
        """How much older what is kept for a while was made by a test."""
        self._lock = threading.Lock()
        self._queues: dict[str, Queue] = {}
        self._ears: set[MemoryHints] = set()

    def run(self, verb: Verb[Any], clock: Clock | None) -> Any:
        """Run one verb."""
        with self._lock:
            micros = time.time_ns() // 1_000 if clock is None else clock() * 1_000
            if isinstance(verb, Queues):
                return sorted(name for name, queue in self._queues.items() if queue.is_announced)
            reads = type(verb) in _READS
            turn = Turn(self.queue(verb.queue), micros, reads=reads)
            reply = (_READS if reads else _WRITES)[type(verb)](turn, verb)
            turn.wake()
            ears = [] if reads else list(self._ears)
        for ear in ears:
            ear.nudge()
        return reply

    def queue(self, name: str) -> Queue:
        """The queue of this name, which is there as soon as somebody asks for it."""
        if name not in self._queues:
            self._queues[name] = Queue(name, self._own_clock)
        return self._queues[name]

    def _own_clock(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self.aged_ms

    def listen(self, ear: MemoryHints) -> None:
        """Tell this ear whenever there may be news."""
        with self._lock:
            self._ears.add(ear)

    def ignore(self, ear: MemoryHints) -> None:
        """Tell it no more."""
        with self._lock:
            self._ears.discard(ear)

    def take_hint(self, worker: str, queues: Sequence[str], *, wake: bool) -> Hint | None:
        """The next news for a worker, cancels first; nobody else gets it."""
        with self._lock:
            asked = [self.queue(name) for name in queues]
            for queue in asked:
                if heard := queue.cancels.get(worker):
                    return heard.popleft()
            for queue in asked if wake else ():
                if queue.wakes:
                    queue.wakes -= 1
                    return Hint(kind="wake", queue=queue.name)
        return None


_SPACES: dict[tuple[str, str], Space] = {}
_SPACES_LOCK = threading.Lock()


def space_of(url: str, namespace: str) -> Space:
    """The space that all stores of this URL and namespace share in this process."""
    with _SPACES_LOCK:
        return _SPACES.setdefault((url, namespace), Space())


def forget(url: str, namespace: str) -> None:
    """Let a space go, with all that is in it, once the last store that is open on it goes."""
    with _SPACES_LOCK:
        _SPACES.pop((url, namespace), None)


def open_memory_sync(url: str, namespace: str, *, clock: Clock | None = None) -> SyncMemoryStore:
    """A store for blocking calls; `clock` (ms) stands in for the store's own."""
    return SyncMemoryStore(space_of(url, namespace), clock)


def open_memory_async(url: str, namespace: str, *, clock: Clock | None = None) -> AsyncMemoryStore:
    """A store for asyncio, as `open_memory_sync`."""
    return AsyncMemoryStore(space_of(url, namespace), clock)


class _Store:
    def __init__(self, space: Space, clock: Clock | None) -> None:
        self._space = space
        self._clock = clock
        self._closed = False

    def _run(self, verb: Verb[R]) -> R:
        if self._closed:
            raise StoreUnavailable("The store in memory was closed.", sent=False)
        return cast("R", self._space.run(verb, self._clock))


class SyncMemoryStore(_Store):
    """`ports.backend.SyncStore` in memory; safe to use from several threads."""

    def call(self, verb: Verb[R], *, timeout: float | None = None) -> R:
        """Run one verb."""
        del timeout
        return self._run(verb)

    def call_many(self, verbs: Sequence[Verb[R]], *, timeout: float | None = None) -> list[R]:
        """Run verbs one after the other."""
        del timeout
        return [self._run(verb) for verb in verbs]

    def close(self) -> None:
        """Refuse further calls; what is stored stays."""
        self._closed = True


class AsyncMemoryStore(_Store):
    """`ports.backend.AsyncStore` in memory; each call lets the event loop turn once, as one over a wire would."""

    async def call(self, verb: Verb[R], *, timeout: float | None = None) -> R:
        """Run one verb."""
        del timeout
        await asyncio.sleep(0)
        return self._run(verb)

    async def call_many(self, verbs: Sequence[Verb[R]], *, timeout: float | None = None) -> list[R]:
        """Run verbs one after the other."""
        del timeout
        await asyncio.sleep(0)
        return [self._run(verb) for verb in verbs]

    def hints(self, worker: str, queues: Sequence[str]) -> Hints:
        """Open the ear of a worker."""
        return MemoryHints(self._space, worker, queues)

    async def aclose(self) -> None:
        """Refuse further calls; what is stored stays."""
        self._closed = True


class MemoryHints:
    """`ports.backend.Hints` in memory."""

    def __init__(self, space: Space, worker: str, queues: Sequence[str]) -> None:
        self._space = space
        self._worker = worker
        self._queues = list(queues)
        self._wake = True
        self._news = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def want(self, wake: bool) -> None:  # noqa: FBT001 - as the port has it
        """Listen for work too, or only for cancels; at once, also in mid wait."""
        self._wake = wake
        self._news.set()

    async def next(self, timeout: float) -> Hint | None:
        """Wait for a hint, at most so many seconds."""
        self._loop = asyncio.get_running_loop()
        self._space.listen(self)
        try:
            async with asyncio.timeout(timeout):
                while True:
                    self._news.clear()  # first: what comes between this line and the wait sets it again
                    hint = self._space.take_hint(self._worker, self._queues, wake=self._wake)
                    if hint is not None:
                        return hint
                    await self._news.wait()
        except TimeoutError:
            return None

    async def aclose(self) -> None:
        """Listen no more."""
        self._space.ignore(self)

    def nudge(self) -> None:
        """There may be news; called in any thread."""
        if self._loop is None or self._loop.is_closed():
            return
        try:
            self._loop.call_soon_threadsafe(self._news.set)
        except RuntimeError:  # the loop was closed between the two lines; so nobody waits
            self._space.ignore(self)
