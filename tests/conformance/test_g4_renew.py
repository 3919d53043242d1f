"""G4: a renewal works only for what the worker still holds, takes nothing back and shortens nothing.

Three voices speak of one worker at the same time, its claims, its beats and its supervisor's renewals, and any of them
may overtake any other. The stories here are those orders; none may cost a healthy worker a job.
"""

from __future__ import annotations

import pytest

from stillhere.domain.job import OutcomeKind, Verdict
from stillhere.domain.states import State
from stillhere.ports.backend import Beat, Held
from tests.conformance.kit import EVER, LEASE, MINUTE, SECOND, Worker, World, ids, pair

# ----------------------------------------------------------------------------------- claim, beat and settle cross over


def test_g4_a_beat_sent_before_the_claim_was_answered_takes_nothing_back(world: World) -> None:
    """Claim runs, beat runs, the claim's reply comes last."""
    worker = world.worker()
    world.enqueue("a")
    claimed = worker.claim()
    beat = worker.beat(answered=0)
    assert (beat.standing, beat.lost, beat.returned) == ("ok", [], [])
    assert world.worker("v").take() == []
    worker.answered = 1
    assert worker.beat(*claimed.jobs).lost == []
    assert worker.settle(claimed.jobs[0]).status == "ok"


def test_g4_a_beat_that_overtakes_its_claim_says_nothing_of_the_jobs(world: World) -> None:
    """Claim sent, beat sent; the beat runs first."""
    worker = world.worker()
    world.enqueue("a")
    beat = worker.beat(answered=0)
    (grant,) = worker.claim().jobs
    assert (beat.lost, beat.cancelled, beat.returned) == ([], [], [])
    assert worker.settle(grant).status == "ok"


def test_g4_a_beat_that_overtakes_a_settle_does_not_hand_the_job_back(world: World) -> None:
    """A settle is on its way and not confirmed: the job is still among what the worker says it holds."""
    worker = world.worker()
    world.enqueue("a")
    grant = worker.take_one()
    assert worker.beat(grant).returned == []
    assert world.worker("v").take() == []
    assert worker.settle(grant).status == "ok"
    assert worker.beat(grant).lost == [pair(grant)], "settled: the store has nothing for it any more"
    assert world.state("a") is State.SUCCEEDED


def test_g4_an_old_beat_that_runs_after_the_next_claim_takes_nothing_back(world: World) -> None:
    worker = world.worker()
    world.enqueue("a")
    a = worker.take_one()
    world.enqueue("b")
    b = worker.take_one()
    old = worker.beat(a, answered=1)
    assert (old.lost, old.returned) == ([], [])
    assert [worker.settle(grant).status for grant in (a, b)] == ["ok", "ok"]


def test_g4_an_old_beat_with_a_settled_job_in_it_is_harmless(world: World) -> None:
    worker = world.worker()
    world.enqueue("a")
    a = worker.take_one()
    worker.settle(a, OutcomeKind.INTERRUPTED)
    again = worker.take_one()
    late = worker.beat(a, answered=1)
    assert late.lost == [pair(a)], "the old grant, which the worker no longer has"
    assert worker.settle(again).status == "ok"


def test_g4_an_answered_grant_that_is_not_held_is_ready_again(world: World) -> None:
    """The worker forgot it (a bug, a lost task): no limbo under a worker that goes on renewing."""
    worker = world.worker()
    world.enqueue_many(["a", "b"])
    a, b = worker.take()
    beat = worker.beat(a)
    assert (beat.lost, beat.returned) == ([], ["b"])
    assert (world.look("b").deaths, world.look("b").interruptions) == (0, 0)
    assert ids(world.worker("v").take()) == ["b"]
    assert worker.settle(b).status == "stale"
    assert worker.settle(a).status == "ok"


def test_g4_what_a_beat_handed_back_stands_in_front(world: World) -> None:
    worker = world.worker()
    world.enqueue("a")
    worker.take()
    world.enqueue("b")
    assert worker.beat().returned == ["a"]
    assert ids(worker.take()) == ["a", "b"]


# ------------------------------------------------------------------------------------------------- what can be lost


def test_g4_only_what_was_sent_can_be_lost(world: World) -> None:
    worker = world.worker()
    world.enqueue_many(["a", "b", "c"])
    a, b, c = worker.take()
    worker.settle(b)
    assert worker.beat(a, b, c).lost == [pair(b)]
    assert worker.beat(a, c).lost == []


@pytest.mark.parametrize("held", [Held("a", 1), Held("nothing", 5), Held("", 0)])
def test_g4_a_pair_that_the_store_does_not_know_is_lost(world: World, held: Held) -> None:
    worker = world.worker()
    world.enqueue("a")
    grant = worker.take_one()
    told = world.call(beat_of(worker, held, pair(grant)))
    assert told.lost == [held]
    assert worker.settle(grant).status == "ok"


def beat_of(worker: Worker, *held: Held) -> Beat:
    return Beat(queue=worker.world.queue, worker=worker.id, answered=worker.answered, held=held)


