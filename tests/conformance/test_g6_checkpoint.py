"""G6: checkpoints and progress are written only under the current token, in their own order; the next grant has them.

A request that hung may run after its successor. So each write has a number that rises under one token, and the store
keeps the highest.
"""

from __future__ import annotations

import json

import pytest

from stillhere.domain.job import Grant, OutcomeKind, Verdict
from stillhere.domain.states import State
from stillhere.ports.backend import Progress, ProgressItem
from tests.conformance.kit import SECOND, Worker, World


@pytest.fixture
def worker(world: World) -> Worker:
    return world.worker()


def take(world: World, worker: Worker) -> Grant:
    world.enqueue("a")
    return worker.take_one()


# ------------------------------------------------------------------------------------------------------- checkpoints


def test_g6_the_newest_checkpoint_is_kept(world: World, worker: Worker) -> None:
    grant = take(world, worker)
    assert grant.checkpoint is None
    for number in (1, 2, 7):
        assert worker.checkpoint(grant, number, f'{{"at":{number}}}') == "ok"
        assert world.look("a").checkpoint == f'{{"at":{number}}}'


def test_g6_an_older_one_that_runs_late_changes_nothing(world: World, worker: Worker) -> None:
    grant = take(world, worker)
    worker.checkpoint(grant, 6, "6")
    assert worker.checkpoint(grant, 5, "5") == "older"
    assert worker.checkpoint(grant, 6, "again") == "older"
    assert world.look("a").checkpoint == "6"
    assert worker.checkpoint(grant, 7, "7") == "ok"


def test_g6_the_next_grant_carries_it_and_counts_from_one_again(world: World, worker: Worker) -> None:
    first = take(world, worker)
    worker.checkpoint(first, 9, '"far"')
    worker.settle(first, OutcomeKind.INTERRUPTED)
    second = worker.take_one()
    assert second.checkpoint == '"far"'
    assert worker.checkpoint(second, 1, '"farther"') == "ok"
    assert worker.checkpoint(first, 10, '"ghost"') == "stale"
    assert world.look("a").checkpoint == '"farther"'


@pytest.mark.parametrize("verdict", Verdict)
def test_g6_it_outlives_every_end_of_a_worker(world: World, worker: Worker, verdict: Verdict) -> None:
    grant = take(world, worker)
    worker.checkpoint(grant, 1, '"here"')
    worker.die(verdict)
    assert world.worker("v").take_one("both").checkpoint == '"here"'


def test_g6_it_outlives_a_retry_a_dead_letter_and_its_revival(world: World, worker: Worker) -> None:
    grant = take(world, worker)
    worker.checkpoint(grant, 1, '"here"')
    worker.settle(grant, OutcomeKind.RETRY)
    worker.settle(worker.take_one(), OutcomeKind.DEAD)
    world.retry("a")
    assert worker.take_one().checkpoint == '"here"'


def test_g6_the_repeated_claim_carries_it_too(world: World, worker: Worker) -> None:
    world.enqueue("a")
    (grant,) = worker.claim().jobs
    worker.checkpoint(grant, 1, '"here"')
    assert worker.claim().jobs[0].checkpoint == '"here"'


@pytest.mark.parametrize("kind", OutcomeKind)
def test_g6_after_the_settle_it_is_stale(world: World, worker: Worker, kind: OutcomeKind) -> None:
    grant = take(world, worker)
    worker.settle(grant, kind)
    assert worker.checkpoint(grant, 1, "1") == "stale"
    assert worker.progress(grant, 1, 1) == "stale"
    assert world.look("a").checkpoint is None
    assert world.look("a").progress is None


def test_g6_a_ghost_writes_nothing_over_the_next_holder(world: World, worker: Worker) -> None:
    old = take(world, worker)
    worker.die()
    assert worker.checkpoint(old, 50, "50") == "stale", "put back, and nobody has it"
    other = world.worker("v")
    new = other.take_one()
    other.checkpoint(new, 1, '"right"')
    other.progress(new, 1, 1)
    before = world.look("a")
    assert worker.checkpoint(old, 51, "51") == "stale"
    assert worker.progress(old, 51, 9) == "stale"
    assert other.settle(old).status == "stale"
    assert world.look("a") == before


def test_g6_another_worker_or_token_writes_nothing(world: World, worker: Worker) -> None:
    grant = take(world, worker)
    assert world.worker("v").checkpoint(grant, 1, "1") == "stale"
    assert world.worker("u").progress(grant, 1, 1) == "stale"
    stranger = Grant(id="a", queue="q", token=grant.token + 1, task="t", args="{}")
    assert worker.checkpoint(stranger, 1, "1") == "stale"
    assert worker.checkpoint(Grant(id="x", queue="q", token=1, task="t", args="{}"), 1, "1") == "stale"


