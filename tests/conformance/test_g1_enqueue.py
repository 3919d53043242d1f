"""G1: an enqueue is durable when it returns, and sending it again is still one job."""

from __future__ import annotations

import pytest

from stillhere.domain.job import OutcomeKind
from stillhere.domain.states import State
from tests.conformance.kit import HOUR, MINUTE, World


def test_g1_what_was_sent_is_what_is_kept(world: World) -> None:
    sent = world.enqueue(
        "a",
        args='{"x":1}',
        priority=0,
        max_attempts=7,
        max_losses=2,
        timeout_ms=0,
        stall_ms=1_500,
        retention_ms=9,
        headers={"k": "v"},
        unique="u",
    )
    assert (sent.id, sent.created, sent.state, sent.conflict) == ("a", True, State.READY, "")
    kept = world.look("a")
    assert (kept.task, kept.queue, kept.args, kept.priority) == ("t", "q", '{"x":1}', 0)
    assert (kept.max_attempts, kept.max_losses, kept.retention_ms) == (7, 2, 9)
    assert (kept.timeout_ms, kept.stall_ms) == (0, 1_500)
    assert (kept.headers, kept.unique, kept.created) == ({"k": "v"}, "u", world.now)
    (grant,) = world.worker().take()
    assert (grant.args, grant.priority, grant.max_attempts, grant.retention_ms) == ('{"x":1}', 0, 7, 9)
    assert (grant.timeout_ms, grant.stall_ms) == (0, 1_500)
    assert (grant.headers, grant.created, grant.queue, grant.task) == ({"k": "v"}, world.now, "q", "t")


def test_g1_arguments_come_back_to_the_letter(world: World) -> None:
    args = '{"x": "\\u0000 \\ud83d\\ude00 é \\" \\\\ /", "n": [1e3, {}, [], null]}'
    world.enqueue("a", args=args, headers={"ключ": "значение"})
    (grant,) = world.worker().take()
    assert grant.args == args
    assert grant.headers == {"ключ": "значение"}


def test_g1_the_same_id_twice_is_one_job(world: World) -> None:
    world.enqueue("a", args='{"first":1}')
    again = world.enqueue("a", args='{"second":1}')
    assert (again.id, again.created, again.conflict, again.state) == ("a", False, "id", State.READY)
    assert world.look("a").args == '{"first":1}'
    assert len(world.worker().take()) == 1


@pytest.mark.parametrize("state", [State.SCHEDULED, State.RUNNING, State.SUCCEEDED, State.DEAD, State.CANCELLED])
def test_g1_the_same_id_in_any_state_is_one_job_and_the_caller_learns_which(world: World, state: State) -> None:
    worker = world.worker()
    world.enqueue("a", delay_ms=HOUR if state is State.SCHEDULED else None)
    if state is not State.SCHEDULED:
        grant = worker.take_one()
        kinds = {State.SUCCEEDED: OutcomeKind.SUCCEEDED, State.DEAD: OutcomeKind.DEAD}
        if state is not State.RUNNING:
            worker.settle(grant, kinds.get(state, OutcomeKind.CANCELLED))
    again = world.enqueue("a")
    assert (again.created, again.conflict, again.state) == (False, "id", state)
    assert worker.take() == []


def test_g1_a_live_unique_key_is_one_job(world: World) -> None:
    worker = world.worker()
    world.enqueue("a", unique="u")
    again = world.enqueue("b", unique="u")
    assert (again.id, again.created, again.conflict, again.state) == ("a", False, "unique", State.READY)
    grant = worker.take_one()
    again = world.enqueue("b", unique="u")
    assert (again.id, again.created, again.conflict, again.state) == ("a", False, "unique", State.RUNNING)
    assert world.find("b") is None
    worker.settle(grant)


