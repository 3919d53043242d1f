"""G7: the end of a worker acts only on a lease that is over (or by force), once for each job, in bounded steps.

Each job it held is dealt with as the verdict says; a grant that nobody answered returns without a charge.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest

from stillhere.domain.job import JobRecord, OutcomeKind, Verdict
from stillhere.domain.states import State
from tests.conformance.kit import LEASE, MINUTE, Worker, World, ids


def account(record: JobRecord) -> dict[str, int]:
    """What has been counted against a job."""
    names = ("losses", "shared", "beside", "vanished", "deaths", "interruptions", "failures")
    return {name: getattr(record, name) for name in names if getattr(record, name)}


def lose(world: World, verdict: Verdict, times: int = 1, *, first: int = 0) -> None:
    """Workers die one after the other over what they take alone."""
    for number in range(first, first + times):
        worker = world.worker(f"w{number}")
        worker.take_one("both")
        worker.die(verdict)


# --------------------------------------------------------------------------------------------------------- verdicts

EXPECTED = {
    Verdict.CULPRIT: ({"losses": 1, "deaths": 1}, "lost", True),
    Verdict.SUSPECT: ({"shared": 1, "deaths": 1}, "lost", True),
    Verdict.BESIDE: ({"beside": 1, "deaths": 1}, "lost", False),
    Verdict.BYSTANDER: ({}, None, False),
    Verdict.INTERRUPTED: ({"interruptions": 1}, "interrupted", False),
    Verdict.VANISHED: ({"vanished": 1, "deaths": 1}, "lost", False),
}
"""What is counted, the reason it waits with, and whether it runs apart from then on."""


@pytest.mark.parametrize("verdict", Verdict)
def test_g7_what_each_verdict_means(world: World, verdict: Verdict) -> None:
    counted, reason, apart = EXPECTED[verdict]
    world.enqueue("a")
    worker = world.worker()
    grant = worker.take_one()
    told = worker.die(verdict, reason="SIGSEGV")
    assert (told.returned, told.suspects) == ([] if apart else ["a"], ["a"] if apart else [])
    assert (told.dead, told.cancelled) == ([], [])
    kept = world.look("a")
    assert (kept.state, kept.worker, kept.reason) == (State.READY, None, reason)
    assert account(kept) == counted
    other = world.worker("v")
    assert (other.take(1, "pool") == []) is apart
    if apart:
        assert other.take_one("solo").suspect
    assert world.look("a").token > grant.token


@pytest.mark.parametrize("verdict", [Verdict.CULPRIT, Verdict.SUSPECT, Verdict.BESIDE, Verdict.VANISHED])
def test_g7_a_loss_says_how_the_worker_ended(world: World, verdict: Verdict) -> None:
    world.enqueue("a")
    worker = world.worker()
    worker.take()
    worker.die(verdict, reason="SIGSEGV in pid 7")
    kept = world.look("a")
    assert json.loads(kept.error or "")["exit"] == "SIGSEGV in pid 7"
    (line,) = (json.loads(line) for line in kept.runs)
    assert (line["worker"], line["how"], line["exit"]) == ("w", verdict, "SIGSEGV in pid 7")


def test_g7_a_loss_is_never_a_failure(world: World) -> None:
    world.enqueue("a", max_attempts=1)
    lose(world, Verdict.CULPRIT, 3)
    assert (world.look("a").failures, world.state("a")) == (0, State.READY)


def test_g7_verdicts_for_single_jobs_and_the_default_for_the_rest(world: World) -> None:
    world.enqueue_many(["a", "b", "c", "d"])
    worker = world.worker()
    worker.take()
    told = worker.die(Verdict.SUSPECT, verdicts={"a": Verdict.CULPRIT, "b": Verdict.BYSTANDER, "x": Verdict.CULPRIT})
    assert (sorted(told.suspects), told.returned) == (["a", "c", "d"], ["b"])
    assert [account(world.look(job)) for job in "abcd"] == [
        {"losses": 1, "deaths": 1},
        {},
        {"shared": 1, "deaths": 1},
        {"shared": 1, "deaths": 1},
    ]


def test_g7_a_worker_that_leaves_ends_itself(world: World) -> None:
    world.enqueue("a")
    worker = world.worker()
    worker.take()
    told = worker.die(Verdict.INTERRUPTED, reason="drained")
    assert told.returned == ["a"]
    assert world.workers() == {}


# ---------------------------------------------------------------------------------------------------------- budgets


def test_g7_more_losses_than_allowed_is_a_dead_letter_with_the_exit(world: World) -> None:
    world.enqueue("a", max_losses=2)
    lose(world, Verdict.CULPRIT, 2)
    assert world.state("a") is State.READY
    worker = world.worker()
    worker.take_one("both")
    told = worker.die(Verdict.CULPRIT, reason="OOM killer")
    assert (told.dead, told.returned, told.suspects) == (["a"], [], [])
    kept = world.look("a")
    assert (kept.state, kept.reason, kept.losses) == (State.DEAD, "lost", 3)
    assert json.loads(kept.error or "")["exit"] == "OOM killer"
    assert world.status().dead == 1


@pytest.mark.parametrize(
    ("verdict", "max_losses", "survives"),
    [
        (Verdict.CULPRIT, None, 3),
        (Verdict.CULPRIT, 0, 0),
        (Verdict.CULPRIT, 7, 7),
        (Verdict.SUSPECT, None, 12),
        (Verdict.SUSPECT, 1, 4),
        (Verdict.VANISHED, None, 10),
        (Verdict.VANISHED, 0, 10),
        (Verdict.BYSTANDER, 0, 15),
        (Verdict.INTERRUPTED, 0, 15),
    ],
)
def test_g7_what_a_job_survives(world: World, verdict: Verdict, max_losses: int | None, survives: int) -> None:
    world.enqueue("a", max_losses=max_losses)
    lose(world, verdict, survives)
    assert world.state("a") is State.READY
    lose(world, verdict, 1, first=survives)
    immortal = verdict in (Verdict.BYSTANDER, Verdict.INTERRUPTED)
    assert world.state("a") is (State.READY if immortal else State.DEAD)


def test_g7_a_hundred_deaths_are_the_end_whatever_was_forgiven(world: World) -> None:
    world.enqueue("a")
    for number in range(101):
        worker = world.worker(f"w{number}")
        grant = worker.take_one("both")
        worker.checkpoint(grant, 1, str(number))
        worker.die(Verdict.VANISHED)
        assert world.state("a") is (State.DEAD if number == 100 else State.READY)
    assert (world.look("a").vanished, world.look("a").deaths) == (1, 101)


def test_g7_a_revived_dead_letter_has_fresh_budgets(world: World) -> None:
    world.enqueue("a", max_losses=0)
    lose(world, Verdict.CULPRIT)
    assert world.retry("a").changed
    kept = world.look("a")
    assert (kept.state, kept.losses, kept.shared, kept.vanished, kept.deaths) == (State.READY, 0, 0, 0, 1)
    assert not world.worker().take_one("pool").suspect


def test_g7_one_poison_job_dies_alone_and_its_neighbours_live(world: World) -> None:
    """Twenty slots, one job that kills its worker: the others are suspects once, and then proven innocent."""
    jobs = world.enqueue_many([*(f"j{i:02}" for i in range(19)), "poison"])
    pool = world.worker("pool")
    assert len(pool.take(20)) == 20
    pool.die(Verdict.SUSPECT)
    deaths = 0
    for number in range(100):
        solo = world.worker(f"solo{number}")
        grants = solo.take(20, "solo")
        if not grants:
            break
        if grants[0].id == "poison":
            deaths += 1
            solo.die(Verdict.CULPRIT)
        else:
            solo.settle(grants[0])
    assert deaths == 4
    assert Counter(world.state(job) for job in jobs) == {State.SUCCEEDED: 19, State.DEAD: 1}
    assert world.state("poison") is State.DEAD


# --------------------------------------------------------------------------------------------------------- suspects


def test_g7_suspects_come_only_through_their_lanes_and_one_at_a_time(world: World) -> None:
    world.enqueue_many(["a", "b"])
    worker = world.worker()
    worker.take()
    worker.die(Verdict.SUSPECT)
    world.enqueue_many(["c", "d"])
    assert (world.status().suspects, world.tick().suspects, world.sweep().suspects) == (2, 2, 2)
    assert world.status().ready == 4
    both = world.worker("both")
    (first,) = both.take(10, "both")
    assert first.suspect, "a suspect, and then only that one"
    both.settle(first)
    (second,) = world.worker("solo").take(10, "solo")
    assert second.suspect
    assert world.worker("solo2").take(10, "solo") == []
    assert world.tick().suspects == 0
    assert ids(both.take(10, "both")) == ["c", "d"], "no suspect left: the ordinary lanes"


def test_g7_the_pool_goes_on_beside_suspects(world: World) -> None:
    world.enqueue("a")
    lose(world, Verdict.SUSPECT)
    world.enqueue("b")
    reply = world.worker().claim(10, "pool")
    assert (ids(reply.jobs), reply.more) == (["b"], False)


def test_g7_a_culprit_stands_before_those_that_only_are_suspected(world: World) -> None:
    """The likeliest poison first: it is found out soonest, and the innocent do not wait for it in between."""
    world.enqueue_many(["a", "b", "c"])
    worker = world.worker()
    worker.take()
    worker.die(Verdict.SUSPECT, verdicts={"c": Verdict.CULPRIT})
    assert world.worker("v").take_one("solo").id == "c"


def test_g7_a_suspect_that_waits_for_a_retry_is_still_one(world: World) -> None:
    world.enqueue("a")
    lose(world, Verdict.SUSPECT)
    worker = world.worker()
    worker.settle(worker.take_one("solo"), OutcomeKind.RETRY, delay_ms=MINUTE)
    world.run(MINUTE, worker)
    assert worker.take(1, "pool") == []
    assert worker.take_one("solo").suspect


def test_g7_the_first_vanishing_returns_to_its_own_lane_in_front_and_the_second_apart(world: World) -> None:
    world.enqueue("a", priority=9)
    worker = world.worker()
    worker.take()
    world.enqueue("b", priority=9)
    worker.die(Verdict.VANISHED)
    second = world.worker("second")
    assert ids(second.take(1, "pool")) == ["a"], "its own lane, in front of what is new"
    told = second.die(Verdict.VANISHED)
    assert (told.suspects, told.returned) == (["a"], [])
    third = world.worker("third")
    assert ids(third.take(10, "pool")) == ["b"]
    assert third.take_one("solo").id == "a"


# ------------------------------------------------------------------------------------------------- how an end proceeds


def test_g7_an_end_goes_in_steps_and_anybody_goes_on(world: World) -> None:
    jobs = world.enqueue_many(f"j{i:03}" for i in range(25))
    worker = world.worker()
    worker.take(25)
    sizes, statuses, returned = [], [], []
    for _ in range(10):
        told = worker.end(Verdict.BYSTANDER, limit=10)
        statuses.append(told.status)
        sizes.append(len(told.returned))
        returned += told.returned
        assert world.audit() == [], "sound between any two steps"
        if told.status != "more":
            break
        assert "w" in world.sweep().over, "who sweeps next finds it, if this caller dies now"
    assert statuses[-1] == "ended"
    assert max(sizes) == 10
    assert sorted(returned) == jobs, "each of them once"
    assert sorted(ids(world.worker("v").take(100))) == jobs


def test_g7_the_first_reason_and_verdict_stay(world: World) -> None:
    world.enqueue_many(["a", "b"])
    worker = world.worker()
    worker.take()
    worker.end(Verdict.INTERRUPTED, reason="first", limit=1)
    worker.die(Verdict.CULPRIT, reason="second")
    assert [account(world.look(job)) for job in "ab"] == [{"interruptions": 1}] * 2


def test_g7_an_end_repeated_or_late_counts_once(world: World) -> None:
    world.enqueue("a")
    worker = world.worker()
    worker.take()
    worker.die(Verdict.CULPRIT)
    for force in (True, False):
        told = worker.end(Verdict.CULPRIT, force=force)
        assert (told.status, told.returned, told.suspects, told.dead) == ("unknown", [], [], [])
    assert world.look("a").losses == 1
    other = world.worker("v")
    grant = other.take_one("both")
    worker.end(Verdict.CULPRIT)
    assert other.settle(grant).status == "ok"


def test_g7_without_force_a_live_lease_is_left_alone(world: World) -> None:
    world.enqueue("a")
    worker = world.worker()
    grant = worker.take_one()
    world.run(LEASE - 1)
    told = worker.end(force=False)
    assert (told.status, told.returned) == ("alive", [])
    assert worker.settle(grant).status == "ok"
    world.run(1)
    assert worker.end(force=False).status == "ended"


def test_g7_a_worker_nobody_knows_is_unknown(world: World) -> None:
    assert Worker(world, "nobody").end().status == "unknown"


def test_g7_what_it_settled_before_is_not_touched(world: World) -> None:
    world.enqueue_many(["a", "b"])
    worker = world.worker()
    a, _ = worker.take()
    worker.settle(a)
    told = worker.die(Verdict.SUSPECT)
    assert told.suspects == ["b"]
    assert world.state("a") is State.SUCCEEDED


def test_g7_two_undertakers_end_the_same_worker_and_each_job_is_told_once(world: World) -> None:
    jobs = world.enqueue_many(f"j{i}" for i in range(20))
    worker = world.worker()
    worker.take(20)
    told = [worker.end(limit=3) for _ in range(20)]
    returned = [job for one in told for job in one.returned]
    assert sorted(returned) == sorted(jobs)
    assert {one.status for one in told} == {"more", "ended", "unknown"}
