"""G9: a delayed, retried or scheduled job becomes ready once, not before its time, and holds no lease while it waits.

A delay counts on a clock that never goes back; a wall time is a wall time.
"""

from __future__ import annotations

import pytest

from stillhere.domain.job import OutcomeKind
from stillhere.domain.states import State
from tests.conformance.kit import DAY, HOUR, MINUTE, SECOND, Worker, World, ids


@pytest.fixture
def worker(world: World) -> Worker:
    return world.worker(lease=400 * DAY)  # outlives the stories told here


def test_g9_a_delayed_job_waits_and_comes_once(world: World, worker: Worker) -> None:
    told = world.enqueue("a", delay_ms=MINUTE)
    assert told.state is State.SCHEDULED
    assert world.look("a").due == world.now + MINUTE
    assert world.status().scheduled == 1
    world.jump(MINUTE - 1)
    assert worker.take() == []
    world.jump(1)
    assert ids(worker.take()) == ["a"]
    assert worker.take() == []
    assert world.status().scheduled == 0


def test_g9_a_job_for_a_wall_time(world: World, worker: Worker) -> None:
    due = world.now + HOUR
    assert world.enqueue("a", due=due).state is State.SCHEDULED
    assert world.look("a").due == due
    world.jump(HOUR - 1)
    assert worker.take() == []
    world.jump(1)
    assert ids(worker.take()) == ["a"]


@pytest.mark.parametrize("fields", [{"delay_ms": 0}, {"delay_ms": None}])
def test_g9_no_delay_is_ready_at_once(world: World, worker: Worker, fields: dict[str, object]) -> None:
    assert world.enqueue("a", **fields).state is State.READY
    assert ids(worker.take()) == ["a"]


@pytest.mark.parametrize("ago", [0, 1, DAY])
def test_g9_a_wall_time_that_has_passed_is_ready_at_once(world: World, worker: Worker, ago: int) -> None:
    assert world.enqueue("a", due=world.now - ago).state is State.READY
    assert ids(worker.take()) == ["a"]


@pytest.mark.parametrize("back", [SECOND, HOUR, 30 * DAY])
def test_g9_a_delay_is_not_prolonged_by_a_clock_that_goes_back(world: World, worker: Worker, back: int) -> None:
    world.enqueue("a", delay_ms=MINUTE)
    world.jump(30 * SECOND)
    world.tick()
    world.jump(-back)
    world.tick()
    world.run(30 * SECOND - 1)
    assert worker.take() == []
    world.jump(1)
    assert ids(worker.take()) == ["a"]


@pytest.mark.parametrize("back", [SECOND, HOUR])
def test_g9_a_delay_begun_after_a_step_back_is_not_shortened(world: World, worker: Worker, back: int) -> None:
    world.tick()
    world.jump(-back)
    world.enqueue("a", delay_ms=MINUTE)
    assert next_due(worker) == MINUTE
    world.run(MINUTE - 1, worker)
    assert worker.take() == []
    world.jump(1)
    assert ids(worker.take()) == ["a"]


def test_g9_a_retrys_wait_is_not_prolonged_either(world: World, worker: Worker) -> None:
    world.enqueue("a")
    worker.settle(worker.take_one(), OutcomeKind.RETRY, delay_ms=MINUTE)
    world.jump(-HOUR)
    world.tick()
    world.run(MINUTE)
    assert ids(worker.take()) == ["a"]


def test_g9_a_wall_time_follows_the_wall(world: World, worker: Worker) -> None:
    world.enqueue("a", due=world.now + MINUTE)
    world.jump(-HOUR)
    world.run(MINUTE)
    assert worker.take() == [], "by the wall it is not time yet"
    world.run(HOUR)
    assert ids(worker.take()) == ["a"]


def test_g9_a_clock_that_jumps_ahead_makes_what_is_due_ready_once(world: World, worker: Worker) -> None:
    world.enqueue("delay", delay_ms=MINUTE)
    world.enqueue("wall", due=world.now + MINUTE)
    world.jump(HOUR)
    assert sorted(ids(worker.take())) == ["delay", "wall"]
    world.jump(-HOUR)
    assert worker.take() == []
    world.jump(HOUR)
    assert worker.take() == []


def test_g9_they_come_in_the_order_of_their_time_and_behind_what_is_ready(world: World, worker: Worker) -> None:
    world.enqueue("c", delay_ms=3 * SECOND)
    world.enqueue("a", delay_ms=1 * SECOND)
    world.enqueue("b", delay_ms=2 * SECOND)
    world.jump(2 * SECOND)
    world.enqueue("ready")
    assert ids(worker.take()) == ["ready", "a", "b"]


