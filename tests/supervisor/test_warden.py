"""The warden: who is cut, retired or killed, when, and how a killed run ends. Times in seconds, passed in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stillhere.domain.job import OutcomeKind
from stillhere.domain.lease import plan_for
from stillhere.worker.board import Board, Late, Limits, SlotState
from stillhere.worker.supervisor import warden
from stillhere.worker.supervisor.warden import NOTHING, Case, Doing, Key, Void, doubt_ns, look, outcomes, running

NEVER = 1e6
FAILS = Late(OutcomeKind.RETRY, 1_500)


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


class Child:
    """A board with runs on it, by names; all start at 100 s."""

    def __init__(self) -> None:
        self.board = Board.create(8)
        self.slots: dict[str, int] = {}

    def run(self, job: str, *, timeout: float = 0, stall: float = 0, doubt: bool = False, late: Late = FAILS) -> Key:
        slot = self.slots[job] = len(self.slots)
        self.board.fill(slot, queue=0, job=job, token=slot + 1, task="t", retention_ms=77)
        limits = Limits(
            deadline_ns=ns(100 + timeout) if timeout else 0,
            stall_ns=ns(stall),
            late=late if timeout or stall else None,
            stops_in_doubt=doubt,
        )
        self.board.start(slot, ns(100), limits)
        return (0, job, slot + 1)

    def tell(self, job: str, at: float, why: Any = "cancelled") -> None:
        self.board.stop(self.slots[job], ns(at), why)

    def on_the_loop(self, job: str) -> None:
        self.board.write("current", self.slots[job] + 1)

    def look(self, at: float, **case: Any) -> Doing:
        known: dict[str, Any] = {"solo": False, "cuttable": True, "retire_grace_ns": ns(60), "doubt_ns": ns(NEVER)}
        return look(self.board, Case(**known | case), ns(at))

    def first(self, what: Callable[[Doing], object], *, until: float = 300.0, **case: Any) -> float | None:
        """When the warden first does this, looking ten times a second."""
        looks = (100 + tenth / 10 for tenth in range(int((until - 100) * 10)))
        return next((at for at in looks if what(self.look(at, **case))), None)


@pytest.fixture
def child() -> Iterator[Child]:
    child = Child()
    yield child
    child.board.close()


def cut(doing: Doing) -> bool:
    return doing.cut is not None


def retires(doing: Doing) -> bool:
    return bool(doing.retire)


def kills(doing: Doing) -> bool:
    return bool(doing.kill)


def test_what_has_no_limit_and_was_told_nothing_is_left_alone(child: Child) -> None:
    child.run("free")
    child.on_the_loop("free")
    assert child.look(1e5) == NOTHING
    assert child.look(1e5, solo=True) == NOTHING


def test_what_has_not_started_or_is_over_is_nobodys_business(child: Child) -> None:
    child.run("over", timeout=1)
    child.board.end(child.slots["over"])
    child.board.fill(5, queue=0, job="held", token=9, task="t")
    child.board.stop(5, ns(101), "cancelled")
    assert running(child.board) == []
    assert child.look(200, solo=True) == NOTHING


@pytest.mark.parametrize("limit", ["timeout", "stall"])
def test_a_run_is_late_a_second_after_its_limit(child: Child, limit: str) -> None:
    key = child.run("late", timeout=3) if limit == "timeout" else child.run("late", stall=3)
    child.run("other")
    child.on_the_loop("late")
    assert child.look(103.95) == NOTHING
    doing = child.look(104)
    assert doing.cut is not None
    assert (doing.cut.job, doing.retire, doing.kill, doing.late) == ("late", "", "", frozenset({key}))


def test_what_is_told_to_stop_is_late_a_second_after_that(child: Child) -> None:
    child.run("told", timeout=50)
    child.on_the_loop("told")
    child.tell("told", 110)
    assert child.first(cut) == 111


def test_a_word_puts_the_stall_off_and_not_the_deadline(child: Child) -> None:
    child.run("says", stall=3)
    child.on_the_loop("says")
    child.board.move(child.slots["says"], ns(110))
    assert child.first(cut) == 114
    child.run("limited", stall=3, timeout=4)
    child.on_the_loop("limited")
    child.board.move(child.slots["limited"], ns(110))
    assert child.first(cut) == 105


@pytest.mark.parametrize("current", ["other", None])
def test_only_who_holds_the_loop_and_is_late_is_cut(child: Child, current: str | None) -> None:
    child.run("late", timeout=3)
    child.run("other")
    if current is not None:
        child.on_the_loop(current)
    assert child.first(cut) is None
    assert child.first(retires) == 109, "it is stuck elsewhere, in a thread or in an await that keeps the cancel"


def test_a_child_without_a_handler_for_the_signal_is_not_cut(child: Child) -> None:
    child.run("late", timeout=3)
    child.on_the_loop("late")
    child.run("other")
    assert child.first(cut, cuttable=False) is None
    assert child.first(retires, cuttable=False) == 109


def test_a_slot_that_has_been_given_to_another_run_since_is_not_cut(child: Child) -> None:
    """The look at the runs and the look at the loop are two: the run may have ended, and its slot be another's."""
    child.run("late", timeout=3)
    child.run("other")
    child.on_the_loop("late")
    late = {slot: ns(2) for slot in running(child.board) if slot.job == "late"}
    case = Case(solo=False, cuttable=True)
    assert warden._cut(child.board, late, case) == next(iter(late))
    child.board.fill(child.slots["late"], queue=0, job="late", token=99, task="t")
    assert warden._cut(child.board, late, case) is None


