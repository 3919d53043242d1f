"""Runs that do not end when they should: by themselves, by a cut, with their process; nobody else pays (G7, G8).

A limit here is one second. A run is told to stop when it is over; a second later the supervisor acts: it cuts a run
that holds its loop, and kills the process of a solo run. Five seconds after that a child with a run that nothing ends
is retired, and killed when its neighbours have ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from stillhere import SyncHandle
from stillhere.domain.job import JobRecord
from stillhere.worker.supervisor.vouched import SILENT_S
from tests.faults.kit import LEASE_S, Stage
from tests.support.ledger import Run, boot_ns
from tests.support.procs import alive, children, eventually
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer

LIMIT_S = 1.0
ENFORCE_S = 1.0
LAST_WORDS_S = 5.0
SLACK_S = 1.0
"""Looks four times a second, on a busy machine."""
FOREVER_S = 60.0

KINDS = ["timeout", "stall_after", "cancel"]
TOLD = {
    "timeout": "it ran longer than its timeout of 1s",
    "stall_after": "it said nothing for its stall_after of 1s",
}
KILLED = " and did not end, so its process was killed"


def add(stage: Stage, task: str, how: str, kind: str, **options: Any) -> SyncHandle[Any]:
    """A job that would take a minute, with this limit; `cancel` has none yet."""
    task += "_silent" if kind == "stall_after" else ""
    limit = {"timeout": LIMIT_S} if kind == "timeout" else {}
    return stage.add(task, how, FOREVER_S, **{"max_attempts": 1} | limit | options)


def over_at(run: Run, job: SyncHandle[Any], kind: str) -> float:
    """When the run should be over, in seconds on the ledger's clock; cancels it, if that is the kind."""
    if kind != "cancel":
        return run.start / 1e9 + LIMIT_S
    told = boot_ns() / 1e9
    assert job.cancel()
    return told


def ended_by(record: JobRecord, kind: str, *, killed: bool = False) -> None:
    """The end of a single try is that of its kind, and says so."""
    if kind == "cancel":
        assert (record.state, record.reason, record.failures, record.losses) == ("cancelled", "cancelled", 0, 0)
        return
    assert (record.state, record.reason, record.failures, record.losses) == ("dead", "failed", 1, 0)
    error = json.loads(record.error or "{}")
    assert (error["type"], error["message"]) == ("TimeoutError", TOLD[kind] + (KILLED if killed else ""))


def unharmed(stage: Stage, *jobs: SyncHandle[Any]) -> None:
    """They ran once, to their own end, and nothing is charged to them."""
    for job in jobs:
        record = stage.record(job)
        assert (record.state, record.failures, record.losses, record.interruptions) == ("succeeded", 0, 0, 0)
        assert (record.shared, record.beside, record.deaths) == (0, 0, 0)
        assert stage.story().starts(job.id) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_coroutine_that_awaits_hears_of_it_at_once(stage: Stage, kind: str) -> None:
    stage.ready_worker("-c", "4")
    neighbour, job = stage.add("nap", 3.0), add(stage, "stuck", "awaits", kind)
    stage.started(neighbour)
    over = over_at(stage.started(job), job, kind)
    stage.finished(job, timeout=10)
    run = stage.story().runs(job.id)[0]
    assert run.how == "CancelledError"
    assert run.end is not None
    assert run.end / 1e9 - over < ENFORCE_S, "by its own process"
    stage.finished(neighbour)
    ended_by(stage.record(job), kind)
    unharmed(stage, neighbour)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["spins", "sleeps", "swallows"])
