"""The page that two processes share, and that survives one of them."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillhere.worker.board import Board, Phase, SlotState


@pytest.fixture
def board() -> Iterator[Board]:
    board = Board.create(4)
    yield board
    board.close()


def test_a_slot_goes_from_held_to_started_to_ended_to_free(board: Board) -> None:
    board.fill(2, queue=1, job="j" * 128, token=1 << 52, task="t" * 200)
    (slot,) = board.taken()
    assert (slot.index, slot.state, slot.queue, slot.job, slot.token) == (2, SlotState.HELD, 1, "j" * 128, 1 << 52)
    assert slot.task == "t" * 63, "a long task name is cut, a job id never"
    board.start(2, 77)
    board.lengthen(2)
    (slot,) = board.taken()
    assert (slot.state, slot.started_ns, slot.long) == (SlotState.STARTED, 77, True)
    board.end(2)
    assert board.taken()[0].state == SlotState.ENDED
    board.free(2)
    assert board.taken() == []
    board.fill(2, queue=0, job="k", token=1, task="t")
    assert board.taken()[0].long is False


@given(st.lists(st.integers(0, 1 << 40)))
def test_g7_the_answered_number_never_falls_under_one_id(numbers: list[int]) -> None:
    board = Board.create(1)
    board.name_worker("one")
    for number in numbers:
        board.answer(3, number)
    assert board.answered(3) == max([0, *numbers])
    assert board.answered(2) == 0
    board.name_worker("two")
    assert (board.worker, board.answered(3)) == ("two", 0), "a new id begins its claims anew"
    board.close()


def test_trust_is_the_later_of_two_voices(board: Board) -> None:
    board.write("child_sent_ns", 5)
    board.write("supervisor_sent_ns", 9)
    assert board.last_sent_ns() == 9
    board.write("child_sent_ns", 12)
    assert board.last_sent_ns() == 12


CHILD = """
import os, signal, sys
from stillhere.worker.board import Board, Phase
board = Board.attach(int(sys.argv[1]))
board.name_worker("w-1")
board.phase = Phase.RUN
board.fill(0, queue=0, job="job-1", token=7, task="t")
board.start(0, 1)
if os.fork() == 0:
    board.free(0)          # a fork must not speak for its parent
    board.phase = Phase.EXIT
    os._exit(0)
os.wait()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_child_ran_is_still_there_and_its_fork_changed_nothing(board: Board) -> None:
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(board.fd)],
        pass_fds=[board.fd],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert child.returncode == -signal.SIGKILL
    assert (board.worker, board.phase) == ("w-1", Phase.RUN)
    assert [(slot.job, slot.token, slot.state) for slot in board.taken()] == [("job-1", 7, SlotState.STARTED)]


def test_a_file_that_is_no_board_is_refused() -> None:
    fd = os.memfd_create("other")
    os.ftruncate(fd, 4096)
    with pytest.raises(ValueError, match="no board"):
        Board.attach(fd)
    os.close(fd)


def test_a_closed_board_reads_as_empty() -> None:
    board = Board.create(1)
    board.fill(0, queue=0, job="j", token=1, task="t")
    board.close()
    assert board.worker == ""
    assert board.taken() == []


def test_a_board_that_nobody_closes_keeps_no_file_open() -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are enough
    for _ in range(20):
        Board.create(2)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - as above