def test_five_seconds_later_the_child_is_retired(child: Child) -> None:
    key = child.run("late", timeout=3)
    child.run("other")
    assert child.first(retires) == 109
    doing = child.look(109)
    assert (doing.kill, doing.late) == ("", frozenset({key}))
    assert doing.retire == "job late (t) does not end: timeout"
    assert not child.look(120, retired_ns=ns(109)).retire, "once"


def test_a_retired_child_is_killed_after_the_grace_of_its_neighbours(child: Child) -> None:
    key = child.run("late", timeout=3)
    child.run("other")
    assert child.first(kills, retired_ns=ns(109)) == 169
    assert child.look(169, retired_ns=ns(109)).late == {key}
    assert child.first(kills, until=1_000) is None, "not before it is retired"


def test_the_grace_of_neighbours_begins_when_the_run_is_stuck(child: Child) -> None:
    """A child may be retired for other reasons (--max-jobs), long before: nobody was to be killed then."""
    child.run("late", timeout=200)
    child.run("other")
    assert child.first(kills, retired_ns=ns(110), until=500) == 306 + 60


def test_it_is_killed_at_once_when_only_stuck_runs_are_left(child: Child) -> None:
    key = child.run("late", timeout=3)
    child.run("other")
    child.board.end(child.slots["other"])
    assert child.first(kills) == 109, "no neighbours: it need not be retired first"
    doing = child.look(109)
    assert (doing.retire, doing.late) == ("", frozenset({key}))


def test_a_neighbour_that_was_just_told_to_stop_has_time_for_last_words(child: Child) -> None:
    late, told = child.run("late", timeout=3), child.run("told")
    child.tell("told", 107.5)
    doing = child.look(109)
    assert (doing.kill, bool(doing.retire), doing.late) == ("", True, frozenset({late, told}))
    assert child.first(kills) == 113.5
    assert child.look(113.5).late == {late, told}


def test_a_solo_run_is_killed_a_second_after_its_own_limit(child: Child) -> None:
    child.run("late", timeout=3)
    child.on_the_loop("late")
    assert child.first(kills, solo=True) == 104
    assert child.first(cut, solo=True) is None
    assert child.first(retires, solo=True) is None


@pytest.mark.parametrize("why", ["timeout", "stalled"])
def test_a_solo_run_that_its_own_process_told_of_its_limit_has_no_longer(child: Child, why: str) -> None:
    child.run("late", timeout=3, stall=3)
    child.tell("late", 103.1, why)
    assert child.first(kills, solo=True) == 104


def test_a_solo_run_that_somebody_told_to_stop_has_time_for_last_words(child: Child) -> None:
    child.run("told", timeout=50)
    child.tell("told", 110, "cancelled")
    assert child.first(kills, solo=True) == 116


@pytest.mark.parametrize("solo", [True, False])
def test_void_runs_are_told_to_stop_when_their_worker_id_is_closed(child: Child, solo: bool) -> None:
    key = child.run("void")
    void = Void(ns(110), frozenset({key}))
    assert child.first(kills, solo=solo, void=void) == 116
    doing = child.look(116, solo=solo, void=void)
    assert (doing.kill, doing.late) == ("job void (t) does not end: lease_lost", frozenset({key}))


def test_only_the_runs_of_the_closed_id_are_void(child: Child) -> None:
    void = Void(ns(110), frozenset({child.run("void")}))
    child.run("newer")
    assert child.first(kills, void=void) is None
    assert child.first(retires, void=void) == 116


def test_a_drain_has_its_own_timeline(child: Child) -> None:
    """All that runs is told to stop at one time; who blocks is cut a second later, and the timeline kills."""
    child.run("late", timeout=3)
    child.run("other")
    child.on_the_loop("other")
    draining: dict[str, Any] = {"draining": True, "stop_all_ns": ns(120)}
    assert child.first(kills, **draining) is None
    assert child.first(retires, **draining) is None
    assert child.first(cut, **draining) == 121
    child.on_the_loop("late")
    assert child.first(cut, **draining) == 104, "its own limit holds as ever"


