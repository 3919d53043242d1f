"""G5: a settle counts only under the current worker and token, and is one step with all that it entails.

Sent again it says that it was done already, and how; from somebody who no longer has the job it changes nothing.
"""

from __future__ import annotations

import json

import pytest

from stillhere.domain.job import DEAD_RETENTION_MS, Grant, Outcome, OutcomeKind, Verdict
from stillhere.domain.states import FINAL, State
from stillhere.ports.backend import SettledOne
from tests.conformance.kit import DAY, HOUR, LEASE, MINUTE, SECOND, Worker, World, ids, outcome

AFTER = {
    OutcomeKind.SUCCEEDED: State.SUCCEEDED,
    OutcomeKind.RETRY: State.SCHEDULED,
    OutcomeKind.SNOOZE: State.SCHEDULED,
    OutcomeKind.DEAD: State.DEAD,
    OutcomeKind.CANCELLED: State.CANCELLED,
    OutcomeKind.INTERRUPTED: State.READY,
}
"""Each kind, and the state it leaves the job in when it must wait a minute."""


@pytest.fixture
def worker(world: World) -> Worker:
    return world.worker()


def take(world: World, worker: Worker, job: str = "a") -> Grant:
    world.enqueue(job)
    return worker.take_one()


# --------------------------------------------------------------------------------------------------- what it answers


@pytest.mark.parametrize("kind", OutcomeKind)
def test_g5_each_kind_leads_to_its_state_and_says_so_again(world: World, worker: Worker, kind: OutcomeKind) -> None:
    grant = take(world, worker)
    told = worker.settle(grant, kind, delay_ms=MINUTE)
    assert told == SettledOne(status="ok", state=AFTER[kind], outcome=kind)
    for other in OutcomeKind:
        again = worker.settle(grant, other)
        assert again == SettledOne(status="already", state=AFTER[kind], outcome=kind), "the first word stands"
    assert world.state("a") is AFTER[kind]
    assert world.look("a").worker == ("w" if AFTER[kind] in FINAL else None), "who holds it, and then who ran it last"


def test_g5_an_unknown_job_is_unknown(world: World, worker: Worker) -> None:
    assert worker.settle(Grant(id="x", queue="q", token=1, task="t", args="{}")).status == "unknown"


def test_g5_a_job_that_never_ran_is_stale(world: World, worker: Worker) -> None:
    world.enqueue("a")
    told = worker.settle(Grant(id="a", queue="q", token=0, task="t", args="{}"))
    assert (told.status, told.state) == ("stale", State.READY)


@pytest.mark.parametrize("off", [-1, 1])
def test_g5_another_token_is_stale(world: World, worker: Worker, off: int) -> None:
    grant = take(world, worker)
    told = worker.settle_many([Outcome(job="a", token=grant.token + off, kind=OutcomeKind.SUCCEEDED)])[0]
    assert (told.status, told.state) == ("stale", State.RUNNING)
    assert worker.settle(grant).status == "ok"


def test_g5_another_worker_with_the_right_token_is_stale(world: World, worker: Worker) -> None:
    grant = take(world, worker)
    for stranger in (world.worker("v"), Worker(world, "unregistered")):
        assert stranger.settle(grant).status == "stale"
    assert world.state("a") is State.RUNNING
    assert worker.settle(grant).status == "ok"


def test_g5_after_a_takeover_the_old_holder_is_stale_and_changes_nothing(world: World, worker: Worker) -> None:
    old = take(world, worker)
    worker.die()
    other = world.worker("v")
    new = other.take_one()
    for kind in OutcomeKind:
        told = worker.settle(old, kind, result='"mine"', error="{}")
        assert (told.status, told.state) == ("stale", State.RUNNING)
    assert other.beat(new).lost == []
    assert other.settle(new, result='"right"').status == "ok"
    assert worker.settle(old, result='"mine"').status == "stale"
    assert world.look("a").result == '"right"'


def test_g5_put_back_and_not_taken_yet_is_stale_too(world: World, worker: Worker) -> None:
    grant = take(world, worker)
    worker.die()
    told = worker.settle(grant)
    assert (told.status, told.state) == ("stale", State.READY)
    assert world.state("a") is State.READY


def test_g5_the_same_worker_under_its_own_old_token_is_stale(world: World, worker: Worker) -> None:
    old = take(world, worker)
    worker.beat()
    new = worker.take_one()
    assert worker.settle(old).status == "stale"
    assert worker.settle(new).status == "ok"


def test_g5_a_lease_over_that_nobody_has_ended_still_counts(world: World, worker: Worker) -> None:
    grant = take(world, worker)
    world.run(LEASE + MINUTE)
    assert world.sweep().over == ["w"]
    assert worker.settle(grant).status == "ok"
    assert world.recover() == ["w"]
    assert world.state("a") is State.SUCCEEDED


