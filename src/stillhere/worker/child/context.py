"""The job that runs here, as its handler sees it: `current_job()` in an `async def`, `current_job_sync()` in a `def`.

Two classes for two doors: what one gives is awaited, what the other gives blocks; a call through the wrong door raises
and names the right one. Importing this module costs a context variable and nothing else: it is part of what
`from stillhere import current_job` imports, in web servers that never run a job.

A handler hears that it should end in the way of its kind: a coroutine is cancelled, a function in a thread gets
`JobStopped` at its next `checkpoint`, `progress` or `check`. `stopping` tells both why.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any, TypeVar, overload

from stillhere.domain.errors import JobStopped, NoCurrentJob, StopReason, WrongDoor

if TYPE_CHECKING:
    from stillhere.worker.child.runs import Run

T = TypeVar("T")
D = TypeVar("D")

_current: ContextVar[Job | SyncJob] = ContextVar("stillhere_job")
_NOTHING: Any = object()


class _JobBase:
    """What both kinds have."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def id(self) -> str:
        """The job's id."""
        return self._run.grant.id

    @property
    def task(self) -> str:
        """The name under which it was enqueued."""
        return self._run.grant.task

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return self._run.grant.queue

    @property
    def attempt(self) -> int:
        """Number of this try, 1 at first: failures + 1."""
        return self._run.grant.failures + 1

    @property
    def failures(self) -> int:
        """Runs before this one that ended in their own failure."""
        return self._run.grant.failures

    @property
    def losses(self) -> int:
        """Deaths of the worker that are charged to this job since its checkpoint last moved."""
        return self._run.grant.losses

    @property
    def interruptions(self) -> int:
        """How often a deploy has handed it back."""
        return self._run.grant.interruptions

    @property
    def token(self) -> int:
        """The fencing token of this run: higher than that of every earlier run. Write it with each outside effect."""
        return self._run.grant.token

    @property
    def headers(self) -> Mapping[str, str]:
        """What the producer sent along."""
        return self._run.grant.headers

    @property
    def stopping(self) -> StopReason | None:
        """Why this run should end, or None."""
        return self._run.stopping

    @property
    def lease_in_doubt(self) -> bool:
        """Whether the store has not been heard for so long that somebody else may soon run this job."""
        return self._run.host.in_doubt()

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Say how far it is. Kept in the store at most once a second; the newest word counts."""
        self._run.host.note_progress(self._run, done, total, note)

    @overload
    def restore(self, type: type[T], /) -> T | None: ...
    @overload
    def restore(self, type: type[T], /, default: T) -> T: ...
    def restore(self, type: Any, /, default: Any = None) -> Any:
        """The last checkpoint, as this type; `default` when there is none. Raises `CheckpointUnreadable`."""
        text = self._run.checkpoint
        return default if text is None else self._run.task.codec.restore(type, text)

    def check(self) -> None:
        """Raise `JobStopped` if this run should end."""
        if self._run.stopping is not None:
            raise JobStopped(self._run.stopping)

    def log(self, line: str) -> None:
        """Write a line to the logger `stillhere.job`, with the job's id."""
        self._run.host.log(self._run, line)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}: {self.task}, token {self.token}>"


class Job(_JobBase):
    """The running job, in an `async def` task."""

    async def checkpoint(self, value: object) -> None:
        """Store where the run got to; stored when it returns. The next run gets it from `restore`.

        Raises `ArgumentError` for a value that cannot be stored. Waits through a short outage of the store, and raises
        `StoreUnavailable` after a long one. A run that has lost its lease is cancelled here.
        """
        await self._run.host.checkpoint(self._run, value)


class SyncJob(_JobBase):
    """The running job, in a `def` task."""

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Say how far it is; raises `JobStopped` if this run should end."""
        super().progress(done, total, note)
        self.check()

    def checkpoint(self, value: object) -> None:
        """Store where the run got to; blocks until it is stored. Raises as `Job.checkpoint`, and `JobStopped`."""
        self.check()
        self._run.host.checkpoint_sync(self._run, value)
        self.check()


@overload
def current_job() -> Job: ...
@overload
def current_job(default: D) -> Job | D: ...
def current_job(default: Any = _NOTHING) -> Any:
    """The job that runs here, in an `async def` task; outside of one `default`, or `NoCurrentJob`."""
    job = _current.get(None)
    if isinstance(job, SyncJob):
        raise WrongDoor(f"{job.task} is a def task: call current_job_sync() in it.")
    return _found(job, default)


@overload
def current_job_sync() -> SyncJob: ...
@overload
def current_job_sync(default: D) -> SyncJob | D: ...
def current_job_sync(default: Any = _NOTHING) -> Any:
    """The job that runs here, in a `def` task; outside of one `default`, or `NoCurrentJob`."""
    job = _current.get(None)
    if isinstance(job, Job):
        raise WrongDoor(f"{job.task} is an async def task: call current_job() in it.")
    return _found(job, default)


def _found(job: Any, default: Any) -> Any:
    if job is not None:
        return job
    if default is not _NOTHING:
        return default
    raise NoCurrentJob(
        "No job is running here. In a unit test use stillhere.testing.job_context(); "
        "in a def task call current_job_sync()."
    )


def running_here(context: Context | None = None) -> Run | None:
    """The run to which code in this context belongs; None: it is the worker's own, or a program's."""
    job = _current.get(None) if context is None else context.get(_current)
    return None if job is None else job._run  # noqa: SLF001 - the worker's side of this object


def enter(job: Job | SyncJob) -> None:
    """Make it the current job of this context; a context is never left for another job."""
    _current.set(job)
