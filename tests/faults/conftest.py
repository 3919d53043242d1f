"""Fixtures of the fault tests: a stage on each server flavour."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.kit import Stage, staged
from tests.support.ledger import Ledger
from tests.support.procs import WorkerProcess
from tests.support.servers import RedisServer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all of this folder: it runs apart."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.faults)


@pytest.fixture
def stage(
    redis_server: RedisServer, namespace: str, ledger: Ledger, make_worker: Callable[..., WorkerProcess]
) -> Iterator[Stage]:
    """A stage on the session's server of each flavour."""
    yield from staged(redis_server.url, namespace, ledger, make_worker)


@pytest.fixture(params=["valkey", "redis62"])
def own_server(request: pytest.FixtureRequest, make_server: Callable[..., RedisServer]) -> RedisServer:
    """A server that the test may hurt, append-only."""
    return make_server(request.param, append_only=True)


@pytest.fixture
def own_stage(
    own_server: RedisServer, namespace: str, ledger: Ledger, make_worker: Callable[..., WorkerProcess]
) -> Iterator[Stage]:
    """A stage on a server of its own."""
    yield from staged(own_server.url, namespace, ledger, make_worker)
