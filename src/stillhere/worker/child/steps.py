"""Whose step the event loop is in: marked on the board around each step of each coroutine that belongs to a job.

A loop runs one step at a time, from one `await` that waits to the next. If the process dies in a step, the mark on the
board is still there and names the job; if a step blocks the loop, it names the one that holds up all others; and a run
that has to be over is cut by a signal only while the mark says that the signal would hit this run and no other.

A handler's own tasks (`asyncio.gather`, `TaskGroup`) belong to its job too: the loop's task factory wraps whatever is
started in a job's context. The wrapper is a coroutine like any other to asyncio; who asks it for a frame or a state
gets that of the coroutine inside.

*The cut.* The supervisor writes on the board which run to cut, and sends a signal. Python calls the handler on the main
thread between two instructions, wherever that thread is: if the mark is this run's, it is inside the run's step, and
the exception raised here goes through the handler's code like any other. The mark is taken away first, so that the
next signal finds nobody, whatever becomes of the exception. A signal that comes late, when the loop is elsewhere, does
nothing. Not in a host's process, which has its own signals: `Cutter` is for children of a supervisor.
"""

from __future__ import annotations

import asyncio
import contextvars
import signal
from collections.abc import Coroutine, Generator
from typing import Any

from stillhere.worker.board import CURRENT, Board
from stillhere.worker.child.context import running_here
from stillhere.worker.child.runs import Run
from stillhere.worker.cut import CUT_SIGNAL


class Cut(BaseException):
    """Raised inside a run that held the loop after it was told to stop; no `except Exception` keeps it."""


class Steps(Coroutine[Any, Any, Any]):
    """A coroutine of a job, with a mark on the board while it moves."""

    def __init__(self, inner: Coroutine[Any, Any, Any], board: Board, run: Run) -> None:
        self._inner, self._board, self._run = inner, board, run

    @property
    def _mark(self) -> int:
        """A task that outlives its job is nobody's: the slot may be another job's by now."""
        return 0 if self._run.ended else self._run.slot + 1

    def send(self, value: Any) -> Any:
        """One step."""
        board = self._board
        before = board.words[CURRENT]  # another job's never; the step of a task that starts this one eagerly
        board.words[CURRENT] = self._mark
        try:
            return self._inner.send(value)
        finally:
            board.words[CURRENT] = before

    def throw(self, *error: Any) -> Any:
        """One step that begins with an exception."""
        board = self._board
        before = board.words[CURRENT]
        board.words[CURRENT] = self._mark
        try:
            return self._inner.throw(*error)
        finally:
            board.words[CURRENT] = before

    def close(self) -> None:
        """Its last step."""
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        """As the coroutine inside, for code that awaits it instead of making a task of it."""
        return self._inner.__await__()

    def __getattr__(self, name: str) -> Any:
        """`cr_frame` and its like."""
        return getattr(self._inner, name)


class TaskFactory:
    """Makes the loop's tasks: those that a job starts are the job's."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def __call__(
        self, loop: asyncio.AbstractEventLoop, coro: Any, *, context: contextvars.Context | None = None, **more: Any
    ) -> asyncio.Task[Any]:
        """Make a task."""
        run = running_here(context)
        if run is not None and isinstance(coro, Coroutine):
            coro = Steps(coro, self._board, run)
        return asyncio.Task(coro, loop=loop, context=context, **more)


class Cutter:
    """The signal's handler."""

    def __init__(self, board: Board) -> None:
        """Install it; on the main thread only."""
        self._board = board
        signal.signal(CUT_SIGNAL, self._cut)
        board.write("cuttable", 1)

    def _cut(self, *_: object) -> None:
        words = self._board.words
        slot = words[CURRENT]
        if slot and slot == self._board.read("cut_slot"):
            run = self._board.slot(slot - 1)
            if run.token == self._board.read("cut_token"):
                words[CURRENT] = 0
                raise Cut
