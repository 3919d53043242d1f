"""The options of a task and of a call: their names, their types, and the check that says at once what is wrong.

Both are TypedDicts, so a type checker names a wrong key in the editor; the checks here say the same to everybody else,
at the decorator or at ``.options(...)``, before anything is sent. An option that is absent and one that is None are
two things: None takes back what the task says (``options(unique=None)``).

Nothing here needs msgspec: it runs while a program is imported. What the options come to in numbers is `plan`'s work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypedDict, cast, get_args

from stillhere.domain.durations import Duration, DurationError, delay_milliseconds, milliseconds
from stillhere.domain.errors import ConfigurationError, UnknownOption

Priority = Literal["high", "normal", "low"]
OnConflict = Literal["existing", "replace", "raise"]
LeaseDoubt = Literal["continue", "stop"]


@dataclass(frozen=True)
class Backoff:
    """How long a failed job waits: `first`, then `factor` times more each time, at most `ceiling`.

    With `jitter` the wait is a random part of that, from nothing to all of it, so that jobs which failed together do
    not come back together.
    """

    first: Duration = "1s"
    factor: float = 2.0
    ceiling: Duration = "10m"
    jitter: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot be waited for, where it is written."""
        _duration("Backoff: first", self.first)
        _duration("Backoff: ceiling", self.ceiling)
        if isinstance(self.factor, bool) or not isinstance(self.factor, (int, float)) or not self.factor >= 1:
            raise ConfigurationError(f"Backoff: factor={self.factor!r}: write a number of 1 or more.")


class TaskOptions(TypedDict, total=False):
    """What may be said of a task, at its decorator or as a default of a Blueprint."""

    name: str
    """Instead of the function's own name."""
    aliases: Sequence[str]
    """Names that queued jobs of this task may still carry after a rename."""
    queue: str
    priority: Priority
    max_attempts: int | None
    """Runs that may end in a failure of their own; None: no limit."""
    max_losses: int
    """Deaths of its worker, while it ran alone, that a job survives."""
    backoff: Backoff | Mapping[type[Exception], Backoff]
    timeout: Duration | None
    """A run that takes longer is ended, and counts as failed; None: it may take as long as it likes."""
    stall_after: Duration | None
    """A run that says nothing (progress, checkpoint) for so long is ended, and counts as failed; None: it may."""
    process: bool
    """True: each job in a process of its own. A `def` task with a limit gets one unless this says False: a thread
    cannot be ended from outside."""
    on_lease_doubt: LeaseDoubt
    """When the store has not been heard for so long that somebody else may soon run this job: `continue` (the token
    fences its writes), or `stop` it before anybody can (in a process of its own)."""
    long: bool
    """True: its jobs start in long places only, never in a slot. Not said: the workers find out."""
    long_after: Duration | None
    """A run that takes longer gives its slot back and goes on in a long place; None or 0: never."""
    unique: bool | Callable[..., str]
    """One live job per key: True takes all arguments, a function gets those it names."""
    retention: Duration | None
    """How long the record and the result stay after the end; 0 keeps nothing, None is the default."""


class CallOptions(TypedDict, total=False):
    """What may be said of one call: ``task.options(...)``."""

    id: str
    """The job's id; the same id again is the same job."""
    queue: str
    priority: Priority
    delay: Duration | None
    at: datetime | None
    """Not before this time, which must name its zone."""
    unique: str | None
    """The unique key itself, in the scope of the task; None: none for this call."""
    unique_for: Duration | None
    """Keep the key this long, also past the job's end."""
    on_conflict: OnConflict
    """When a live job has the key: take that one, cancel it if it still waits, or raise `DuplicateJob`."""
    max_attempts: int | None
    timeout: Duration | None
    """As the task's, for this job; None: no limit."""
    long: bool
    """This job starts in a long place, whatever its task does as a rule."""
    retention: Duration | None
    headers: Mapping[str, str]


TASK_OPTIONS = frozenset(TaskOptions.__annotations__)
CALL_OPTIONS = frozenset(CallOptions.__annotations__)

_NAME = re.compile(r"[^\s:{}\x00-\x1f\x7f\ud800-\udfff]{1,200}")
_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_HALF = re.compile(r"[\ud800-\udfff]")
_LONGEST_KEY = 500
_MOST_ATTEMPTS = 1_000_000


def check_task_options(where: str, options: Mapping[str, Any]) -> None:
    """Raise `UnknownOption` or `ConfigurationError` for the first wrong option; `where` opens the message."""
    for option, value in options.items():
        if option not in TASK_OPTIONS:
            raise UnknownOption(_unknown(where, option, TASK_OPTIONS, CALL_OPTIONS, "the call: .options({}=...)"))
        _check(where, option, value, _TASK_CHECKS)
    if options.get("process") is False and options.get("on_lease_doubt") == "stop":
        raise ConfigurationError(
            f"{where}: on_lease_doubt='stop' needs a process of its own, and process=False says none. Leave one out."
        )


def check_call_options(where: str, options: Mapping[str, Any]) -> None:
    """Raise `UnknownOption` or `ConfigurationError` for the first wrong option; `where` opens the message."""
    for option, value in options.items():
        if option not in CALL_OPTIONS:
            raise UnknownOption(_unknown(where, option, CALL_OPTIONS, TASK_OPTIONS, "the task: @app.task({}=...)"))
        _check(where, option, value, _CALL_CHECKS)
    if options.get("delay") is not None and options.get("at") is not None:
        raise ConfigurationError(f"{where}: delay= and at= say two things about one start. Give one of them.")