def test_a_coroutine_that_blocks_the_loop_is_cut(stage: Stage, how: str, kind: str) -> None:
    stage.ready_worker("-c", "4")
    neighbours = [stage.add("nap", 1.0), stage.add("nap_sync", 4.0)]
    for neighbour in neighbours:
        stage.started(neighbour)
    job = add(stage, "stuck", how, kind)
    over = over_at(stage.started(job), job, kind)
    stage.finished(job, timeout=10)
    run = stage.story().runs(job.id)[0]
    assert run.how == "Cut"
    assert run.end is not None
    assert ENFORCE_S - 0.1 < run.end / 1e9 - over < ENFORCE_S + SLACK_S
    stage.finished(*neighbours)
    ended_by(stage.record(job), kind)
    unharmed(stage, *neighbours)
    assert {stage.story().runs(one.id)[0].pid for one in neighbours} == {run.pid}
    after = stage.add("quick")
    stage.finished(after)
    assert stage.story().runs(after.id)[0].pid == run.pid, "the process goes on"


@pytest.mark.parametrize("kind", KINDS)
def test_a_thread_in_python_code_is_interrupted(stage: Stage, kind: str) -> None:
    stage.ready_worker("-c", "4")
    neighbour, job = stage.add("nap", 4.0), add(stage, "stuck_thread", "spins", kind)
    stage.started(neighbour)
    over = over_at(stage.started(job), job, kind)
    stage.finished(job, timeout=10)
    run = stage.story().runs(job.id)[0]
    assert run.how == "JobStopped"
    assert run.end is not None
    assert run.end / 1e9 - over < ENFORCE_S + SLACK_S
    stage.finished(neighbour)
    ended_by(stage.record(job), kind)
    unharmed(stage, neighbour)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("task", "how"), [("stuck_thread", "sleeps"), ("stuck", "stays")])
def test_what_nothing_ends_goes_with_its_process_when_the_neighbours_have_ended(
    stage: Stage, task: str, how: str, kind: str
) -> None:
    stage.ready_worker("-c", "2")
    neighbour, job = stage.add("nap", LIMIT_S + ENFORCE_S + LAST_WORDS_S + 3), add(stage, task, how, kind)
    beside, run = stage.started(neighbour), stage.started(job)
    assert beside.pid == run.pid
    over = over_at(run, job, kind)
    waits = stage.add("quick", 0.1)
    begun = stage.started(waits)
    assert begun.pid != run.pid, "another process has taken the place"
    assert ENFORCE_S + LAST_WORDS_S <= begun.start / 1e9 - over < ENFORCE_S + LAST_WORDS_S + SLACK_S + 2
    stage.finished(job, neighbour, waits, timeout=10)
    assert not alive(run.pid), "its end is written when it cannot act any more"
    ended_by(stage.record(job), kind, killed=True)
    unharmed(stage, neighbour, waits)
    story = stage.story()
    assert story.starts(job.id) == 1
    if how == "sleeps":
        assert story.runs(job.id)[0].end is None
    killed = stage.record(job).ended or 0
    assert killed >= (stage.record(neighbour).ended or 0)
    assert killed - (stage.record(neighbour).ended or 0) < SLACK_S * 1000 + 500


@pytest.mark.parametrize("task", ["stuck", "stuck_thread"])
def test_what_holds_the_gil_is_ended_from_outside(stage: Stage, task: str) -> None:
    """Nothing in the process can act, so its neighbours cannot end: after the grace they begin elsewhere, uncharged."""
    stage.ready_worker("-c", "4", "--retire-grace", "1s")
    neighbour = stage.add("nap", 2.0)
    stage.started(neighbour)
    job = add(stage, task, "holds the GIL", "timeout")
    run = stage.started(job)
    stage.finished(job, timeout=15)
    assert boot_ns() / 1e9 - run.start / 1e9 < LIMIT_S + ENFORCE_S + LAST_WORDS_S + 1 + SLACK_S + 1
    stage.finished(neighbour, timeout=10)
    record = stage.record(neighbour)
    assert (record.state, record.failures, record.losses, record.shared, record.beside) == ("succeeded", 0, 0, 0, 0)
    assert record.interruptions <= 1
    ended_by(stage.record(job), "timeout", killed=task == "stuck_thread")
    assert stage.story().overlaps() == []


