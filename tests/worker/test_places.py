"""Slots and long places: one long run must not take the pool, and nobody sits twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillhere.worker.child.places import Places
from stillhere.worker.child.runs import Run
from tests.worker.kit import run_of


async def long_one() -> None:
    """Stand for a task that is long."""


async def other() -> None:
    """Stand for another task."""


def test_a_slot_is_taken_and_given_back() -> None:
    places, run = Places(2, 2), run_of()
    assert (places.free, places.empty) == (2, True)
    places.take(run)
    assert (places.free, places.empty, places.running) == (1, False, [run])
    assert places.leave(run) == []
    assert (places.free, places.empty) == (2, True)


def test_a_run_that_passes_moves_and_gives_its_slot_back() -> None:
    places, run = Places(1, 1), run_of()
    places.take(run)
    assert places.free == 0
    assert places.passed(run) == [run]
    assert places.free == 1
    assert run.long
    assert places.running == [run]


def test_without_a_long_place_it_stays_and_moves_when_one_is_free() -> None:
    places = Places(2, 1)
    first, second = run_of(), run_of(other)
    for run in (first, second):
        places.take(run)
    assert places.passed(first) == [first]
    assert places.passed(second) == []
    assert places.free == 1
    assert places.leave(first) == [second]
    assert places.free == 2
    assert not places.empty


def test_the_other_runs_of_a_long_task_move_along() -> None:
    places = Places(4, 3)
    first, twin, stranger = run_of(long_one), run_of(long_one, id="j2"), run_of(other)
    for run in (first, twin, stranger):
        places.take(run)
    assert places.passed(first) == [first, twin]
    assert places.free == 3
    late = run_of(long_one, id="j3")
    assert places.take(late) == [late], "what is long once is long again"
    assert (places.free, places.free_long) == (3, 0)
    last = run_of(long_one, id="j4")
    assert places.take(last) == []
    assert places.free == 2
    assert places.leave(twin) == [last]


def test_those_that_passed_go_before_those_that_only_share_the_name() -> None:
    places = Places(3, 1)
    twin, first, second = run_of(long_one, id="j0"), run_of(long_one), run_of(other)
    for run in (twin, first, second):
        places.take(run)
    assert places.passed(first) == [first]
    places.passed(second)
    assert places.leave(first) == [second], "the twin is older, but it has not passed"


@pytest.mark.parametrize("long_places", [0])
def test_no_long_places_at_all(long_places: int) -> None:
    places, run = Places(1, long_places), run_of()
    places.take(run)
    assert places.passed(run) == []
    assert places.free == 0


def test_what_was_claimed_for_a_long_place_sits_there_from_the_start() -> None:
    places, run = Places(2, 2), run_of(lane="long")
    assert places.take(run) == [run]
    assert run.long
    assert (places.free, places.free_long) == (2, 1)
    assert places.leave(run) == []
    assert (places.free, places.free_long, places.empty) == (2, 2, True)


def test_it_tells_what_sits_in_slots() -> None:
    places = Places(4, 1)
    runs = [run_of(long_one), run_of(other, id="j2"), run_of(other, id="j3"), run_of(lane="long", id="j4")]
    assert places.seated == {}
    for run in runs:
        places.take(run)
    assert sorted(places.seated.values()) == [1, 2]
    places.leave(runs[3])
    places.passed(runs[0])
    assert places.seated == {runs[1].grant.task: 2}


def test_a_long_place_that_a_run_in_a_slot_needs_is_not_free() -> None:
    places = Places(2, 2)
    longs = [run_of(lane="long", id=f"j{n}") for n in range(2)]
    captor = run_of(other)
    for run in (*longs, captor):
        places.take(run)
    assert places.passed(captor) == []
    assert places.free_long == 0
    assert places.leave(longs[0]) == [captor], "it comes before all that wait"
    assert (places.free, places.free_long) == (2, 0)


def test_long_places_that_a_claim_has_asked_for_are_kept_for_it() -> None:
    places, captor = Places(2, 2), run_of(other)
    places.take(captor)
    assert places.keep(2) == []
    assert places.free_long == 0
    assert places.passed(captor) == [], "the claim may bring two"
    brought = run_of(lane="long", id="j2")
    assert places.take(brought) == [brought]
    assert places.keep(0) == [captor], "the claim brought one, and the captured slot needs the other"
    assert (places.free, places.free_long) == (2, 0)


@given(st.lists(st.tuples(st.sampled_from(["take", "pass", "leave"]), st.integers(0, 11))), st.integers(1, 4))
def test_nobody_sits_twice_and_nothing_is_overfull(steps: list[tuple[str, int]], slots: int) -> None:
    """Every third is claimed for a long place."""
    places = Places(slots, slots)
    runs = [_third_long(n) for n in range(12)]
    seated: dict[int, None] = {}
    for what, n in steps:
        if what == "take" and n not in seated and (places.free if n % 3 else places.free_long) > 0:
            places.take(runs[n])
            seated[n] = None
        elif what == "pass" and n in seated and not runs[n].passed:
            places.passed(runs[n])
        elif what == "leave" and n in seated:
            places.leave(runs[n])
            del seated[n]
            runs[n] = _third_long(n)
        assert 0 <= places.free <= slots
        assert len(places.running) == len(seated) <= 2 * slots
        assert sum(run.long for run in places.running) <= slots
        stuck = [run for run in places.running if run.passed and not run.long]
        assert not stuck or sum(run.long for run in places.running) == slots, "a free long place and a captured slot"
        needy = [run for run in places.running if run.grant.lane != "long" and not run.long and run.passed]
        assert not (needy and places.free_long), "a place is offered that a slot needs"


def _third_long(n: int) -> Run:
    return run_of([long_one, other][n % 2], id=f"j{n}", lane="pool" if n % 3 else "long")
