"""A run's limits in its own process: told in time, failed by its policy, shown on the board."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from stillhere.domain.errors import JobStopped, StopReason
from stillhere.domain.job import Outcome, OutcomeKind
from stillhere.domain.options import Backoff
from stillhere.worker.board import NO_LIMITS, Late, Limits, Slot
from stillhere.worker.child import executor as module
from stillhere.worker.child import runs
from stillhere.worker.child.context import current_job_sync
from stillhere.worker.child.executor import Executor
from stillhere.worker.child.places import Places
from stillhere.worker.child.runs import Run
from tests.worker.kit import Desk, NoHost, grant, soon, task_of

START_S = 50.0


class Says(NoHost):
    """A host that takes words and forgets them."""

    def note_progress(self, run: Run, done: float, total: float | None, note: str) -> None:
        run.moved()


class Bench:
    """An executor whose clock stands still unless a test moves it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = START_S
        for place in (module, runs):
            monkeypatch.setattr(place, "boottime_ns", lambda: round(self.now * 1e9))
        monkeypatch.setattr(module, "boottime", lambda: self.now)
        self.desk = Desk(slots=16)
        self.places = Places(8, 0)
        self.ends: dict[str, Outcome | None] = {}
        self.executor = Executor(self.desk.board, self.places, self._ended, 0)

    def _ended(self, run: Run, outcome: Outcome | None) -> None:
        self.ends[run.grant.id] = outcome

    def start(self, fn: Callable[..., Any], id: str = "j1", *, of: dict[str, Any] | None = None, **options: Any) -> Run:
        definition = task_of(fn, name=id, **options)
        run = self.desk.holdings.add(grant(id, task=id, **(of or {})), definition, Says())
        self.places.take(run)
        self.executor.start(run)
        return run

    @staticmethod
    def told(run: Run) -> StopReason | None:
        """Why it was told to stop."""
        return run.stopping

    def at(self, seconds: float) -> None:
        """Look at the limits so long after the start."""
        self.now = START_S + seconds
        self.executor.enforce_limits()

    def shown(self, run: Run) -> Slot:
        return self.desk.board.slot(run.slot)

    async def end(self, id: str = "j1") -> Outcome:
        await soon(lambda: id in self.ends)
        outcome = self.ends[id]
        assert outcome is not None
        return outcome


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


async def sleeps() -> None:
    await asyncio.sleep(3600)


def error_of(outcome: Outcome) -> tuple[str, str]:
    said = json.loads(outcome.error or "{}")
    return said["type"], said["message"]


async def test_a_run_that_takes_longer_is_told_to_stop_and_fails(bench: Bench) -> None:
    run = bench.start(sleeps, timeout=3)
    await asyncio.sleep(0)
    bench.at(2.99)
    assert bench.told(run) is None
    bench.at(3)
    assert (bench.told(run), bench.shown(run).stopping) == ("timeout", "timeout")
    outcome = await bench.end()
    assert outcome.kind == OutcomeKind.RETRY
    assert error_of(outcome) == ("TimeoutError", "it ran longer than its timeout of 3s")
    assert "await asyncio.sleep(3600)" in json.loads(outcome.error or "")["traceback"], "where it was"


async def test_the_last_try_is_dead(bench: Bench) -> None:
    bench.start(sleeps, timeout=3, max_attempts=2, of={"failures": 1})
    bench.at(3)
    assert (await bench.end()).kind == OutcomeKind.DEAD


async def test_a_run_that_says_nothing_is_told_to_stop(bench: Bench) -> None:
    run = bench.start(sleeps, stall_after=3)
    for seconds in (2.9, 5.8, 8.7):
        bench.at(seconds)
        assert bench.told(run) is None
        run.host.note_progress(run, 1, None, "")
        assert bench.shown(run).moved_ns == round(bench.now * 1e9), "the supervisor sees it too"
    bench.at(8.7 + 2.99)
    assert bench.told(run) is None
    bench.at(8.7 + 3)
    assert bench.told(run) == "stalled"
    assert error_of(await bench.end()) == ("TimeoutError", "it said nothing for its stall_after of 3s")


async def test_words_do_not_put_the_deadline_off(bench: Bench) -> None:
    run = bench.start(sleeps, stall_after=3, timeout=5)
    for seconds in (2, 4):
        bench.at(seconds)
        run.moved()
    bench.at(5)
    assert bench.told(run) == "timeout"
    await bench.end()


