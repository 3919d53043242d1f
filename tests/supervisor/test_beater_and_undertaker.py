"""The beater and the undertaker, each in its thread on a store that answers as told; every wait is for an event."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest

from stillhere.domain.attribution import Crash, Seen
from stillhere.domain.errors import ConfigurationError, StoreUnavailable
from stillhere.domain.job import Outcome, Verdict
from stillhere.domain.lease import plan_for
from stillhere.ports.backend import Asked, End, Ended, Held, Renew, Renewed, Sweep, Swept, SyncStore, Tick, Ticked
from stillhere.worker.board import Board, Phase
from stillhere.worker.supervisor.beater import Beater
from stillhere.worker.supervisor.child_process import ChildProcess
from stillhere.worker.supervisor.line import Line
from stillhere.worker.supervisor.undertaker import FIRST_BOUND_S, NOBODY, Burial, Undertaker
from stillhere.worker.supervisor.vouched import Vouched
from tests.support.procs import eventually

AWAY = StoreUnavailable("Cannot reach the store.")


class FakeStore:
    """Answers each class of verbs by a function."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, float]] = []
        self.reply: dict[type, Callable[[Any], Any]] = {
            Renew: lambda _: Renewed(standing="ok"),
            Tick: lambda _: Ticked(lease_clock=1, gap_ms=50),
            Sweep: lambda _: Swept(),
            End: lambda _: Ended(status="ended"),
        }

    def call(self, verb: Any, *, timeout: float | None = None) -> Any:
        return self.call_many([verb], timeout=timeout)[0]

    def call_many(self, verbs: Sequence[Any], *, timeout: float | None = None) -> list[Any]:
        self.asked += [(verb, timeout or 0.0) for verb in verbs if getattr(verb, "worker", "") != NOBODY]
        return [self.reply[type(verb)](verb) for verb in verbs]

    def close(self) -> None:
        """Nothing to close."""

    def of(self, kind: type) -> list[Any]:
        return [verb for verb, _ in list(self.asked) if isinstance(verb, kind)]


class FakeChild:
    """What the two threads read of a child."""

    def __init__(self, worker: str = "w", *queues: str) -> None:
        self.board = Board.create(4)
        self.board.phase = Phase.RUN
        self.worker, self.queues, self.pid = worker, list(queues) or ["q"], 4711
        self.vouched, self.is_silent = True, False
        self.late: dict[str, list[Outcome]] = {}

    def ends(self) -> dict[str, list[Outcome]]:
        return self.late


class Chief:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def store_answers(self) -> None:
        self.told.append(("answers",))

    def store_refuses(self, why: str) -> None:
        self.told.append(("refuses", why))

    def worker_gone(self, child: Vouched, worker: str) -> None:
        self.told.append(("gone", child, worker))

    def jobs_wait(self, suspects: int, solo: int) -> None:
        self.told.append(("suspects", suspects, solo))

    def cancelled(self, child: Vouched, queue: str, pairs: list[Held]) -> None:
        self.told.append(("cancelled", child, queue, pairs))

    def turns(self) -> None:
        """Not written down: there are too many."""

    def asked(self, queue: str, asks: list[Asked]) -> None:
        self.told.append(("asked", queue, asks))

    def buried(self, burial: Burial, suspects: int) -> None:
        self.told.append(("buried", burial.worker, suspects))

    def thread_failed(self, error: BaseException) -> None:
        self.told.append(("failed", error))

    def kinds(self) -> set[str]:
        return {told[0] for told in self.told}


class Bench:
    def __init__(self) -> None:
        self.store, self.chief = FakeStore(), Chief()
        self.children = [FakeChild("w", "q", "r")]
        self.queues = ["q", "r"]
        self.beater = Beater(
            cast("SyncStore", self.store),
            plan_for(0.5),
            lambda: self.queues,
            lambda: cast("list[ChildProcess]", self.children),
            chief=self.chief,
        )


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.beater.stop()
    made.beater.join(5)


# ------------------------------------------------------------------------------------------------------- the beater


def test_g13_a_confirmed_renewal_is_a_witness_on_the_childs_board(bench: Bench) -> None:
    bench.children[0].board.answer(1, 42)
    bench.beater.start()
    eventually(lambda: bench.children[0].board.read("supervisor_sent_ns"), 5)
    assert ("answers",) in bench.chief.told
    assert [(verb.queue, verb.answered) for verb in bench.store.of(Renew)[:2]] == [("q", 0), ("r", 42)]


def test_g4_a_worker_gone_in_one_queue_is_no_witness(bench: Bench) -> None:
    bench.store.reply[Renew] = lambda verb: Renewed(standing="gone" if verb.queue == "r" else "ok")
    bench.beater.start()
    eventually(lambda: "gone" in bench.chief.kinds(), 5)
    assert ("gone", bench.children[0], "w") in bench.chief.told
    assert bench.children[0].board.read("supervisor_sent_ns") == 0


