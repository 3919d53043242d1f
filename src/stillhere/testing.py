"""For users' own tests: a job around a plain call (`job_context`), or a whole queue inside one test (`harness`).

A task is its function, so a unit test calls it. A handler that asks for `current_job()` finds none there, by design: an
inert stand-in would hide mistakes. `job_context` puts a real job object there, for coroutines, and `job_context_sync`
for functions; behind it stands no store but a notebook. Checkpoints go through the same codec as in production, so a
value that could not be stored is refused in the test, and `restore` gives back what `checkpoint` wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from stillhere.domain.job import Grant
from stillhere.domain.task import TaskDef, Tasks
from stillhere.harness import Harness, harness
from stillhere.worker.child import context
from stillhere.worker.child.context import Job, SyncJob
from stillhere.worker.child.runs import Run

if TYPE_CHECKING:
    from stillhere.domain.codec import Codec
    from stillhere.domain.errors import StopReason

__all__ = [
    "Harness",
    "Notebook",
    "RehearsedJob",
    "RehearsedSyncJob",
    "Said",
    "harness",
    "job_context",
    "job_context_sync",
]

_NOTHING: Any = object()


class Said(NamedTuple):
    """One word of `progress`."""

    done: float
    total: float | None
    note: str


class Notebook:
    """What a handler said while it ran in a test."""

    def __init__(self) -> None:
        self.checkpoints: list[Any] = []
        """The values given to `checkpoint`, in order."""
        self.progress: list[Said] = []
        self.lines: list[str] = []

    def in_doubt(self) -> bool:
        """A test's lease is sound."""
        return False

    def note_progress(self, run: Run, done: float, total: float | None, note: str) -> None:
        """Write it down."""
        del run
        self.progress.append(Said(done, total, note))

    async def checkpoint(self, run: Run, value: object) -> None:
        """Encode it, as a worker does, and write it down."""
        self.checkpoint_sync(run, value)

    def checkpoint_sync(self, run: Run, value: object) -> None:
        """As `checkpoint`."""
        run.checkpoint = run.task.codec.encode_checkpoint(value)
        self.checkpoints.append(value)

    def log(self, run: Run, line: str) -> None:
        """Write it down."""
        del run
        self.lines.append(line)


class RehearsedJob(Job):
    """The job of `job_context`, with the notebook of what was said to it."""

    def __init__(self, run: Run, said: Notebook) -> None:
        super().__init__(run)
        self.said = said

    def stop(self, reason: StopReason) -> None:
        """Tell the handler to end: `stopping` says why from now on, and `check` raises."""
        self._run.stopping = reason


class RehearsedSyncJob(SyncJob):
    """The job of `job_context_sync`, with the notebook of what was said to it."""

    def __init__(self, run: Run, said: Notebook) -> None:
        super().__init__(run)
        self.said = said

    def stop(self, reason: StopReason) -> None:
        """Tell the handler to end: `stopping` says why from now on, and `check` raises."""
        self._run.stopping = reason


@contextmanager
def job_context(
    *,
    attempt: int = 1,
    checkpoint: object = _NOTHING,
    stopping: StopReason | None = None,
    headers: Mapping[str, str] | None = None,
    codecs: Mapping[type, Codec] | None = None,
) -> Iterator[RehearsedJob]:
    """Let `current_job()` give a job inside the block, as in an `async def` task.

    `checkpoint` is what an earlier run left, `stopping` why this one should end; `codecs` are those of the app.
    """
    said = Notebook()
    job = RehearsedJob(_run(said, attempt, checkpoint, stopping, headers=headers, codecs=codecs), said)
    with _here(job):
        yield job


@contextmanager
def job_context_sync(
    *,
    attempt: int = 1,
    checkpoint: object = _NOTHING,
    stopping: StopReason | None = None,
    headers: Mapping[str, str] | None = None,
    codecs: Mapping[type, Codec] | None = None,
) -> Iterator[RehearsedSyncJob]:
    """Let `current_job_sync()` give a job inside the block, as in a `def` task; arguments as of `job_context`."""
    said = Notebook()
    job = RehearsedSyncJob(_run(said, attempt, checkpoint, stopping, headers=headers, codecs=codecs), said)
    with _here(job):
        yield job


@contextmanager
def _here(job: Job | SyncJob) -> Iterator[None]:
    """Make it the current job, and leave none behind."""
    before = context._current.set(job)  # noqa: SLF001 - a worker only enters jobs; leaving one is for tests alone
    try:
        yield
    finally:
        context._current.reset(before)  # noqa: SLF001 - as above


def _run(
    said: Notebook,
    attempt: int,
    checkpoint: object,
    stopping: StopReason | None,
    *,
    headers: Mapping[str, str] | None,
    codecs: Mapping[type, Codec] | None,
) -> Run:
    def rehearsal() -> None:
        """Stands for the task: the test calls the real one itself."""

    definition = TaskDef(rehearsal, {})
    Tasks(codecs).add(definition)
    stored = None if checkpoint is _NOTHING else definition.codec.encode_checkpoint(checkpoint)
    grant = Grant(
        id="rehearsal",
        queue="default",
        token=1,
        task=definition.name,
        args="{}",
        failures=attempt - 1,
        checkpoint=stored,
        headers=dict(headers or {}),
    )
    run = Run(grant, definition, said, slot=0)
    run.stopping = stopping
    return run
