"""G7: grants that nobody answered return without a charge; sweeps find what is over, in bounded steps."""

from __future__ import annotations

import pytest

from stillhere.domain.job import JobRecord, Verdict
from stillhere.domain.states import State
from stillhere.ports.backend import Held
from tests.conformance.kit import EVER, LEASE, SECOND, Worker, World, ids


def account(record: JobRecord) -> dict[str, int]:
    """What has been counted against a job."""
    names = ("losses", "shared", "vanished", "deaths", "interruptions", "failures")
    return {name: getattr(record, name) for name in names if getattr(record, name)}


# ------------------------------------------------------------------------------------------------ unanswered grants


@pytest.mark.parametrize("verdict", Verdict)
def test_g7_a_grant_that_nobody_answered_is_a_bystander_whatever_is_said(world: World, verdict: Verdict) -> None:
    world.enqueue("a")
    worker = world.worker()
    worker.claim()
    told = worker.die(verdict, verdicts={"a": verdict})
    assert told.returned == ["a"]
    assert account(world.look("a")) == {}
    assert world.look("a").runs == [], "it never was a run"
    assert ids(world.worker("v").take()) == ["a"]


def test_g7_answered_and_unanswered_grants_of_one_worker(world: World) -> None:
    worker = world.worker()
    world.enqueue("a")
    worker.take()
    world.enqueue("b")
    worker.claim()
    worker.die(Verdict.CULPRIT)
    assert account(world.look("a")) == {"losses": 1, "deaths": 1}
    assert account(world.look("b")) == {}


def test_g7_a_claim_that_comes_late_to_a_closed_worker_gets_nothing(world: World) -> None:
    worker = world.worker()
    world.enqueue("a")
    worker.end()
    late = worker.claim()
    assert (late.standing, late.jobs) == ("gone", [])
    assert ids(world.worker("v").take()) == ["a"]


def test_g7_an_unanswered_grant_returns_after_a_lease_though_the_worker_lives(world: World) -> None:
    """Its reply was lost and its loop hangs, while the supervisor goes on renewing."""
    worker = world.worker()
    world.enqueue("known")
    known = worker.take_one()
    world.enqueue("unseen")
    worker.claim()
    world.run(LEASE - 2 * SECOND, worker)
    assert world.sweep().returned == []
    world.run(2 * SECOND, worker)
    swept = world.sweep()
    assert (swept.returned, swept.over) == (["unseen"], [])
    assert account(world.look("unseen")) == {}
    assert ids(world.worker("v").take()) == ["unseen"]
    assert worker.beat(known).lost == []
    assert worker.settle(known).status == "ok"