def test_g5_a_closed_worker_settles_what_was_not_yet_taken_from_it(world: World, worker: Worker) -> None:
    """Its end goes in steps: until a job's turn comes nobody else has it, and finished work is not thrown away."""
    world.enqueue_many(["a", "b"])
    grants = {grant.id: grant for grant in worker.take()}
    told = worker.end(limit=1)
    taken = told.returned[0]
    kept = "b" if taken == "a" else "a"
    assert worker.settle(grants[taken]).status == "stale"
    assert worker.settle(grants[kept]).status == "ok"
    worker.die()
    assert world.state(kept) is State.SUCCEEDED


def test_g5_a_repeated_settle_after_the_worker_is_gone_says_already(world: World, worker: Worker) -> None:
    grant = take(world, worker)
    worker.settle(grant)
    worker.die()
    assert worker.settle(grant).status == "already"


def test_g5_an_earlier_run_that_was_settled_is_stale_once_the_next_has_been(world: World, worker: Worker) -> None:
    first = take(world, worker)
    worker.settle(first, OutcomeKind.INTERRUPTED)
    second = worker.take_one()
    assert worker.settle(first).status == "already"
    worker.settle(second)
    assert worker.settle(first).status == "stale"
    assert worker.settle(second).status == "already"


def test_g5_a_batch_answers_each_in_its_place(world: World, worker: Worker) -> None:
    world.enqueue_many(["a", "b", "c"])
    a, b, c = worker.take()
    worker.settle(b)
    stranger = Outcome(job="x", token=1, kind=OutcomeKind.SUCCEEDED)
    told = worker.settle_many([outcome(a), outcome(b), stranger, outcome(c, OutcomeKind.DEAD), outcome(a)])
    assert [one.status for one in told] == ["ok", "already", "unknown", "ok", "already"]
    assert world.status().settled == 3


def test_g5_a_full_batch_and_an_empty_one(world: World, worker: Worker) -> None:
    world.enqueue_many(f"j{i}" for i in range(100))
    grants = worker.take(100)
    assert {one.status for one in worker.settle_many([outcome(grant) for grant in grants])} == {"ok"}
    assert worker.settle_many([]) == []
    assert (world.status().running, world.status().settled) == (0, 100)


# ---------------------------------------------------------------------------------------------- what goes with it


def test_g5_success_keeps_the_result(world: World, worker: Worker) -> None:
    grant = take(world, worker)
    world.run(SECOND, worker)
    worker.settle(grant, result='{"x":[1,null]}')
    kept = world.look("a")
    assert (kept.state, kept.result, kept.ended) == (State.SUCCEEDED, '{"x":[1,null]}', world.now)
    assert (kept.failures, kept.interruptions, kept.error) == (0, 0, None)


def test_g5_a_retry_counts_a_failure_and_waits(world: World, worker: Worker) -> None:
    grant = take(world, worker)
    worker.settle(grant, OutcomeKind.RETRY, delay_ms=MINUTE, error='{"type":"E"}')
    kept = world.look("a")
    assert (kept.failures, kept.reason, kept.error) == (1, "retry", '{"type":"E"}')
    assert kept.due == world.now + MINUTE
    assert worker.take() == []
    world.run(MINUTE, worker)
    assert worker.take_one().failures == 1
    assert world.look("a").reason is None


def test_g5_a_retry_at_once_is_ready_at_once(world: World, worker: Worker) -> None:
    grant = take(world, worker)
    worker.settle(grant, OutcomeKind.RETRY, delay_ms=0)
    assert worker.take_one().token > grant.token


def test_g5_a_snooze_counts_nothing(world: World, worker: Worker) -> None:
    grant = take(world, worker)
    worker.settle(grant, OutcomeKind.SNOOZE, delay_ms=MINUTE)
    kept = world.look("a")
    assert (kept.failures, kept.interruptions, kept.reason, kept.due) == (0, 0, "snoozed", world.now + MINUTE)
    world.run(MINUTE, worker)
    assert worker.take_one().failures == 0


def test_g5_an_interruption_counts_itself_and_is_ready_in_front(world: World, worker: Worker) -> None:
    grant = take(world, worker)
    world.enqueue("b")
    worker.settle(grant, OutcomeKind.INTERRUPTED)
    kept = world.look("a")
    assert (kept.state, kept.interruptions, kept.failures, kept.deaths) == (State.READY, 1, 0, 0)
    assert kept.reason == "interrupted"
    again = worker.take()
    assert ids(again) == ["a", "b"]
    assert again[0].interruptions == 1


def test_g5_a_death_is_a_dead_letter_with_its_reason_and_key_in_one_step(world: World, worker: Worker) -> None:
    world.enqueue("a", unique="u")
    grant = worker.take_one()
    worker.settle(grant, OutcomeKind.DEAD, reason="max_attempts", error='{"type":"E"}')
    kept = world.look("a")
    assert (kept.state, kept.reason, kept.failures, kept.error) == (State.DEAD, "max_attempts", 1, '{"type":"E"}')
    assert world.status().dead == 1
    assert [job.id for job in world.jobs(state=State.DEAD).jobs] == ["a"]
    assert world.enqueue("b", unique="u").created