def test_g1_a_unique_key_lives_through_a_retry_and_is_free_at_the_end(world: World) -> None:
    worker = world.worker()
    world.enqueue("a", unique="u")
    worker.settle(worker.take_one(), OutcomeKind.RETRY, delay_ms=MINUTE)
    assert world.enqueue("b", unique="u").id == "a"
    world.run(MINUTE, worker)
    worker.settle(worker.take_one())
    assert world.enqueue("b", unique="u").created
    assert world.enqueue("c", unique="u").id == "b"


@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.DEAD, OutcomeKind.CANCELLED])
def test_g1_each_end_frees_the_unique_key(world: World, kind: OutcomeKind) -> None:
    worker = world.worker()
    world.enqueue("a", unique="u")
    worker.settle(worker.take_one(), kind)
    assert world.enqueue("b", unique="u").created


def test_g1_unique_keys_are_of_one_task_and_one_queue(world: World) -> None:
    assert world.enqueue("a", unique="u").created
    assert world.enqueue("b", unique="u", task="other").created
    assert world.beside("elsewhere").enqueue("c", unique="u").created


def test_g1_unique_for_outlives_the_job(world: World) -> None:
    worker = world.worker()
    world.enqueue("a", unique="u", unique_for_ms=2 * HOUR)
    worker.settle(worker.take_one(), retention_ms=0)
    world.age(2 * HOUR - MINUTE)
    again = world.enqueue("b", unique="u")
    assert (again.id, again.created, again.conflict, again.state) == ("a", False, "unique", State.SUCCEEDED)
    world.age(2 * MINUTE)
    assert world.enqueue("c", unique="u").created


def test_g1_unique_for_shorter_than_the_job_ends_with_the_job(world: World) -> None:
    worker = world.worker()
    world.enqueue("a", unique="u", unique_for_ms=MINUTE)
    grant = worker.take_one()
    world.run(2 * MINUTE, worker)
    assert world.enqueue("b", unique="u").id == "a", "a live job keeps its key"
    worker.settle(grant)
    assert world.enqueue("c", unique="u").created


@pytest.mark.parametrize("delay_ms", [None, HOUR])
def test_g1_replace_cancels_a_waiting_holder(world: World, delay_ms: int | None) -> None:
    world.enqueue("a", unique="u", delay_ms=delay_ms)
    new = world.enqueue("b", unique="u", on_conflict="replace")
    assert (new.id, new.created) == ("b", True)
    assert (world.state("a"), world.look("a").reason) == (State.CANCELLED, "replaced")
    assert [grant.id for grant in world.worker().take()] == ["b"]
    assert world.enqueue("c", unique="u").id == "b"


def test_g1_replace_leaves_a_running_holder_alone(world: World) -> None:
    worker = world.worker()
    world.enqueue("a", unique="u")
    grant = worker.take_one()
    new = world.enqueue("b", unique="u", on_conflict="replace")
    assert (new.id, new.created, new.conflict, new.state) == ("a", False, "unique", State.RUNNING)
    assert worker.settle(grant).status == "ok"


def test_g1_raise_and_existing_change_nothing_and_say_why(world: World) -> None:
    world.enqueue("a", unique="u")
    for on_conflict in ("raise", "existing"):
        told = world.enqueue("b", unique="u", on_conflict=on_conflict)
        assert (told.id, told.created, told.conflict) == ("a", False, "unique")
    assert world.status().ready == 1


def test_g1_a_repeated_replace_is_still_one_job(world: World) -> None:
    world.enqueue("a", unique="u")
    for created in (True, False):
        told = world.enqueue("b", unique="u", on_conflict="replace")
        assert (told.id, told.created) == ("b", created)
    assert world.state("b") is State.READY


@pytest.mark.parametrize("retention_ms", [0, MINUTE])
def test_g1_a_finished_id_is_known_for_ten_minutes_and_then_forgotten(world: World, retention_ms: int) -> None:
    worker = world.worker()
    world.enqueue("a")
    worker.settle(worker.take_one(), retention_ms=retention_ms)
    world.age(10 * MINUTE - MINUTE)
    again = world.enqueue("a")
    assert (again.created, again.conflict, again.state) == (False, "id", State.SUCCEEDED)
    world.age(2 * MINUTE)
    assert world.find("a") is None
    assert world.enqueue("a").created
    assert [grant.id for grant in world.worker("later").take()] == ["a"]


