"""Dead workers and dead hosts: recovery is bounded (G14), charged rightly (G7), and never an overlap."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from itertools import count, pairwise

from tests.faults.kit import LEASE_S, Stage
from tests.support.ledger import boot_ns
from tests.support.procs import WorkerProcess, alive, eventually, kill

BOUND_S = 1.3 * LEASE_S + 1.0


def test_g14_killed_30_times_it_starts_elsewhere_within_a_second(stage: Stage) -> None:
    for _ in range(3):
        stage.ready_worker("-c", "1")
    job = stage.add("steps", 100_000)
    dice = random.Random(30)
    gaps = []
    for kills in range(1, 31):
        run = stage.started(job, kills)
        eventually(lambda: len(stage.story().runs(job.id)[-1].steps) >= 2, 10)
        time.sleep(dice.uniform(0, 0.3))
        killed = boot_ns()
        kill([run.pid])
        gaps.append((stage.started(job, kills + 1).start - killed) / 1e9)
    info = stage.record(job)
    assert max(gaps) < 1.0, sorted(gaps)
    assert (info.deaths, info.failures) == (30, 0)
    resumed = [line["at_step"] for line in stage.story().events_of("resumed", job.id)]
    last = [max(run.steps, default=0) for run in stage.story().runs(job.id)]
    assert all(resumed[n + 1] >= last[n] - 1 for n in range(30)), "each run carried on from the last checkpoint"
    assert all(earlier.last <= later.start for earlier, later in pairwise(stage.story().runs(job.id)))
    job.cancel()
    stage.finished(job)


def test_g14_a_host_that_dies_is_recovered_within_the_printed_bound(stage: Stage) -> None:
    doomed = stage.ready_worker("-c", "4")
    jobs = stage.add_many("steps", 4, 1000)
    for job in jobs:
        stage.started(job)
    stage.answered(*jobs)
    stage.ready_worker("-c", "8")
    doomed.kill9_all()
    killed = boot_ns()
    runs = [stage.started(job, 2, timeout=BOUND_S + 5) for job in jobs]
    assert max(run.start - killed for run in runs) / 1e9 < BOUND_S
    assert [stage.record(job).vanished for job in jobs] == [1] * 4
    assert stage.story().overlaps() == []
    for job in jobs:
        job.cancel()
    stage.finished(*jobs)


def test_g14_recovery_does_not_wait_for_a_worker_that_lives_long(stage: Stage) -> None:
    """The only other workers are born and killed, each living for less than a lease."""
    doomed = stage.ready_worker("-c", "1")
    job = stage.add("steps", 1000)
    stage.started(job)
    doomed.kill9_all()
    killed, contact_s = boot_ns(), 0.0
    for life in count():
        other = stage.ready_worker("-c", "1")
        born = time.monotonic()
        eventually(lambda born=born: time.monotonic() > born + LEASE_S / 4 or stage.story().starts(job.id) > 1, 10)  # type: ignore[misc]
        contact_s += time.monotonic() - born
        other.kill9_all()
        if stage.story().starts(job.id) > 1:
            break
        assert life < 20, f"never recovered in {(boot_ns() - killed) / 1e9:.1f} s"
    assert contact_s < BOUND_S
    assert stage.story().overlaps() == []


def test_g13_a_dead_supervisor_leaves_children_that_end_cleanly(stage: Stage) -> None:
    worker = stage.ready_worker("-p", "2", "-c", "2", "--grace", "20s")
    jobs = stage.add_many("nap", 3, 3 * LEASE_S)
    for job in jobs:
        stage.started(job)
    children = worker.children()
    worker.kill9_supervisor()
    stage.ready_worker("-c", "8")
    stage.finished(*jobs, timeout=10 * LEASE_S)
    eventually(lambda: not any(alive(pid) for pid in children), 25, what="the orphans have ended")
    story = stage.story()
    assert [story.starts(job.id) for job in jobs] == [1, 1, 1]
    assert [run.how for job in jobs for run in story.runs(job.id)] == ["ok"] * 3


def test_g7_five_jobs_of_a_dead_host_behind_500_live_ones(stage: Stage) -> None:
    doomed = stage.ready_worker("-c", "5")
    lost = stage.add_many("steps", 5, 10_000)
    for job in lost:
        stage.started(job)
    stage.ready_worker("-c", "260")
    stage.ready_worker("-c", "260")
    healthy = stage.add_many("quick", 500, 6 * LEASE_S)
    eventually(lambda: stage.status().running == 505, 20, what=stage.status)
    doomed.kill9_all()
    killed = boot_ns()
    runs = [stage.started(job, 2, timeout=BOUND_S + 5) for job in lost]
    assert max(run.start - killed for run in runs) / 1e9 < BOUND_S
    stage.finished(*healthy, timeout=60)
    starts = Counter(run.job for run in stage.story().runs())
    assert {starts[job.id] for job in healthy} == {1}
    for job in lost:
        job.cancel()
    stage.finished(*lost)


def test_g5_a_thousand_jobs_under_random_kills(stage: Stage) -> None:
    """Nothing lost, nothing recorded twice: 1,000 jobs of 50 to 500 ms, a child of four shot every two seconds."""
    workers: list[WorkerProcess] = [stage.ready_worker("-c", "10") for _ in range(4)]
    dice = random.Random(7)
    from tests.faults import jobs as tasks

    jobs = stage.client.enqueue_many_sync([tasks.quick.prepare(dice.uniform(0.05, 0.5)) for _ in range(1000)])
    over = threading.Event()

    def shoot() -> None:
        while not over.wait(2.0):
            kill(dice.choice(workers).children()[:1])

    gun = threading.Thread(target=shoot)
    gun.start()
    try:
        stage.finished(*jobs, timeout=100)
    finally:
        over.set()
        gun.join()
    story = stage.story()
    infos = [stage.record(job) for job in jobs]
    assert {info.state for info in infos} == {"succeeded"}
    assert {info.failures for info in infos} == {0}
    how = {(run.job, run.token): run.how for run in story.runs()}
    assert all(how[job.id, job.result(timeout=1)] == "ok" for job in jobs), "the stored result is of a run that ended"
    assert story.overlaps() == []
