"""Runs what the fetcher brings: coroutines on the loop, functions in threads; and says how each run ended.

A run is one asyncio task or one thread. Its end is noted in this order: the board (so that a death from here on charges
nobody), its seat (so that the fetcher can fill it), the outcome (which the settler sends with others). The outcome is
decided by `policy`; it is sent only after the handler has returned, never while its code may still act.

A run may have limits (`timeout`, `stall_after`). They stand on the board before it starts, with what its end is if it
has to be killed; here they are looked at ten times a second. Told to stop, a coroutine is cancelled, and a function in
a thread gets its exception a second later, should it not have looked by then. What neither ends is the supervisor's: it
cuts a blocked loop, and kills.

What may go wrong between two lines: a cancel may reach an asyncio task before its first step, and then the handler's
coroutine never runs; `_ended_unseen` ends such a run. A cut may come at any instruction of a run's steps, also of the
lines here that come after its handler: before `_end` the run ends all the same, unseen, from there on the loop's mark
is gone. A handler may raise anything, SystemExit too: it is the job's own failure, never the worker's end.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import logging
import random
import re
import threading
from collections.abc import Callable
from typing import Any

from stillhere.domain.errors import ArgumentError, JobStopped, StopReason
from stillhere.domain.job import Outcome, OutcomeKind
from stillhere.domain.policy import after_exception, after_result_error, after_return, stall_ms, timeout_ms
from stillhere.worker.board import CURRENT, NO_LIMITS, Board, Late, Limits
from stillhere.worker.child.context import Job, SyncJob, enter
from stillhere.worker.child.places import Places
from stillhere.worker.child.runs import Run
from stillhere.worker.child.steps import Cut
from stillhere.worker.child.threads import Call, Threads
from stillhere.worker.clock import boottime, boottime_ns

log = logging.getLogger("stillhere.worker")

INSIST_AFTER_NS = 1_000_000_000
"""So long after it was told to stop, a thread gets the exception that it did not come to fetch."""

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
        self._limited: set[Run] = set()
        self._calls: dict[Run, Call] = {}
        self.threads = Threads()
        self.started = 0

    def seat(self, run: Run) -> None:
        """Give a run its seat; it has a slot on the board."""
        self._show(self._places.take(run))

    def keep(self, long: int) -> None:
        """See `Places.keep`."""
        self._show(self._places.keep(long))

    def start(self, run: Run) -> None:
        """Start a run that has a seat and a slot on the board."""
        now_ns = boottime_ns()
        run.started = True
        run.started_at = now_ns / 1e9
        self.started += 1
        self._board.start(run.slot, now_ns, self._limits(run, now_ns))
        try:
            args, kwargs = run.task.codec.decode_call(run.grant.args)
        except BaseException as error:  # noqa: BLE001 - custom codecs are users' code
            self._raised(run, error)
            return
        context = contextvars.copy_context()
        context.run(enter, Job(run) if run.task.is_async else SyncJob(run))
        if run.task.is_async:
            run.handle = self._loop.create_task(self._coroutine(run, args, kwargs), context=context)
            run.handle.add_done_callback(lambda task: self._ended_unseen(run, task))
        else:
            self._calls[run] = Call()
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

    def stop_in_doubt(self) -> None:
        """The lease may soon be over: end what must not run beside somebody else's run."""
        for run in self._places.running:
            if run.started and run.task.options.stops_in_doubt and run.lose():
                log.warning("Job %s (%s) is stopped: its lease is in doubt.", run.grant.id, run.grant.task)
                self.stop(run, "lease_lost")

    def enforce_limits(self) -> None:
        """Tell those to stop whose time is up, and those in threads that have not listened."""
        now_ns = boottime_ns()
        for run in list(self._limited):
            if run.stopping is None and (reason := run.late(now_ns)) is not None:
                log.warning("Job %s (%s) is told to stop: %s.", run.grant.id, run.grant.task, reason)
                self.stop(run, reason)
        for run, call in list(self._calls.items()):
            if run.stopping is not None and now_ns - run.stopped_ns > INSIST_AFTER_NS:
                call.interrupt(_told(run.stopping))

    def _limits(self, run: Run, now_ns: int) -> Limits:
        timeout, stall = timeout_ms(run.grant, run.task.options), stall_ms(run.grant, run.task.options)
        doubt = run.task.options.stops_in_doubt
        if not timeout and not stall:
            return Limits(stops_in_doubt=True) if doubt else NO_LIMITS
        run.deadline_ns = now_ns + timeout * 1_000_000 if timeout else 0
        run.stall_ns, run.moved_ns = stall * 1_000_000, now_ns
        self._limited.add(run)
        end = after_exception(
            run.grant, run.task.options, TimeoutError(), stopping="timeout", random=self._dice.random()
        )
        late = Late(end.kind, end.delay_ms) if end is not None else None
        return Limits(deadline_ns=run.deadline_ns, stall_ns=run.stall_ns, late=late, stops_in_doubt=doubt)

    async def _coroutine(self, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            value = await run.task.fn(*args, **kwargs)
        except (Cut, GeneratorExit) as cut:
            if run.stopping is None and (reason := run.late(boottime_ns())) is not None:
                run.flag(reason)  # the loop that looks for this was the one that was blocked
            self._raised(run, JobStopped(run.stopping or "cancelled").with_traceback(cut.__traceback__))
        except BaseException as error:  # noqa: BLE001 - every end of a handler is an end of its job
            self._raised(run, error)
        else:
            self._returned(run, value)

    def _function(self, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Runs in a thread."""
        run.thread = threading.get_ident()
        self._board.in_thread(run.slot, run.thread)
        report: Callable[[Run, Any], None]
        try:
            value, report = self._calls[run].run(lambda: run.task.fn(*args, **kwargs)), self._returned
        except BaseException as error:  # noqa: BLE001 - as above
            value, report = error, self._raised
        with contextlib.suppress(RuntimeError):  # the worker left without this run, and its loop is closed
            self._loop.call_soon_threadsafe(report, run, value)

    def _ended_unseen(self, run: Run, task: asyncio.Task[None]) -> None:
        """Cancelled before its first step; or cut on the way into or out of a step, and then its code is still there.

        Also a run that has told its end may be cut on its last instructions: nobody is to hear of that.
        """
        if not task.cancelled():
            task.exception()
        if not run.ended and (coroutine := task.get_coro()) is not None:
            with contextlib.suppress(Exception):  # a handler that awaits on its way out is left there
                coroutine.close()  # if it has begun, it tells its end itself
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
        self._board.words[CURRENT] = 0  # from here on no cut: half an end would be none, and the job held for ever
        run.ended = True
        run.handle = None
        self._limited.discard(run)
        self._calls.pop(run, None)
        self._board.end(run.slot)
        self._show(self._places.leave(run))
        self._on_end(run, outcome)

    def _show(self, moved: list[Run]) -> None:
        for run in moved:
            self._board.lengthen(run.slot)


_TOLD: dict[StopReason, type[JobStopped]] = {}


def _told(reason: StopReason) -> type[JobStopped]:
    """`JobStopped` of this reason, as a class: the interpreter makes the instance itself, without arguments."""
    if reason not in _TOLD:
        _TOLD[reason] = type("JobStopped", (JobStopped,), {"__init__": lambda self: JobStopped.__init__(self, reason)})
    return _TOLD[reason]


def _for_the_log(error: str) -> str:
    """The stored traceback, which is of bounded length, without characters that would act on a terminal."""
    return _CONTROL.sub("?", str(json.loads(error)["traceback"]).rstrip())
