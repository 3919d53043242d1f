"""What a service manager is told: a real datagram socket, and a supervisor started as systemd starts one."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stillhere.worker.supervisor.service import ServiceManager
from tests.supervisor.kit import Worker
from tests.support.procs import eventually


class Manager:
    """The manager's end."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.settimeout(0.05)
        self.told: list[dict[str, str]] = []

    def read(self) -> list[dict[str, str]]:
        """All that has come so far."""
        try:
            while True:
                lines = self._socket.recv(4096).decode().splitlines()
                self.told.append(dict(line.split("=", 1) for line in lines))
        except TimeoutError:
            return self.told

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path / "notify")
    yield made
    made.close()


def test_it_takes_the_address_out_of_the_environment(manager: Manager) -> None:
    environ = {"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "100000", "WATCHDOG_PID": str(os.getpid()), "A": "b"}
    service = ServiceManager(environ)
    assert environ == {"A": "b"}, "what a handler starts does not speak to the manager"
    service.ready("works")
    service.alive()
    service.stopping(8.0)
    assert manager.read() == [
        {"READY": "1", "STATUS": "works"},
        {"WATCHDOG": "1"},
        {"STOPPING": "1", "EXTEND_TIMEOUT_USEC": "13000000"},
    ]


def test_a_sign_of_life_comes_at_half_the_time_and_only_where_it_is_asked_for(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("stillhere.worker.supervisor.service.boottime", lambda: now)
    service = ServiceManager({"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "4000000"})
    other = ServiceManager({"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "4000000", "WATCHDOG_PID": "1"})
    silent = ServiceManager({"NOTIFY_SOCKET": manager.path})
    for _ in range(9):
        for one in (service, other, silent):
            one.alive()
        now += 1.0
    assert len(manager.read()) == 5, "at 0, 2, 4, 6 and 8 s, by the one that was asked"


def test_without_a_manager_or_after_its_end_nothing_is_said(manager: Manager) -> None:
    ServiceManager({}).ready("works")
    service = ServiceManager({"NOTIFY_SOCKET": manager.path})
    manager.close()
    service.ready("works")


def test_a_manager_that_does_not_read_blocks_nobody(manager: Manager) -> None:
    service = ServiceManager({"NOTIFY_SOCKET": manager.path})
    for _ in range(2000):
        service.ready("works")
    assert manager.read()


def test_a_worker_tells_when_it_is_ready_that_it_lives_and_that_it_stops(
    play: Callable[..., Worker], manager: Manager
) -> None:
    worker = play("steady:job", environ={"NOTIFY_SOCKET": manager.path, "WATCHDOG_USEC": "200000"})
    worker.event("runs")
    told = eventually(lambda: [one for one in manager.read() if "READY" in one], 10)
    assert "redis://***@store:6379/0" in told[0]["STATUS"], "no password"
    eventually(lambda: sum("WATCHDOG" in one for one in manager.read()) > 3, 10)
    assert "NOTIFY_SOCKET" not in worker.event("start")["environ"], "children do not speak to it"
    worker.terminate()
    eventually(lambda: any("STOPPING" in one for one in manager.read()), 5)
    worker.wait(10)
