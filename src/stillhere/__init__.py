"""Jobs that are never lost and never run twice by accident.

Everything a program imports from here is imported when it is first used, so a command line that only prints its help,
or a web server that only defines tasks, does not pay for a driver, an event loop or a codec.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from stillhere.app import App
    from stillhere.blueprint import Blueprint, TaskDecorator
    from stillhere.domain.durations import Duration, DurationError
    from stillhere.domain.errors import (
        ArgumentError,
        CheckpointUnreadable,
        ConfigurationError,
        Discard,
        DuplicateJob,
        JobCancelled,
        JobFailed,
        JobNotFound,
        JobStopped,
        NoCurrentJob,
        ResultNotKept,
        Retry,
        Snooze,
        StillhereError,
        StopReason,
        StoreFull,
        StoreUnavailable,
        UnknownOption,
        UnknownTask,
        WrongDoor,
    )
    from stillhere.domain.info import JobError, JobInfo, Progress
    from stillhere.domain.options import Backoff, CallOptions, Priority, TaskOptions
    from stillhere.domain.states import State
    from stillhere.embedding.worker import EmbeddedWorker
    from stillhere.handle import Handle, NewJob, SyncHandle
    from stillhere.sender import AsyncTask, Sender, SyncTask, Task
    from stillhere.worker.child.context import Job, SyncJob, current_job, current_job_sync

_WHERE = {
    "app": ("App",),
    "blueprint": ("Blueprint", "TaskDecorator"),
    "domain.durations": ("Duration", "DurationError"),
    "domain.errors": (
        "ArgumentError",
        "CheckpointUnreadable",
        "ConfigurationError",
        "Discard",
        "DuplicateJob",
        "JobCancelled",
        "JobFailed",
        "JobNotFound",
        "JobStopped",
        "NoCurrentJob",
        "ResultNotKept",
        "Retry",
        "Snooze",
        "StillhereError",
        "StopReason",
        "StoreFull",
        "StoreUnavailable",
        "UnknownOption",
        "UnknownTask",
        "WrongDoor",
    ),
    "domain.options": ("Backoff", "CallOptions", "Priority", "TaskOptions"),
    "domain.states": ("State",),
    "embedding.worker": ("EmbeddedWorker",),
    "handle": ("Handle", "NewJob", "SyncHandle"),
    "domain.info": ("JobError", "JobInfo", "Progress"),
    "sender": ("AsyncTask", "Sender", "SyncTask", "Task"),
    "worker.child.context": ("Job", "SyncJob", "current_job", "current_job_sync"),
}
_MODULES = {name: module for module, names in _WHERE.items() for name in names}

__all__ = [
    "App",
    "ArgumentError",
    "AsyncTask",
    "Backoff",
    "Blueprint",
    "CallOptions",
    "CheckpointUnreadable",
    "ConfigurationError",
    "Discard",
    "DuplicateJob",
    "Duration",
    "DurationError",
    "EmbeddedWorker",
    "Handle",
    "Job",
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobInfo",
    "JobNotFound",
    "JobStopped",
    "NewJob",
    "NoCurrentJob",
    "Priority",
    "Progress",
    "ResultNotKept",
    "Retry",
    "Sender",
    "Snooze",
    "State",
    "StillhereError",
    "StopReason",
    "StoreFull",
    "StoreUnavailable",
    "SyncHandle",
    "SyncJob",
    "SyncTask",
    "Task",
    "TaskDecorator",
    "TaskOptions",
    "UnknownOption",
    "UnknownTask",
    "WrongDoor",
    "__version__",
    "current_job",
    "current_job_sync",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, and keep it."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'stillhere' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"stillhere.{module}"), name)
    return value


def __dir__() -> list[str]:
    """All public names, imported or not."""
    return sorted({*globals(), *__all__})