def test_g4_a_store_that_lost_its_data_confirms_nothing_and_ends_nobody(bench: Bench) -> None:
    bench.store.reply[Renew] = lambda _: Renewed(standing="unknown")
    bench.beater.start()
    eventually(lambda: len(bench.store.of(Renew)) >= 4, 5)
    assert bench.children[0].board.read("supervisor_sent_ns") == 0
    assert "gone" not in bench.chief.kinds()


def test_a_child_that_is_not_vouched_for_is_left_out(bench: Bench) -> None:
    bench.children = [FakeChild("v", "q"), FakeChild("w", "q")]
    bench.children[0].vouched = False
    bench.beater.start()
    eventually(lambda: len(bench.store.of(Renew)) >= 3, 5)
    assert {verb.worker for verb in bench.store.of(Renew)} == {"w"}


def test_g14_a_child_that_falls_silent_is_handed_back_by_a_fresh_clock(bench: Bench) -> None:
    clock = iter(range(1000, 10**6))
    bench.store.reply[Tick] = lambda _: Ticked(lease_clock=next(clock), gap_ms=50)
    bench.beater.start()
    eventually(lambda: len(bench.store.of(Renew)) >= 2, 5)
    assert {verb.hand_back for verb in bench.store.of(Renew)} == {0}
    bench.children[0].is_silent = True
    before = len(bench.store.asked)
    bench.beater.nudge()
    eventually(lambda: len([v for v in bench.store.of(Renew) if v.hand_back]) >= 4, 5)
    since = [verb for verb, _ in bench.store.asked[before:]]
    kinds = [type(verb).__name__ for verb in since]
    at = kinds.index("Renew")
    assert kinds[at : at + 6] == ["Renew", "Renew", "Tick", "Tick", "Renew", "Renew"], "two renewals, one after another"
    first, second = (verb for verb in since[at : at + 6] if isinstance(verb, Renew) and verb.queue == "q")
    assert second.hand_back > first.hand_back > 0


def test_g12_nothing_may_delay_a_renewal(bench: Bench) -> None:
    """A sweep finds a host whose jobs take a thousand calls to give back."""
    bench.store.reply[Sweep] = lambda verb: Swept(over=["dead"] if verb.queue == "q" else [])
    bench.store.reply[End] = lambda _: time.sleep(0.002) or Ended(status="more")  # type: ignore[func-returns-value]
    bench.beater.start()
    eventually(lambda: len(bench.store.of(End)) > 200, 20)
    renewals = len([verb for verb in bench.store.of(Renew) if verb.queue == "q"])
    assert renewals >= 3, "0.4 s of calls, and a beat each 0.125 s all the same"
    bounds = {bound for verb, bound in bench.store.asked if isinstance(verb, (End, Tick, Sweep))}
    assert max(bounds) <= 0.5 / 8
    assert all(verb.worker == "dead" and verb.default == Verdict.VANISHED for verb in bench.store.of(End))


def test_g12_after_a_failure_nothing_is_asked_before_a_renewal_came_through(bench: Bench) -> None:
    bench.beater.start()
    eventually(lambda: bench.store.of(Sweep), 5)

    def away(_: Any) -> Any:
        raise AWAY

    bench.store.reply[Renew] = away
    eventually(lambda: failing(bench), 5)
    before = len(bench.store.asked)
    eventually(lambda: len(bench.store.asked) > before + 30, 10)
    assert not [verb for verb, _ in bench.store.asked[before:] if isinstance(verb, (Sweep, End))]
    bench.store.reply[Renew] = lambda _: Renewed(standing="ok")
    sweeps = len(bench.store.of(Sweep))
    eventually(lambda: len(bench.store.of(Sweep)) > sweeps, 5)


def failing(bench: Bench) -> bool:
    return bench.beater._failing_since is not None


def test_a_store_that_refuses_is_told_once(bench: Bench) -> None:
    def refuse(_: Any) -> Any:
        raise ConfigurationError("Not allowed: tick.")

    bench.store.reply[Tick] = refuse
    bench.beater.start()
    bench.beater.join(5)
    assert bench.chief.told == [("refuses", "Not allowed: tick.")]


def test_a_store_that_is_away_is_waited_for(bench: Bench) -> None:
    def away(_: Any) -> Any:
        raise AWAY

    bench.store.reply[Tick] = away
    bench.beater.start()
    eventually(lambda: len(bench.store.of(Tick)) > 5, 5)
    assert bench.chief.told == []
    bench.store.reply[Tick] = lambda _: Ticked(lease_clock=1, gap_ms=50, suspects=2)
    eventually(lambda: {"answers", "suspects"} <= bench.chief.kinds(), 5)


def test_an_outage_is_one_line_and_one_at_its_end(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "stillhere.supervisor")
    flips = iter([False] + [True, False] * 20 + [True] * 40)

    def flap(_: Any) -> Any:
        if next(flips, False):
            raise AWAY
        return Renewed(standing="ok")

    bench.children = [FakeChild("w", "q")]
    bench.store.reply[Renew] = flap
    bench.beater.start()
    eventually(lambda: len(bench.store.of(Renew)) > 90, 30)
    eventually(lambda: bench.beater._failing_since is None, 5)
    assert caplog.text.count("gets no answer") == 1, "also when it comes and goes"
    assert caplog.text.count("answers again") == 1


