"""What the audience sees: on a terminal one picture in which every row keeps its place, else plain lines.

A play gives the screen its head once, its picture again and again, and events as they come. On a terminal the picture
is drawn over the last one and events stand below it; elsewhere events are printed as they come, and the picture's first
lines now and then. Only plain ANSI is used: go up, clear, bold, red, green, dim.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence

import click

_EVERY_S = 3.0
_BAR = 30


def mark(text: str, **style: bool | str) -> str:
    """Styled text; click leaves the style out where there is no terminal or colours are not wanted."""
    return click.style(text, **style)  # type: ignore[arg-type]  # its keywords are of several types


def bar(done: float, total: float) -> str:
    """How far, drawn."""
    full = round(_BAR * min(1.0, done / total)) if total else 0
    block, dot = ("█", "░") if _draws_blocks() else ("#", ".")
    return block * full + dot * (_BAR - full)


def _draws_blocks() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") in {"utf8", "utf16"}


class Screen:
    """One play's screen."""

    def __init__(self, *, live: bool, silent: bool = False) -> None:
        self.live = live
        self._silent = silent
        """For JSON: only the verdict is printed, by somebody else."""
        self.begun = time.monotonic()
        self._events: list[str] = []
        self._drawn = 0
        self._printed = 0.0

    @property
    def clock(self) -> str:
        """Time since the start, ``00:11``."""
        seconds = int(time.monotonic() - self.begun)
        return f"{seconds // 60:02}:{seconds % 60:02}"

    def say(self, *lines: str) -> None:
        """Lines that stay; the picture begins below them."""
        for line in lines if not self._silent else ():
            click.echo(line)

    def event(self, text: str) -> None:
        """Something happened."""
        line = f"  {self.clock}  {text}"
        if self.live:
            self._events.append(line)
        else:
            self.say(line)

    def picture(self, lines: Sequence[str], summary: str) -> None:
        """Draw; where there is no terminal print the summary now and then."""
        if self.live:
            self._draw([*lines, *(["", *self._events] if self._events else [])])
        elif time.monotonic() - self._printed > _EVERY_S:
            self._printed = time.monotonic()
            self.say(f"  {self.clock}  {summary}")

    def _draw(self, lines: Sequence[str]) -> None:
        width = shutil.get_terminal_size().columns
        up = f"\x1b[{self._drawn}F\x1b[J" if self._drawn else ""
        sys.stdout.write(up)
        for line in lines:
            click.echo(_cut(line, width - 1))
        sys.stdout.flush()
        self._drawn = len(lines)


def _cut(line: str, width: int) -> str:
    """A line that does not wrap: wrapping would move every row."""
    plain = click.unstyle(line)
    return line if len(plain) <= width else plain[: width - 1] + "…"
