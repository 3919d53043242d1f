"""G7: a death beside a likelier culprit is noted, and only the second one sets a job apart; and what a death leaves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stillhere.domain.job import DeclaredLane, JobRecord, OutcomeKind, Verdict
from stillhere.domain.states import State
from tests.conformance.kit import Worker, World, ids

STACK = 'File "crawl.py", line 7, in fetch\n\tparse("ä/\\")'


def die_beside(world: World, number: int, lanes: Any = "pool") -> Worker:
    """A worker dies over the one job that it took."""
    worker = world.worker(f"w{number}")
    worker.take_one(lanes)
    worker.die(Verdict.BESIDE)
    return worker


def error(record: JobRecord) -> dict[str, str]:
    found: dict[str, str] = json.loads(record.error or "")
    return found


def test_g7_the_first_time_beside_it_goes_on_in_front(world: World) -> None:
    world.enqueue_many(["a", "b"])
    die_beside(world, 1)
    assert ids(world.worker("v").take()) == ["a", "b"]
    record = world.look("a")
    assert (record.beside, record.shared, record.losses, record.deaths) == (1, 0, 0, 1)


def test_g7_the_second_time_beside_it_runs_apart(world: World) -> None:
    world.enqueue("a")
    die_beside(world, 1)
    worker = world.worker("w2")
    worker.take_one()
    assert worker.die(Verdict.BESIDE).suspects == ["a"]
    assert world.status().suspects == 1
    assert world.worker("v").take() == []
    assert world.worker("u").take_one("solo").suspect
    assert (world.look("a").beside, world.look("a").deaths) == (2, 2)


@pytest.mark.parametrize(("lane", "claim"), [("long", "pool"), ("solo", "solo")])
def test_g7_its_own_lane_may_be_any(world: World, lane: DeclaredLane, claim: Any) -> None:
    world.enqueue("a", lane=lane)
    worker = world.worker()
    assert ids(worker.take(1, claim, long=1)) == ["a"]
    assert worker.die(Verdict.BESIDE).returned == ["a"]
    status = world.status()
    assert (status.long, status.solo, status.suspects) == (lane == "long", lane == "solo", 0)


def test_g7_beside_alone_never_makes_a_dead_letter(world: World) -> None:
    world.enqueue("a", max_losses=0)
    for number in range(20):
        die_beside(world, number, "both")
    assert world.state("a") is State.READY
    assert world.look("a").beside == 20


def test_g7_a_job_that_gets_on_is_free_of_what_was_beside(world: World) -> None:
    world.enqueue("a")
    die_beside(world, 1)
    worker = world.worker("v")
    grant = worker.take_one()
    assert worker.checkpoint(grant, 1, "1") == "ok"
    assert (world.look("a").beside, world.look("a").deaths) == (0, 1)
    assert worker.die(Verdict.BESIDE).returned == ["a"], "it is the first time again"


def test_g7_a_revived_job_is_free_of_what_was_beside(world: World) -> None:
    world.enqueue("a", max_losses=0)
    die_beside(world, 1)
    die_beside(world, 2, "both")
    worker = world.worker("v")
    worker.take_one("solo")
    assert worker.die(Verdict.CULPRIT).dead == ["a"]
    assert world.retry("a").changed
    assert world.look("a").beside == 0
    assert ids(world.worker("u").take()) == ["a"]


# ------------------------------------------------------------------------------------------------- what a death leaves

CHARGED = [Verdict.CULPRIT, Verdict.SUSPECT, Verdict.BESIDE, Verdict.VANISHED]


@pytest.mark.parametrize("verdict", CHARGED)
def test_g7_the_error_says_where_the_code_was(world: World, verdict: Verdict) -> None:
    world.enqueue_many(["a", "b"])
    worker = world.worker()
    worker.take()
    worker.die(verdict, reason="SIGKILL", details={"a": STACK, "nobody": "x"})
    assert error(world.look("a")) == {
        "type": "WorkerLost",
        "message": "its worker ended while it ran: SIGKILL",
        "traceback": STACK,
        "exit": "SIGKILL",
    }
    assert error(world.look("b"))["traceback"] == ""


@pytest.mark.parametrize("verdict", [Verdict.BYSTANDER, Verdict.INTERRUPTED])
def test_g7_what_is_no_loss_leaves_no_error(world: World, verdict: Verdict) -> None:
    world.enqueue("a")
    worker = world.worker()
    worker.take()
    worker.die(verdict, details={"a": STACK})
    assert world.look("a").error is None
    assert not any("exit" in json.loads(line) for line in world.look("a").runs)


def test_g7_a_stack_is_kept_to_a_bound_in_whole_characters(world: World) -> None:
    world.enqueue_many(["a", "b", "c"])
    worker = world.worker()
    worker.take()
    worker.die(Verdict.VANISHED, details={"a": "x" * 20_000, "b": "x" + "ä" * 20_000, "c": "ä" * 8_000})
    kept = {job: error(world.look(job))["traceback"] for job in "abc"}
    assert kept == {"a": "x" * 16_000, "b": "x" + "ä" * 7_999, "c": "ä" * 8_000}


def test_g7_each_run_that_a_death_ended_says_which(world: World) -> None:
    world.enqueue("a", max_losses=1)
    for number, reason in enumerate(["SIGKILL", 'signal "11"/x']):
        worker = world.worker(f"w{number}")
        worker.take_one("both")
        worker.die(Verdict.CULPRIT, reason=reason)
    assert world.state("a") is State.DEAD
    assert world.retry("a").changed
    runs = [json.loads(line) for line in world.look("a").runs]
    assert [(run["how"], run["exit"]) for run in runs] == [("culprit", "SIGKILL"), ("dead", 'signal "11"/x')]


def test_g7_a_dead_letter_that_failed_by_itself_names_no_death(world: World) -> None:
    world.enqueue("a")
    die_beside(world, 1)
    worker = world.worker("v")
    worker.settle(worker.take_one(), OutcomeKind.DEAD, reason="failed")
    assert world.retry("a").changed
    assert [json.loads(line).get("exit") for line in world.look("a").runs] == ["SIGKILL", None]
