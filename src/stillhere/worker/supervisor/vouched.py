"""What the beater and the undertaker must know of a process that runs jobs: a child, or a host with a worker in it.

The two threads read it while its owner changes it, so everything here is one read of the board, of the kernel, or of a
field that is replaced whole.
"""

from __future__ import annotations

from typing import Protocol

from stillhere.domain.attribution import Seen
from stillhere.domain.job import Outcome
from stillhere.worker.board import WORKING, Board, SlotState
from stillhere.worker.clock import boottime_ns

SILENT_S = 1.0
"""A loop that has not ticked for so long is silent: what was granted to it since, it may never have seen."""
LOOK_CLOSER_S = 0.25
"""A loop that has not ticked for so long may belong to a process that is writing a core dump."""


class Vouched(Protocol):
    """A process with a board, for which somebody may speak."""

    pid: int
    board: Board
    queues: list[str]
    """The queues it serves, in the order of the board."""

    @property
    def worker(self) -> str:
        """The id under which it is registered now."""

    @property
    def vouched(self) -> bool:
        """Whether one may speak for it: it lives, is not stopped, and is in a working phase."""

    @property
    def is_silent(self) -> bool:
        """Whether its loop is silent at this moment."""

    def ask(self, question: str, job: str) -> None:
        """Ask it where the code of a job is."""

    def ends(self) -> dict[str, list[Outcome]]:
        """How runs end that only its death has ended, by queue."""

    def declared_gone(self) -> None:
        """Its worker id is closed in the store: what runs under it is void."""


def silence(board: Board) -> float:
    """Seconds since the loop ticked last; 0 for a process that has no loop yet, or none any more."""
    ticked = board.read("loop_tick_ns")
    return (boottime_ns() - ticked) / 1e9 if ticked and board.phase in WORKING else 0.0


def seen_on(board: Board, queues: list[str]) -> list[Seen]:
    """What a board shows: the jobs that its process has, or had."""
    current = board.read("current") - 1
    return [
        Seen(
            queues[slot.queue],
            slot.job,
            running=slot.state == SlotState.STARTED,
            thread=slot.thread,
            current=slot.index == current,
        )
        for slot in board.taken()
        if slot.queue < len(queues)
    ]