def test_a_run_in_doubt_is_killed_to_the_moment_whatever_else_holds(child: Child) -> None:
    child.run("fenced", doubt=True)
    child.run("late", timeout=3)
    for case in ({}, {"solo": True}, {"draining": True}, {"retired_ns": ns(101)}):
        assert child.look(107.99, doubt_ns=ns(108), **case).kill in ("", "job late (t) does not end: timeout")
        doing = child.look(108, doubt_ns=ns(108), **case)
        assert (doing.kill, doing.late) == ("its lease may soon be over", frozenset())


def test_a_cancel_that_a_silent_child_cannot_hear_of_is_enforced(child: Child) -> None:
    key = child.run("deaf")
    told = {"cancelled": {key: ns(110)}}
    assert child.look(110.9, **told) == NOTHING
    assert child.look(115.9, **told).kill == ""
    assert child.look(116.1, **told).kill == "job deaf (t) does not end: cancelled"


def test_who_does_not_mind_a_doubt_runs_on(child: Child) -> None:
    child.run("bold")
    assert child.look(200, doubt_ns=ns(108)) == NOTHING


@pytest.mark.parametrize("lease", [0.5, 2.0, 30.0, 3_600.0])
def test_the_kill_comes_after_the_word_and_before_the_lease_can_be_over(lease: float) -> None:
    plan = plan_for(lease)
    for one in (plan, plan.draining()):
        at = doubt_ns(ns(1_000), one) / 1e9 - 1_000
        assert at == pytest.approx(one.trust_limit + 0.05 * one.length_s)
        assert one.trust_limit < at < one.length_s - one.gap_s


class TestOutcomes:
    """What is told of the late runs after the death of their process."""

    def ends(self, child: Child, *late: Key, void: Void | None = None, cancelled: dict[Key, int] | None = None) -> Any:
        return outcomes(child.board, ["q"], frozenset(late), void or Void(), cancelled or {})

    def test_a_late_run_fails_as_its_policy_said_when_it_started(self, child: Child) -> None:
        late, dead = child.run("late", timeout=3), child.run("dead", stall=7, late=Late(OutcomeKind.DEAD, 0))
        child.run("other")
        first, second = self.ends(child, late, dead)["q"]
        assert (first.job, first.token, first.kind, first.delay_ms) == ("late", 1, OutcomeKind.RETRY, 1_500)
        assert (first.reason, first.retention_ms) == ("retry", 77)
        error = json.loads(first.error)
        assert error["type"] == "TimeoutError"
        assert error["message"] == "it ran longer than its timeout of 3s and did not end, so its process was killed"
        assert (second.job, second.kind, second.reason) == ("dead", OutcomeKind.DEAD, "failed")
        assert "it said nothing for its stall_after of 7s and did not" in json.loads(second.error)["message"]

    def test_a_cancelled_run_is_cancelled(self, child: Child) -> None:
        key = child.run("told")
        child.tell("told", 110)
        (end,) = self.ends(child, key)["q"]
        assert (end.kind, end.reason, end.error, end.retention_ms) == (OutcomeKind.CANCELLED, "cancelled", None, 77)

    def test_a_cancel_that_only_the_supervisor_has_heard_of_is_one(self, child: Child) -> None:
        key = child.run("deaf")
        assert self.ends(child, key, cancelled={key: ns(110)})["q"][0].kind == OutcomeKind.CANCELLED

    def test_the_first_reason_stays(self, child: Child) -> None:
        key = child.run("told", timeout=30)
        child.tell("told", 110)
        assert self.ends(child, key)["q"][0].kind == OutcomeKind.CANCELLED

    def test_a_run_that_has_ended_since_the_look_says_for_itself_how(self, child: Child) -> None:
        key = child.run("late", timeout=3)
        child.board.end(child.slots["late"])
        assert self.ends(child, key) == {}

    def test_another_run_in_the_slot_is_another_run(self, child: Child) -> None:
        key = child.run("late", timeout=3)
        child.board.fill(child.slots["late"], queue=0, job="late", token=99, task="t")
        child.board.start(child.slots["late"], ns(100), Limits(deadline_ns=ns(103), late=FAILS))
        assert self.ends(child, key) == {}

    @pytest.mark.parametrize("why", ["lease_lost", "shutdown"])
    def test_who_has_lost_its_lease_or_was_shut_down_has_nothing_to_say(self, child: Child, why: str) -> None:
        key = child.run("told", timeout=30)
        child.tell("told", 110, why)
        assert self.ends(child, key) == {}

    def test_a_void_run_has_nothing_to_say(self, child: Child) -> None:
        key = child.run("late", timeout=3)
        assert self.ends(child, key, void=Void(ns(101), frozenset({key}))) == {}

    def test_a_queue_that_nobody_knows_is_no_queue(self, child: Child) -> None:
        key = child.run("late", timeout=3)
        assert outcomes(child.board, [], frozenset({key}), Void(), {}) == {}
        assert child.board.slot(0).state == SlotState.STARTED
