"""The executor: every end of a handler is an end of its job, decided once, told after the code has returned."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from stillhere.domain.errors import Discard, JobStopped, Retry, Snooze, WrongDoor
from stillhere.domain.job import Outcome, OutcomeKind
from stillhere.domain.policy import error_record
from stillhere.worker.board import SlotState
from stillhere.worker.child import executor as module
from stillhere.worker.child.context import current_job, current_job_sync
from stillhere.worker.child.executor import Executor
from stillhere.worker.child.places import Places
from stillhere.worker.child.runs import Run
from tests.worker.kit import Desk, grant, soon


class Bench:
    def __init__(self, slots: int = 4, long_places: int = 2, long_after_ms: int = 10_000) -> None:
        self.desk = Desk(slots=16)
        self.places = Places(slots, long_places)
        self.ends: list[tuple[Run, Outcome | None]] = []
        self.states: list[SlotState] = []
        self.executor = Executor(self.desk.board, self.places, self.ended, long_after_ms)

    def ended(self, run: Run, outcome: Outcome | None) -> None:
        self.states.append(self.desk.board.slot(run.slot).state)
        self.ends.append((run, outcome))

    def seat(self, fn: Callable[..., Any], id: str = "j1", **fields: Any) -> Run:
        run = self.desk.take(grant(id, **({"task": fn.__name__} | fields)), fn)
        self.places.take(run)
        return run

    def start(self, fn: Callable[..., Any], id: str = "j1", **fields: Any) -> Run:
        run = self.seat(fn, id, **fields)
        self.executor.start(run)
        return run

    async def outcome(self, fn: Callable[..., Any], **fields: Any) -> Outcome:
        run = self.start(fn, **fields)
        await soon(lambda: self.ends)
        ((ended, outcome),) = self.ends
        assert ended is run
        assert outcome is not None
        assert self.places.empty
        assert self.states == [SlotState.ENDED]
        return outcome


async def add(a: int, b: int) -> int:
    return a + b


def add_sync(a: int, b: int) -> int:
    assert threading.current_thread() is not threading.main_thread()
    return a + b


@pytest.mark.parametrize("fn", [add, add_sync])
async def test_g5_what_it_returns_is_the_result(fn: Callable[..., Any]) -> None:
    outcome = await Bench().outcome(fn, args='{"a":2,"b":3}', token=9)
    assert (outcome.kind, outcome.result, outcome.token) == (OutcomeKind.SUCCEEDED, "5", 9)


async def fails() -> None:
    raise ValueError("broken")


async def leaves() -> None:
    raise SystemExit(3)


async def again() -> None:
    raise Retry(after="7s")


async def later() -> None:
    raise Snooze("9s")


async def discards() -> None:
    raise Discard("no such page")


def fails_sync() -> None:
    raise ValueError("broken")


@pytest.mark.parametrize(
    ("fn", "kind", "said"),
    [
        (fails, OutcomeKind.RETRY, "retry"),
        (fails_sync, OutcomeKind.RETRY, "retry"),
        (leaves, OutcomeKind.RETRY, "retry"),
        (again, OutcomeKind.RETRY, "retry"),
        (later, OutcomeKind.SNOOZE, "snoozed"),
        (discards, OutcomeKind.CANCELLED, "no such page"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
async def test_what_it_raises_decides(fn: Callable[..., Any], kind: OutcomeKind, said: str) -> None:
    outcome = await Bench().outcome(fn)
    assert (outcome.kind, outcome.reason) == (kind, said)


async def test_arguments_that_do_not_fit_are_a_failure_like_any_other() -> None:
    outcome = await Bench().outcome(add, args='{"a":"x"}')
    assert outcome.kind == OutcomeKind.RETRY
    assert "ArgumentError" in json.loads(outcome.error or "")["type"]


class Unstorable:
    """Nothing that JSON can carry, and its text cannot be made either."""

    def __repr__(self) -> str:
        raise RuntimeError


async def returns_unstorable() -> Any:
    return Unstorable()


async def test_g5_a_result_that_cannot_be_stored_is_no_second_run() -> None:
    outcome = await Bench().outcome(returns_unstorable)
    assert (outcome.kind, outcome.reason, outcome.result) == (OutcomeKind.SUCCEEDED, "result_error", None)


# ------------------------------------------------------------------------------------------------------------- stops


async def sleeps() -> None:
    await asyncio.get_running_loop().create_future()


async def goes_on() -> str:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.get_running_loop().create_future()
    return "all the same"


async def breaks_on_the_way_out() -> None:
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        raise OSError("the file is closed")


@pytest.mark.parametrize(
    ("fn", "reason", "kind"),
    [
        (sleeps, "cancelled", OutcomeKind.CANCELLED),
        (sleeps, "shutdown", OutcomeKind.INTERRUPTED),
        (goes_on, "cancelled", OutcomeKind.SUCCEEDED),
        (goes_on, "shutdown", OutcomeKind.SUCCEEDED),
        (breaks_on_the_way_out, "cancelled", OutcomeKind.CANCELLED),
        (breaks_on_the_way_out, "shutdown", OutcomeKind.INTERRUPTED),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
async def test_g8_a_coroutine_that_is_told_to_stop(fn: Callable[..., Any], reason: Any, kind: OutcomeKind) -> None:
    bench = Bench()
    run = bench.start(fn)
    await asyncio.sleep(0)
    bench.executor.stop(run, reason)
    assert bench.ends == [], "its end is told when its code has ended"
    await soon(lambda: bench.ends)
    (_, outcome) = bench.ends[0]
    assert outcome is not None
    assert outcome.kind == kind


@pytest.mark.parametrize("fn", [sleeps, goes_on, breaks_on_the_way_out])
async def test_g4_a_run_whose_lease_is_lost_says_nothing(fn: Callable[..., Any]) -> None:
    bench = Bench()
    run = bench.start(fn)
    await asyncio.sleep(0)
    bench.executor.stop(run, "lease_lost")
    await soon(lambda: bench.ends)
    assert bench.ends == [(run, None)]


async def test_a_coroutine_cancelled_before_its_first_step_ends_all_the_same() -> None:
    bench = Bench()
    run = bench.start(sleeps)
    bench.executor.stop(run, "cancelled")
    await soon(lambda: bench.ends)
    (_, outcome) = bench.ends[0]
    assert outcome is not None
    assert outcome.kind == OutcomeKind.CANCELLED
    assert len(bench.ends) == 1


async def test_a_run_that_has_not_started_ends_at_once() -> None:
    bench = Bench()
    held, lost = bench.seat(sleeps), bench.seat(sleeps, "j2")
    bench.executor.stop(held, "shutdown")
    bench.executor.stop(lost, "lease_lost")
    assert [(run, outcome and outcome.kind) for run, outcome in bench.ends] == [(held, "interrupted"), (lost, None)]
    assert bench.places.empty


async def test_g8_a_function_hears_of_it_at_its_next_word() -> None:
    bench, inside, go = Bench(), threading.Event(), threading.Event()

    def works() -> None:
        job = current_job_sync()
        inside.set()
        go.wait(5)
        assert job.stopping == "cancelled"
        job.check()

    run = bench.start(works)
    await asyncio.to_thread(inside.wait, 5)
    bench.executor.stop(run, "cancelled")
    assert bench.ends == []
    go.set()
    await soon(lambda: bench.ends)
    (_, outcome) = bench.ends[0]
    assert outcome is not None
    assert outcome.kind == OutcomeKind.CANCELLED


async def test_job_stopped_passes_through_except_exception() -> None:
    bench = Bench()

    def swallows() -> None:
        job = current_job_sync()
        while True:
            try:
                job.check()
            except Exception:  # noqa: BLE001 - as pipelines do
                continue

    run = bench.start(swallows)
    bench.executor.stop(run, "shutdown")
    await soon(lambda: bench.ends)
    (_, outcome) = bench.ends[0]
    assert outcome is not None
    assert outcome.kind == OutcomeKind.INTERRUPTED


# ------------------------------------------------------------------------------------------------- the job around it

here: ContextVar[str] = ContextVar("here")


async def test_each_run_has_its_own_job_and_its_own_context() -> None:
    bench, seen = Bench(), {}

    async def one() -> None:
        here.set(current_job().id)
        await asyncio.sleep(0)
        seen[current_job().id] = here.get()

    def other() -> None:
        seen[current_job_sync().id] = here.get("")
        here.set("thread")

    for n in range(3):
        bench.start(one, f"a{n}")
    bench.start(other, "s")
    await soon(lambda: len(bench.ends) == 4)
    assert seen == {"a0": "a0", "a1": "a1", "a2": "a2", "s": ""}
    assert current_job(default=None) is None
    assert here.get("") == ""


async def test_the_wrong_door_names_the_right_one() -> None:
    bench, words = Bench(), []

    async def wrong() -> None:
        try:
            current_job_sync()
        except WrongDoor as error:
            words.append(str(error))

    def wrong_sync() -> None:
        try:
            current_job()
        except WrongDoor as error:
            words.append(str(error))

    bench.start(wrong, "a")
    bench.start(wrong_sync, "b")
    await soon(lambda: len(bench.ends) == 2)
    assert sorted(words) == [
        "wrong is an async def task: call current_job() in it.",
        "wrong_sync is a def task: call current_job_sync() in it.",
    ]


async def test_what_a_job_knows() -> None:
    bench = Bench()
    known: list[Any] = []

    async def look() -> None:
        job = current_job()
        known.append((job.id, job.task, job.queue, job.attempt, job.failures, job.losses, job.interruptions, job.token))
        known.append((dict(job.headers), job.stopping, job.restore(int), job.restore(int, default=3), repr(job)))

    bench.start(look, "x", token=4, failures=2, losses=1, interruptions=5, headers={"a": "b"}, checkpoint="17")
    await soon(lambda: bench.ends)
    assert known == [("x", "look", "q", 3, 2, 1, 5, 4), ({"a": "b"}, None, 17, 17, "<Job x: look, token 4>")]


def test_job_stopped_is_no_exception() -> None:
    assert not issubclass(JobStopped, Exception)


# ---------------------------------------------------------------------------------------------------------- the board


async def test_the_board_says_what_runs() -> None:
    bench = Bench()
    held = bench.seat(sleeps, "held")
    run = bench.start(sleeps, "runs")
    assert [(slot.job, slot.state) for slot in bench.desk.board.taken()] == [
        ("runs", SlotState.STARTED),
        ("held", SlotState.HELD),
    ]
    assert bench.desk.board.slot(run.slot).started_ns > 0
    for one in (held, run):
        bench.executor.stop(one, "lease_lost")
    await soon(lambda: len(bench.ends) == 2)
    assert {slot.state for slot in bench.desk.board.taken()} == {SlotState.ENDED}


async def test_a_run_that_passes_long_after_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [50.0]
    monkeypatch.setattr(module, "boottime", lambda: now[0])
    monkeypatch.setattr(module, "boottime_ns", lambda: int(now[0] * 1e9))
    bench = Bench(slots=2, long_places=2, long_after_ms=1_000)
    run = bench.start(sleeps)
    assert bench.executor.find_long() == []
    now[0] += 1.01
    assert bench.executor.find_long() == [run]
    assert bench.executor.find_long() == [], "once"
    assert bench.places.free == 2
    assert bench.desk.board.slot(run.slot).long
    bench.executor.stop(run, "lease_lost")
    await soon(lambda: bench.ends)


async def test_a_task_says_for_itself_when_it_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [50.0]
    monkeypatch.setattr(module, "boottime", lambda: now[0])
    monkeypatch.setattr(module, "boottime_ns", lambda: int(now[0] * 1e9))
    bench = Bench(long_after_ms=1_000)
    from tests.worker.kit import task_of

    def seat(id: str, long_after: Any) -> Run:
        definition = task_of(sleeps, name=id, long_after=long_after)
        run = bench.desk.holdings.add(grant(id), definition, None)  # type: ignore[arg-type]  # nobody asks it
        bench.places.take(run)
        bench.executor.start(run)
        return run

    quick, patient, never = seat("quick", "100ms"), seat("patient", "1h"), seat("never", 0)
    now[0] += 0.2
    assert bench.executor.find_long() == [quick]
    now[0] += 2.0
    assert bench.executor.find_long() == []
    now[0] += 3600
    assert bench.executor.find_long() == [patient]
    assert not never.passed
    for run in (quick, patient, never):
        bench.executor.stop(run, "lease_lost")
    await soon(lambda: len(bench.ends) == 3)


def test_what_a_handler_raised_cannot_flood_or_steer_a_terminal() -> None:
    record = error_record(ValueError("\x1b[31mred\x00" + "y" * 5_000_000))
    text = module._for_the_log(record)
    assert len(text) < 20_000
    assert "\x1b" not in text
    assert "\x00" not in text
