"""What the program's exit code says, and which of our errors says which.

0, 1 and 2 are verdicts about the queue or the job; all other codes say that there is no verdict, so that a cron job can
tell a typo from a sick queue. They are the numbers of ``sysexits.h`` where that has a word for it.

An error here is one that a user can meet: it is shown as its text, never as a traceback. Everything else is a fault of
stillhere; it says so, and `-v` shows where.
"""

from __future__ import annotations

from enum import IntEnum

import click


class Code(IntEnum):
    """Exit codes."""

    WELL = 0
    NO = 1
    """A verdict: nothing changed, the job failed, the queue is stuck, the time is up."""
    ILL = 2
    """A verdict: something is broken."""
    USAGE = 64
    UNREACHABLE = 69
    """The store does not answer."""
    FAULT = 70
    """A fault of stillhere."""
    REFUSED = 77
    """Refused: by the store (memory is full), or until ``--yes`` is given."""
    CONFIGURATION = 78
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class Refusal(click.ClickException):
    """The command would do much at once and was not given ``--yes``, or may not do it at all."""

    exit_code = Code.REFUSED


class VerdictNo(click.ClickException):
    """The answer is no, and a line says why."""

    exit_code = Code.NO


def code_of(error: Exception) -> Code | None:
    """The code for an error that a user can meet; None: it is a fault of ours."""
    from stillhere.domain import errors
    from stillhere.domain.durations import DurationError

    table: tuple[tuple[type[Exception], Code], ...] = (
        (errors.StoreUnavailable, Code.UNREACHABLE),
        (errors.StoreFull, Code.REFUSED),
        (errors.ArgumentError, Code.USAGE),
        (errors.UnknownTask, Code.USAGE),
        (DurationError, Code.USAGE),
        (errors.ConfigurationError, Code.CONFIGURATION),
        (errors.StillhereError, Code.NO),
        (TimeoutError, Code.NO),
    )
    return next((code for kind, code in table if isinstance(error, kind)), None)