async def test_the_records_limit_goes_before_the_tasks(bench: Bench) -> None:
    longer = bench.start(sleeps, "longer", timeout=3, of={"timeout_ms": 9_000})
    free = bench.start(sleeps, "free", timeout=3, of={"timeout_ms": 0})
    bench.at(8.9)
    assert (bench.told(longer), bench.told(free)) == (None, None)
    bench.at(9)
    assert error_of(await bench.end("longer")) == ("TimeoutError", "it ran longer than its timeout of 9s")
    bench.at(1e6)
    assert bench.told(free) is None
    bench.executor.stop(free, "lease_lost")
    await soon(lambda: "free" in bench.ends)


async def test_the_first_reason_stays(bench: Bench) -> None:
    run = bench.start(sleeps, timeout=3)
    bench.executor.stop(run, "cancelled")
    bench.at(3)
    assert bench.told(run) == "cancelled"
    assert (await bench.end()).kind == OutcomeKind.CANCELLED


async def test_the_board_shows_the_limits_and_how_it_ends_if_it_must_be_killed(bench: Bench) -> None:
    fixed = Backoff(first=7, jitter=False)
    tries = bench.start(sleeps, "tries", timeout=3, stall_after=2, backoff=fixed)
    last = bench.start(sleeps, "last", timeout=3, max_attempts=1)
    free = bench.start(sleeps, "free")
    fenced = bench.start(sleeps, "fenced", on_lease_doubt="stop")
    both = bench.start(sleeps, "both", on_lease_doubt="stop", timeout=3)
    deadline = round((START_S + 3) * 1e9)
    assert bench.shown(tries).limits == Limits(
        deadline_ns=deadline, stall_ns=2_000_000_000, late=Late(OutcomeKind.RETRY, 7_000)
    )
    assert bench.shown(last).limits == Limits(deadline_ns=deadline, late=Late(OutcomeKind.DEAD, 0))
    assert bench.shown(free).limits == NO_LIMITS
    assert bench.shown(fenced).limits == Limits(stops_in_doubt=True)
    assert (bench.shown(both).limits.deadline_ns, bench.shown(both).limits.stops_in_doubt) == (deadline, True)
    for run in (tries, last, free, fenced, both):
        bench.executor.stop(run, "lease_lost")
    await soon(lambda: len(bench.ends) == 5)


async def test_in_doubt_only_those_stop_that_say_so(bench: Bench) -> None:
    fenced = bench.start(sleeps, "fenced", on_lease_doubt="stop")
    bold = bench.start(sleeps, "bold")
    bench.executor.stop_in_doubt()
    bench.executor.stop_in_doubt()
    assert (bench.told(fenced), bench.told(bold)) == ("lease_lost", None)
    await soon(lambda: "fenced" in bench.ends)
    assert bench.ends == {"fenced": None}, "it says nothing: somebody else may have the job"
    bench.executor.stop(bold, "lease_lost")
    await soon(lambda: "bold" in bench.ends)


async def test_a_function_is_told_at_its_next_word(bench: Bench) -> None:
    go, inside = threading.Event(), threading.Event()

    def works() -> None:
        inside.set()
        go.wait(5)
        current_job_sync().progress(1)

    run = bench.start(works, timeout=3, process=False)
    await soon(inside.is_set)
    bench.at(3)
    assert bench.told(run) == "timeout"
    go.set()
    outcome = await bench.end()
    assert error_of(outcome) == ("TimeoutError", "it ran longer than its timeout of 3s")
    assert "current_job_sync().progress(1)" in json.loads(outcome.error or "")["traceback"]


async def test_a_function_that_does_not_ask_is_interrupted_a_second_later(bench: Bench) -> None:
    inside, seen = threading.Event(), []

    def spins() -> None:
        inside.set()
        over = time.monotonic() + 30
        try:
            while time.monotonic() < over:
                pass
        except Exception:  # noqa: BLE001 - it keeps all that can be kept
            seen.append("kept")
        except BaseException as error:
            seen.append(repr(error))
            raise

    run = bench.start(spins, timeout=3, process=False)
    await soon(inside.is_set)
    bench.at(3)
    bench.at(4)
    await asyncio.sleep(0)
    assert not run.ended, "it has a second to come and ask"
    bench.at(4.01)
    assert error_of(await bench.end()) == ("TimeoutError", "it ran longer than its timeout of 3s")
    assert seen == [repr(JobStopped("timeout"))]


async def test_a_run_that_is_over_has_no_limits(bench: Bench) -> None:
    async def quick() -> int:
        return 5

    run = bench.start(quick, timeout=3, stall_after=3)
    outcome = await bench.end()
    bench.at(100)
    assert (bench.told(run), outcome.result) == (None, "5")
    assert not bench.executor._limited
    assert not bench.executor._calls
