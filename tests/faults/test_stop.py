"""Stopping: what runs is handed over, nothing is charged, and a worker always exits (G5, G7)."""

from __future__ import annotations

import signal
import threading
import time

from tests.faults.kit import LEASE_S, Stage
from tests.support.ledger import boot_ns
from tests.support.procs import alive, eventually


def test_g5_six_deploys_in_one_jobs_life(stage: Stage) -> None:
    workers = [stage.ready_worker("-c", "2", "--grace", "1s", lease=10)]
    job = stage.add("steps", 400, 0.05)  # far longer than six starts of a worker take
    for deploy in range(1, 7):
        stage.started(job, deploy)
        eventually(lambda: len(stage.story().runs(job.id)[-1].steps) >= 3, 5)
        workers.append(stage.ready_worker("-c", "2", "--grace", "1s", lease=10))
        workers[-2].terminate()
        told = boot_ns()
        assert (stage.started(job, deploy + 1, timeout=10).start - told) / 1e9 < 2.5, "no wait for the lease of 10 s"
        assert workers[-2].wait(10) == 0
    assert job.result(timeout=40) == 400
    info = stage.record(job)
    assert (info.interruptions, info.failures, info.losses, info.deaths) == (6, 0, 0, 0)
    assert stage.story().overlaps() == []


def test_a_second_signal_ends_now(stage: Stage) -> None:
    worker = stage.ready_worker("-c", "2", "--grace", "60s")
    jobs = [stage.add("nap", 60.0), stage.add("nap_sync", 60.0)]
    for job in jobs:
        stage.started(job)
    worker.terminate()
    time.sleep(0.5)  # signals within 0.3 s count as one
    assert worker.running
    worker.signal(signal.SIGINT)
    worker.wait(6)
    other = stage.ready_worker("-c", "2")
    for job in jobs:
        stage.started(job, 2)
    assert [stage.record(job).interruptions for job in jobs] == [1, 1]
    assert stage.story().overlaps() == []
    for job in jobs:
        job.cancel()
    stage.finished(*jobs)
    assert other.running


def test_a_wedged_c_call_does_not_keep_the_process_alive(stage: Stage) -> None:
    worker = stage.ready_worker("-c", "2", "--grace", "1s", lease=10)
    jobs = []
    for task in ("wedge", "hold_gil"):  # one after the other: beside a held GIL nothing else can even begin
        jobs.append(stage.add(task, 60.0))
        stage.started(jobs[-1])
    started = time.monotonic()
    worker.terminate()
    assert worker.wait(8) == 70, "something had to be killed"
    assert time.monotonic() - started < 6
    stage.ready_worker("-p", "2", "-c", "1")  # a process each
    for job in jobs:
        stage.started(job, 2, timeout=5)
    assert [(stage.record(job).interruptions, stage.record(job).losses) for job in jobs] == [(1, 0), (1, 0)]
    assert stage.story().overlaps() == []


def test_g13_a_run_in_a_c_call_is_dead_before_it_is_handed_back(stage: Stage) -> None:
    worker = stage.ready_worker("-c", "2", "--grace", "1s", lease=10)
    job = stage.add("wedge", 60.0)
    pid = stage.started(job).pid
    stage.ready_worker("-c", "2")
    gone: list[int] = []

    def watch() -> None:
        while alive(pid):
            time.sleep(0.001)
        gone.append(boot_ns())

    watcher = threading.Thread(target=watch)
    watcher.start()
    worker.terminate()
    heir = stage.started(job, 2, timeout=10)
    watcher.join(5)
    assert gone[0] < heir.start
    assert stage.record(job).losses == 0


def test_g8_a_running_job_hears_of_its_cancel_within_a_second(stage: Stage) -> None:
    stage.ready_worker("-c", "4", lease=20)
    jobs = [stage.add("nap", 60.0), stage.add("nap_sync", 60.0)]
    for job in jobs:
        stage.started(job)
    told = boot_ns()
    assert all(job.cancel() for job in jobs)
    stage.finished(*jobs, timeout=5)
    assert {stage.record(job).state for job in jobs} == {"cancelled"}
    stops = [line for line in stage.story().events if line["event"] == "stopped"]
    assert {line["reason"] for line in stops} == {"cancelled"}
    assert max(line["at"] - told for line in stops) / 1e9 < 1.0


def test_g13_a_drain_longer_than_a_lease_keeps_it(stage: Stage) -> None:
    worker = stage.ready_worker("-c", "2", "--grace", f"{4 * LEASE_S}s")
    job = stage.add("block_loop", 2 * LEASE_S)
    stage.started(job)
    stage.ready_worker("-c", "2")
    worker.terminate()
    stage.finished(job, timeout=6 * LEASE_S)
    assert stage.record(job).state == "succeeded"
    assert stage.story().starts(job.id) == 1
    assert worker.wait(10) == 0
