"""Kinds of values on the command line: durations as text, sizes, queues with a weight, times.

A value that is wrong is a usage error in the words of the module that knows (`durations`, `options`).
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from stillhere.domain.durations import DurationError, delay_milliseconds, milliseconds
from stillhere.domain.errors import ConfigurationError
from stillhere.domain.options import check_name

if TYPE_CHECKING:
    _Int = click.ParamType[int]
    _Pair = click.ParamType[tuple[str, int]]
    _Text = click.ParamType[str]
    _Time = click.ParamType[datetime]
else:  # generic in newer releases only
    _Int = _Pair = _Text = _Time = click.ParamType


class DurationKind(_Int):
    """``90s``, ``10m``, ``1h30m`` or a number of seconds; the value is in ms."""

    name = "duration"

    def __init__(self, *, delay: bool = False) -> None:
        self._read = delay_milliseconds if delay else milliseconds

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Milliseconds."""
        try:
            return self._read(value, param.name or self.name if param else self.name)
        except DurationError as error:
            self.fail(str(error), param, ctx)


_SIZE = re.compile(r"(\d{1,15})(?:\.(\d{1,3}))?\s?([KMGT]?)(?:i?B)?", re.IGNORECASE | re.ASCII)


class SizeKind(_Int):
    """``512M``, ``1.5G`` or a number of bytes: K, M, G and T count in 1024s; the value is in bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes."""
        found = _SIZE.fullmatch(str(value).strip())
        if found is None:
            self.fail(f"{value!r}: write 512M, 2G or a number of bytes.", param, ctx)
        whole, part, unit = found[1], found[2] or "", found[3].upper()
        each = 1024 ** (" KMGT".index(unit or " "))
        return int(int(whole + part) * each // 10 ** len(part))


class QueueKind(_Pair):
    """``NAME`` or ``NAME:WEIGHT``."""

    name = "queue"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Name and weight."""
        if isinstance(value, tuple):
            return value
        name, colon, weight = str(value).partition(":")
        if colon and not (weight.isdecimal() and 1 <= int(weight) <= 1_000):
            self.fail(f"{value!r}: a weight is a whole number from 1 to 1000.", param, ctx)
        try:
            return check_name("queue", name), int(weight) if colon else 1
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)


class NameKind(_Text):
    """The name of a queue or a task."""

    def __init__(self, what: str) -> None:
        self.name = what

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name, when it can be one."""
        try:
            return check_name(self.name, value)
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)


class TimeKind(_Time):
    """``2026-12-01T03:00+01:00`` or ``...Z``; a time without a zone is refused."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """An aware datetime."""
        if isinstance(value, datetime):
            return value
        try:
            at = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r}: write 2026-12-01T03:00Z or 2026-12-01T03:00+01:00.", param, ctx)
        if at.tzinfo is None:
            self.fail(f"at={value} has no time zone. Write {value}Z, or +01:00 after it, or use --delay.", param, ctx)
        return at


DURATION = DurationKind()
DELAY = DurationKind(delay=True)
SIZE = SizeKind()
QUEUE = QueueKind()
TIME = TimeKind()
