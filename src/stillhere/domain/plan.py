"""Options come to numbers: what a task's options mean for its worker, and the record that a call sends.

`TaskPlan` is read by the worker (`policy`) and by `new_record`. What the record carries of it is the wire format's
rule: budgets and retention only where they differ from the defaults, because an absent field means that the worker's
own task options hold, which lets a deploy change them for jobs that already wait.

Imported with the first job sent or run, together with msgspec.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from stillhere.domain.codec import HEADERS_LIMIT
from stillhere.domain.codec_args import CallCodec
from stillhere.domain.codec_words import too_big
from stillhere.domain.durations import Duration, delay_milliseconds, milliseconds
from stillhere.domain.errors import ArgumentError
from stillhere.domain.job import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_MAX_LOSSES,
    DEFAULT_RETENTION_MS,
    PRIORITIES,
    DeclaredLane,
    NewRecord,
    new_job_id,
)
from stillhere.domain.options import Backoff, CallOptions, TaskOptions, check_key

if TYPE_CHECKING:
    from stillhere.domain.task import TaskDef

DEFAULT_QUEUE = "default"
NO_LIMIT = 0
"""As `max_attempts` in a record or a plan: try for ever."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """A task's options, resolved."""

    queue: str
    priority: int
    max_attempts: int
    max_losses: int
    backoff: Mapping[type[Exception], Backoff]
    """By exception class, first match in this order; `Exception` stands for all others and is always there."""
    long_after_ms: int | None
    """None: as the worker says; 0: never."""
    retention_ms: int
    unique: bool | Callable[..., str]
    timeout_ms: int
    """0: no limit."""
    stall_ms: int
    """0: no limit."""
    stops_in_doubt: bool
    lane: DeclaredLane | None
    """Where its jobs start, if that is not for the workers to find out."""
    limited_lane: DeclaredLane | None
    """The same for a job that is sent with a limit of its own."""

    @classmethod
    def of(cls, options: TaskOptions, *, is_async: bool = True) -> TaskPlan:
        """The plan of checked options."""
        backoff = options.get("backoff", Backoff())
        by_class: dict[type[Exception], Backoff] = (
            {Exception: backoff} if isinstance(backoff, Backoff) else dict(backoff)
        )
        by_class.setdefault(Exception, Backoff())
        long_after = options.get("long_after", ...)
        return cls(
            queue=options.get("queue", DEFAULT_QUEUE),
            priority=PRIORITIES[options.get("priority", "normal")],
            max_attempts=options.get("max_attempts", DEFAULT_MAX_ATTEMPTS) or NO_LIMIT,
            max_losses=options.get("max_losses", DEFAULT_MAX_LOSSES),
            backoff=by_class,
            long_after_ms=None if long_after is ... else milliseconds(long_after or 0),
            retention_ms=_retention(options.get("retention")),
            unique=options.get("unique", False),
            timeout_ms=milliseconds(options.get("timeout") or 0),
            stall_ms=milliseconds(options.get("stall_after") or 0),
            stops_in_doubt=options.get("on_lease_doubt") == "stop",
            lane=_lane(options, limited=bool(options.get("timeout") or options.get("stall_after")), is_async=is_async),
            limited_lane=_lane(options, limited=True, is_async=is_async),
        )


def _lane(options: TaskOptions, *, limited: bool, is_async: bool) -> DeclaredLane | None:
    """What must be ended from outside, whatever its code is at, needs a process of its own."""
    alone = options.get("process", limited and not is_async)
    if alone or options.get("on_lease_doubt") == "stop":
        return "solo"
    return "long" if options.get("long") else None


