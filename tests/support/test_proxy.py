"""The proxy does what it says, seen from a client and from a real server behind it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from tests.support.procs import eventually
from tests.support.proxy import Direction, How, Proxy
from tests.support.servers import RedisServer

MakeProxy = Callable[[RedisServer], Proxy]
MakeServer = Callable[..., RedisServer]
Connect = Callable[..., redis.Redis]

FELT: dict[How, type[redis.RedisError]] = {"hang": redis.TimeoutError, "cut": redis.ConnectionError}


@pytest.fixture(params=["unix", "tcp"])
def server(request: pytest.FixtureRequest, valkey_server: RedisServer, make_server: MakeServer) -> RedisServer:
    return valkey_server if request.param == "unix" else make_server("valkey", tcp=True)


@pytest.fixture
def proxy(server: RedisServer, make_proxy: MakeProxy) -> Proxy:
    return make_proxy(server)


@pytest.fixture
def connect(proxy: Proxy) -> Iterator[Connect]:
    """Clients through the proxy that give up after 0.3 s and never try again."""
    clients: list[redis.Redis] = []

    def connect(wait_s: float = 0.3) -> redis.Redis:
        client = redis.Redis.from_url(proxy.url, socket_timeout=wait_s, retry=None, single_connection_client=True)
        client.ping()
        clients.append(client)
        return client

    yield connect
    for client in clients:
        client.close()


def test_passes_large_values_unchanged(connect: Connect, namespace: str) -> None:
    value = bytes(range(256)) * 20_000
    client = connect(10.0)
    client.set(namespace, value)
    assert client.get(namespace) == value
    client.delete(namespace)


def test_delay_counts_both_ways_and_ends(proxy: Proxy, connect: Connect) -> None:
    client = connect(5.0)
    proxy.delay(0.06)
    before = time.monotonic()
    client.ping()
    assert time.monotonic() - before >= 0.12
    proxy.heal()
    before = time.monotonic()
    client.ping()
    assert time.monotonic() - before < 0.06


def test_cut_ends_chosen_connections_only(proxy: Proxy, connect: Connect) -> None:
    first, second = connect(), connect()
    first.echo("the first one")
    assert proxy.cut(lambda connection: b"the first one" in connection.seen) == 1
    connection = first.connection
    assert connection is not None
    with pytest.raises(redis.ConnectionError):  # asked below the client, which would connect again
        connection.read_response()
    assert second.ping()
    eventually(lambda: len(proxy.connections()) == 1)


def test_refuse_closes_new_connections_until_healed(proxy: Proxy, connect: Connect) -> None:
    proxy.refuse()
    with pytest.raises(redis.ConnectionError):
        connect()
    proxy.heal()
    assert connect().ping()


def test_blackhole_swallows_without_a_reset(
    proxy: Proxy, connect: Connect, server: RedisServer, namespace: str
) -> None:
    client = connect()
    proxy.blackhole()
    with pytest.raises(redis.TimeoutError):
        client.set(namespace, 1)
    with socket.create_connection(("127.0.0.1", proxy.port), 0.2) as late:  # is accepted, and nobody answers
        late.sendall(b"PING\r\n")
        with pytest.raises(TimeoutError):
            late.recv(1)
        proxy.heal()
        with pytest.raises(TimeoutError):  # what was lost stays lost, and so does the stream that it was part of
            late.recv(1)
    assert server.client().get(namespace) is None
    assert connect().ping()


@pytest.mark.parametrize("lost", ["up", "down"])
def test_one_way(proxy: Proxy, connect: Connect, server: RedisServer, namespace: str, lost: Direction) -> None:
    client = connect()
    proxy.blackhole(lost)
    with pytest.raises(redis.TimeoutError):
        client.set(namespace, 1)
    assert server.client().get(namespace) == (None if lost == "up" else "1")
    server.client().delete(namespace)


def test_held_requests_arrive_late_though_their_sender_has_gone(
    proxy: Proxy, connect: Connect, server: RedisServer, namespace: str
) -> None:
    client = connect()
    proxy.hold()
    with pytest.raises(redis.TimeoutError):
        client.set(namespace, 1)
    client.close()
    assert server.client().get(namespace) is None
    proxy.heal()
    eventually(lambda: server.client().get(namespace) == "1")
    server.client().delete(namespace)


@pytest.mark.parametrize("how", ["hang", "cut"])
def test_a_lost_reply_is_lost_once_and_its_request_carried_out(
    proxy: Proxy, connect: Connect, server: RedisServer, namespace: str, how: How
) -> None:
    client, other = connect(), connect()
    trap = proxy.lose_reply(b"INCR", how)
    client.ping()
    assert not trap.sprung.is_set()
    with pytest.raises(FELT[how]):
        client.incr(namespace)
    assert trap.sprung.wait(5)
    assert other.incr(namespace) == 2
    server.client().delete(namespace)


@pytest.mark.parametrize("how", ["hang", "cut"])
def test_a_lost_request_never_arrives(
    proxy: Proxy, connect: Connect, server: RedisServer, namespace: str, how: How
) -> None:
    client, other = connect(), connect()
    trap = proxy.lose_request(lambda request: b"INCR" in request, how)
    with pytest.raises(FELT[how]):
        client.incr(namespace)
    assert trap.sprung.wait(5)
    assert other.incr(namespace) == 1
    server.client().delete(namespace)


def test_a_server_that_is_away_looks_like_a_closed_connection(make_server: MakeServer, make_proxy: MakeProxy) -> None:
    server = make_server("valkey")
    proxy = make_proxy(server)
    server.kill9()
    client = redis.Redis.from_url(proxy.url, socket_timeout=1, retry=None)
    with pytest.raises(redis.ConnectionError):
        client.ping()
    server.start()
    assert client.ping()
    client.close()


def test_close_leaves_no_connection(proxy: Proxy, connect: Connect) -> None:
    client = connect()
    proxy.close()
    with pytest.raises(redis.ConnectionError):
        client.ping()