@pytest.mark.parametrize("task", ["stuck", "stuck_alone"])
def test_a_cancel_ends_what_holds_the_gil(stage: Stage, task: str) -> None:
    """The process cannot hear of it; its supervisor does, at its next renewal after a second of silence."""
    stage.ready_worker("-c", "4", "--retire-grace", "1s")
    job = add(stage, task, "holds the GIL", "cancel")
    run = stage.started(job)
    time.sleep(SILENT_S + 0.5)
    job.cancel()
    stage.finished(job, timeout=LEASE_S / 4 + ENFORCE_S + LAST_WORDS_S + SLACK_S + 2)
    assert stage.record(job).state == "cancelled"
    assert stage.story().starts(job.id) == 1
    assert _is_gone(run.pid) == (task == "stuck_alone"), "on a shared loop the signal got it out of its call"


def _is_gone(pid: int) -> bool:
    return not alive(pid)


def _has_failed(stage: Stage, job: SyncHandle[Any], times: int) -> bool:
    return stage.record(job).failures == times


@pytest.mark.parametrize("how", ["sleeps", "holds the GIL"])
def test_a_process_of_its_own_is_killed_a_second_after_the_deadline(stage: Stage, how: str) -> None:
    stage.ready_worker("-c", "4")
    neighbour = stage.add("nap", 3.0)
    job = stage.add("stuck_limited", how, FOREVER_S, max_attempts=2)
    stage.started(neighbour)
    for attempt in (1, 2):
        run = stage.started(job, attempt)
        assert run.pid != stage.story().runs(neighbour.id)[0].pid
        eventually(partial(_is_gone, run.pid), 10)
        assert ENFORCE_S - 0.1 < boot_ns() / 1e9 - run.start / 1e9 - LIMIT_S < ENFORCE_S + SLACK_S
        eventually(partial(_has_failed, stage, job, attempt), 2)
    stage.finished(job, neighbour)
    record = stage.record(job)
    assert (record.state, record.failures, record.losses) == ("dead", 2, 0)
    assert json.loads(record.error or "{}")["message"] == TOLD["timeout"] + KILLED
    assert stage.story().starts(job.id) == 2
    assert all(run.end is None for run in stage.story().runs(job.id))
    unharmed(stage, neighbour)


def test_a_process_of_its_own_has_time_for_last_words_when_it_is_cancelled(stage: Stage) -> None:
    stage.ready_worker("-c", "4")
    job = stage.add("stuck_alone", "sleeps", FOREVER_S)
    run = stage.started(job)
    over = over_at(run, job, "cancel")
    stage.finished(job, timeout=15)
    assert not alive(run.pid)
    ended_by(stage.record(job), "cancel")
    assert ENFORCE_S + LAST_WORDS_S <= boot_ns() / 1e9 - over < ENFORCE_S + LAST_WORDS_S + SLACK_S


@pytest.mark.parametrize(("task", "alone"), [("stuck_limited", True), ("stuck_thread", False)])
def test_twice_as_many_stuck_jobs_as_slots_do_not_take_the_worker(stage: Stage, task: str, alone: bool) -> None:
    slots = 4
    stage.ready_worker("-c", str(slots), "--solo", str(slots), "--retire-grace", "0.2s")
    neighbours = [stage.add("nap", 3.0 if alone else 8.0, long=True)]  # it takes no slot
    stage.started(neighbours[0])
    stuck = [add(stage, task, "sleeps", "timeout") for _ in range(2 * slots)]
    neighbours += [stage.add("nap", 1.0) for _ in range(3)]
    stage.finished(*stuck, timeout=40)
    for job in stuck:
        ended_by(stage.record(job), "timeout", killed=True)
        assert stage.story().starts(job.id) == 1
    stage.finished(*neighbours, timeout=30)
    for job in neighbours:
        record = stage.record(job)
        assert (record.state, record.failures, record.losses, record.shared, record.beside) == ("succeeded", 0, 0, 0, 0)
    if alone:
        unharmed(stage, *neighbours)
    else:
        assert stage.record(neighbours[0]).interruptions >= 1, "it was handed back"
    after = [stage.add("quick") for _ in range(2 * slots)]
    stage.finished(*after, timeout=10)
    assert stage.story().overlaps() == []


