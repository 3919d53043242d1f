"""A worker's ear: one connection that waits for news, never for jobs.

It blocks on the wake lists of the worker's queues and on the worker's own lists, where cancels arrive. What it hears is
a hint: an idle worker then claims, and only the claim grants. If a hint is lost with its connection, a poll or the next
beat finds the same; so a dead reader that swallows one costs a moment, not a job (G10).

`want` changes what is listened for in mid wait: the server is told on another connection to end this wait, which either
returns nothing or the news that was there before. Dropping the connection instead could lose a cancel that was already
on its way, so that is done only where the server does not allow this user to end a wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import hiredis

from stillhere.backends.redis.connection import AsyncWire, pack
from stillhere.domain.errors import StoreUnavailable
from stillhere.ports.backend import Hint

if TYPE_CHECKING:
    from stillhere.backends.redis.backend import AsyncRedisStore

_GRACE_S = 2.0
"""How much later than asked the server's answer may come before the connection counts as dead."""
_SHORTEST_S = 0.01
_NUDGE_AGAIN_S = 0.005


class RedisHints:
    """`ports.backend.Hints` on Redis and Valkey."""

    def __init__(self, store: AsyncRedisStore, worker: str, queues: Sequence[str]) -> None:
        self._store = store
        self._cancels = {f"{store.namespace}:{{{queue}}}:ctl:{worker}".encode(): queue for queue in queues}
        self._wakes = {f"{store.namespace}:{{{queue}}}:wake".encode(): queue for queue in queues}
        self._wake = True
        self._wire: AsyncWire | None = None
        self._client_id = 0
        self._waits = 0
        self._is_waiting = False
        self._is_given_up = False
        self._nudge: asyncio.Task[None] | None = None

    def want(self, wake: bool) -> None:  # noqa: FBT001
        """Listen for work too, or only for cancels; at once, also in mid wait."""
        if wake == self._wake:
            return
        self._wake = wake
        if self._is_waiting:
            self._nudge = asyncio.get_running_loop().create_task(self._end_wait(self._waits))

    async def next(self, timeout: float) -> Hint | None:
        """Wait for a hint, at most so many seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            left = max(deadline - loop.time(), _SHORTEST_S)
            news = await self._wait(left)
            if news is not None:
                return self._hint(*news)
            if loop.time() + _SHORTEST_S >= deadline:
                return None

    async def aclose(self) -> None:
        """Close the connection."""
        if self._nudge is not None:
            self._nudge.cancel()
        self._drop()

    async def _wait(self, seconds: float) -> list[bytes] | None:
        """One blocking read; None: no news, or `want` ended it."""
        try:
            async with asyncio.timeout(seconds + _GRACE_S):
                wire = self._wire or await self._connect()
                keys = [
                    *self._cancels,
                    *(self._wakes if self._wake else ()),
                ]  # cancels first: the server looks in order
                self._waits += 1
                self._is_waiting, self._is_given_up = True, False
                reply: Any
                (reply,) = await wire.exchange(pack("BLPOP", *keys, f"{seconds:.3f}"), 1)
        except (OSError, EOFError, hiredis.HiredisError) as error:
            self._drop()
            if self._is_given_up:
                return None
            raise self._store.endpoint.broken(error, seconds + _GRACE_S, sent=True) from None
        except BaseException:
            self._drop()
            raise
        finally:
            self._is_waiting = False
        if isinstance(reply, hiredis.ReplyError):
            raise self._store.endpoint.refused("the wait for hints", reply)
        return reply  # type: ignore[no-any-return]  # a pair of bytes, or None

    async def _connect(self) -> AsyncWire:
        wire = await AsyncWire.open(self._store.endpoint)
        self._wire = wire
        (number,) = await wire.exchange(pack("CLIENT", "ID"), 1)
        self._client_id = number if isinstance(number, int) else 0
        return wire

    async def _end_wait(self, wait: int) -> None:
        """End the wait with this number. It may not have reached the server yet: then ask again."""
        while self._is_waiting and self._waits == wait:
            try:
                reply = await self._store.command("CLIENT", "UNBLOCK", self._client_id)
            except (OSError, EOFError, hiredis.HiredisError, StoreUnavailable) as error:
                reply = error
            if reply == 1:
                return
            if isinstance(reply, Exception) and self._waits == wait:
                self._is_given_up = True
                self._drop()
                return
            await asyncio.sleep(_NUDGE_AGAIN_S)

    def _hint(self, key: bytes, value: bytes) -> Hint:
        if key in self._wakes:
            return Hint(kind="wake", queue=self._wakes[key])
        job, _, token = value.decode("utf-8", "replace").partition(" ")
        return Hint(kind="cancel", queue=self._cancels[key], job=job, token=int(token) if token.isdigit() else None)

    def _drop(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None
