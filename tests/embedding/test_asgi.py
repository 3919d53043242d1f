"""A worker in the lifespan of a web application, under a real server."""

from __future__ import annotations

import os
import signal
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.kit import Stage
from tests.support.ledger import boot_ns
from tests.support.procs import RealProcess, alive, children, descendants, eventually, kill
from tests.support.servers import free_port

pytest.importorskip("uvicorn")
pytestmark = pytest.mark.faults


class Site(RealProcess):
    """uvicorn with the application."""

    def __init__(self, stage: Stage, log: Path, *arguments: str) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "uvicorn", "tests.embedding.asgi:application", "--port", str(self.port)]
        environ = {"STILLHERE_URL": stage.url, "STILLHERE_NAMESPACE": stage.namespace, **stage.ledger.environ}
        super().__init__([*command, *arguments], log=log, environ=environ)

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
            text: str = answer.read().decode()
            return text

    @property
    def server(self) -> int:
        """The process id of uvicorn itself."""
        return next(pid for pid in self.everything() if "uvicorn" in _words(pid) and "spawn_main" not in _words(pid))


@pytest.fixture
def make_site(stage: Stage, tmp_path: Path) -> Iterator[Callable[..., Site]]:
    sites: list[Site] = []

    def make(*arguments: str) -> Site:
        sites.append(Site(stage, tmp_path / "site.log", *arguments))
        sites[-1].wait_for("Uvicorn running")
        sites[-1].wait_for("startup complete")
        return sites[-1]

    yield make
    for site in sites:
        site.close()


def test_a_request_gets_the_result_of_a_job_of_the_server(stage: Stage, make_site: Callable[..., Site]) -> None:
    site = make_site()
    assert site.get("/nap/0.2") == "rested"
    (run,) = stage.story().runs()
    server = run.pid
    (keeper,) = children(server)
    job = site.get("/bg/nap/60")
    eventually(lambda: stage.story().runs(job))
    os.kill(server, signal.SIGTERM)
    assert site.wait() in (0, -signal.SIGTERM), "uvicorn raises the signal again when it is done"
    assert "Application shutdown complete" in site.log
    assert not alive(keeper)
    record = stage.record(stage.client.handle_sync(job))
    assert (record.state, record.interruptions, record.losses) == ("ready", 1, 0)


def test_each_process_of_a_server_is_a_worker(stage: Stage, make_site: Callable[..., Site]) -> None:
    site = make_site("--workers", "2")
    eventually(lambda: len(stage.worker_ids()) == 2, 20, what=lambda: site.log)
    job = site.get("/bg/nap/60")
    run = eventually(lambda: stage.story().runs(job))[0]
    killed = boot_ns()
    kill([run.pid])
    again = eventually(lambda: stage.story().runs(job)[1:])[0]
    assert (again.start - killed) / 1e9 < 1.5, "the other one has it"
    assert again.pid != run.pid
    assert stage.story().overlaps() == []
    kill([site.server], signal.SIGTERM)
    site.wait()
    eventually(lambda: not site.everything(), what=lambda: str([_words(pid) for pid in site.everything()]))
    assert descendants(site.pid) == []


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
