"""`stillhere worker -p 0`: the worker has the terminal."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.kit import LEASE_S, Stage
from tests.support.procs import WorkerProcess, alive, children, eventually, kill

pytestmark = pytest.mark.faults

BREAKS = """
from stillhere import App
from tests.faults.jobs import ledger
from stillhere import current_job

app = App()

@app.task
async def breaks() -> str:
    job = current_job()
    with ledger.run(job.id, job.token):
        answer = "not asked"
        breakpoint()
    return answer
"""


@pytest.fixture
def front(stage: Stage) -> WorkerProcess:
    worker = stage.ready_worker("-p", "0", "-c", "4", "--grace", "1s")
    worker.wait_for("in this process")
    return worker


def test_it_works_and_drains_at_a_signal(stage: Stage, front: WorkerProcess) -> None:
    job = stage.add("nap", 0.5)
    run = stage.started(job)
    (keeper,) = children(run.pid)
    long = stage.add("steps", 1000)
    stage.started(long)
    stage.finished(job)
    kill([run.pid], signal.SIGINT)
    assert front.wait() == 0
    assert not alive(keeper)
    assert [run.pid for run in stage.story().runs(job.id)] == [run.pid]
    record = stage.record(long)
    assert (record.state, record.interruptions, record.losses) == ("ready", 1, 0)


def test_a_second_signal_ends_now(stage: Stage) -> None:
    worker = stage.ready_worker("-p", "0", "--grace", "60s")
    job = stage.add("steps", 1000)
    pid = stage.started(job).pid
    kill([pid], signal.SIGTERM)
    worker.wait_for("SIGTERM: stopping")
    time.sleep(0.4)  # within a moment it would be the same signal
    start = time.monotonic()
    kill([pid], signal.SIGTERM)
    assert worker.wait() == 0
    assert time.monotonic() - start < 3
    assert stage.record(job).state == "ready"


def test_what_cannot_be_ended_is_told_by_the_exit_code(stage: Stage, front: WorkerProcess) -> None:
    job = stage.add("wedge", 60)
    pid = stage.started(job).pid
    kill([pid], signal.SIGTERM)
    assert front.wait() == 70
    stage.started(job)
    eventually(lambda: stage.record(job).state == "ready", 2, what="released as soon as the process was dead")
    assert stage.record(job).interruptions == 1


def test_a_burst(stage: Stage) -> None:
    jobs = stage.add_many("quick", 10)
    worker = stage.worker("-p", "0", "--burst")
    assert worker.wait(20) == 0
    assert [stage.record(job).state for job in jobs] == ["succeeded"] * 10


def test_a_signal_that_comes_before_the_loop_is_heard(
    stage: Stage, make_worker: Callable[..., WorkerProcess], tmp_path: Path
) -> None:
    text = "import os, signal\nfrom stillhere import App\nos.kill(os.getpid(), signal.SIGTERM)\napp = App()\n"
    (tmp_path / "signalling.py").write_text(text)
    worker = make_worker("signalling:app", "-p", "0", url=stage.url, cwd=tmp_path)
    assert worker.wait() == 0
    assert "in this process" not in worker.log


def test_a_wrong_app_is_told_as_to_any_worker(stage: Stage, make_worker: Callable[..., WorkerProcess]) -> None:
    worker = make_worker("no.such:app", "-p", "0", url=stage.url)
    assert worker.wait() == 78
    assert "No module named 'no'" in worker.log
    assert "Traceback" not in worker.log


@pytest.fixture
def debugged(stage: Stage, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker in the foreground whose terminal the test has."""
    (tmp_path / "breaking.py").write_text(BREAKS)
    root = Path(__file__).resolve().parents[2]
    environ = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]),
        "STILLHERE_URL": stage.url,
        "STILLHERE_NAMESPACE": stage.namespace,
        **stage.ledger.environ,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "stillhere", "worker", "breaking:app", "-p", "0", "--lease", f"{LEASE_S}s", "--burst"],
        cwd=tmp_path, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    yield process
    process.kill()
    process.communicate()


def test_a_breakpoint_has_the_terminal_and_the_lease_holds(stage: Stage, debugged: subprocess.Popen[bytes]) -> None:
    job = stage.client.sender("breaks").enqueue_sync()
    assert debugged.stdin is not None
    said = b""
    while b"(Pdb)" not in said:
        said += read(debugged)
    time.sleep(2 * LEASE_S)  # somebody thinks
    assert stage.record(job).state == "running"
    debugged.stdin.write(b"answer = 'asked'\nc\n")
    debugged.stdin.flush()
    assert debugged.wait(20) == 0
    assert stage.record(job).state == "succeeded"
    assert job.result() == "asked"
    assert stage.story().starts(job.id) == 1


def read(process: subprocess.Popen[bytes], timeout: float = 20.0) -> bytes:
    """Some bytes of what it says."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], timeout)
    assert ready, "it says nothing"
    data = os.read(process.stdout.fileno(), 4096)
    assert data, "it has ended"
    return data
