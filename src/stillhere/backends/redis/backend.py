"""The store on Redis and Valkey: a verb becomes one script call, a list of verbs one round trip.

All decisions are in the scripts; here is only the way there. Both stores, for asyncio and for threads, send the same
`Batch`; they differ in how they wait.

What may go wrong between two lines. Before anything was sent: the caller hears that nothing happened. After that,
until the reply is read: the verb may have run or not, and the caller may send the same verb again, because every verb
is safe when it runs twice (G12); this module never does so by itself. The one exception is NOSCRIPT: the server says
that it did not know the script and ran nothing.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import hiredis

from stillhere.backends.redis.batch import Batch
from stillhere.backends.redis.connection import AsyncWire, Endpoint, SyncWire, pack
from stillhere.backends.redis.hints import RedisHints
from stillhere.backends.redis.scripts import SCRIPTS, Scripts
from stillhere.backends.redis.verbs import Codec
from stillhere.domain.errors import StoreUnavailable
from stillhere.ports.backend import Enqueue, Hints, Register, Verb

R = TypeVar("R")
Clock = Callable[[], int]

DEFAULT_TIMEOUT_S = 5.0
MOST_CONNECTIONS = 32
"""Of one asyncio store; further calls wait for a free one, within their own deadline."""


class _Store:
    """What both stores have."""

    def __init__(
        self, endpoint: Endpoint, namespace: str, *, clock: Clock | None = None, scripts: Scripts = SCRIPTS
    ) -> None:
        """Nothing is reached yet. `clock` (ms) and `scripts` are for tests."""
        self.endpoint = endpoint
        self.namespace = namespace
        self.clock = clock
        self._announced: set[str] = set()
        self._scripts = scripts
        self._codecs: dict[type[Verb[Any]], Codec[Any]] = {}

    def _codec(self, verb: type[Verb[Any]]) -> Codec[Any]:
        codec = self._codecs.get(verb)
        if codec is None:
            codec = self._codecs[verb] = Codec(verb, self._scripts)
        return codec

    def batch(self, verbs: Sequence[Verb[Any]]) -> Batch:
        """Verbs, ready to be sent.

        A producer puts its queues on the namespace's list once; a worker each time it registers, since it does that
        anew when the store has lost its data.
        """
        queues = {verb.queue for verb in verbs if isinstance(verb, Enqueue)} - self._announced
        queues |= {verb.queue for verb in verbs if isinstance(verb, Register)}
        now = None if self.clock is None else self.clock()
        return Batch(self.namespace, verbs, [self._codec(type(verb)) for verb in verbs], now, sorted(queues))

    def results(self, verbs: Sequence[Verb[R]], batch: Batch) -> list[R]:
        """The replies to a batch that has been sent."""
        if batch.announced:
            self._announced.update(verb.queue for verb in verbs)
        return cast("list[R]", batch.results(self.endpoint))


class SyncRedisStore(_Store):
    """`ports.backend.SyncStore` on Redis and Valkey."""

    def __init__(
        self, endpoint: Endpoint, namespace: str, *, clock: Clock | None = None, scripts: Scripts = SCRIPTS
    ) -> None:
        super().__init__(endpoint, namespace, clock=clock, scripts=scripts)
        self._idle: list[SyncWire] = []
        self._lock = threading.Lock()
        self._closed = False

    def call(self, verb: Verb[R], *, timeout: float | None = None) -> R:
        """Run one verb."""
        return self.call_many([verb], timeout=timeout)[0]

    def call_many(self, verbs: Sequence[Verb[R]], *, timeout: float | None = None) -> list[R]:
        """Run verbs in one round trip."""
        if not verbs:
            return []
        timeout = DEFAULT_TIMEOUT_S if timeout is None else timeout
        deadline = time.monotonic() + timeout
        batch = self.batch(verbs)
        wire = self._wire(deadline)
        try:
            while (request := batch.request(wire.known)) is not None:
                batch.take(wire.exchange(*request, deadline), wire.known)
        except (OSError, EOFError, hiredis.HiredisError) as error:
            wire.close()
            raise self.endpoint.broken(error, timeout, sent=True) from None
        except BaseException:
            wire.close()
            raise
        self._give_back(wire)
        return self.results(verbs, batch)

    def close(self) -> None:
        """Close all connections; those in use when their call ends."""
        with self._lock:
            self._closed = True
            wires, self._idle = self._idle, []
        for wire in wires:
            wire.close()
        self.endpoint.release()

    def _wire(self, deadline: float) -> SyncWire:
        """One that is alive: the one used last, or a new one."""
        while True:
            with self._lock:
                if self._closed:
                    raise StoreUnavailable(f"The connection to {self.endpoint.shown} was closed.", sent=False)
                wire = self._idle.pop() if self._idle else None
            if wire is None:
                return SyncWire(self.endpoint, deadline)
            if not wire.stale:
                return wire
            wire.close()

    def _give_back(self, wire: SyncWire) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(wire)
                return
        wire.close()


class AsyncRedisStore(_Store):
    """`ports.backend.AsyncStore` on Redis and Valkey; it belongs to the event loop that first uses it."""

    def __init__(
        self, endpoint: Endpoint, namespace: str, *, clock: Clock | None = None, scripts: Scripts = SCRIPTS
    ) -> None:
        super().__init__(endpoint, namespace, clock=clock, scripts=scripts)
        self._idle: list[AsyncWire] = []
        self._places = asyncio.Semaphore(MOST_CONNECTIONS)
        self._closed = False

    async def call(self, verb: Verb[R], *, timeout: float | None = None) -> R:
        """Run one verb."""
        return (await self.call_many([verb], timeout=timeout))[0]

    async def call_many(self, verbs: Sequence[Verb[R]], *, timeout: float | None = None) -> list[R]:
        """Run verbs in one round trip."""
        if not verbs:
            return []
        batch = self.batch(verbs)
        await self._run(batch, DEFAULT_TIMEOUT_S if timeout is None else timeout)
        return self.results(verbs, batch)

    async def _run(self, batch: Batch, timeout: float) -> None:
        wire: AsyncWire | None = None
        try:
            async with asyncio.timeout(timeout), self._places:
                wire = await self._wire()
                while (request := batch.request(wire.known)) is not None:
                    batch.take(await wire.exchange(*request), wire.known)
                self._give_back(wire)
        except (OSError, EOFError, hiredis.HiredisError) as error:
            if wire is not None:
                wire.close()
            raise self.endpoint.broken(error, timeout, sent=wire is not None) from None
        except BaseException:
            if wire is not None:
                wire.close()
            raise

    def hints(self, worker: str, queues: Sequence[str]) -> Hints:
        """Open the ear of a worker."""
        return RedisHints(self, worker, queues)

    async def command(self, *words: str | int, timeout: float = DEFAULT_TIMEOUT_S) -> Any:
        """Send one plain command, for `hints`; an error of the server is returned, not raised."""
        async with asyncio.timeout(timeout), self._places:
            wire = await self._wire()
            try:
                (reply,) = await wire.exchange(pack(*words), 1)
            except BaseException:
                wire.close()
                raise
            self._give_back(wire)
        return reply

    async def aclose(self) -> None:
        """Close all connections; those in use when their call ends."""
        self._closed = True
        wires, self._idle = self._idle, []
        for wire in wires:
            wire.close()
        self.endpoint.release()
        await asyncio.sleep(0)  # the transports say goodbye on the next turn of the loop

    async def _wire(self) -> AsyncWire:
        if self._closed:
            raise StoreUnavailable(f"The connection to {self.endpoint.shown} was closed.", sent=False)
        while self._idle:
            wire = self._idle.pop()
            if not wire.stale:
                return wire
            wire.close()
        return await AsyncWire.open(self.endpoint)

    def _give_back(self, wire: AsyncWire) -> None:
        if self._closed:
            wire.close()
        else:
            self._idle.append(wire)