def test_a_fault_of_ours_is_passed_on(bench: Bench) -> None:
    bench.store.reply[Renew] = lambda _: None
    bench.beater.start()
    eventually(lambda: "failed" in bench.chief.kinds(), 5)


# --------------------------------------------------------------------------------------------------- the undertaker


class Grave:
    def __init__(self, lease_s: float = 30.0) -> None:
        self.store, self.chief = FakeStore(), Chief()
        self.undertaker = Undertaker(cast("SyncStore", self.store), plan_for(lease_s), chief=self.chief, warm=["q"])

    def bury(self, *seen: Seen, forgiven: bool = False) -> None:
        child = FakeChild("dead", "q", "r")
        child.board.answer(0, 5)
        crash = Crash(signal.SIGKILL, deliberate=forgiven)
        burial = Burial.of(cast("ChildProcess", child), list(seen), crash, "killed by SIGKILL", since=time.monotonic())
        self.undertaker.bury(burial)
        eventually(lambda: self.chief.kinds() >= {"buried"}, 10)


@pytest.fixture
def grave() -> Iterator[Grave]:
    made = Grave()
    made.undertaker.start()
    yield made
    made.undertaker.stop()
    made.undertaker.join(5)


def test_g14_all_queues_are_closed_in_one_round_trip(grave: Grave) -> None:
    grave.bury(Seen("q", "a", running=True), Seen("r", "b", running=False))
    words = [verb for verb, _ in grave.store.asked]
    assert [(type(verb).__name__, verb.queue) for verb in words] == [
        ("Renew", "q"),
        ("End", "q"),
        ("Renew", "r"),
        ("End", "r"),
    ]
    assert words[0].answered == 5
    assert (words[1].verdicts, words[1].force, words[1].default) == ({"a": "culprit"}, True, "bystander")
    assert words[3].verdicts == {"b": "bystander"}
    assert {bound for verb, bound in grave.store.asked if isinstance(verb, End)} == {FIRST_BOUND_S}


def test_g7_what_was_stopped_on_purpose_is_interrupted(grave: Grave) -> None:
    grave.bury(Seen("q", "a", running=True), Seen("q", "b", running=True), forgiven=True)
    end = grave.store.of(End)[0]
    assert (end.verdicts, end.default) == ({"a": "interrupted", "b": "interrupted"}, "interrupted")


def test_g7_it_goes_on_until_nothing_is_left_only_where_there_is_more(grave: Grave) -> None:
    left = {"q": 3, "r": 1}

    def end(verb: End) -> Ended:
        left[verb.queue] -= 1
        suspects = [f"{verb.queue}{left[verb.queue]}"]
        return Ended(status="more" if left[verb.queue] else "ended", suspects=suspects)

    grave.store.reply[End] = end
    grave.bury()
    assert [verb.queue for verb in grave.store.of(End)] == ["q", "r", "q", "q"]
    assert ("buried", "dead", 4) in grave.chief.told


def test_g12_a_release_that_fails_is_repeated_with_more_time(grave: Grave) -> None:
    fails = iter([True] * 4)

    def end(_: End) -> Ended:
        if next(fails, False):
            raise AWAY
        return Ended(status="ended")

    grave.store.reply[End] = end
    begun = time.monotonic()
    grave.bury()
    bounds = [bound for verb, bound in grave.store.asked if isinstance(verb, End) and verb.queue == "q"]
    assert bounds[:5] == [FIRST_BOUND_S * 2**n for n in range(4)] + [30 / 8], "doubled, up to what a renewal gets"
    assert time.monotonic() - begun < 1, "and pauses that begin short"


def test_a_fault_in_the_undertaker_is_passed_on() -> None:
    grave = Grave()
    grave.store.reply[End] = lambda _: 1 / 0
    grave.undertaker.start()
    eventually(lambda: "failed" in grave.chief.kinds(), 5)
    grave.undertaker.join(5)


# --------------------------------------------------------------------------------------------------------- the line


def test_a_line_opens_its_store_in_the_thread_that_calls_and_again_after_a_failure() -> None:
    threads: list[str] = []

    def opened() -> SyncStore:
        threads.append(threading.current_thread().name)
        if len(threads) == 1:
            raise AWAY
        return cast("SyncStore", FakeStore())

    line = Line(opened)
    line.close()
    assert threads == []

    def use() -> None:
        with pytest.raises(StoreUnavailable):
            line.call(Tick(queue="q"))
        line.call(Tick(queue="q"))
        line.call_many([Tick(queue="q")])

    thread = threading.Thread(target=use, name="caller")
    thread.start()
    thread.join(5)
    assert threads == ["caller", "caller"]
    line.close()