def new_record(task: TaskDef, call: CallOptions, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewRecord:
    """The record of one call of a known task: bound, checked, encoded; raises `ArgumentError`."""
    plan = task.options
    encoded = task.codec.encode_call(args, kwargs)
    key = call["unique"] if "unique" in call else _key_of(task, args, kwargs)
    attempts = plan.max_attempts if "max_attempts" not in call else call["max_attempts"] or NO_LIMIT
    retention = _retention(call["retention"]) if "retention" in call else plan.retention_ms
    solo = bool(call.get("timeout")) and plan.limited_lane == "solo" != plan.lane
    return _record(
        task.name,
        call,
        encoded,
        queue=call.get("queue", plan.queue),
        priority=PRIORITIES[call["priority"]] if "priority" in call else plan.priority,
        unique=key,
        max_attempts=attempts if "max_attempts" in call or attempts != DEFAULT_MAX_ATTEMPTS else None,
        max_losses=plan.max_losses if plan.max_losses != DEFAULT_MAX_LOSSES else None,
        retention_ms=retention if "retention" in call or retention != DEFAULT_RETENTION_MS else None,
        solo=solo,
    )


def foreign_record(name: str, call: CallOptions, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewRecord:
    """The record of a call whose task this program does not have: the worker's options hold for what is not said."""
    if args:
        text = f"{name}: this program does not have the task, so give its arguments by name. Nothing was enqueued."
        raise ArgumentError(text)
    try:
        encoded = _foreign_codec(name).encode_call((), kwargs)
    except ArgumentError as error:
        text = (
            f"{error} This program does not have the task: only text, numbers, True, False, None, lists and dicts go."
        )
        raise ArgumentError(text) from None
    return _record(
        name,
        call,
        encoded,
        queue=call.get("queue", DEFAULT_QUEUE),
        priority=PRIORITIES[call.get("priority", "normal")],
        unique=call.get("unique"),
        max_attempts=(call["max_attempts"] or NO_LIMIT) if "max_attempts" in call else None,
        max_losses=None,
        retention_ms=_retention(call["retention"]) if "retention" in call else None,
    )


def _record(
    name: str,
    call: CallOptions,
    encoded: str,
    *,
    queue: str,
    priority: int,
    unique: str | None,
    max_attempts: int | None,
    max_losses: int | None,
    retention_ms: int | None,
    solo: bool = False,
) -> NewRecord:
    delay, at, unique_for = call.get("delay"), call.get("at"), call.get("unique_for")
    return NewRecord(
        id=call.get("id") or new_job_id(),
        task=name,
        queue=queue,
        args=encoded,
        priority=priority,
        delay_ms=None if delay is None else delay_milliseconds(delay),
        due=None if at is None else -((_EPOCH - at) // timedelta(milliseconds=1)),
        unique=unique,
        unique_for_ms=None if unique_for is None else milliseconds(unique_for),
        on_conflict=call.get("on_conflict", "existing"),
        max_attempts=max_attempts,
        max_losses=max_losses,
        retention_ms=retention_ms,
        headers=_headers(name, call.get("headers", {})),
        timeout_ms=milliseconds(call["timeout"] or 0) if "timeout" in call else None,
        lane="solo" if solo else "long" if call.get("long") else None,
    )


@functools.lru_cache(maxsize=64)
def _foreign_codec(name: str) -> CallCodec:
    """A codec that takes any names and plain JSON values."""

    def anything(**arguments: Any) -> None:
        """The signature of a task that is not here."""

    return CallCodec(anything, name)


def _retention(value: Duration | None) -> int:
    return DEFAULT_RETENTION_MS if value is None else milliseconds(value)


def _headers(task: str, headers: Mapping[str, str]) -> dict[str, str]:
    if not headers:
        return {}
    size = len(json.dumps(dict(headers), separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass"))
    if size > HEADERS_LIMIT:
        raise ArgumentError(too_big(f"{task}: headers are", size, HEADERS_LIMIT, "", "send"))
    return dict(headers)


def _key_of(task: TaskDef, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """The unique key that the task's own rule makes of the arguments."""
    rule = task.options.unique
    if isinstance(rule, bool):
        return task.codec.unique_digest(args, kwargs) if rule else None
    bound = task.codec.binder.bind_all(args, kwargs)
    wanted = inspect.signature(rule).parameters
    everything = any(p.kind is p.VAR_KEYWORD for p in wanted.values())
    chosen = bound if everything else {name: value for name, value in bound.items() if name in wanted}
    return check_key(f"{task.name}: unique", rule(**chosen))
