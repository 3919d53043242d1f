"""Connections: a call has one deadline, broken ones are dropped, dead ones replaced, and errors say which and why."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import hiredis
import pytest

from stillhere.backends.redis.backend import AsyncRedisStore, SyncRedisStore
from stillhere.backends.redis.connection import _MISSING, Endpoint, SyncWire, masked
from stillhere.domain.errors import ConfigurationError, StoreUnavailable
from stillhere.domain.job import NewRecord
from stillhere.ports.backend import Enqueue, Look, Tick, Ticked
from stillhere.stores import open_async, open_sync
from tests.support.procs import eventually
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer, free_port


@pytest.fixture
def proxy(redis_server: RedisServer, make_proxy: Callable[[RedisServer], Proxy]) -> Proxy:
    return make_proxy(redis_server)


@pytest.fixture
def sync_store(proxy: Proxy, namespace: str) -> Iterator[SyncRedisStore]:
    store = SyncRedisStore(Endpoint(proxy.url), namespace)
    yield store
    store.close()


@pytest.fixture
async def async_store(proxy: Proxy, namespace: str) -> AsyncIterator[AsyncRedisStore]:
    store = AsyncRedisStore(Endpoint(proxy.url), namespace)
    yield store
    await store.aclose()


TICK = Tick(queue="q")


def enqueue(job: str) -> Enqueue:
    return Enqueue(queue="q", jobs=[NewRecord(id=job, task="t", queue="q", args="{}")])


class TestDeadlines:
    def test_g12_a_call_that_hangs_ends_in_time(self, sync_store: SyncRedisStore, proxy: Proxy) -> None:
        sync_store.call(TICK)
        proxy.blackhole("down")
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"^No answer from .* within 0\.2 s\.$") as caught:
            sync_store.call(TICK, timeout=0.2)
        assert 0.19 < time.monotonic() - began < 4
        assert caught.value.sent is True

    async def test_g12_a_call_that_hangs_ends_in_time_async(self, async_store: AsyncRedisStore, proxy: Proxy) -> None:
        await async_store.call(TICK)
        proxy.blackhole("down")
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"^No answer from .* within 0\.2 s\.$"):
            await async_store.call(TICK, timeout=0.2)
        assert 0.19 < time.monotonic() - began < 4

    def test_g12_a_connection_that_never_comes_about_ends_in_time(
        self, sync_store: SyncRedisStore, proxy: Proxy
    ) -> None:
        proxy.blackhole("up", "down")
        began = time.monotonic()
        with pytest.raises(StoreUnavailable) as caught:
            sync_store.call(TICK, timeout=0.2)
        assert time.monotonic() - began < 4
        assert caught.value.sent is False, "nothing was written"

    def test_g12_a_dripping_reply_gets_no_more_time(self) -> None:
        """The bound is the call's, not that of each piece."""
        here, there = socket.socketpair()
        wire = SyncWire.__new__(SyncWire)
        wire._connection, wire._reader = SimpleNamespace(_sock=here), hiredis.Reader(notEnoughData=_MISSING)

        def drip() -> None:
            with contextlib.suppress(OSError):
                for byte in b"+PONG" * 20:
                    there.sendall(bytes([byte]))
                    time.sleep(0.05)

        dripping = threading.Thread(target=drip)
        dripping.start()
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            wire.exchange(b"PING\r\n", 1, began + 0.2)
        assert 0.19 < time.monotonic() - began < 4
        here.close()
        there.close()
        dripping.join()

    def test_no_time_at_all(self, sync_store: SyncRedisStore) -> None:
        with pytest.raises(StoreUnavailable):
            sync_store.call(TICK, timeout=0)

    async def test_calls_beyond_the_last_connection_wait_for_a_free_one(
        self, redis_server: RedisServer, namespace: str
    ) -> None:
        store = AsyncRedisStore(Endpoint(redis_server.url), namespace)
        calls: list[Coroutine[Any, Any, Ticked]] = [store.call(TICK, timeout=60) for _ in range(100)]
        assert len(await asyncio.gather(*calls)) == 100
        assert len(store._idle) <= 32
        await store.aclose()


