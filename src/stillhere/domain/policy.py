"""What follows when a run has ended: the one place that decides between success, another try, and an end.

The worker's executor calls one of three functions when a handler has returned, returned something that cannot be
stored, or raised; each gives the `Outcome` to settle under the grant's token. Nothing here reads a clock or rolls a
die: the random number is passed in, so every decision can be tested.

Only a failure of the run's own is charged. A cancelled job ends as cancelled; a run that a shutdown cut short is an
interruption; a run whose lease is gone has nothing to say, since the store would refuse it: then the answer is None.
Handlers often turn the cancellation they get into an error of their own while they clean up, so for a shutdown the
whole chain of exceptions is searched for the stop that began it.
"""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from stillhere.domain.durations import milliseconds, spell
from stillhere.domain.errors import ArgumentError, Discard, JobStopped, Retry, Snooze, StopReason
from stillhere.domain.job import DEAD_RETENTION_MS, Grant, Outcome, OutcomeKind
from stillhere.domain.plan import NO_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stillhere.domain.options import Backoff
    from stillhere.domain.plan import TaskPlan

RESULT_ERROR = "result_error"
"""The reason of a job that succeeded and whose return value could not be stored; `error` says why."""

_LATE = {
    "timeout": "it ran longer than its timeout of {}",
    "stalled": "it said nothing for its stall_after of {}",
}
_MESSAGE_LIMIT = 2_000
_TRACEBACK_LIMIT = 16_000
_OURS = str(Path(__file__).parent.parent)


def after_return(grant: Grant, plan: TaskPlan, result: str) -> Outcome:
    """The handler returned; `result` is the stored text of what it returned."""
    retention = retention_ms(grant, plan)
    return Outcome(
        job=grant.id,
        token=grant.token,
        kind=OutcomeKind.SUCCEEDED,
        result=result if retention else None,
        retention_ms=retention,
    )


def after_result_error(grant: Grant, plan: TaskPlan, error: ArgumentError) -> Outcome:
    """The handler returned something that cannot be stored: its work is done, so it is no failure and no second run."""
    return Outcome(
        job=grant.id,
        token=grant.token,
        kind=OutcomeKind.SUCCEEDED,
        reason=RESULT_ERROR,
        error=error_record(error, with_traceback=False),
        retention_ms=retention_ms(grant, plan),
    )


def after_exception(
    grant: Grant,
    plan: TaskPlan,
    error: BaseException,
    *,
    stopping: StopReason | None = None,
    random: float,
) -> Outcome | None:
    """The handler raised; `stopping` is why it was told to stop, if it was; `random` is from [0, 1)."""
    if isinstance(error, Discard):
        return _outcome(grant, plan, OutcomeKind.CANCELLED, reason=error.reason or "discarded")
    if stopping == "cancelled":
        return _outcome(grant, plan, OutcomeKind.CANCELLED, reason="cancelled")
    if stopping == "lease_lost":
        return None
    if stopping == "shutdown" and any(map(_is_stop, _chain(error))):
        return _outcome(grant, plan, OutcomeKind.INTERRUPTED, reason="interrupted")
    if isinstance(error, Snooze):
        return _outcome(grant, plan, OutcomeKind.SNOOZE, reason="snoozed", delay_ms=error.delay_ms)
    return _after_failure(grant, plan, _blamed(grant, plan, stopping, error), random)


def timeout_ms(grant: Grant, plan: TaskPlan) -> int:
    """How long a run may take; 0: as long as it likes."""
    return plan.timeout_ms if grant.timeout_ms is None else grant.timeout_ms


def stall_ms(grant: Grant, plan: TaskPlan) -> int:
    """How long a run may say nothing; 0: as long as it likes."""
    return plan.stall_ms if grant.stall_ms is None else grant.stall_ms


def _blamed(grant: Grant, plan: TaskPlan, stopping: StopReason | None, error: BaseException) -> BaseException:
    """The failure itself, or for a run that was told to stop for being late: that; its traceback says where it was."""
    if stopping not in _LATE or not any(map(_is_stop, _chain(error))):
        return error
    limit = timeout_ms(grant, plan) if stopping == "timeout" else stall_ms(grant, plan)
    return TimeoutError(_LATE[stopping].format(spell(limit))).with_traceback(error.__traceback__)


class LateRun(NamedTuple):
    """A run that was late, did not end, and was killed with its process; as the board shows it."""

    job: str
    token: int
    why: StopReason
    took_ms: int
    """Its timeout."""
    stall_ms: int
    kind: OutcomeKind | None
    """What its policy said of a failure by being late, when it started; None: it had no limits."""
    delay_ms: int
    retention_ms: int


