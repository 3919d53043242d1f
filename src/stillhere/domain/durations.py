"""Durations as people write them, and as the store keeps them.

A duration reaches us as a number of seconds, as a text such as ``1h30m``, or as a ``timedelta``; everything behind
the public face counts whole milliseconds. This module is the only place that turns one into the other, so the command
line, the environment, options and exceptions accept the same spellings and complain in the same words.

It is pure and knows no other module: it raises `DurationError`, a ``ValueError``, and whoever holds the name of the
option (the decorator, a click type) lets that name stand in front of the text. Nothing is rounded in silence: a
duration finer than a millisecond becomes the next whole millisecond, never zero, because a delay that the user asked
for must not vanish.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta

Duration = float | str | timedelta
"""Numbers are seconds; texts are ``500ms``, ``90s``, ``10m``, ``1h30m``, ``2d``."""

LONGEST_MS = 100 * 365 * 86_400_000
"""A hundred years: beyond it every clock in use would overflow somewhere, so it is refused here, by name."""

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_TEXT = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[dhms]))+", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])", re.ASCII)
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_SUSPICIOUS_S = 30 * 86_400


class DurationError(ValueError):
    """What was given is not a duration; the text says what to write instead."""


def milliseconds(value: Duration, name: str = "duration") -> int:
    """The duration in whole milliseconds; `name` is what the user calls it and opens the message when it is refused."""
    if isinstance(value, timedelta):
        exact = value / timedelta(milliseconds=1)
    elif isinstance(value, str):
        exact = _from_text(value, name)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        exact = float(value) * 1_000
    else:
        raise DurationError(_write_instead(value, name))
    if math.isnan(exact) or exact < 0:
        raise DurationError(f"{name}={value!r}: a duration cannot be negative or undefined.")
    if exact > LONGEST_MS:
        raise DurationError(f"{name}={value!r}: longer than a hundred years.")
    return math.ceil(round(exact, 6))


def delay_milliseconds(value: Duration, name: str = "delay") -> int:
    """As `milliseconds`, for delays: a bare number above 30 days is taken for milliseconds written by habit."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > _SUSPICIOUS_S:
        meant = spell(math.ceil(value)) if math.isfinite(value) else "10s"
        raise DurationError(
            f"{name}={value!r}: numbers are seconds, and this one is over 30 days; did you mean {meant!r}? "
            "If you do mean so long, write it as a text: '60d'."
        )
    return milliseconds(value, name)


def spell(ms: int) -> str:
    """The shortest text that `milliseconds` reads back as the same number: ``5400000`` is ``1h30m``."""
    if ms == 0:
        return "0s"
    parts: list[str] = []
    for unit, size in _UNITS_MS.items():
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def _from_text(text: str, name: str) -> float:
    plain = text.strip()
    if _NUMBER.fullmatch(plain):
        return float(plain) * 1_000  # environment and command line have only texts: "90" is 90 seconds there too
    if not _TEXT.fullmatch(plain):
        raise DurationError(_write_instead(text, name))
    parts = _PART.findall(plain)
    units = [unit for _, unit in parts]
    if sorted(units, key=list(_UNITS_MS).index) != units or len(set(units)) != len(units):
        raise DurationError(_write_instead(text, name))
    return sum(float(number) * _UNITS_MS[unit] for number, unit in parts)


def _write_instead(value: object, name: str) -> str:
    return f"{name}={value!r}: write 10m, 90s, 1h30m or a number of seconds."