def test_g4_the_job_of_another_worker_is_lost_and_left_alone(world: World) -> None:
    mine, other = world.worker("mine"), world.worker("other")
    world.enqueue("a")
    grant = other.take_one()
    assert mine.beat(grant).lost == [pair(grant)]
    assert other.beat(grant).lost == []
    assert other.settle(grant).status == "ok"


def test_g4_a_beat_of_hundreds_of_jobs(world: World) -> None:
    worker = world.worker()
    world.enqueue_many(f"j{i}" for i in range(500))
    grants = worker.take(500)
    assert len(grants) == 500
    worker.settle(grants[7])
    told = worker.beat(*grants)
    assert (told.lost, told.returned) == ([pair(grants[7])], [])
    assert sorted(worker.beat(*grants[:7]).returned) == sorted(ids(grants[8:]))


# ------------------------------------------------------------------------------------------------- after the end


def test_g4_nothing_revives_a_closed_worker(world: World) -> None:
    worker = world.worker()
    world.enqueue_many(["a", "b"])
    grants = worker.take()
    for status in ("more", "ended"):
        told = worker.end(limit=1)
        while status == "ended" and told.status == "more":
            told = worker.end()
        assert told.status == status
        assert worker.renew().standing == "gone"
        assert worker.renew(hand_back=EVER).standing == "gone"
        assert worker.beat(*grants).standing == "gone"
        assert worker.claim().standing == "gone"
        assert worker.claim(n=1).standing == "gone"
        assert worker.register() == "gone"
    assert sorted(ids(world.worker("v").take())) == ["a", "b"]


def test_g4_a_late_beat_takes_nothing_from_the_next_holder(world: World) -> None:
    worker = world.worker()
    world.enqueue("a")
    old = worker.take_one()
    worker.die()
    next_one = world.worker("v")
    new = next_one.take_one()
    assert (worker.beat().returned, worker.beat(old).returned) == ([], [])
    assert next_one.beat(new).lost == []
    assert next_one.settle(new).status == "ok"


def test_g4_a_worker_that_nobody_registered_is_unknown(world: World) -> None:
    nobody = Worker(world, "nobody")
    assert nobody.renew().standing == "unknown"
    assert nobody.beat().standing == "gone"
    assert world.workers() == {}


# -------------------------------------------------------------------------------------------------- how long it is


def test_g4_a_lease_over_but_not_ended_is_renewed(world: World) -> None:
    """Nobody has its jobs: the worker goes on."""
    worker = world.worker()
    world.enqueue("a")
    grant = worker.take_one()
    world.run(LEASE + MINUTE)
    assert world.sweep().over == ["w"]
    assert worker.beat(grant).standing == "ok"
    assert world.sweep().over == []
    assert worker.end(force=False).status == "alive", "who swept before the renewal comes too late"
    assert worker.settle(grant).status == "ok"


def test_g4_the_supervisors_voice_alone_keeps_the_lease(world: World) -> None:
    worker = world.worker()
    world.enqueue("a")
    grant = worker.take_one()
    world.run(10 * LEASE, worker)
    assert world.sweep().over == []
    assert worker.settle(grant).status == "ok"


def test_g4_the_workers_voice_alone_keeps_the_lease(world: World) -> None:
    worker = world.worker()
    world.enqueue("a")
    grant = worker.take_one()
    for _ in range(20):
        world.run(LEASE // 2)
        assert worker.beat(grant).lost == []
    assert world.sweep().over == []


def test_g4_the_holders_own_word_lowers_its_lease(world: World) -> None:
    worker = world.worker()
    worker.beat(lease_ms=5 * SECOND)
    assert world.workers()["w"].lease_ms == 5 * SECOND
    assert world.workers()["w"].left_ms == 5 * SECOND
    world.run(4 * SECOND)
    worker.renew()
    assert world.workers()["w"].left_ms == 5 * SECOND, "the supervisor's voice renews by the new length"
    world.run(5 * SECOND)
    assert world.sweep().over == ["w"]


def test_g4_no_word_makes_a_lease_longer(world: World) -> None:
    worker = world.worker()
    worker.beat(lease_ms=10 * LEASE)
    assert world.workers()["w"].lease_ms == LEASE
    world.run(LEASE)
    assert world.sweep().over == ["w"]


def test_g4_a_late_renewal_does_not_stretch_a_lowered_lease(world: World) -> None:
    worker = world.worker()
    worker.beat(lease_ms=5 * SECOND)
    worker.renew()
    worker.beat()
    assert world.workers()["w"].left_ms == 5 * SECOND


def test_g4_an_answered_number_only_rises(world: World) -> None:
    worker = world.worker()
    world.enqueue("a")
    grant = worker.take_one()
    worker.renew(answered=0)
    assert world.workers()["w"].answered == 1
    worker.die(Verdict.CULPRIT)
    assert world.look("a").losses == 1, "it was answered, so the charge stands"
    assert worker.settle(grant).status == "stale"
