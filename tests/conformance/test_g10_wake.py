"""G10: notifications are hints. With all of them lost polling still finishes the work; and they never gather."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from stillhere.domain.job import Grant, OutcomeKind, Verdict
from stillhere.domain.states import State
from stillhere.ports.backend import Hint, Hints
from tests.conformance.kit import HOUR, LEASE, SECOND, Listen, Worker, World

WAKE = Hint(kind="wake", queue="q")


async def heard(ear: Hints, at_most: int = 100) -> int:
    """How many hints there are now."""
    count = 0
    while count < at_most and await ear.next(0.03) is not None:
        count += 1
    return count


# ------------------------------------------------------------------------------------------------ without any of them


def test_g10_with_every_hint_lost_polling_finishes_all_work(world: World) -> None:
    """New work, retries, delays, a dead worker, a revival: nobody listens, and all of it is found."""
    jobs = world.enqueue_many(f"j{i:02}" for i in range(40))
    world.enqueue_many((f"d{i}" for i in range(10)), delay_ms=20 * SECOND)
    jobs += [f"d{i}" for i in range(10)]
    world.worker("dies").take(7)
    worker = world.worker()
    failed: set[str] = set()
    for _ in range(100):
        for grant in worker.take(3, "both"):
            if grant.id in failed or grant.id.endswith("1"):
                worker.settle(grant)
            else:
                failed.add(grant.id)
                worker.settle(grant, OutcomeKind.RETRY, delay_ms=5 * SECOND)
        world.run(SECOND, worker)
        world.recover()
    assert {world.state(job) for job in jobs} == {State.SUCCEEDED}


def test_g10_a_hint_is_no_grant(world: World) -> None:
    """Who hears it and dies has nothing; whoever claims next has the job."""
    world.enqueue("a")
    world.worker("heard it")
    assert world.worker().take_one().id == "a"


# ------------------------------------------------------------------------------------------------- that they do come


async def test_g10_new_work_wakes_one_who_waits(world: World, listen: Listen) -> None:
    ear = listen("w")
    assert await ear.next(0.02) is None
    world.enqueue("a")
    assert await ear.next(5) == WAKE


READY_AGAIN: dict[str, Callable[[Worker, Grant], object]] = {
    "enqueued": lambda worker, _: worker.world.enqueue("new"),
    "interrupted": lambda worker, grant: worker.settle(grant, OutcomeKind.INTERRUPTED),
    "not held": lambda worker, _: worker.beat(),
    "worker dead": lambda worker, _: worker.die(),
    "suspects": lambda worker, _: worker.die(Verdict.SUSPECT),
    "retry by hand": lambda worker, _: worker.world.retry("later"),
    "resumed": lambda worker, _: [worker.world.pause(paused) for paused in (True, False)],
    "due soon": lambda worker, _: worker.world.enqueue("soon", delay_ms=500),
    "due soon by the wall": lambda worker, _: worker.world.enqueue("soon", due=worker.world.now + 500),
}


@pytest.mark.parametrize("way", READY_AGAIN)
async def test_g10_whatever_makes_work_ready_wakes(world: World, listen: Listen, way: str) -> None:
    world.enqueue("a")
    world.enqueue("later", delay_ms=HOUR)
    worker = world.worker("holder")
    grant = worker.take_one()
    ear = listen("w")
    await heard(ear)
    READY_AGAIN[way](worker, grant)
    assert await ear.next(5) == WAKE


async def test_g10_unanswered_grants_that_a_sweep_takes_back_wake(world: World, listen: Listen) -> None:
    worker = world.worker("holder")
    world.enqueue("a")
    worker.claim()
    ear = listen("w")
    await heard(ear)
    world.run(LEASE, worker)
    assert world.sweep().returned == ["a"]
    assert await ear.next(5) == WAKE


async def test_g10_a_claim_that_leaves_work_passes_the_wake_on(world: World, listen: Listen) -> None:
    ear = listen("v")
    world.enqueue_many(["a", "b"])
    await heard(ear)
    worker = world.worker()
    worker.take(1)
    assert await ear.next(5) == WAKE
    worker.take(1)
    assert await heard(ear) == 0, "nothing is left"


async def test_g10_a_job_far_in_the_future_wakes_nobody(world: World, listen: Listen) -> None:
    ear = listen("w")
    world.enqueue("a", delay_ms=HOUR)
    assert await heard(ear) == 0


async def test_g10_one_who_wants_only_cancels_leaves_the_wake_to_others(world: World, listen: Listen) -> None:
    busy, idle = listen("busy"), listen("idle")
    busy.want(False)
    world.enqueue("a")
    assert await busy.next(0.05) is None
    assert await idle.next(5) == WAKE


async def test_g10_what_is_wanted_changes_in_mid_wait(world: World, listen: Listen) -> None:
    ear = listen("w")
    ear.want(False)
    world.enqueue("a")
    waiting = asyncio.create_task(ear.next(30))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    ear.want(True)
    assert await asyncio.wait_for(waiting, 10) == WAKE


async def test_g10_hints_are_of_the_workers_queues(world: World, listen: Listen) -> None:
    ear = listen("w")
    world.beside("other").enqueue("a")
    assert await heard(ear) == 0


# ------------------------------------------------------------------------------------------------------- their number


async def test_g10_hints_that_nobody_hears_do_not_gather(world: World, listen: Listen) -> None:
    world.enqueue_many(f"j{i}" for i in range(500))
    for _ in range(20):
        world.pause()
        world.pause(False)
    ear = listen("w")
    assert 1 <= await heard(ear) <= 16


async def test_g10_cancels_that_nobody_hears_do_not_gather(world: World, listen: Listen) -> None:
    """And go with their worker."""
    world.enqueue_many(f"j{i}" for i in range(50))
    worker = world.worker()
    worker.take(50)
    for number in range(50):
        world.cancel(f"j{number}")
        world.cancel(f"j{number}")
    ear = listen("w")
    ear.want(False)
    worker.die()
    assert await heard(ear) == 0