def check_name(what: str, name: object) -> str:
    """A name of a task or a queue: it becomes part of keys in the store, so some characters are not for it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{what}={name!r}: a name is text without spaces, ':', '{{' and '}}', at most 200 long."
        )
    return name


def check_id(what: str, value: object) -> str:
    """An id of a job."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise ConfigurationError(f"{what}={value!r}: an id is 1 to 128 of the characters A-Z a-z 0-9 . _ : -")
    return value


def check_key(what: str, value: object) -> str:
    """A unique key."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_KEY:
        raise ConfigurationError(f"{what}={value!r}: a unique key is a text of 1 to {_LONGEST_KEY} characters.")
    if _HALF.search(value):
        raise ConfigurationError(f"{what}={value!r}: a unique key cannot hold half a character (a lone surrogate).")
    return value


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint `` (did you mean 'x'?)``, or nothing when none comes near."""
    from difflib import get_close_matches  # noqa: PLC0415 - only when something is wrong

    near = get_close_matches(name, sorted(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _unknown(where: str, option: str, here: frozenset[str], there: frozenset[str], other: str) -> str:
    if option in there:
        return f"{where}: {option!r} is an option of {other.format(option)}."
    return f"{where}: unknown option {option!r}{nearest(option, here)}."


def _check(where: str, option: str, value: object, checks: Mapping[str, Callable[[str, Any], object]]) -> None:
    try:
        checks[option](option, value)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None


def _duration(option: str, value: object) -> int:
    try:
        return milliseconds(cast("Duration", value), option)
    except DurationError as error:
        raise ConfigurationError(str(error)) from None


def _limit(option: str, value: object) -> None:
    if value is not None and _duration(option, value) == 0:
        raise ConfigurationError(f"{option}={value!r}: write how long it may take, or None for no limit.")


def _flag(option: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{option}={value!r}: write True or False.")


def _maybe_duration(option: str, value: object) -> None:
    if value is not None:
        _duration(option, value)


def _delay(option: str, value: object) -> None:
    try:
        if value is not None:
            delay_milliseconds(cast("Duration", value), option)
    except DurationError as error:
        raise ConfigurationError(str(error)) from None


def _at(option: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, datetime):
        raise ConfigurationError(f"{option}={value!r}: write a datetime with a time zone, or use delay=.")
    if value.utcoffset() is None:
        raise ConfigurationError(f"{option}={_minutes(value)} has no time zone. Add tzinfo, or use delay=.")


def _minutes(moment: datetime) -> str:
    text = moment.isoformat(" ")
    return text.removesuffix(":00") if moment.second == moment.microsecond == 0 else text


def _attempts(option: str, value: object) -> None:
    if value is not None:
        _whole(option, value, least=1, extra=", or None for no limit")


def _whole(option: str, value: object, *, least: int = 0, extra: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST_ATTEMPTS:
        raise ConfigurationError(f"{option}={value!r}: write a whole number of {least} or more{extra}.")


def _one_of(*allowed: str) -> Callable[[str, object], None]:
    def check(option: str, value: object) -> None:
        if value not in allowed:
            raise ConfigurationError(f"{option}={value!r}: one of {', '.join(map(repr, allowed))}.")

    return check


def _backoff(option: str, value: object) -> None:
    if isinstance(value, Backoff):
        return
    if isinstance(value, Mapping) and all(
        isinstance(kind, type) and issubclass(kind, Exception) and isinstance(backoff, Backoff)
        for kind, backoff in value.items()
    ):
        return
    raise ConfigurationError(f"{option}={value!r}: write Backoff(...), or a dict of exception classes to Backoff(...).")


def _unique_rule(option: str, value: object) -> None:
    if not isinstance(value, bool) and not callable(value):
        raise ConfigurationError(
            f"{option}={value!r}: write True for all arguments, or a function of some of them; "
            "a key for one call is .options(unique='...')."
        )


def _unique_key(option: str, value: object) -> None:
    if value is not None:
        check_key(option, value)


def _aliases(option: str, value: object) -> None:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ConfigurationError(f"{option}={value!r}: write a tuple of names: ('old_name',).")
    for name in value:
        check_name(option, name)


def _headers(option: str, value: object) -> None:
    if not isinstance(value, Mapping) or not all(isinstance(k, str) and isinstance(v, str) for k, v in value.items()):
        raise ConfigurationError(f"{option}={value!r}: headers are text to text.")
    if any(_HALF.search(text) for pair in value.items() for text in pair):
        raise ConfigurationError(f"{option}={value!r}: headers cannot hold half a character (a lone surrogate).")


_SHARED: dict[str, Callable[[str, Any], object]] = {
    "queue": check_name,
    "priority": _one_of(*get_args(Priority)),
    "max_attempts": _attempts,
    "timeout": _limit,
    "long": _flag,
    "retention": _maybe_duration,
}
_TASK_CHECKS: dict[str, Callable[[str, Any], object]] = {
    **_SHARED,
    "name": check_name,
    "aliases": _aliases,
    "max_losses": _whole,
    "backoff": _backoff,
    "stall_after": _limit,
    "process": _flag,
    "on_lease_doubt": _one_of(*get_args(LeaseDoubt)),
    "long_after": _maybe_duration,
    "unique": _unique_rule,
}
_CALL_CHECKS: dict[str, Callable[[str, Any], object]] = {
    **_SHARED,
    "id": check_id,
    "delay": _delay,
    "at": _at,
    "unique": _unique_key,
    "unique_for": _maybe_duration,
    "on_conflict": _one_of(*get_args(OnConflict)),
    "headers": _headers,
}
