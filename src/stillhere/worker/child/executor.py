"""Runs what the fetcher brings: coroutines on the loop, functions in threads; and says how each run ended.

A run is one asyncio task or one thread. Its end is noted in this order: the board (so that a death from here on charges
nobody), its seat (so that the fetcher can fill it), the outcome (which the settler sends with others). The outcome is
decided by `policy`; it is sent only after the handler has returned, never while its code may still act.

What may go wrong between two lines: a cancel may reach an asyncio task before its first step, and then the handler's
coroutine never runs; `_ended_unseen` ends such a run. A handler may raise anything, SystemExit too: it is the job's own
failure, never the worker's end.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import logging
import random
import re
from collections.abc import Callable
from typing import Any

from stillhere.domain.errors import ArgumentError, StopReason
from stillhere.domain.job import Outcome, OutcomeKind
from stillhere.domain.policy import after_exception, after_result_error, after_return
from stillhere.worker.board import Board
from stillhere.worker.child.context import Job, SyncJob, enter
from stillhere.worker.child.places import Places
from stillhere.worker.child.runs import Run
from stillhere.worker.child.threads import Threads
from stillhere.worker.clock import boottime, boottime_ns

log = logging.getLogger("stillhere.worker")

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Executor:
    """Starts runs and reports their ends to `on_end(run, outcome)`; outcome None: the lease is lost, say nothing."""

    def __init__(
        self, board: Board, places: Places, on_end: Callable[[Run, Outcome | None], None], long_after_ms: int
    ) -> None:
        self._board = board
        self._places = places
        self._on_end = on_end
        self._long_after_ms = long_after_ms
        self._loop = asyncio.get_running_loop()
        self._dice = random.Random()
        self.threads = Threads()

    def start(self, run: Run) -> None:
        """Start a run that has a seat and a slot on the board."""
        now_ns = boottime_ns()
        run.started = True
        run.started_at = now_ns / 1e9
        self._board.start(run.slot, now_ns)
        try:
            args, kwargs = run.task.codec.decode_call(run.grant.args)
        except BaseException as error:  # noqa: BLE001 - custom codecs are users' code
            self._raised(run, error)
            return
        if run.task.is_async:
            run.handle = self._loop.create_task(self._coroutine(run, args, kwargs))
            run.handle.add_done_callback(lambda _: self._ended_unseen(run))
        else:
            context = contextvars.copy_context()
            try:
                self.threads.submit(lambda: context.run(self._function, run, args, kwargs))
            except RuntimeError as error:  # no thread is to be had: a failed try of this job, not the worker's end
                self._raised(run, error)

    def stop(self, run: Run, reason: StopReason) -> None:
        """Tell a run to end; one that has not started ends at once."""
        run.stop(reason)
        if not run.started and not run.ended:
            self._raised(run, asyncio.CancelledError())

    def find_long(self) -> list[Run]:
        """Move runs that passed `long_after` to long places; returns those that passed just now."""
        now = boottime()
        passed = []
        for run in self._places.running:
            limit = run.task.options.long_after_ms
            limit = self._long_after_ms if limit is None else limit
            if run.started and not run.passed and limit and now - run.started_at > limit / 1000:
                passed.append(run)
                self._show(self._places.passed(run))
        return passed

    async def _coroutine(self, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        enter(Job(run))
        try:
            value = await run.task.fn(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - every end of a handler is an end of its job
            self._raised(run, error)
        else:
            self._returned(run, value)

    def _function(self, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Runs in a thread."""
        enter(SyncJob(run))
        report: Callable[[Run, Any], None]
        try:
            value, report = run.task.fn(*args, **kwargs), self._returned
        except BaseException as error:  # noqa: BLE001 - as above
            value, report = error, self._raised
        with contextlib.suppress(RuntimeError):  # the worker left without this run, and its loop is closed
            self._loop.call_soon_threadsafe(report, run, value)

    def _ended_unseen(self, run: Run) -> None:
        if not run.ended:
            self._raised(run, asyncio.CancelledError())

    def _returned(self, run: Run, value: Any) -> None:
        plan = run.task.options
        try:
            outcome = after_return(run.grant, plan, run.task.codec.encode_result(value))
        except Exception as error:  # noqa: BLE001 - custom codecs are users' code; the work is done all the same
            refusal = error if isinstance(error, ArgumentError) else ArgumentError(f"{type(error).__name__}: {error}")
            log.warning("Job %s succeeded, and its result is not kept: %s", run.grant.id, refusal)
            outcome = after_result_error(run.grant, plan, refusal)
        self._end(run, None if run.stopping == "lease_lost" else outcome)

    def _raised(self, run: Run, error: BaseException) -> None:
        outcome = after_exception(run.grant, run.task.options, error, stopping=run.stopping, random=self._dice.random())
        if outcome is not None and outcome.error is not None:
            log.warning(
                "Job %s (%s), attempt %d: %s\n%s", run.grant.id, run.grant.task, run.grant.failures + 1,
                "dead letter" if outcome.kind == OutcomeKind.DEAD else f"failed, again in {outcome.delay_ms} ms",
                _for_the_log(outcome.error),
            )  # fmt: skip
        self._end(run, outcome)

    def _end(self, run: Run, outcome: Outcome | None) -> None:
        run.ended = True
        run.handle = None
        self._board.end(run.slot)
        self._show(self._places.leave(run))
        self._on_end(run, outcome)

    def _show(self, moved: list[Run]) -> None:
        for run in moved:
            self._board.lengthen(run.slot)


def _for_the_log(error: str) -> str:
    """The stored traceback, which is of bounded length, without characters that would act on a terminal."""
    return _CONTROL.sub("?", str(json.loads(error)["traceback"]).rstrip())