class TestDroppedConnections:
    def test_an_answer_that_came_too_late_is_nobodys(
        self, sync_store: SyncRedisStore, proxy: Proxy, redis_server: RedisServer, namespace: str
    ) -> None:
        sync_store.call(enqueue("first"))
        proxy.hold("down")
        with pytest.raises(StoreUnavailable):
            sync_store.call(enqueue("a"), timeout=0.1)
        eventually(lambda: redis_server.client().exists(f"{namespace}:{{q}}:j:a"), 10)
        proxy.heal()
        assert isinstance(sync_store.call(TICK), Ticked)
        assert sync_store.call(enqueue("a"))[0].conflict == "id", "it had run all the same; the repeat adds nothing"

    async def test_a_cancelled_call_leaves_no_answer_behind(self, async_store: AsyncRedisStore, proxy: Proxy) -> None:
        await async_store.call(enqueue("first"))
        proxy.hold("down")
        call = asyncio.create_task(async_store.call(enqueue("a")))
        await asyncio.sleep(0.05)
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call
        proxy.heal()
        assert (await async_store.call(TICK)).gap_ms == 2_000

    def test_a_connection_cut_in_mid_call_is_an_error_and_not_repeated(
        self, sync_store: SyncRedisStore, proxy: Proxy
    ) -> None:
        sync_store.call(enqueue("first"))
        trap = proxy.lose_reply(b"EVALSHA", how="cut")
        with pytest.raises(StoreUnavailable, match=r"^Lost the connection to ") as caught:
            sync_store.call(enqueue("a"))
        assert trap.sprung.is_set()
        assert caught.value.sent is True
        assert sync_store.call(enqueue("a"))[0].created is False

    def test_a_connection_cut_at_rest_is_replaced(self, sync_store: SyncRedisStore, proxy: Proxy) -> None:
        for reset in (True, False):
            sync_store.call(TICK)
            assert proxy.cut(reset=reset) > 0
            sync_store.call(TICK)

    async def test_a_connection_cut_at_rest_is_replaced_async(self, async_store: AsyncRedisStore, proxy: Proxy) -> None:
        for reset in (True, False):
            await async_store.call(TICK)
            assert proxy.cut(reset=reset) > 0
            await async_store.call(TICK)

    async def test_also_when_the_loop_was_blocked_while_it_was_cut(
        self, async_store: AsyncRedisStore, proxy: Proxy
    ) -> None:
        await async_store.call(TICK)
        proxy.cut()
        time.sleep(0.05)  # noqa: ASYNC251 - the loop must not see the cut
        await async_store.call(TICK)

    def test_a_restarted_server_is_found_again(self, make_server: Callable[..., RedisServer], namespace: str) -> None:
        server = make_server("valkey", append_only=True)
        store = SyncRedisStore(Endpoint(server.url), namespace)
        store.call(enqueue("a"))
        server.restart(hard=True)
        assert store.call(enqueue("a"))[0].conflict == "id"
        store.close()


class TestThreads:
    def test_many_threads_share_a_store(self, sync_store: SyncRedisStore) -> None:
        wrong: list[object] = []

        def work(name: int) -> None:
            for turn in range(50):
                (added,) = sync_store.call(enqueue(f"{name}-{turn}"))
                record = sync_store.call(Look(queue="q", job=added.id))
                if record is None or record.id != f"{name}-{turn}":
                    wrong.append(record)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert len(sync_store._idle) <= 8

    def test_a_closed_store_says_so(self, sync_store: SyncRedisStore) -> None:
        sync_store.call(TICK)
        sync_store.close()
        with pytest.raises(StoreUnavailable, match="was closed") as caught:
            sync_store.call(TICK)
        assert caught.value.sent is False


