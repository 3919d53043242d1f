"""Where the code of a running job is now, as lines of text; asked for by people, answered from the keeper's thread.

A function in a thread is where its thread is. A coroutine is read by the loop itself, from await to await, since its
frames lie outside any thread's stack while it waits. When the loop does not answer it is blocked, and then the loop's
thread shows by what. While a call of C's holds the interpreter this thread does not run either: then the supervisor
answers, from outside.

Nothing here stops anything, sends a signal or dumps other threads from C: two of the usual ways to a stack end the
process now and then when other threads run, and a third shortens the calls it finds (ADR 0013).
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sys
import threading
import traceback
from types import FrameType
from typing import Any

from stillhere.worker.board import Board
from stillhere.worker.child.runs import Holdings, Run

LOOP_WITHIN_S = 0.5
LOOP_TRIES = 4
_MOST_FRAMES = 60


class Stacks:
    """Reads the stacks of one worker's runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop, holdings: Holdings, board: Board) -> None:
        """On the loop's thread."""
        self._loop, self._holdings, self._board = loop, holdings, board
        self._loop_thread = threading.get_ident()

    def of(self, job: str) -> str:
        """The stack of a job's run; from any thread but the loop's."""
        run = next((one for one in self._holdings.active() if one.grant.id == job and one.started), None)
        if run is None:
            return "It does not run here any more."
        if run.thread:
            return f"It runs in a thread.\n{_of_thread(run.thread)}"
        if (summary := self._from_loop(run)) is not None:
            return f"It runs on the event loop, which turns; it waits here:\n{_lines(summary)}"
        return f"{self._blocked_by(run)}\n{_of_thread(self._loop_thread)}"

    def _from_loop(self, run: Run) -> traceback.StackSummary | None:
        """Have the loop read it. One that is in nobody's step is only slow, and gets more time."""
        found: queue.SimpleQueue[traceback.StackSummary] = queue.SimpleQueue()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(lambda: found.put(_of_coroutine(run)))
        for _ in range(LOOP_TRIES):
            with contextlib.suppress(queue.Empty):
                return found.get(timeout=LOOP_WITHIN_S)
            if self._board.current() is not None:
                break
        return None

    def _blocked_by(self, run: Run) -> str:
        current = self._board.current()
        if current is None:
            return "The event loop is blocked, in the step of no job:"
        if current.index == run.slot:
            return "It blocks the event loop:"
        return f"The event loop is blocked by job {current.job} ({current.task}), so this one waits:"


def _of_thread(ident: int) -> str:
    frame = sys._current_frames().get(ident)  # noqa: SLF001 - the documented way to another thread's stack
    return _lines(traceback.extract_stack(frame)) if frame is not None else "(its thread has ended)"


def _of_coroutine(run: Run) -> traceback.StackSummary:
    """From the task's own coroutine down to what it awaits; on the loop, which does not read files for it."""
    frames: list[FrameType] = []
    awaited: Any = run.handle.get_coro() if run.handle is not None else None
    while awaited is not None and len(frames) < _MOST_FRAMES:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None:
            frames.append(frame)
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return traceback.StackSummary.extract(((frame, frame.f_lineno) for frame in frames), lookup_lines=False)


def _lines(summary: traceback.StackSummary) -> str:
    return "".join(traceback.format_list(list(summary)[-_MOST_FRAMES:])).rstrip() or "(it is between two steps)"
