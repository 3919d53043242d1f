"""Every exception that a user of stillhere can meet, and the four that a handler raises to steer its own job.

Two families. Subclasses of `StillhereError` tell the caller that something did not happen, and what to do next; they
all say in one sentence what, in one why or where, in one what to do. The others are words of a handler to its worker
(`Retry`, `Snooze`, `Discard`) and of a worker to a handler (`JobStopped`); `policy` turns them into an outcome.

`JobStopped` is a ``BaseException`` on purpose: pipelines are full of ``except Exception: log(...)``, and a run that
has lost its lease must not survive in such a loop.

All of them can be pickled (their ``args`` are the arguments of their constructor), because test runners and process
pools send exceptions from one process to another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from stillhere.domain.durations import Duration, milliseconds

if TYPE_CHECKING:
    from stillhere.domain.info import JobInfo

StopReason = Literal["cancelled", "timeout", "stalled", "lease_lost", "shutdown"]


class StillhereError(Exception):
    """Base of all errors that stillhere raises to its callers; catch it to catch them all."""


class ConfigurationError(StillhereError):
    """The program asks for something that cannot be: a bad URL, a bad option, a task defined twice, a missing extra."""


class UnknownOption(ConfigurationError):
    """An option that does not exist, or not at this place; the text names the nearest one that does."""


class UnknownTask(StillhereError):
    """A task name that this program does not know."""


class ArgumentError(StillhereError):
    """A value that would not reach the other side as it is: nothing was sent.

    Raised on the caller's line for arguments (wrong name, missing, not storable, too big), and in the worker when a
    stored record does not fit the task's signature any more; there the retry policy decides, then the dead letter.
    """


class WrongDoor(StillhereError, RuntimeError):
    """An async call in sync code or the reverse; the text names the method to use here."""


class StoreUnavailable(StillhereError):
    """The store did not answer in time or refused the connection; the text says which one and where its URL is set.

    `sent` is False when the request surely never left this process (no connection); else the store may have done it all
    the same. Every verb of stillhere may be repeated.
    """

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class StoreFull(StillhereError):
    """The store is at its memory limit and takes no new job; what it already has goes on."""


class DuplicateJob(StillhereError):
    """A job with this id or unique key is alive, and ``on_conflict="raise"`` was asked for."""

    def __init__(self, message: str, job_id: str) -> None:
        super().__init__(message, job_id)
        self.message = message
        self.job_id = job_id

    def __str__(self) -> str:
        return self.message


class JobNotFound(StillhereError):
    """The store knows no job with this id: never enqueued there, or ended and forgotten after its retention."""

    def __init__(self, message: str, job_id: str) -> None:
        super().__init__(message, job_id)
        self.message = message
        self.job_id = job_id

    def __str__(self) -> str:
        return self.message


class JobFailed(StillhereError):
    """The job is a dead letter: the caller of ``result()`` learns the last error as text.

    The worker's own exception is never rebuilt here: its class may not exist in this process, and building it from
    stored data would run foreign code.
    """

    def __init__(self, error_type: str, message: str, traceback: str, info: JobInfo) -> None:
        super().__init__(error_type, message, traceback, info)
        self.error_type = error_type
        self.message = message
        self.traceback = traceback
        self.info = info

    def __str__(self) -> str:
        return f"{self.error_type}: {self.message}" if self.message else self.error_type


class JobCancelled(StillhereError):
    """The job ended as cancelled (by `cancel` or by its own `Discard`), so there is no result."""

    def __init__(self, reason: str, info: JobInfo) -> None:
        super().__init__(reason, info)
        self.reason = reason
        self.info = info

    def __str__(self) -> str:
        return self.reason or "the job was cancelled"


class ResultNotKept(StillhereError):
    """The job succeeded, but there is no result to read: ``retention=0``, kept no longer, or not storable."""


class NoCurrentJob(StillhereError, RuntimeError):
    """`current_job()` was called where no job runs."""


class CheckpointUnreadable(StillhereError):
    """The stored checkpoint does not fit the type that `restore` asks for; the retry policy decides what follows."""


class Retry(Exception):
    """Raise it to end this run as a failure and try again, after `after` or by the task's own back-off."""

    def __init__(self, after: Duration | None = None) -> None:
        super().__init__(after)
        self.after = after
        self.after_ms = None if after is None else milliseconds(after, "after")

    def __str__(self) -> str:
        return "the task asked to be tried again" + ("" if self.after is None else f" after {self.after}")


class Snooze(Exception):
    """Raise it to come back later with nothing charged: for polling, or when it is simply too early."""

    def __init__(self, delay: Duration) -> None:
        super().__init__(delay)
        self.delay = delay
        self.delay_ms = milliseconds(delay, "delay")

    def __str__(self) -> str:
        return f"come back in {self.delay}"


class Discard(Exception):
    """Raise it to end the job for good without a result: it becomes cancelled, with this reason."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class JobStopped(BaseException):
    """This run must end now: somebody cancelled the job, its time is up, its lease is gone, the worker shuts down.

    A sync handler meets it at its next `progress`, `checkpoint` or `check`; an async one gets ``CancelledError``
    instead and finds the same reason in ``job.stopping``. Letting it pass is never charged as a failure, except for
    ``timeout`` and ``stalled``.
    """

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason)
        self.reason: StopReason = reason

    def __str__(self) -> str:
        return f"this run must end: {self.reason}"
