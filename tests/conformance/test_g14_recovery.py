"""G14, the store's part: what a dead worker held can be claimed within 1.3 leases and a second of contact.

At once when its supervisor sees the death; by the lease clock when the whole host went. Contact is time in which any
supervisor ticks: alone, beside many, coming and going, through outages and clock steps.
"""

from __future__ import annotations

import pytest

from stillhere.domain.job import Verdict
from tests.conformance.kit import DAY, HOUR, LEASE, SECOND, Worker, World, ids


def bound(lease: int) -> int:
    return lease * 13 // 10 + SECOND


def contact_until_recovered(world: World, lost: str, *alive: Worker, step: int = SECOND, most: int) -> int:
    """Let supervisors tick and sweep until the job is ready again; returns the ms of contact that took."""
    passed = 0
    while world.look(lost).worker is not None:
        assert passed <= most, f"not recovered after {passed} ms"
        world.run(step, *alive)
        passed += step
        world.recover()
    return passed


def test_g14_a_death_that_was_seen_gives_the_jobs_back_at_once(world: World) -> None:
    jobs = world.enqueue_many(f"j{i:02}" for i in range(20))
    worker = world.worker()
    worker.take(20)
    worker.die(Verdict.BYSTANDER)
    assert sorted(ids(world.worker("v").take(20))) == jobs


@pytest.mark.parametrize("lease", [SECOND, 3 * SECOND, LEASE, 10 * LEASE])
def test_g14_a_host_that_went_is_found_in_time(world: World, lease: int) -> None:
    lost = world.worker("lost", lease=lease)
    other = world.worker("other", lease=lease)
    world.enqueue("a")
    lost.take()
    step = min(SECOND, lease // 10)
    assert contact_until_recovered(world, "a", other, step=step, most=bound(lease)) <= bound(lease)
    assert ids(other.take()) == ["a"]


def test_g14_with_nobody_left_the_time_counts_from_the_first_that_comes(world: World) -> None:
    world.enqueue("a")
    world.worker("lost").take()
    world.jump(3 * DAY)
    first = world.worker("first")
    assert contact_until_recovered(world, "a", first, most=bound(LEASE)) <= bound(LEASE)
    assert ids(first.take()) == ["a"]


def test_g14_processes_that_live_shorter_than_a_lease_recover_it_together(world: World) -> None:
    """A crash loop: each lives 8 s, and its contact counts."""
    world.enqueue("a")
    world.worker("lost").take()
    contact = 0
    while world.look("a").worker == "lost":
        assert contact <= bound(LEASE)
        worker = world.worker(f"short{contact}")
        world.run(8 * SECOND, worker)
        contact += 8 * SECOND
        world.recover()
        worker.die()
        world.jump(20 * SECOND)


def test_g14_clock_steps_do_not_put_it_off(world: World) -> None:
    world.enqueue("a")
    world.worker("lost").take()
    other = world.worker("other")
    contact = 0
    while world.look("a").worker == "lost":
        assert contact <= bound(LEASE)
        world.jump(-HOUR if contact % 4_000 else HOUR)
        world.run(SECOND, other)
        contact += SECOND
        assert "other" not in world.recover()


def test_g14_many_dead_are_found_while_many_live(world: World) -> None:
    jobs = world.enqueue_many(f"j{i:03}" for i in range(100))
    for number in range(50):
        world.worker(f"dead{number}").take(2)
    alive = [world.worker(f"alive{number}") for number in range(10)]
    passed = 0
    while world.status().ready < 100:
        assert passed <= bound(LEASE)
        world.run(SECOND, *alive)
        passed += SECOND
        world.recover()
    taken = [job for worker in alive for job in ids(worker.take(10))]
    assert sorted(taken) == jobs


def test_g14_a_second_queue_does_not_wait_for_the_first(world: World) -> None:
    other = world.beside("other")
    for queue in (world, other):
        queue.enqueue("a")
        queue.worker("lost").take()
    contact_until_recovered(other, "a", most=bound(LEASE))
    assert ids(other.worker("v").take()) == ["a"]
    assert world.look("a").worker == "lost", "nobody ticked here: its lease has not moved"
    contact_until_recovered(world, "a", most=bound(LEASE))


def test_g14_an_undertaker_that_dies_half_way_costs_nothing(world: World) -> None:
    jobs = world.enqueue_many(f"j{i:02}" for i in range(30))
    world.worker("lost").take(30)
    world.run(LEASE)
    assert world.sweep().over == ["lost"]
    Worker(world, "lost").end(force=False, limit=7)  # and then this caller is gone, too
    assert world.recover(limit=7) == ["lost"]
    taken = ids(world.worker("v").take(50))
    assert sorted(taken) == jobs
