"""Fixtures of the embedded worker's tests: an app on the session's server, and programs with a worker in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stillhere import App
from tests.embedding.kit import HostProcess
from tests.faults.kit import Stage, staged
from tests.support.ledger import Ledger
from tests.support.procs import WorkerProcess
from tests.support.servers import RedisServer


@pytest.fixture
def app(valkey_server: RedisServer, namespace: str) -> Iterator[App[None]]:
    """An app without tasks, with a namespace of its own."""
    app = App(valkey_server.url, namespace=namespace)
    yield app
    app.close()


@pytest.fixture
def stage(
    valkey_server: RedisServer, namespace: str, ledger: Ledger, make_worker: Callable[..., WorkerProcess]
) -> Iterator[Stage]:
    """The jobs of the fault tests, a ledger, and other workers."""
    yield from staged(valkey_server.url, namespace, ledger, make_worker)


@pytest.fixture
def make_host(stage: Stage, tmp_path: Path) -> Iterator[Callable[..., HostProcess]]:
    """Start programs with a worker in them: ``make_host(slots=2)``; they are registered when it returns."""
    hosts: list[HostProcess] = []

    def make(**options: object) -> HostProcess:
        hosts.append(HostProcess(stage, tmp_path / f"worker-host-{len(hosts)}.log", options))
        hosts[-1].wait_for("worker ")
        return hosts[-1]

    yield make
    for host in hosts:
        host.close()