@pytest.mark.parametrize("how", ["sleeps", "holds the GIL"])
def test_g4_a_run_that_ignores_its_lost_lease_goes_with_its_process(
    stage: Stage, redis_server: RedisServer, make_proxy: Callable[[RedisServer], Proxy], how: str
) -> None:
    """Also when its process cannot hear that it is lost: the supervisor has heard it."""
    proxy = make_proxy(redis_server)
    lonely = stage.ready_worker("-c", "2", url=proxy.url)
    job = stage.add("stuck_thread", how, FOREVER_S)
    first = stage.started(job)
    stage.answered(job)
    other = stage.ready_worker("-c", "2")
    proxy.blackhole()
    second = stage.started(job, 2, timeout=4 * LEASE_S)
    proxy.heal()
    healed = boot_ns() / 1e9
    eventually(partial(_is_gone, first.pid), 20, what=lambda: lonely.log)
    assert boot_ns() / 1e9 - healed < LEASE_S + ENFORCE_S + LAST_WORDS_S + SLACK_S
    after = [stage.add("quick", 0.5) for _ in range(6)]
    stage.finished(*after)
    assert {stage.started(one).pid for one in after} & set(children(lonely.pid)), "its successor works"
    assert second.pid in children(other.pid)
    record = stage.record(job)
    assert (record.state, record.token, record.failures, record.losses) == ("running", second.token, 0, 0)
    assert stage.story().starts(job.id) == 2


def _jobs_by_process(stage: Stage, jobs: list[SyncHandle[Any]]) -> dict[int, int]:
    count: dict[int, int] = {}
    for job in jobs:
        for run in stage.story().runs(job.id):
            count[run.pid] = count.get(run.pid, 0) + 1
    return count


def test_max_jobs_a_process_takes_so_many_and_is_replaced(stage: Stage) -> None:
    worker = stage.ready_worker("-c", "2", "--max-jobs", "5")
    jobs = [stage.add("quick", 0.05) for _ in range(20)]
    stage.finished(*jobs, timeout=40)
    unharmed(stage, *jobs)
    by_process = _jobs_by_process(stage, jobs)
    assert max(by_process.values()) == 5
    assert len(by_process) == 4
    eventually(lambda: len(children(worker.pid)) == 2, 15, what=lambda: worker.log)  # one that works, one to spare
    assert "killed" not in worker.log
    after = stage.add("quick")
    stage.finished(after)


def test_max_memory_a_leaking_job_ends_with_its_process_and_alone(stage: Stage) -> None:
    """Its process is replaced at the limit and killed beyond; apart, where nobody is beside it, the job is charged."""
    worker = stage.ready_worker("-c", "4", "--max-memory", "100M", "--solo", "1")
    neighbour = stage.add("nap", 1.5)
    job = stage.add("leak", 4.0, 0.1, 1_000.0)
    first = stage.started(job)
    assert stage.started(neighbour).pid == first.pid
    worker.wait_for("takes no more jobs and is replaced", 15)
    waits = stage.add("quick", 0.1)
    assert stage.started(waits).pid != first.pid
    stage.finished(neighbour, waits)
    stage.finished(job, timeout=60)
    record = stage.record(job)
    assert (record.state, record.reason, record.failures) == ("dead", "lost", 0)
    assert "more than --max-memory 100 MiB" in json.loads(record.error or "{}")["exit"]
    unharmed(stage, neighbour, waits)
    assert worker.running
    after = stage.add("quick")
    stage.finished(after)


def test_max_memory_a_job_that_leaks_in_a_process_of_its_own(stage: Stage) -> None:
    stage.ready_worker("-c", "4", "--max-memory", "100M")
    neighbour = stage.add("nap", 6.0)
    job = stage.add("leak_alone", 16.0, 0.05, 1_000.0)
    stage.finished(job, timeout=40)
    record = stage.record(job)
    assert (record.state, record.reason, record.failures) == ("dead", "lost", 0)
    assert "more than --max-memory 100 MiB" in json.loads(record.error or "{}")["exit"]
    stage.finished(neighbour)
    unharmed(stage, neighbour)
