"""Ends what a solo job has left running, before the job's end is told: nobody else may start beside it.

While that goes on its process takes no other job, whose processes would be taken for this one's, and a drain waits for
it: to leave in the middle would hand back a job whose work is done. It is done in a thread of the worker's own: a job
may have left calls in all threads of the loop's, and a run whose end waits for one of those would never be over.

A crash in between leaves a job that runs in the store; its supervisor ends what is left and hands it back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from stillhere.domain.job import Outcome
from stillhere.worker import processes
from stillhere.worker.child.runs import Run
from stillhere.worker.child.threads import Threads


class Broom:
    """Made and called on the loop."""

    def __init__(
        self,
        mark: str,
        threads: Threads,
        on_swept: Callable[[Run, Outcome | None, bool], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`on_swept` gets the run, its outcome, and whether there was anything left of it."""
        self._mark, self._threads, self._on_swept, self._on_failure = mark, threads, on_swept, on_failure
        self._loop = asyncio.get_running_loop()
        self._runs: set[Run] = set()

    @property
    def busy(self) -> int:
        """How many runs have ended whose processes may not have."""
        return len(self._runs)

    def sweep(self, run: Run, outcome: Outcome | None) -> None:
        """End what this run has left, and say so."""
        self._runs.add(run)
        try:
            self._threads.submit(lambda: self._work(run, outcome))
        except RuntimeError:  # no thread is to be had
            self._work(run, outcome)

    def _work(self, run: Run, outcome: Outcome | None) -> None:
        with contextlib.suppress(RuntimeError):  # the worker left without this run, and its loop is closed
            try:
                found = processes.end_own_offspring(self._mark)
            except Exception as error:  # noqa: BLE001 - passed on: a run whose end is never told is the worker's end
                self._loop.call_soon_threadsafe(self._on_failure, error)
            else:
                self._loop.call_soon_threadsafe(self._swept, run, outcome, found)

    def _swept(self, run: Run, outcome: Outcome | None, found: bool) -> None:  # noqa: FBT001 - passed on
        self._runs.discard(run)
        self._on_swept(run, outcome, found)