def test_g9_priorities_hold_for_what_is_due(world: World, worker: Worker) -> None:
    world.enqueue("low", delay_ms=1, priority=9)
    world.enqueue("high", delay_ms=1, priority=0)
    world.jump(1)
    assert ids(worker.take()) == ["high", "low"]


def test_g9_more_than_a_hundred_due_at_once_all_come(world: World, worker: Worker) -> None:
    jobs = world.enqueue_many((f"j{i:03}" for i in range(350)), delay_ms=SECOND)
    world.jump(SECOND)
    taken: list[str] = []
    for _ in range(10):
        taken += ids(worker.take(100))
        assert world.audit() == []
    assert sorted(taken) == jobs


def test_g9_next_due_says_how_long_to_wait(world: World, worker: Worker) -> None:
    assert next_due(worker) is None
    world.enqueue("far", delay_ms=HOUR)
    assert next_due(worker) == HOUR
    world.enqueue("near", due=world.now + MINUTE)
    assert next_due(worker) == MINUTE
    world.jump(40 * SECOND)
    assert next_due(worker) == 20 * SECOND
    world.jump(20 * SECOND)
    assert next_due(worker) == HOUR - MINUTE, "the near one has been granted"


def next_due(worker: Worker) -> int | None:
    reply = worker.claim()
    worker.answered = worker.n
    return reply.next_due_ms


def test_g9_a_waiting_job_holds_no_lease_and_nobodys_end_moves_it(world: World) -> None:
    worker = world.worker()
    world.enqueue("a")
    worker.settle(worker.take_one(), OutcomeKind.RETRY, delay_ms=HOUR)
    assert world.workers()["w"].holds == 0
    assert worker.die().returned == []
    kept = world.look("a")
    assert (kept.state, kept.worker, kept.deaths) == (State.SCHEDULED, None, 0)


def test_g9_it_comes_due_with_nobody_there_and_waits_for_the_first(world: World) -> None:
    world.enqueue("a", delay_ms=MINUTE)
    world.jump(DAY)
    assert ids(world.worker().take()) == ["a"]


def test_g9_a_duplicate_of_a_waiting_job_does_not_hasten_it(world: World, worker: Worker) -> None:
    world.enqueue("a", delay_ms=HOUR)
    assert world.enqueue("a", delay_ms=None).state is State.SCHEDULED
    assert worker.take() == []


# ------------------------------------------------------------------------------------------------------------- Retry


@pytest.mark.parametrize("fields", [{"delay_ms": HOUR}, {"due": 1_800_000_000_000 + HOUR}])
def test_g9_a_waiting_job_can_be_made_ready_now(world: World, worker: Worker, fields: dict[str, int]) -> None:
    world.enqueue("a", **fields)
    told = world.retry("a")
    assert (told.changed, told.state) == (True, State.SCHEDULED)
    assert ids(worker.take()) == ["a"]
    world.jump(2 * HOUR)
    assert worker.take() == [], "and not again when its time comes"


def test_g9_a_dead_letter_is_made_ready_with_its_past(world: World, worker: Worker) -> None:
    world.enqueue("a", args='{"x":1}', unique="u")
    grant = worker.take_one()
    worker.checkpoint(grant, 1, '"here"')
    worker.settle(grant, OutcomeKind.DEAD, error='{"type":"E"}')
    told = world.retry("a")
    assert (told.changed, told.state) == (True, State.DEAD)
    again = worker.take_one()
    assert (again.failures, again.args, again.checkpoint) == (0, '{"x":1}', '"here"')
    assert again.token > grant.token
    kept = world.look("a")
    assert (kept.ended, kept.reason, len(kept.runs)) == (None, None, 1)
    assert world.status().dead == 0


def test_g9_a_revived_job_does_not_vanish_with_the_dead_letters_time(world: World, worker: Worker) -> None:
    world.enqueue("a")
    worker.settle(worker.take_one(), OutcomeKind.DEAD)
    world.retry("a")
    world.age(60 * DAY)
    assert ids(worker.take()) == ["a"]


@pytest.mark.parametrize("state", [State.READY, State.RUNNING, State.SUCCEEDED, State.CANCELLED])
def test_g9_nothing_else_is_changed_by_a_retry(world: World, worker: Worker, state: State) -> None:
    world.enqueue("a")
    if state is State.CANCELLED:
        world.cancel("a")
    elif state is not State.READY:
        grant = worker.take_one()
        if state is State.SUCCEEDED:
            worker.settle(grant)
    before = world.look("a")
    told = world.retry("a")
    assert (told.changed, told.state) == (False, state)
    assert world.look("a") == before


def test_g9_a_retry_of_nothing(world: World) -> None:
    told = world.retry("nothing")
    assert (told.changed, told.state) == (False, None)
