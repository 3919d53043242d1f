"""The store on Redis and Valkey: a verb becomes one script call, a list of verbs one round trip.

All decisions are in the scripts; here is only the way there. Both stores, for asyncio and for threads, share the same
`_Batch`, which knows what to send and what the replies mean; they differ in how they wait.

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

from stillhere.backends.redis.connection import AsyncWire, Endpoint, SyncWire, pack
from stillhere.backends.redis.hints import RedisHints
from stillhere.backends.redis.scripts import SCRIPTS, Script, Scripts
from stillhere.backends.redis.verbs import Codec
from stillhere.domain.errors import StoreUnavailable
from stillhere.ports.backend import Enqueue, Hints, Register, Verb

R = TypeVar("R")
Clock = Callable[[], int]

DEFAULT_TIMEOUT_S = 5.0
MOST_CONNECTIONS = 32
"""Of one asyncio store; further calls wait for a free one, within their own deadline."""


class _Batch:
    """Verbs that travel together."""

    def __init__(self, store: _Store, verbs: Sequence[Verb[Any]]) -> None:
        self._store = store
        self._codecs = [store.codec(type(verb)) for verb in verbs]
        now = None if store.clock is None else store.clock()
        self._calls = [
            pack("EVALSHA", codec.script.sha, *codec.arguments(verb, store.namespace, now))
            for codec, verb in zip(self._codecs, verbs, strict=True)
        ]
        self._new_queues = store.unannounced(verbs)
        extra = [pack("SADD", f"{store.namespace}:queues", *self._new_queues)] if self._new_queues else []
        self.packed = b"".join([*self._calls, *extra])
        self.count = len(self._calls) + len(extra)
        self._replies: list[Any] = []

    def take(self, replies: list[Any]) -> None:
        """Note the replies to `packed`."""
        self._replies = replies[: len(self._calls)]
        if self._new_queues and isinstance(replies[-1], int):
            self._store.announced.update(self._new_queues)

    def repeat(self) -> tuple[bytes, int] | None:
        """Load the scripts that the server did not know, and what to send again; None: nothing."""
        self._again = [i for i, reply in enumerate(self._replies) if _is_noscript(reply)]
        if not self._again:
            return None
        scripts: dict[bytes, Script] = {self._codecs[i].script.sha: self._codecs[i].script for i in self._again}
        loads = [pack("SCRIPT", "LOAD", script.text) for script in scripts.values()]
        self._loads = len(loads)
        return b"".join([*loads, *(self._calls[i] for i in self._again)]), self._loads + len(self._again)

    def take_again(self, replies: list[Any]) -> None:
        """Note the replies to `repeat`; where the server would not load a script, its reason."""
        failed = next((reply for reply in replies[: self._loads] if isinstance(reply, hiredis.ReplyError)), None)
        for i, reply in zip(self._again, replies[self._loads :], strict=True):
            self._replies[i] = failed if failed is not None and _is_noscript(reply) else reply

    def results(self) -> list[Any]:
        """The verbs' replies; raises the first error."""
        for codec, reply in zip(self._codecs, self._replies, strict=True):
            if isinstance(reply, hiredis.ReplyError):
                raise self._store.endpoint.refused(codec.script.stem, reply)
        return [codec.reply(reply) for codec, reply in zip(self._codecs, self._replies, strict=True)]


def _is_noscript(reply: object) -> bool:
    return isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOSCRIPT")


class _Store:
    """What both stores have."""

    def __init__(
        self, endpoint: Endpoint, namespace: str, *, clock: Clock | None = None, scripts: Scripts = SCRIPTS
    ) -> None:
        """Nothing is reached yet. `clock` (ms) and `scripts` are for tests."""
        self.endpoint = endpoint
        self.namespace = namespace
        self.clock = clock
        self.announced: set[str] = set()
        self._scripts = scripts
        self._codecs: dict[type[Verb[Any]], Codec[Any]] = {}

    def codec(self, verb: type[Verb[Any]]) -> Codec[Any]:
        """The codec of a class of verbs, made once."""
        codec = self._codecs.get(verb)
        if codec is None:
            codec = self._codecs[verb] = Codec(verb, self._scripts)
        return codec

    def unannounced(self, verbs: Sequence[Verb[Any]]) -> list[str]:
        """Queues that this process is about to use and has not put on the namespace's list."""
        users = {verb.queue for verb in verbs if isinstance(verb, (Enqueue, Register))}
        return sorted(users - self.announced)


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
        batch = _Batch(self, verbs)
        wire = self._wire(deadline)
        try:
            batch.take(wire.exchange(batch.packed, batch.count, deadline))
            if again := batch.repeat():
                batch.take_again(wire.exchange(*again, deadline))
        except (OSError, EOFError, hiredis.HiredisError) as error:
            wire.close()
            raise self.endpoint.broken(error, timeout, sent=True) from None
        except BaseException:
            wire.close()
            raise
        self._give_back(wire)
        return cast("list[R]", batch.results())

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
        batch = _Batch(self, verbs)
        await self._run(batch, DEFAULT_TIMEOUT_S if timeout is None else timeout)
        return cast("list[R]", batch.results())

    async def _run(self, batch: _Batch, timeout: float) -> None:
        wire: AsyncWire | None = None
        try:
            async with asyncio.timeout(timeout), self._places:
                wire = await self._wire()
                batch.take(await wire.exchange(batch.packed, batch.count))
                if again := batch.repeat():
                    batch.take_again(await wire.exchange(*again))
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
