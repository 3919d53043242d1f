"""The worker id and the age of its lease, as this process knows them."""

from __future__ import annotations

import logging
from itertools import islice

import pytest

from stillhere.worker.board import Board
from stillhere.worker.child.identity import Identity, new_worker_id
from stillhere.worker.clock import boottime_ns
from tests.worker.kit import AWAY


def test_no_id_comes_twice_and_a_name_stands_in_front() -> None:
    assert len({new_worker_id() for _ in range(1000)}) == 1000
    assert new_worker_id("w3").startswith("w3-")


def test_a_new_id_is_on_the_board_with_its_claims_at_zero() -> None:
    board = Board.create(1)
    identity = Identity(board, 1_000, "w", "w-first")
    board.answer(0, 7)
    assert board.worker == "w-first"
    new = identity.renew_id()
    assert (board.worker, board.answered(0)) == (new, 0)
    assert new.startswith("w-")


LONG_AGO_NS = 5_000_000_000


def test_g4_trust_is_the_later_of_two_voices() -> None:
    board = Board.create(1)
    identity = Identity(board, 1_000)
    now = boottime_ns()
    identity.confirm(now - LONG_AGO_NS)
    board.write("supervisor_sent_ns", now)
    assert identity.age < 1.0
    own = Identity(Board.create(1), 1_000)
    own.board.write("supervisor_sent_ns", now - LONG_AGO_NS)
    own.confirm(now)
    assert own.trusted


def test_g4_without_a_fresh_word_there_is_no_trust() -> None:
    identity = Identity(Board.create(1), 1_000)
    assert not identity.trusted
    identity.confirm(boottime_ns() - LONG_AGO_NS)
    assert not identity.trusted
    identity.confirm(boottime_ns())
    assert identity.age < 1.0


def test_g4_a_doubt_stays_until_the_own_voice_has_compared() -> None:
    identity = Identity(Board.create(1), 1_000)
    assert not identity.trusted
    identity.board.write("supervisor_sent_ns", boottime_ns())
    assert not identity.trusted, "the other voice keeps the lease; it does not know what is held"
    identity.confirm(boottime_ns() - LONG_AGO_NS)
    assert not identity.trusted, "sent before the doubt, read after it"
    identity.confirm(boottime_ns())
    last = identity.trusted
    assert last


def test_an_old_answer_makes_no_lease_younger_and_none_older() -> None:
    board = Board.create(1)
    identity = Identity(board, 1_000)
    now = boottime_ns()
    identity.confirm(now)
    identity.confirm(now - LONG_AGO_NS)
    assert board.read("child_sent_ns") == now


def test_bounds_begin_short_and_grow() -> None:
    bounds = list(islice(Identity(Board.create(1), 8_000).growing_bounds(), 10))
    assert bounds[:4] == [1.0, 2.0, 4.0, 8.0]
    assert bounds[-1] == 60.0


def test_an_outage_is_one_line_for_each_kind_of_call(caplog: pytest.LogCaptureFixture) -> None:
    identity = Identity(Board.create(1), 1_000)
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            identity.complain("claim", AWAY)
            identity.complain("beat", AWAY)
    assert len(caplog.records) == 2
