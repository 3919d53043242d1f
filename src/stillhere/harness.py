"""A whole queue inside one test: jobs are really enqueued, granted, run and settled, in this process and in order.

`harness` sends the app to a store of its own in memory for the length of a block. `Harness.run_until_empty` is the
worker: it claims one job at a time, runs its handler with a job around it (a coroutine on the test's loop, a function
in a thread), and settles what `policy` makes of the end. So retries, snoozes, unique keys, cancels and checkpoints
behave as in production; only leases, several workers and crashes are left out.

Time is the real time plus what `advance` has added: a job that waits for its next try runs after
``queue.advance("10m")`` and not before. Back-off takes its longest wait here, so that how far to advance is known.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from stillhere.backends.memory.store import forget
from stillhere.domain.durations import Duration, milliseconds
from stillhere.domain.errors import ArgumentError
from stillhere.domain.policy import after_exception, after_result_error, after_return
from stillhere.handle import NewJob
from stillhere.link import Link
from stillhere.ports.backend import Checkpoint, Claim, Lanes, Progress, ProgressItem, Register, Settle
from stillhere.ports.inspector import Jobs, Page, Queues
from stillhere.worker.child.context import Job, SyncJob, enter
from stillhere.worker.child.runs import Run

if TYPE_CHECKING:
    from stillhere.app import App
    from stillhere.domain.job import Grant, JobRecord, Outcome
    from stillhere.ports.backend import SyncStore
    from stillhere.sender import Task

_LEASE_MS = 86_400_000
_MOST_RUNS = 10_000
_PLACES: tuple[tuple[int, int, Lanes], ...] = ((1, 0, "pool"), (0, 1, "pool"), (1, 0, "solo"))
"""Slots, long places and lanes of one claim each: a test has a place of every kind, and runs one job at a time."""


@asynccontextmanager
async def harness(app: App[Any], url: str | None = None) -> AsyncIterator[Harness]:
    """Send the app's jobs to a store of their own inside the block, with the app's lifespan entered.

    The store is in memory unless `url` names another one, of which a namespace of its own is used.
    """
    clock = _Clock()
    own, namespace = f"memory://{secrets.token_hex(8)}", f"harness-{secrets.token_hex(4)}"
    here = Link(url or own, namespace, clock)
    before = app.relink(here)
    try:
        async with app.lifespan():
            yield Harness(app, clock)
    finally:
        app.relink(before)
        await here.aclose()
        forget(own, namespace)


class Harness:
    """The queue of one test."""

    def __init__(self, app: App[Any], clock: _Clock) -> None:
        self._app = app
        self._clock = clock
        self._worker = secrets.token_hex(8)
        self._claims: dict[str, Iterator[int]] = {}
        self.lines: list[str] = []
        """What handlers said to ``job.log``."""

    async def run_until_empty(self) -> int:
        """Run what is ready, and what that makes ready, until nothing is; returns the number of runs.

        Jobs that wait for a time stay where they are: see `advance`.
        """
        ran = 0
        while grant := self._next():
            ran += 1
            if ran > _MOST_RUNS:
                raise AssertionError(f"{_MOST_RUNS} runs, and {grant.task} is ready again: does it ever end?")
            await self._play(grant)
        return ran

    def advance(self, by: Duration) -> None:
        """Let this much time pass."""
        self._clock.ahead_ms += milliseconds(by, "by")

    def jobs(self) -> list[JobRecord]:
        """All jobs that were enqueued, whatever became of them (those with ``retention=0`` without their arguments)."""
        found: list[JobRecord] = []
        for queue in self._store.call(Queues(queue="")):
            after: str | None = None
            while True:
                page: Page = self._store.call(Jobs(queue=queue, after=after))
                found += page.jobs
                after = page.after
                if after is None:
                    break
        return found

    def assert_enqueued(self, job: NewJob[Any] | Task[..., Any], *, count: int = 1) -> None:
        """Fail unless so many jobs of this task, or of this very call, were enqueued, whatever became of them."""
        name, args = (job.record.task, job.record.args) if isinstance(job, NewJob) else (job.name, None)
        jobs = self.jobs()
        found = sum(one.task == name and args in (None, one.args) for one in jobs)
        if found != count:
            there = ", ".join(f"{one.task}({one.args or '...'})" for one in jobs) or "nothing"
            raise AssertionError(f"{name}({args or '...'}) was enqueued {found} times, not {count}. Enqueued: {there}.")

    # --------------------------------------------------------------------------------------------- as a worker does

    @property
    def _store(self) -> SyncStore:
        return self._app.link.sync_store()

    def _next(self) -> Grant | None:
        for queue in self._store.call(Queues(queue="")):
            if queue not in self._claims:
                tasks = self._app.tasks.names()
                self._store.call(Register(queue=queue, worker=self._worker, lease_ms=_LEASE_MS, tasks=tasks))
                self._claims[queue] = itertools.count(1)
            for slots, long, lanes in _PLACES:  # one after the other: what is granted must run before the next claim
                claim = Claim(
                    queue=queue, worker=self._worker, n=next(self._claims[queue]), slots=slots, long=long, lanes=lanes
                )
                if jobs := self._store.call(claim).jobs:
                    return jobs[0]
        return None

    async def _play(self, grant: Grant) -> None:
        task = self._app.tasks.get(grant.task)
        if task is None:
            raise AssertionError(f"a job of {grant.task} was granted to a worker without that task")
        outcome = await self._outcome(Run(grant, task, self, slot=0))
        if outcome is not None:
            self._store.call(Settle(queue=grant.queue, worker=self._worker, outcomes=[outcome]))

    async def _outcome(self, run: Run) -> Outcome | None:
        plan = run.task.options
        value, error = await self._call(run)
        if error is not None:
            me = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and me is not None and me.cancelling():
                raise error  # it is the test that is being ended
            return after_exception(run.grant, plan, error, stopping=run.stopping, random=1.0)
        try:
            return after_return(run.grant, plan, run.task.codec.encode_result(value))
        except ArgumentError as unstorable:
            return after_result_error(run.grant, plan, unstorable)

    async def _call(self, run: Run) -> tuple[Any, BaseException | None]:
        """Call the handler, in a context of its own with its job in it; what it returned, or what it raised."""
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        if run.task.is_async:
            context.run(enter, Job(run))
            return await loop.create_task(_ended(run), context=context)
        context.run(enter, SyncJob(run))
        return await loop.run_in_executor(None, lambda: context.run(_ended_sync, run))

    # ---------------------------------------------------------------------------------------- what a handler may ask

    def in_doubt(self) -> bool:
        """A test's lease is sound."""
        return False

    def note_progress(self, run: Run, done: float, total: float | None, note: str) -> None:
        """Store it at once."""
        value = msgspec.json.encode({"done": done, "total": total, "note": note}).decode()
        item = ProgressItem(job=run.grant.id, token=run.grant.token, number=next(run.numbers), value=value)
        self._store.call(Progress(queue=run.grant.queue, worker=self._worker, items=[item]))

    async def checkpoint(self, run: Run, value: object) -> None:
        """Store it."""
        self.checkpoint_sync(run, value)

    def checkpoint_sync(self, run: Run, value: object) -> None:
        """As `checkpoint`."""
        text = run.task.codec.encode_checkpoint(value)
        self._store.call(
            Checkpoint(
                queue=run.grant.queue,
                worker=self._worker,
                job=run.grant.id,
                token=run.grant.token,
                number=next(run.numbers),
                value=text,
            )
        )
        run.checkpoint = text

    def log(self, run: Run, line: str) -> None:
        """Keep it in `lines`."""
        del run
        self.lines.append(line)


class _Clock:
    """The real time, plus what the test has let pass."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms


async def _ended(run: Run) -> tuple[Any, BaseException | None]:
    """Caught inside the task: a SystemExit that leaves a task ends the loop as well."""
    try:
        args, kwargs = run.task.codec.decode_call(run.grant.args)
        return await run.task.fn(*args, **kwargs), None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a handler may raise anything, and it is its own failure
        return None, error


def _ended_sync(run: Run) -> tuple[Any, BaseException | None]:
    try:
        args, kwargs = run.task.codec.decode_call(run.grant.args)
        return run.task.fn(*args, **kwargs), None
    except BaseException as error:  # noqa: BLE001 - as above
        return None, error