def test_g1_a_batch_tells_each_one_apart(world: World) -> None:
    world.enqueue("old", unique="u")
    told = world.send(
        world.record("old"),
        world.record("b", unique="u"),
        world.record("c", delay_ms=MINUTE),
        world.record("d", unique="v"),
        world.record("d"),
        world.record("e", unique="v"),
        world.record("f", unique="u", on_conflict="replace"),
    )
    assert [(one.id, one.created, one.conflict) for one in told] == [
        ("old", False, "id"),
        ("old", False, "unique"),
        ("c", True, ""),
        ("d", True, ""),
        ("d", False, "id"),
        ("d", False, "unique"),
        ("f", True, ""),
    ]
    assert [grant.id for grant in world.worker().take()] == ["d", "f"]
    assert world.state("old") is State.CANCELLED


def test_g1_a_full_batch_keeps_its_order(world: World) -> None:
    names = [f"j{i:03}" for i in range(100)]
    assert all(one.created for one in world.send(*map(world.record, names)))
    assert [grant.id for grant in world.worker().take(100)] == names


def test_g1_an_empty_batch_is_nothing(world: World) -> None:
    assert world.send() == []


def test_g1_a_retried_dead_letter_takes_its_unique_key_back(world: World) -> None:
    worker = world.worker()
    world.enqueue("a", unique="u")
    worker.settle(worker.take_one(), OutcomeKind.DEAD)
    assert world.retry("a").changed
    assert world.enqueue("b", unique="u").id == "a"


def test_g1_a_dead_letter_whose_key_has_a_new_holder_stays_dead(world: World) -> None:
    worker = world.worker()
    world.enqueue("a", unique="u")
    worker.settle(worker.take_one(), OutcomeKind.DEAD)
    world.enqueue("b", unique="u")
    told = world.retry("a")
    assert (told.changed, told.state) == (False, State.DEAD)
    assert world.state("a") is State.DEAD


def test_g1_the_producer_hears_that_nobody_knows_the_task(world: World) -> None:
    assert world.enqueue("a").known, "nobody is there to ask"
    worker = world.worker(tasks=("t", "alias"))
    assert world.enqueue("b", task="alias").known
    assert not world.enqueue("c", task="strange").known
    worker.die()
    assert world.enqueue("d", task="strange").known


def test_g1_a_task_that_only_a_dead_worker_knew_is_unknown(world: World) -> None:
    world.worker("stays", tasks=("t",))
    dies = world.worker("dies", tasks=("t", "rare"))
    assert world.enqueue("a", task="rare").known
    dies.take_one()
    dies.end(limit=0)
    assert not world.enqueue("b", task="rare").known, "from the moment it is closed"
    dies.die()
    assert not world.enqueue("c", task="rare").known
    assert world.enqueue("d", task="t").known


def test_g1_a_purged_dead_letter_gives_up_the_key_that_would_have_outlived_it(world: World) -> None:
    worker = world.worker()
    world.enqueue("a", unique="u", unique_for_ms=2 * HOUR)
    worker.settle(worker.take_one(), OutcomeKind.DEAD)
    assert world.enqueue("b", unique="u").id == "a"
    assert world.purge("a")
    assert world.enqueue("b", unique="u").created


def test_g1_a_purged_dead_letter_leaves_the_key_to_its_next_holder(world: World) -> None:
    worker = world.worker()
    world.enqueue("a", unique="u")
    worker.settle(worker.take_one(), OutcomeKind.DEAD)
    world.enqueue("b", unique="u")
    assert world.purge("a")
    assert world.enqueue("c", unique="u").id == "b"