# ------------------------------------------------------------------------------------- what a moved checkpoint forgives


def lose(world: World, verdict: Verdict, number: int, checkpoint: str | None = None) -> None:
    worker = world.worker(f"w{number}")
    grant = worker.take_one("both")
    if checkpoint is not None:
        assert worker.checkpoint(grant, 1, checkpoint) == "ok"
    worker.die(verdict)


@pytest.mark.parametrize("verdict", [Verdict.CULPRIT, Verdict.SUSPECT, Verdict.VANISHED])
def test_g6_a_checkpoint_that_moved_sets_the_losses_back(world: World, verdict: Verdict) -> None:
    world.enqueue("a")
    lose(world, verdict, 1)
    lose(world, verdict, 2)
    worker = world.worker()
    grant = worker.take_one("both")
    assert worker.checkpoint(grant, 1, '"moved"') == "ok"
    kept = world.look("a")
    assert (kept.losses, kept.shared, kept.vanished, kept.deaths) == (0, 0, 0, 2)


def test_g6_a_job_that_gets_on_outlives_any_number_of_hosts(world: World) -> None:
    world.enqueue("a", max_losses=1)
    for number in range(20):
        lose(world, Verdict.CULPRIT, number, str(number))
    assert world.look("a").losses == 1
    assert world.look("a").deaths == 20


def test_g6_the_same_value_again_forgives_nothing(world: World) -> None:
    world.enqueue("a", max_losses=2)
    for number in range(3):
        lose(world, Verdict.CULPRIT, number, '"stuck"')
    assert world.look("a").state is State.DEAD, "it wrote, and did not move"


def test_g6_a_job_that_moved_leaves_the_suspects_lane(world: World, worker: Worker) -> None:
    world.enqueue("a")
    lose(world, Verdict.SUSPECT, 1)
    grant = worker.take_one("solo")
    assert grant.suspect
    worker.checkpoint(grant, 1, '"moved"')
    worker.settle(grant, OutcomeKind.INTERRUPTED)
    assert not worker.take_one("pool").suspect


def test_g6_a_failed_retry_forgives_no_losses(world: World, worker: Worker) -> None:
    world.enqueue("a")
    lose(world, Verdict.CULPRIT, 1)
    worker.settle(worker.take_one("solo"), OutcomeKind.RETRY)
    assert world.look("a").losses == 1
    assert worker.take_one("solo").losses == 1


# ---------------------------------------------------------------------------------------------------------- progress


def test_g6_the_newest_progress_is_kept_with_the_stores_time(world: World, worker: Worker) -> None:
    grant = take(world, worker)
    world.run(SECOND, worker)
    assert worker.progress(grant, 1, 3) == "ok"
    shown = json.loads(world.look("a").progress or "")
    assert shown == {"done": 3, "total": 10, "at": world.now}


def test_g6_an_older_progress_changes_nothing(world: World, worker: Worker) -> None:
    grant = take(world, worker)
    worker.progress(grant, 6, 6)
    assert worker.progress(grant, 5, 5) == "older"
    assert worker.progress(grant, 6, 9) == "older"
    assert json.loads(world.look("a").progress or "")["done"] == 6


def test_g6_checkpoint_and_progress_are_numbered_apart(world: World, worker: Worker) -> None:
    grant = take(world, worker)
    assert worker.progress(grant, 9, 9) == "ok"
    assert worker.checkpoint(grant, 1, "1") == "ok"
    assert worker.progress(grant, 8, 8) == "older"


def test_g6_progress_of_many_runs_is_answered_one_by_one(world: World, worker: Worker) -> None:
    world.enqueue_many(["a", "b", "c"])
    a, b, c = worker.take()
    worker.settle(b)
    worker.progress(c, 5, 5)
    items = [ProgressItem(job=g.id, token=g.token, number=2, value='{"done":2}') for g in (a, b, c)]
    told = world.call(Progress(queue="q", worker="w", items=items))
    assert told == ["ok", "stale", "older"]
    assert world.call(Progress(queue="q", worker="w", items=[])) == []


def test_g6_progress_with_nothing_in_it(world: World, worker: Worker) -> None:
    grant = take(world, worker)
    item = ProgressItem(job="a", token=grant.token, number=1, value="{}")
    assert world.call(Progress(queue="q", worker="w", items=[item])) == ["ok"]
    assert json.loads(world.look("a").progress or "") == {"at": world.now}
