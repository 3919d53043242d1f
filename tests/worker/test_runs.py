"""The book of what is held, and its picture on the board."""

from __future__ import annotations

from stillhere.ports.backend import Held
from stillhere.worker.board import SlotState
from tests.worker.kit import Desk, grant, run_of


def test_g13_a_grant_is_on_the_board_and_in_the_book_until_it_is_let_go() -> None:
    desk = Desk("q", "r", slots=4)
    run = desk.take(grant("a", queue="r", token=5))
    (slot,) = desk.board.taken()
    assert (slot.state, slot.queue, slot.job, slot.token) == (SlotState.HELD, 1, "a", 5)
    assert desk.holdings.pairs("r") == [Held("a", 5)]
    assert desk.holdings.pairs("q") == []
    assert (desk.holdings.room, len(desk.holdings)) == (3, 1)
    run.ended = True
    assert desk.holdings.active() == []
    assert desk.holdings.pairs("r") == [Held("a", 5)], "held until its settle is confirmed"
    desk.holdings.drop(run)
    desk.holdings.drop(run)
    assert desk.board.taken() == []
    assert (desk.holdings.room, len(desk.holdings)) == (4, 0)


def test_a_job_may_be_held_twice_under_two_tokens() -> None:
    desk = Desk(slots=4)
    wedged, heir = desk.take(grant("a", token=1)), desk.take(grant("a", token=2))
    assert desk.holdings.find("q", "a", 1) is wedged
    assert desk.holdings.find("q", "a", 2) is heir
    assert desk.holdings.find("q", "a") is heir
    assert desk.holdings.find("q", "a", 3) is None
    assert desk.holdings.find("q", "b") is None
    desk.holdings.drop(wedged)
    assert desk.holdings.find("q", "a") is heir
    assert desk.holdings.room == 3


def test_the_first_reason_to_stop_stays() -> None:
    run = run_of()
    run.stop("cancelled")
    run.stop("shutdown")
    assert run.stopping == "cancelled"
    over = run_of()
    over.ended = True
    over.stop("shutdown")
    assert over.stopping is None
