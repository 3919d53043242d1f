"""G3: a lease ends by the store's lease clock and its holder's own length.

The lease clock runs only while somebody calls: a silence, an outage or a step of the server's clock costs a lease at
most the queue's gap, and a step back costs nothing.
"""

from __future__ import annotations

import pytest

from tests.conformance.kit import DAY, HOUR, LEASE, MINUTE, SECOND, World, ids


def left(world: World, worker: str = "w") -> int:
    return world.workers()[worker].left_ms


def test_g3_a_lease_is_over_after_its_length_and_not_before(world: World) -> None:
    world.worker()
    world.run(LEASE - 1)
    assert world.sweep().over == []
    world.run(1)
    assert world.sweep().over == ["w"]


def test_g3_a_renewed_lease_runs_from_the_renewal(world: World) -> None:
    worker = world.worker()
    world.run(20 * SECOND)
    worker.renew()
    world.run(20 * SECOND)
    assert world.sweep().over == []
    assert left(world) == 10 * SECOND
    world.run(10 * SECOND)
    assert world.sweep().over == ["w"]


def test_g3_a_renewed_lease_lives_for_days(world: World) -> None:
    worker = world.worker()
    world.enqueue("a")
    grant = worker.take_one()
    for _ in range(200):
        world.run(10 * SECOND, worker)
    assert world.sweep().over == []
    assert worker.settle(grant).status == "ok"


def test_g3_a_short_lease_beside_a_long_one(world: World) -> None:
    """Each is judged by its own length; whoever sweeps, with whatever lease, judges no other."""
    long, short = world.worker("long", lease=MINUTE), world.worker("short", lease=2 * SECOND)
    world.enqueue_many(["a", "b"])
    kept, lost = long.take_one(), short.take_one()
    world.run(2 * SECOND + 1)
    assert world.recover() == ["short"]
    assert ids(world.worker("next", lease=2 * SECOND).take()) == [lost.id]
    world.run(50 * SECOND)
    assert world.recover() == ["next"]
    assert long.beat(kept).lost == []
    assert long.settle(kept).status == "ok"


@pytest.mark.parametrize("order", [(2 * SECOND, MINUTE), (MINUTE, 2 * SECOND)])
def test_g3_the_length_of_who_registers_later_changes_nothing(world: World, order: tuple[int, int]) -> None:
    for lease in order:
        world.worker(f"w{lease}", lease=lease)
    world.run(
        59 * SECOND,
    )
    assert world.sweep().over == ["w2000"]
    world.run(2 * SECOND)
    assert sorted(world.sweep().over) == ["w2000", "w60000"]


def test_g3_leases_are_of_one_queue(world: World) -> None:
    other = world.beside("other")
    world.worker("w")
    there = other.worker("w")
    world.run(LEASE + SECOND)
    assert world.recover() == ["w"]
    assert other.sweep().over == []
    assert there.renew().standing == "ok"


# ------------------------------------------------------------------------------------------- silence and clock steps


@pytest.mark.parametrize("silence", [10 * SECOND, HOUR, 30 * DAY])
def test_g3_an_outage_costs_at_most_the_gap(world: World, silence: int) -> None:
    world.worker()
    gap = world.tick().gap_ms
    before = world.lease_clock
    world.jump(silence)
    assert world.sweep().over == [], "nobody could renew while the store was away"
    assert world.lease_clock - before == gap
    assert left(world) == LEASE - gap


@pytest.mark.parametrize("step", [-1, -SECOND, -HOUR, -30 * DAY])
def test_g3_a_step_back_costs_nothing_and_saves_nothing(world: World, step: int) -> None:
    world.worker()
    before = world.lease_clock
    world.jump(step)
    assert world.lease_clock == before
    world.run(LEASE - 1)
    assert world.sweep().over == []
    world.run(1)
    assert world.sweep().over == ["w"], "recovery is not put off by the step"