def after_kill(run: LateRun) -> Outcome | None:
    """How a killed run ends; None: it has nothing to say (its lease was lost, or a shutdown stopped it)."""
    if run.why == "cancelled":
        return Outcome(
            job=run.job,
            token=run.token,
            kind=OutcomeKind.CANCELLED,
            reason="cancelled",
            retention_ms=run.retention_ms,
        )
    if run.why not in _LATE or run.kind is None:
        return None
    limit = spell(run.took_ms if run.why == "timeout" else run.stall_ms)
    error = TimeoutError(f"{_LATE[run.why].format(limit)} and did not end, so its process was killed")
    dead = run.kind == OutcomeKind.DEAD
    return Outcome(
        job=run.job,
        token=run.token,
        kind=run.kind,
        reason="failed" if dead else "retry",
        error=error_record(error, with_traceback=False),
        delay_ms=run.delay_ms,
        retention_ms=DEAD_RETENTION_MS if dead else run.retention_ms,
    )


def retention_ms(grant: Grant, plan: TaskPlan) -> int:
    """How long the job is kept after an end other than dead: by its record, else by its task."""
    return plan.retention_ms if grant.retention_ms is None else grant.retention_ms


def backoff_ms(backoff: Backoff, failures: int, random: float) -> int:
    """The wait before the run that follows the `failures`-th failure (1, 2, ...)."""
    ceiling = milliseconds(backoff.ceiling)
    try:
        longest = min(ceiling, milliseconds(backoff.first) * backoff.factor ** (failures - 1))
    except OverflowError:
        longest = ceiling
    return int(longest * random) if backoff.jitter else int(longest)


def error_record(error: BaseException, *, with_traceback: bool = True) -> str:
    """The error as the store keeps it: JSON of its type, its message and its traceback, each of bounded length."""
    record = {
        "type": _type_name(error),
        "message": _clip(_message(error), _MESSAGE_LIMIT),
        "traceback": _clip_front(_traceback(error), _TRACEBACK_LIMIT) if with_traceback else "",
    }
    # every reader can take it: half characters, which no strict reader does, become question marks
    whole = {name: text.encode(errors="replace").decode() for name, text in record.items()}
    return json.dumps(whole, ensure_ascii=False)  # as written, so that it can be searched


def _after_failure(grant: Grant, plan: TaskPlan, error: BaseException, random: float) -> Outcome:
    failures = grant.failures + 1
    budget = plan.max_attempts if grant.max_attempts is None else grant.max_attempts
    record = error_record(error)
    if budget != NO_LIMIT and failures >= budget:
        return Outcome(
            job=grant.id,
            token=grant.token,
            kind=OutcomeKind.DEAD,
            reason="failed",
            error=record,
            retention_ms=DEAD_RETENTION_MS,
        )
    if isinstance(error, Retry) and error.after_ms is not None:
        delay = error.after_ms
    else:
        delay = backoff_ms(_backoff_for(plan, error), failures, random)
    return _outcome(grant, plan, OutcomeKind.RETRY, reason="retry", error=record, delay_ms=delay)


def _outcome(
    grant: Grant, plan: TaskPlan, kind: OutcomeKind, *, reason: str, error: str | None = None, delay_ms: int = 0
) -> Outcome:
    return Outcome(
        job=grant.id,
        token=grant.token,
        kind=kind,
        reason=reason,
        error=error,
        delay_ms=delay_ms,
        retention_ms=retention_ms(grant, plan),
    )


def _backoff_for(plan: TaskPlan, error: BaseException) -> Backoff:
    cause = error.__cause__ if isinstance(error, Retry) and error.__cause__ is not None else error
    for kind, backoff in plan.backoff.items():
        if kind is not Exception and isinstance(cause, kind):
            return backoff
    return plan.backoff[Exception]


def _is_stop(error: BaseException) -> bool:
    """Whether this is the stop itself. By name, since asyncio stays out of this floor."""
    return isinstance(error, JobStopped) or type(error).__name__ == "CancelledError"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, what it was raised from, what was being handled, and the members of groups: each once."""
    seen: set[int] = set()
    waiting: list[BaseException] = [error]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting.extend(linked for linked in (one.__cause__, one.__context__) if linked is not None)
        if isinstance(one, BaseExceptionGroup):
            waiting.extend(one.exceptions)


def _type_name(error: BaseException) -> str:
    kind = type(error)
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a user's __str__ may raise; the failure must be recorded all the same
        return "(its text cannot be made)"


def _traceback(error: BaseException) -> str:
    """The traceback as Python prints it, without our own frames on top: the user's code is what went wrong."""
    try:
        tb = error.__traceback__
        while tb is not None and tb.tb_frame.f_code.co_filename.startswith(_OURS):
            tb = tb.tb_next
        return "".join(traceback.format_exception(type(error), error, tb))
    except Exception:  # noqa: BLE001 - as in `_message`
        return ""


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text) - limit} more characters)"


def _clip_front(text: str, limit: int) -> str:
    """The end of a traceback is the part that tells."""
    return text if len(text) <= limit else f"... ({len(text) - limit} more characters)\n{text[-limit:]}"
