"""The ear of a worker: wakes and cancels arrive, `want` acts in mid wait, and losing the connection loses no job."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from stillhere.backends.redis.backend import AsyncRedisStore
from stillhere.backends.redis.connection import Endpoint
from stillhere.domain.errors import StoreUnavailable
from stillhere.domain.job import Grant, NewRecord
from stillhere.ports.backend import Cancel, Claim, Enqueue, Hint, Hints, Register
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer

LONG = 30.0
"""A wait that ends only because something came."""


@pytest.fixture
async def store(redis_server: RedisServer, namespace: str) -> AsyncIterator[AsyncRedisStore]:
    store = AsyncRedisStore(Endpoint(redis_server.url), namespace)
    await store.call(Register(queue="q", worker="w", lease_ms=30_000, tasks=["t"]))
    yield store
    await store.aclose()


@pytest.fixture
async def ear(store: AsyncRedisStore) -> AsyncIterator[Hints]:
    ear = store.hints("w", ["q", "other"])
    yield ear
    await ear.aclose()


async def add(store: AsyncRedisStore, job: str, queue: str = "q") -> None:
    await store.call(Enqueue(queue=queue, jobs=[NewRecord(id=job, task="t", queue=queue, args="{}")]))


async def take(store: AsyncRedisStore, n: int = 1) -> list[Grant]:
    return (await store.call(Claim(queue="q", worker="w", n=n, slots=10))).jobs


async def blocked(server: RedisServer) -> None:
    """Let the loop run until a client is blocked on the server."""
    client = server.client()
    for _ in range(2_000):
        if client.info("clients")["blocked_clients"]:
            return
        await asyncio.sleep(0.002)
    raise AssertionError("nobody waits")


async def test_g10_new_work_wakes(store: AsyncRedisStore, ear: Hints, redis_server: RedisServer) -> None:
    waiting = asyncio.create_task(ear.next(LONG))
    await blocked(redis_server)
    await add(store, "a", "other")
    assert await waiting == Hint(kind="wake", queue="other")


async def test_nothing_comes(ear: Hints) -> None:
    assert await ear.next(0.05) is None
    assert await ear.next(0) is None


async def test_g8_a_cancel_names_the_grant(store: AsyncRedisStore, ear: Hints) -> None:
    ear.want(wake=False)
    await add(store, "a")
    (grant,) = await take(store)
    await store.call(Cancel(queue="q", job="a"))
    assert await ear.next(LONG) == Hint(kind="cancel", queue="q", job="a", token=grant.token)


async def test_a_cancel_is_heard_before_a_wake(store: AsyncRedisStore, ear: Hints) -> None:
    await add(store, "a")
    await take(store)
    await add(store, "b")
    await store.call(Cancel(queue="q", job="a"))
    assert [(await ear.next(LONG) or Hint(kind="wake", queue="")).kind for _ in range(2)] == ["cancel", "wake"]


async def test_a_full_worker_leaves_wakes_to_others_at_once(
    store: AsyncRedisStore, ear: Any, redis_server: RedisServer
) -> None:
    waiting = asyncio.create_task(ear.next(LONG))
    await blocked(redis_server)
    ear.want(wake=False)
    await ear._nudge
    await blocked(redis_server)  # again, and for cancels only
    await add(store, "a")
    other = store.hints("v", ["q"])
    assert await other.next(LONG) == Hint(kind="wake", queue="q"), "it was left for the other"
    assert not waiting.done()
    ear.want(wake=True)
    await add(store, "b")
    assert await waiting == Hint(kind="wake", queue="q")
    await other.aclose()


async def test_changing_ones_mind_quickly_loses_nothing(store: AsyncRedisStore, ear: Hints) -> None:
    waiting = asyncio.create_task(ear.next(LONG))
    for turn in range(51):
        ear.want(wake=turn % 2 == 1)
        await asyncio.sleep(0)
    await add(store, "a")
    (_grant,) = await take(store)
    await store.call(Cancel(queue="q", job="a"))
    hint = await waiting
    assert hint is not None
    assert hint.kind == "cancel"


async def test_a_request_to_end_a_wait_that_has_not_begun_is_repeated(
    store: AsyncRedisStore, redis_server: RedisServer, make_proxy: Callable[[RedisServer], Proxy], namespace: str
) -> None:
    """The wait's own command is still on its way when `want` speaks on another connection."""
    proxy = make_proxy(redis_server)
    slow = AsyncRedisStore(Endpoint(proxy.url), namespace)
    ear: Any = slow.hints("w", ["q"])
    await ear.next(0.01)
    ear._store = store  # it speaks past the proxy
    proxy.delay(0.1)
    waiting = asyncio.create_task(ear.next(LONG))
    await asyncio.sleep(0)
    ear.want(wake=False)
    await ear._nudge
    await asyncio.sleep(0.15)
    await add(store, "a")
    await asyncio.sleep(0.3)
    assert not waiting.done(), "it does not listen for work any more"
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    await ear.aclose()
    await slow.aclose()


async def test_g10_a_lost_connection_is_an_error_and_then_a_new_connection(
    store: AsyncRedisStore, ear: Hints, redis_server: RedisServer
) -> None:
    waiting = asyncio.create_task(ear.next(LONG))
    await blocked(redis_server)
    client = redis_server.client()
    for row in client.client_list():
        if row["cmd"] == "blpop":
            client.client_kill_filter(_id=row["id"])
    with pytest.raises(StoreUnavailable, match=r"^Lost the connection to "):
        await waiting
    await add(store, "a")
    assert await ear.next(LONG) == Hint(kind="wake", queue="q")


async def test_a_cancelled_wait_leaves_no_answer_behind(
    store: AsyncRedisStore, ear: Hints, redis_server: RedisServer
) -> None:
    waiting = asyncio.create_task(ear.next(LONG))
    await blocked(redis_server)
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    ear.want(wake=False)
    await add(store, "a")
    (grant,) = await take(store)
    await store.call(Cancel(queue="q", job="a"))
    hint = await ear.next(LONG)
    assert hint is not None
    assert (hint.kind, hint.token) == ("cancel", grant.token)
