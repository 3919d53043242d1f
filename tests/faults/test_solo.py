"""Jobs in processes of their own: nothing beside them, one process to spare, and nothing of them is left behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stillhere import SyncHandle
from stillhere.worker.child.worker import SOLO_IDLE_S
from tests.faults.kit import APART, LEASE_S, Stage, staged
from tests.support.ledger import Ledger, boot_ns
from tests.support.procs import WorkerProcess, alive, eventually, kill
from tests.support.servers import RedisServer

KINDS = 4
"""Of processes that `with_offspring` leaves behind."""
WARM_S = 1.0
"""Far less than two starts of a process, more than any job waits for one that is there."""


@pytest.fixture
def stage(
    redis_server: RedisServer, namespace: str, ledger: Ledger, make_worker: Callable[..., WorkerProcess]
) -> Iterator[Stage]:
    """A stage with the tasks that run apart."""
    yield from staged(redis_server.url, namespace, ledger, make_worker, APART)


def warm(stage: Stage, *arguments: str, **options: Any) -> WorkerProcess:
    """A worker whose process to spare is there, beside that of the pool."""
    before = len(stage.worker_ids())
    worker = stage.worker("-p", "1", *arguments, **options)
    eventually(lambda: len(stage.worker_ids()) == before + 2, 20, what=lambda: worker.log)
    return worker


def offspring_of(stage: Stage, job: SyncHandle[Any], token: int) -> dict[int, int]:
    """The processes that this run has left behind, and when each wrote last."""
    lines = [line for line in stage.story().events_of("offspring", job.id) if line["token"] == token]
    return {line["pid"]: line["at"] for line in lines}


def test_each_has_a_process_with_nothing_beside_it(stage: Stage) -> None:
    warm(stage, "-c", "10", "--solo", "3")
    alones = stage.add_many("alone", 6, 0.4)
    pooled = stage.add_many("pooled", 20, 1.0)
    stage.finished(*alones, *pooled, timeout=25)
    runs = stage.story().runs()
    assert all(run.how == "ok" for run in runs)
    pool = {run.pid for run in runs if run.job in {job.id for job in pooled}}
    apart = [run for run in runs if run.job in {job.id for job in alones}]
    assert len(apart) == 6
    assert len(pool) == 1
    assert not pool & {run.pid for run in apart}
    beside = [(a, b) for a in apart for b in apart if a is not b and a.pid == b.pid and a.touches(b)]
    assert beside == []


def test_there_is_one_process_to_spare(stage: Stage) -> None:
    """It starts a job at once, and another one takes its turn, beside those that run and the pool.

    Which of the two is which may change: where a process starts faster than an idle one looks for work, the newcomer
    takes the job and the first one stays.
    """
    worker = warm(stage, "-c", "1")
    jobs: list[SyncHandle[Any]] = []
    for number in range(3):
        eventually(
            lambda number=number: stage.workers() == len(worker.children()) == number + 2,  # type: ignore[misc]
            20,
            what=lambda: worker.log,
        )
        busy = {stage.started(job).pid for job in jobs}
        added = boot_ns()
        jobs.append(stage.add("alone", 60.0))
        run = stage.started(jobs[-1])
        assert (run.start - added) / 1e9 < WARM_S
        assert run.pid not in busy
    for job in jobs:
        job.cancel()
    stage.finished(*jobs)
    eventually(lambda: len(worker.children()) == 2, 15, what="idle ones leave, all but the one to spare")


def test_the_one_to_spare_stays(stage: Stage) -> None:
    worker = warm(stage, "-c", "1")
    before = worker.children()
    time.sleep(SOLO_IDLE_S + 2)  # nothing is to happen
    assert worker.children() == before


def running(stage: Stage) -> set[str]:
    """The jobs that run."""
    return {run.job for run in stage.story().runs() if run.end is None}


def test_solo_is_a_limit(stage: Stage) -> None:
    worker = warm(stage, "-c", "2", "--solo", "2")
    jobs = stage.add_many("alone", 7, 0.5)
    most = 0

    def look() -> bool:
        nonlocal most
        most = max(most, len(worker.children()))
        return all(job.id not in running(stage) and stage.story().starts(job.id) for job in jobs)

    eventually(look, 25)
    stage.finished(*jobs)
    runs = stage.story().runs()
    assert most == 3, "one of the pool and two apart"
    for run in runs:
        at_its_start = [one for one in runs if one.start <= run.start <= one.last]
        assert len(at_its_start) <= 2


def test_its_offspring_is_gone_before_its_end_is_known(stage: Stage) -> None:
    warm(stage, "-c", "1", "--solo", "1")
    jobs = stage.add_many("with_offspring", 2, 2.0)
    for job in jobs:
        stage.finished(job, timeout=20)
        assert stage.record(job).state == "succeeded"
        left = offspring_of(stage, job, stage.story().runs(job.id)[0].token)
        assert len(left) == KINDS, {line["kind"] for line in stage.story().events_of("offspring", job.id)}
        assert not [pid for pid in left if alive(pid)], "at the moment of the succeeded"
    first, second = (stage.story().runs(job.id) for job in jobs)
    assert max(offspring_of(stage, jobs[0], first[0].token).values()) < second[0].start
    assert (len(first), len(second)) == (1, 1)


def test_its_offspring_is_gone_before_the_next_start_after_a_kill(stage: Stage) -> None:
    warm(stage, "-c", "1")
    warm(stage, "-c", "1")
    job = stage.add("with_offspring", 60.0)
    for number in range(1, 4):
        run = stage.started(job, number, timeout=10)
        eventually(
            lambda run=run: len(offspring_of(stage, job, run.token)) == KINDS,  # type: ignore[misc]
            10,
            what=lambda: {line["kind"] for line in stage.story().events_of("offspring", job.id)},
        )
        kill([run.pid])
        killed = boot_ns()
        heir = stage.started(job, number + 1, timeout=10)
        left = offspring_of(stage, job, run.token)
        assert max(left.values()) < heir.start
        assert not [pid for pid in left if alive(pid)]
        assert (heir.start - killed) / 1e9 < 1.0
        assert heir.pid != run.pid
    assert stage.record(job).losses == 3
    job.cancel()
    stage.finished(job)
    assert stage.story().overlaps() == []


def test_a_dead_supervisor_takes_it_along(stage: Stage) -> None:
    worker = warm(stage, "-c", "1")
    job, beside = stage.add("alone", 60.0), stage.add("pooled", 60.0)
    run = stage.started(job)
    stage.started(beside)
    stage.answered(job)
    worker.kill9_supervisor()
    eventually(lambda: not alive(run.pid), 0.25)
    warm(stage, "-c", "1")
    heir = stage.started(job, 2, timeout=1.3 * LEASE_S + 5)
    assert stage.story().runs(job.id)[0].last < heir.start
    for one in (job, beside):
        one.cancel()
    stage.finished(job, timeout=10)