def test_g5_a_worker_that_cancels_its_job_says_why(world: World, worker: Worker) -> None:
    grant = take(world, worker)
    worker.settle(grant, OutcomeKind.CANCELLED, reason="discarded")
    assert (world.state("a"), world.look("a").reason) == (State.CANCELLED, "discarded")


def test_g5_each_earlier_run_leaves_a_line(world: World, worker: Worker) -> None:
    grants = [take(world, worker)]
    start = world.now
    world.run(SECOND, worker)
    worker.settle(grants[0], OutcomeKind.INTERRUPTED)
    grants.append(worker.take_one())
    worker.settle(grants[1])
    kept = world.look("a")
    (line,) = (json.loads(line) for line in kept.runs)
    assert line == {
        "worker": "w",
        "token": grants[0].token,
        "start": start,
        "end": start + SECOND,
        "how": "interrupted",
    }
    assert (kept.worker, kept.token, kept.started, kept.ended) == ("w", grants[1].token, world.now, world.now)


def test_g5_the_newest_fifty_runs_are_kept(world: World, worker: Worker) -> None:
    world.enqueue("a")
    tokens = []
    for _ in range(60):
        tokens.append(worker.take_one().token)
        worker.beat()
        worker.settle(worker.take_one(), OutcomeKind.INTERRUPTED)
    kept = world.look("a")
    assert kept.interruptions == 60
    assert len(kept.runs) == 50
    assert [json.loads(line)["token"] for line in kept.runs] == sorted(json.loads(line)["token"] for line in kept.runs)
    assert json.loads(kept.runs[-1])["token"] > tokens[-1]


def test_g5_a_refused_settle_leaves_no_trace(world: World, worker: Worker) -> None:
    old = take(world, worker)
    worker.die(Verdict.INTERRUPTED)
    before = world.look("a")
    worker.settle(old, OutcomeKind.DEAD, reason="r", error="{}")
    assert world.look("a") == before
    assert (world.status().dead, world.status().settled) == (0, 0)


# --------------------------------------------------------------------------------------------------- how long it stays


def test_g5_nothing_kept_but_the_stub_with_retention_0(world: World, worker: Worker) -> None:
    world.enqueue("a", args='{"x":1}', headers={"k": "v"})
    grant = worker.take_one()
    worker.checkpoint(grant, 1, '"here"')
    worker.progress(grant, 1, 5)
    worker.settle(grant, result='"r"', retention_ms=0)
    kept = world.look("a")
    assert (kept.id, kept.task, kept.state, kept.ended) == ("a", "t", State.SUCCEEDED, world.now)
    assert (kept.args, kept.result, kept.checkpoint, kept.progress, kept.headers) == (None, None, None, None, {})


@pytest.mark.parametrize(
    ("retention_ms", "stays_ms"),
    [(0, 10 * MINUTE), (MINUTE, 10 * MINUTE), (HOUR, HOUR), (2 * DAY, 2 * DAY)],
)
@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.CANCELLED])
def test_g5_an_ended_job_is_known_for_its_retention_and_ten_minutes_at_least(
    world: World, worker: Worker, kind: OutcomeKind, retention_ms: int, stays_ms: int
) -> None:
    grant = take(world, worker)
    worker.settle(grant, kind, retention_ms=retention_ms)
    world.age(stays_ms - MINUTE)
    assert worker.settle(grant, kind).status == "already"
    world.age(2 * MINUTE)
    assert world.find("a") is None
    assert worker.settle(grant, kind).status == "unknown"


def test_g5_the_outcomes_retention_is_an_hour_unless_said(world: World, worker: Worker) -> None:
    worker.settle(take(world, worker))
    world.age(HOUR - MINUTE)
    assert world.state("a") is State.SUCCEEDED
    world.age(2 * MINUTE)
    assert world.find("a") is None


def test_g5_a_dead_letter_stays_thirty_days_whatever_the_retention(world: World, worker: Worker) -> None:
    worker.settle(take(world, worker), OutcomeKind.DEAD, retention_ms=0)
    world.age(DEAD_RETENTION_MS - MINUTE)
    assert world.state("a") is State.DEAD
    assert world.look("a").args == "{}", "it can be retried"
    world.age(2 * MINUTE)
    world.sweep()
    assert world.find("a") is None
    assert world.status().dead == 0


def test_g5_a_live_job_is_never_forgotten(world: World, worker: Worker) -> None:
    world.enqueue("ready")
    world.enqueue("parked", task="strange")
    world.enqueue("scheduled", delay_ms=400 * DAY)
    world.age(300 * DAY)
    assert {world.state(job) for job in ("ready", "parked", "scheduled")} == {State.READY, State.SCHEDULED}


def test_g5_a_purged_dead_letter_is_gone_and_nothing_else_can_be_purged(world: World, worker: Worker) -> None:
    world.enqueue("b", unique="u")
    grant = worker.take_one()
    assert not world.purge("b")
    worker.settle(grant, OutcomeKind.DEAD)
    assert world.purge("b")
    assert not world.purge("b")
    assert world.find("b") is None
    assert world.enqueue("c", unique="u").created
    assert not world.purge("c")
    assert not world.purge("nothing")