def test_g3_a_flapping_clock_neither_kills_nor_keeps(world: World) -> None:
    living, dead = world.worker("living"), world.worker("dead")
    for step in (HOUR, -HOUR, 40 * SECOND, -40 * SECOND) * 4:
        world.jump(step)
        world.tick()
        living.renew()
    assert world.sweep().over == [] or world.sweep().over == ["dead"]
    world.run(LEASE, living)
    assert world.recover() == ["dead"]
    assert dead.renew().standing == "gone"
    assert living.renew().standing == "ok"


def test_g3_a_flapping_store_still_makes_progress_towards_a_dead_lease(world: World) -> None:
    """Up 2 s in every 25: each time up counts, so recovery cannot be put off for ever."""
    world.worker()
    for _ in range(30):
        world.jump(23 * SECOND)
        world.run(2 * SECOND)
        if world.sweep().over:
            return
    pytest.fail("never")


def test_g3_reading_does_not_move_the_lease_clock_over_an_outage(world: World) -> None:
    """A look at the queue is not contact: leases must not grow old because somebody watches."""
    world.worker()
    before = left(world)
    for _ in range(50):
        world.jump(10 * SECOND)
        world.status()
        world.workers()
        world.audit()
    assert before - left(world) <= world.tick().gap_ms
    assert world.sweep().over == []


# ---------------------------------------------------------------------------------------------------------- the gap


def test_g3_the_gap_follows_the_shortest_lease(world: World) -> None:
    assert world.tick().gap_ms == 2_000
    world.worker("a", lease=LEASE)
    assert world.tick().gap_ms == 2_000
    world.worker("b", lease=3 * SECOND)
    assert world.tick().gap_ms == 300
    world.worker("c", lease=MINUTE)
    assert world.tick().gap_ms == 300, "it stays low for the one who needs it"
    world.worker("d", lease=100)
    assert world.tick().gap_ms == 50, "and never so low that the clock stands"


def test_g3_the_gap_is_set_back_when_the_last_worker_has_left(world: World) -> None:
    long, short = world.worker("long"), world.worker("short", lease=SECOND)
    short.die()
    assert world.tick().gap_ms == 100
    long.die()
    assert world.tick().gap_ms == 2_000


def test_g3_a_short_lease_too_survives_a_step_of_the_clock(world: World) -> None:
    world.worker("short", lease=SECOND)
    world.jump(HOUR)
    assert world.sweep().over == []
    assert left(world, "short") == 900


def test_g3_the_gap_is_of_one_queue(world: World) -> None:
    other = world.beside("other")
    other.worker("short", lease=SECOND)
    assert (world.tick().gap_ms, other.tick().gap_ms) == (2_000, 100)


# ----------------------------------------------------------------------------------------------------- registering


def test_g3_a_worker_registers_once(world: World) -> None:
    worker = world.worker()
    assert worker.register(lease=SECOND) == "exists"
    assert world.workers()["w"].lease_ms == LEASE, "a copy changes nothing"
    worker.die()
    assert worker.register() == "gone"


def test_g3_a_late_copy_of_a_registration_renews_nothing(world: World) -> None:
    worker = world.worker()
    world.run(20 * SECOND)
    worker.register()
    assert left(world) == 10 * SECOND


def test_g3_what_is_known_of_a_worker(world: World) -> None:
    worker = world.worker(tasks=("t", "u"), info={"host": "h", "pid": "7"})
    world.enqueue_many(["a", "b"])
    worker.take()
    world.run(SECOND)
    record = world.workers()["w"]
    assert (record.id, record.queue, record.lease_ms, record.holds, record.answered) == ("w", "q", LEASE, 2, 1)
    assert (record.info, record.tasks, record.gone) == ({"host": "h", "pid": "7"}, ["t", "u"], None)
    assert record.seen == world.now - SECOND
    worker.end(limit=1)
    assert world.workers()["w"].gone == "SIGKILL"
    assert world.status().workers == 0, "closed: nobody to count on"
    worker.die()
    assert world.workers() == {}