class TestWords:
    """What a person reads: which store, what happened, and never a password."""

    def test_the_store_is_down(self) -> None:
        port = free_port()
        store = SyncRedisStore(Endpoint(f"redis://127.0.0.1:{port}/0"), "n")
        with pytest.raises(StoreUnavailable) as caught:
            store.call(enqueue("a"))
        assert str(caught.value) == f"Cannot reach redis://127.0.0.1:{port}/0 (connection refused)."
        assert caught.value.sent is False

    async def test_the_store_is_down_async(self) -> None:
        port = free_port()
        store = AsyncRedisStore(Endpoint(f"redis://127.0.0.1:{port}/0"), "n")
        with pytest.raises(StoreUnavailable) as caught:
            await store.call(enqueue("a"))
        assert str(caught.value) == f"Cannot reach redis://127.0.0.1:{port}/0 (connection refused)."
        await store.aclose()

    @pytest.mark.parametrize(
        ("url", "shown"),
        [
            ("redis://:hidden@h:1/0", "redis://:***@h:1/0"),
            ("redis://me:hidden@h:1/0", "redis://me:***@h:1/0"),
            ("redis://me:hid/den@h:1", "redis://me:***@h:1"),
            ("redis://me:hid@den@h:1", "redis://me:***@h:1"),
            ("redis://h:1?db=2&password=hidden&db=3", "redis://h:1?db=2&password=***&db=3"),
            ("unix:///run/s?db=1", "unix:///run/s?db=1"),
        ],
    )
    def test_a_password_is_masked(self, url: str, shown: str) -> None:
        assert masked(url) == shown

    @pytest.mark.parametrize(
        ("url", "why"),
        [
            ("http://h", "not the URL of a store. Write one of redis://, "),
            ("redis:/h", "not the URL of a store. Write one of redis://, "),
            ("redis://h:port", "the port is not a number from 0 to 65535."),
            ("redis://h:99999", "the port is not a number from 0 to 65535."),
            ("redis://h/zero", "the database is not a number."),
            ("redis://me:12/secret@h", "the database is not a number."),
            ("redis://h?retry=3", "the option 'retry' is not one of db, username, password, client_name or ssl_*."),
            ("redis://h?socket_timeout=1", "the option 'socket_timeout' is not one of "),
        ],
    )
    def test_a_bad_url_is_named_where_it_is_opened(self, url: str, why: str) -> None:
        with pytest.raises(ConfigurationError) as caught:
            Endpoint(url)
        assert str(caught.value).startswith(f"{masked(url)}: {why}")
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize(
        ("setting", "login", "why"),
        [
            ("right", "", "Authentication required"),
            ("right", ":hidden@", "invalid username-password pair or user is disabled"),
        ],
    )
    def test_a_refused_login_is_a_matter_of_configuration(
        self, make_server: Callable[..., RedisServer], setting: str, login: str, why: str
    ) -> None:
        server = make_server("redis62", tcp=True, options={"requirepass": ""})
        server.config_set("requirepass", setting)
        store = SyncRedisStore(Endpoint(f"redis://{login}127.0.0.1:{server.port}/0"), "n")
        with pytest.raises(ConfigurationError) as caught:
            store.call(TICK)
        shown = f"redis://{':***@' if login else ''}127.0.0.1:{server.port}/0"
        assert str(caught.value) == f"{shown} refused the connection ({why})."

    def test_a_database_that_is_not_there(self, make_server: Callable[..., RedisServer]) -> None:
        server = make_server("valkey", tcp=True)
        store = SyncRedisStore(Endpoint(f"redis://127.0.0.1:{server.port}/99"), "n")
        with pytest.raises(ConfigurationError, match=r"refused the connection \(DB index is out of range\)\.$"):
            store.call(TICK)

    def test_a_cluster_is_refused_by_its_name(self, make_server: Callable[..., RedisServer]) -> None:
        while (port := free_port()) > 50_000:
            pass
        options = {"port": str(port), "bind": "127.0.0.1", "cluster-enabled": "yes"}
        server = make_server("valkey", options=options)
        store = SyncRedisStore(Endpoint(f"redis://127.0.0.1:{port}/0"), "n")
        with pytest.raises(ConfigurationError, match=r"is a cluster node\. stillhere needs one server"):
            store.call(TICK)
        assert server.pid

    def test_an_old_server_is_refused(self) -> None:
        endpoint = Endpoint("redis://h")
        hello = [b"server", b"redis", b"version", b"6.0.16", b"mode", b"standalone"]
        with pytest.raises(
            ConfigurationError, match=r"^redis://h is Redis 6\.0\.16\. stillhere needs 6\.2 or later\.$"
        ):
            endpoint.check_greeting([hello])

    @pytest.mark.parametrize(
        ("policy", "maxmemory", "warned"),
        [("allkeys-lru", "1000000000", True), ("allkeys-lru", "0", False), ("noeviction", "1000000000", False)],
    )
    def test_a_server_that_may_evict_jobs_is_warned_of_once(
        self,
        make_server: Callable[..., RedisServer],
        caplog: pytest.LogCaptureFixture,
        policy: str,
        maxmemory: str,
        warned: bool,
    ) -> None:
        server = make_server("valkey", options={"maxmemory-policy": policy}, maxmemory=maxmemory)
        store = SyncRedisStore(Endpoint(server.url), "n")
        with caplog.at_level(logging.WARNING, logger="stillhere"):
            store.call(TICK)
            store._idle.clear()
            store.call(TICK)
        texts = [record.getMessage() for record in caplog.records]
        assert texts == (
            [f"{server.url} may evict jobs: its maxmemory-policy is {policy}. Set it to noeviction."] * warned
        )
        store.close()


class TestOpening:
    @pytest.mark.parametrize("scheme", ["unix", "redis", "valkey"])
    def test_by_url(self, make_server: Callable[..., RedisServer], scheme: str) -> None:
        server = make_server("valkey", tcp=scheme != "unix")
        store = open_sync(server.url.replace("redis://", f"{scheme}://"), "n")
        assert isinstance(store.call(TICK), Ticked)
        store.close()

    async def test_by_url_async(self, redis_server: RedisServer, namespace: str) -> None:
        store = open_async(redis_server.url, namespace, clock=lambda: 1_000)
        assert (await store.call(TICK)).gap_ms == 2_000
        await store.aclose()

    @pytest.mark.parametrize(
        ("url", "why"),
        [
            (
                "localhost:6379",
                "'localhost:6379' is not the URL of a store. Write redis://host:6379/0, or embedded://.",
            ),
            ("postgresql://h/db", "PostgreSQL is not among the stores yet. Write redis://host:6379/0, or embedded://."),
        ],
    )
    def test_what_is_no_store(self, url: str, why: str) -> None:
        for open_store in (open_sync, open_async):
            with pytest.raises(ConfigurationError) as caught:
                open_store(url, "n")
            assert str(caught.value) == why

    def test_a_process_puts_its_queues_on_the_namespaces_list_once(
        self, redis_server: RedisServer, namespace: str
    ) -> None:
        store = SyncRedisStore(Endpoint(redis_server.url), namespace)
        store.call(enqueue("a"))
        assert redis_server.client().smembers(f"{namespace}:queues") == {"q"}
        redis_server.client().delete(f"{namespace}:queues")
        store.call(enqueue("b"))
        assert redis_server.client().exists(f"{namespace}:queues") == 0
        store.close()