def test_g7_once_answered_it_stays(world: World) -> None:
    worker = world.worker()
    world.enqueue("a")
    (grant,) = worker.claim().jobs
    world.run(LEASE // 2)
    worker.renew(answered=1)
    world.run(2 * LEASE, worker)
    worker.renew(answered=1)
    assert world.sweep().returned == []
    assert worker.settle(grant).status == "ok"


def test_g7_the_next_claim_says_that_the_last_was_answered(world: World) -> None:
    worker = world.worker()
    world.enqueue("a")
    (grant,) = worker.claim().jobs
    worker.answered = 1
    worker.claim()
    worker.answered = 0
    for _ in range(4):
        world.run(LEASE // 2, worker)
        assert world.sweep().returned == []
    assert worker.settle(grant).status == "ok"


def test_g7_the_next_claim_makes_the_last_ones_jobs_chargeable(world: World) -> None:
    """Its number says that the worker had the earlier grants, though no beat has said so yet."""
    worker = world.worker()
    world.enqueue("a")
    worker.claim()
    world.enqueue("b")
    worker.claim(n=2)
    told = worker.die(Verdict.CULPRIT)
    assert (told.suspects, told.returned) == (["a"], ["b"])
    assert (account(world.look("a")), account(world.look("b"))) == ({"losses": 1, "deaths": 1}, {})


def test_g7_taken_back_and_then_answered_is_lost(world: World) -> None:
    """The reply comes at last: the start gate's beat says that the jobs are gone."""
    worker = world.worker()
    world.enqueue("a")
    (grant,) = worker.claim().jobs
    world.run(LEASE, worker)
    assert world.sweep().returned == ["a"]
    worker.answered = 1
    told = worker.beat(grant)
    assert [pair.job for pair in told.lost] == ["a"]
    assert worker.claim().standing == "ok"


def test_g7_the_same_claim_repeated_after_it_was_taken_back_gives_nothing(world: World) -> None:
    worker = world.worker()
    world.enqueue("a")
    worker.claim()
    world.run(LEASE, worker)
    world.sweep()
    assert worker.claim(n=1).jobs == []
    assert ids(world.worker("v").take()) == ["a"]
    assert worker.claim(n=1).jobs == []


# ------------------------------------------------------------------------------------------------------- hand_back


def test_g8_whoever_speaks_for_a_silent_worker_hears_what_is_cancelled(world: World) -> None:
    for name in ("a", "b", "c"):
        world.enqueue(name)
    worker = world.worker()
    a, b, _ = worker.take(3)
    for grant in (a, b):
        world.cancel(grant.id)
    worker.settle(b)
    worker.renew(answered=1)
    assert worker.renew().cancelled == [], "its own voice is heard"
    told = worker.renew(hand_back=EVER)
    assert (told.returned, told.cancelled) == ([], [Held(a.id, a.token)])


def test_g7_a_silent_loops_unanswered_grants_are_handed_back_at_once(world: World) -> None:
    worker = world.worker()
    world.enqueue("known")
    known = worker.take_one()
    world.enqueue("unseen")
    worker.claim()
    assert worker.renew().returned == []
    assert worker.renew(hand_back=EVER).returned == ["unseen"]
    assert worker.renew(hand_back=EVER).returned == [], "at each beat while it is silent"
    assert account(world.look("unseen")) == {}
    assert ids(world.worker("v").take()) == ["unseen"]
    assert worker.settle(known).status == "ok"


def test_g7_what_was_granted_after_the_supervisor_looked_stays(world: World) -> None:
    """The child woke and claimed again while the request was on its way."""
    worker = world.worker()
    world.run(SECOND)
    seen = world.lease_clock
    world.run(SECOND)
    world.enqueue("a")
    (grant,) = worker.claim().jobs
    assert worker.renew(hand_back=seen).returned == []
    assert worker.renew(hand_back=world.lease_clock).returned == [], "granted at that very moment: not before it"
    worker.answered = 1
    assert worker.beat(grant).lost == []
    assert worker.settle(grant).status == "ok"


def test_g7_a_hand_back_that_runs_late_spares_the_next_claim(world: World) -> None:
    worker = world.worker()
    world.enqueue("a")
    worker.claim()
    world.run(2 * SECOND)
    seen = world.lease_clock
    assert worker.renew(hand_back=seen).returned == ["a"]
    world.run(SECOND)
    worker.answered = 1
    (again,) = worker.claim().jobs
    assert worker.renew(hand_back=seen, answered=0).returned == [], "a late copy"
    assert worker.renew(hand_back=seen, answered=1).returned == []
    worker.answered = 2
    assert worker.beat(again).lost == []


def test_g7_without_a_time_nothing_is_handed_back(world: World) -> None:
    worker = world.worker()
    world.enqueue("a")
    worker.claim()
    world.run(5 * SECOND)
    assert worker.renew().returned == []
    assert world.state("a") is State.RUNNING


def test_g7_what_a_hand_back_spared_is_still_taken_back_after_a_lease(world: World) -> None:
    worker = world.worker()
    world.enqueue("a")
    worker.claim()
    assert worker.renew(hand_back=world.lease_clock).returned == []
    world.run(LEASE, worker)
    assert world.sweep().returned == ["a"]


def test_g7_nothing_answered_is_handed_back(world: World) -> None:
    worker = world.worker()
    world.enqueue("a")
    grant = worker.take_one()
    assert worker.renew(hand_back=EVER).returned == []
    assert worker.settle(grant).status == "ok"


def test_g7_after_a_hand_back_the_worker_goes_on_claiming(world: World) -> None:
    worker = world.worker()
    world.enqueue("a")
    (grant,) = worker.claim().jobs
    worker.renew(hand_back=EVER)
    worker.answered = 1
    assert [pair.job for pair in worker.beat(grant).lost] == ["a"]
    assert ids(worker.take()) == ["a"]


# ------------------------------------------------------------------------------------------------------------ sweeps


def test_g7_five_dead_among_five_hundred_live_are_found_in_one_call(world: World) -> None:
    dead = [world.worker(f"dead{i}") for i in range(5)]
    world.run(LEASE - SECOND)
    for number in range(500):
        world.worker(f"live{number}")
    world.run(SECOND)
    assert sorted(world.sweep().over) == sorted(worker.id for worker in dead)


def test_g7_a_sweep_is_bounded_and_comes_to_all(world: World) -> None:
    for number in range(30):
        world.worker(f"w{number}")
    world.run(LEASE)
    assert len(world.sweep(limit=7).over) == 7
    ended: list[str] = []
    while over := world.sweep(limit=7).over:
        for worker in over:
            Worker(world, worker).end(force=False)
            ended.append(worker)
    assert sorted(ended) == sorted(f"w{number}" for number in range(30))


def test_g7_a_sweep_of_an_empty_or_healthy_queue_finds_nothing(world: World) -> None:
    empty = world.sweep()
    assert (empty.over, empty.returned, empty.suspects) == ([], [], 0)
    worker = world.worker()
    world.enqueue("a")
    worker.take()
    healthy = world.sweep()
    assert (healthy.over, healthy.returned) == ([], [])
    assert world.sweep() == healthy, "twice is once"
