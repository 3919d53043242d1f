"""What a handle tells about its job: the store's record, with times as datetimes and texts opened.

`JobInfo` is a snapshot. Fields that the record does not have yet are None; times are by the store's clock, in UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from stillhere.domain.job import PRIORITY_NAMES, JobRecord
from stillhere.domain.states import FINAL, State

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the run said it was, and when."""

    done: float
    total: float | None = None
    note: str = ""
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class JobError:
    """The last failure or loss; `exit` is how the worker died when it was a loss."""

    type: str
    message: str
    traceback: str = ""
    exit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInfo:
    """One job as the store had it at one instant."""

    id: str
    task: str
    queue: str
    state: State
    reason: str | None
    """Why it is where it is: ``retry``, ``snoozed``, ``unknown_task``, ``failed``, ``cancelled``, ..."""
    priority: str
    failures: int
    losses: int
    interruptions: int
    token: int
    worker: str | None
    cancelling: bool
    created: datetime | None
    due: datetime | None
    started: datetime | None
    ended: datetime | None
    progress: Progress | None
    error: JobError | None
    unique: str | None
    headers: dict[str, str]

    @property
    def attempt(self) -> int:
        """Number of the current or next run: 1 on the first."""
        return self.failures + 1

    @property
    def is_final(self) -> bool:
        """Whether it has ended: succeeded, dead or cancelled."""
        return self.state in FINAL


def info_of(record: JobRecord) -> JobInfo:
    """The record, opened."""
    return JobInfo(
        id=record.id,
        task=record.task,
        queue=record.queue,
        state=record.state,
        reason=record.reason,
        priority=PRIORITY_NAMES.get(record.priority, str(record.priority)),
        failures=record.failures,
        losses=record.losses,
        interruptions=record.interruptions,
        token=record.token,
        worker=record.worker,
        cancelling=record.cancelling,
        created=_time(record.created or None),
        due=_time(record.due),
        started=_time(record.started),
        ended=_time(record.ended),
        progress=_progress(record.progress),
        error=error_of(record),
        unique=record.unique,
        headers=record.headers,
    )


def error_of(record: JobRecord) -> JobError | None:
    """The record's last error."""
    fields = _open(record.error)
    if fields is None:
        return None
    exit_reason = fields.get("exit")
    return JobError(
        type=str(fields.get("type") or "unknown"),
        message=str(fields.get("message") or ""),
        traceback=str(fields.get("traceback") or ""),
        exit=None if exit_reason is None else str(exit_reason),
    )


def _progress(text: str | None) -> Progress | None:
    fields = _open(text)
    if fields is None or "done" not in fields:
        return None
    return Progress(fields["done"], fields.get("total"), str(fields.get("note") or ""), _time(fields.get("at")))


def _open(text: str | None) -> dict[str, Any] | None:
    """A field that is itself JSON; None also when somebody else wrote something there that is not."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return None


def _time(millis: int | None) -> datetime | None:
    return None if millis is None else _EPOCH + timedelta(milliseconds=millis)
