"""G8: a waiting job is cancelled at once; a running one hears of it and ends cancelled on whatever way out.

A run that succeeds first has succeeded: the work is done, and to deny it would be a lie.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stillhere.domain.job import Grant, OutcomeKind, Verdict
from stillhere.domain.states import State
from stillhere.ports.backend import Cancelled, Hint
from tests.conformance.kit import DAY, EVER, HOUR, LEASE, MINUTE, Listen, Worker, World, ids, pair

# ------------------------------------------------------------------------------------------------------ in each state


@pytest.mark.parametrize("fields", [{}, {"delay_ms": HOUR}, {"priority": 0}, {"unique": "u"}, {"headers": {"k": "v"}}])
def test_g8_a_waiting_job_is_cancelled_at_once(world: World, fields: dict[str, object]) -> None:
    world.enqueue("a", **fields)
    assert world.cancel("a", reason="changed my mind") == Cancelled(changed=True, state=State.CANCELLED)
    kept = world.look("a")
    assert (kept.state, kept.reason, kept.ended) == (State.CANCELLED, "changed my mind", world.now)
    world.jump(2 * HOUR)
    assert world.worker().take() == []
    status = world.status()
    assert (status.ready, status.scheduled, status.running) == (0, 0, 0)


def test_g8_one_that_waits_until_a_wall_time(world: World) -> None:
    world.enqueue("a", due=world.now + HOUR)
    assert world.cancel("a").state is State.CANCELLED
    world.jump(2 * HOUR)
    assert world.worker().take() == []


def test_g8_a_waiting_retry_and_a_returned_job(world: World) -> None:
    worker = world.worker()
    world.enqueue_many(["retry", "back"])
    retry, back = worker.take()
    worker.settle(retry, OutcomeKind.RETRY, delay_ms=MINUTE)
    worker.settle(back, OutcomeKind.INTERRUPTED)
    assert [world.cancel(job).state for job in ("retry", "back")] == [State.CANCELLED] * 2
    world.run(MINUTE, worker)
    assert worker.take() == []


def test_g8_a_waiting_suspect(world: World) -> None:
    worker = world.worker()
    world.enqueue("a")
    worker.take()
    worker.die(Verdict.SUSPECT)
    assert world.cancel("a").state is State.CANCELLED
    assert world.tick().suspects == 0
    assert world.worker("v").take(1, "solo") == []


@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.DEAD, OutcomeKind.CANCELLED])
def test_g8_an_ended_job_stays_as_it_ended(world: World, kind: OutcomeKind) -> None:
    worker = world.worker()
    world.enqueue("a")
    worker.settle(worker.take_one(), kind)
    state = world.state("a")
    before = world.look("a")
    assert world.cancel("a") == Cancelled(changed=False, state=state)
    assert world.look("a") == before


def test_g8_an_unknown_job(world: World) -> None:
    assert world.cancel("nothing") == Cancelled(changed=False, state=None)


def test_g8_twice_is_once(world: World) -> None:
    world.enqueue("a")
    assert world.cancel("a", reason="first").changed
    assert not world.cancel("a", reason="second").changed
    assert world.look("a").reason == "first"


def test_g8_a_cancelled_job_frees_its_unique_key(world: World) -> None:
    world.enqueue("a", unique="u")
    world.cancel("a")
    assert world.enqueue("b", unique="u").created


@pytest.mark.parametrize(("retention_ms", "stays_ms"), [(None, HOUR), (0, 10 * MINUTE), (DAY, DAY)])
def test_g8_how_long_a_cancelled_job_is_known(world: World, retention_ms: int | None, stays_ms: int) -> None:
    world.enqueue("a")
    world.cancel("a", retention_ms=retention_ms)
    assert (world.look("a").args is None) == (retention_ms == 0)
    world.age(stays_ms - MINUTE)
    assert world.state("a") is State.CANCELLED
    world.age(2 * MINUTE)
    assert world.find("a") is None


# ------------------------------------------------------------------------------------------------------------- running


@pytest.fixture
def worker(world: World) -> Worker:
    return world.worker()


@pytest.fixture
def grant(world: World, worker: Worker) -> Grant:
    world.enqueue("a")
    return worker.take_one()


def test_g8_a_running_job_is_flagged_and_its_beat_says_so(world: World, worker: Worker, grant: Grant) -> None:
    assert worker.beat(grant).cancelled == []
    assert world.cancel("a") == Cancelled(changed=True, state=State.RUNNING)
    assert world.look("a").cancelling
    assert world.state("a") is State.RUNNING
    for _ in range(2):
        told = worker.beat(grant)
        assert (told.cancelled, told.lost, told.returned) == ([pair(grant)], [], []), "said until it has ended"
    assert world.cancel("a") == Cancelled(changed=False, state=State.RUNNING)


def lapse(world: World, worker: Worker) -> None:
    world.run(LEASE)
    assert world.recover() == [worker.id]


WAYS_OUT: dict[str, Callable[[World, Worker, Grant], object]] = {
    "cancelled": lambda _, worker, grant: worker.settle(grant, OutcomeKind.CANCELLED),
    "retry": lambda _, worker, grant: worker.settle(grant, OutcomeKind.RETRY, delay_ms=MINUTE, error="{}"),
    "snooze": lambda _, worker, grant: worker.settle(grant, OutcomeKind.SNOOZE, delay_ms=MINUTE),
    "dead": lambda _, worker, grant: worker.settle(grant, OutcomeKind.DEAD, error="{}"),
    "interrupted": lambda _, worker, grant: worker.settle(grant, OutcomeKind.INTERRUPTED),
    "not held": lambda _, worker, __: worker.beat(),
    "culprit": lambda _, worker, __: worker.die(Verdict.CULPRIT),
    "suspect": lambda _, worker, __: worker.die(Verdict.SUSPECT),
    "vanished": lambda _, worker, __: worker.die(Verdict.VANISHED),
    "bystander": lambda _, worker, __: worker.die(Verdict.BYSTANDER),
    "stopped": lambda _, worker, __: worker.die(Verdict.INTERRUPTED),
    "lease over": lambda world, worker, __: lapse(world, worker),
}


@pytest.mark.parametrize("way", WAYS_OUT)
def test_g8_a_cancelled_run_ends_cancelled_on_every_way_out(
    world: World, worker: Worker, grant: Grant, way: str
) -> None:
    world.cancel("a", reason="enough")
    WAYS_OUT[way](world, worker, grant)
    kept = world.look("a")
    assert (kept.state, kept.reason, kept.cancelling) == (State.CANCELLED, "enough", False)
    assert world.status().running == 0
    other = world.worker("v")
    world.run(MINUTE, other)
    assert (other.take(1, "both"), other.take()) == ([], [])


def test_g8_an_end_tells_which_it_cancelled(world: World, worker: Worker, grant: Grant) -> None:
    world.cancel("a")
    told = worker.die(Verdict.CULPRIT)
    assert (told.cancelled, told.returned, told.suspects, told.dead) == (["a"], [], [], [])


def test_g8_a_loss_over_budget_of_a_cancelled_job_is_a_cancel(world: World, worker: Worker) -> None:
    world.enqueue("b", max_losses=0)
    worker.take_one()
    world.cancel("b")
    assert worker.die(Verdict.CULPRIT).cancelled == ["b"]
    assert world.state("b") is State.CANCELLED


def test_g8_an_unanswered_grant_that_was_cancelled(world: World, worker: Worker) -> None:
    world.enqueue("b")
    worker.claim()
    world.cancel("b")
    assert worker.renew(hand_back=EVER).returned == []
    assert world.state("b") is State.CANCELLED


def test_g8_a_success_that_comes_after_the_cancel_still_is_one(world: World, worker: Worker, grant: Grant) -> None:
    world.cancel("a")
    told = worker.settle(grant, result='"done"')
    assert (told.status, told.state, told.outcome) == ("ok", State.SUCCEEDED, OutcomeKind.SUCCEEDED)
    kept = world.look("a")
    assert (kept.state, kept.result, kept.cancelling) == (State.SUCCEEDED, '"done"', False)


def test_g8_the_settle_says_that_it_became_a_cancel(world: World, worker: Worker, grant: Grant) -> None:
    world.cancel("a")
    for status in ("ok", "already"):
        told = worker.settle(grant, OutcomeKind.RETRY)
        assert (told.status, told.state, told.outcome) == (status, State.CANCELLED, OutcomeKind.CANCELLED)


def test_g8_the_flag_does_not_reach_the_next_run(world: World, worker: Worker) -> None:
    world.enqueue("b")
    grant = worker.take_one()
    worker.settle(grant, OutcomeKind.INTERRUPTED)
    again = worker.take_one()
    world.cancel("b")
    assert worker.beat(grant).cancelled == [], "the old grant is lost, not cancelled"
    assert worker.settle(again, OutcomeKind.CANCELLED).status == "stale", "the beat did not hold it: cancelled by that"
    assert world.state("b") is State.CANCELLED


def test_g8_checkpoints_of_a_run_that_is_being_cancelled_still_count(
    world: World, worker: Worker, grant: Grant
) -> None:
    world.cancel("a")
    assert worker.checkpoint(grant, 1, '"last words"') == "ok"
    assert world.look("a").checkpoint == '"last words"'


def test_g8_a_claim_repeated_after_the_cancel_gives_the_grant_and_the_beat_the_cancel(
    world: World, worker: Worker
) -> None:
    world.enqueue("b")
    worker.claim()
    world.cancel("b")
    assert ids(worker.claim().jobs) == ["b"]
    assert [one.job for one in worker.beat(*worker.claim().jobs, answered=1).cancelled] == ["b"]


# --------------------------------------------------------------------------------------------------------- the hint


async def test_g8_the_worker_is_told_at_once(world: World, grant: Grant, listen: Listen) -> None:
    ear = listen("w")
    ear.want(False)
    world.cancel("a")
    assert await ear.next(5) == Hint(kind="cancel", queue="q", job="a", token=grant.token)
    assert await ear.next(0.05) is None, "once"


async def test_g8_no_other_worker_is_told(world: World, grant: Grant, listen: Listen) -> None:
    ear = listen("v")
    ear.want(False)
    world.cancel("a")
    assert await ear.next(0.05) is None
