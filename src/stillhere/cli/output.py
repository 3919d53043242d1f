"""What commands print: tables of plain text, ages in words, JSON.

A table is aligned by spaces, so it can be read, copied and cut by `awk`; colours come after the padding and are left
out by click where stdout is no terminal. JSON is one document for a look, one object a line where a command goes on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from stillhere.domain.states import State

COLOURS = {State.RUNNING: "green", State.DEAD: "red", State.CANCELLED: "yellow", State.SCHEDULED: "cyan"}


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = ()) -> list[str]:
    """The lines of a table; columns named in `right` are aligned to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(name), *(len(row[i]) for row in cells), 0) for i, name in enumerate(header)]
    to_right = {i for i, name in enumerate(header) if name in set(right)}

    def line(row: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if i in to_right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    return [line(header), *(line(row) for row in cells)]


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]], *, right: Iterable[str] = ()) -> None:
    """Print it, the head in bold, the words of states in their colours."""
    head, *body = table(header, rows, right=right)
    click.secho(head, bold=True)
    for line in body:
        click.echo(coloured(line))


def coloured(line: str) -> str:
    """The line with the first word that is a state in that state's colour."""
    for state, colour in COLOURS.items():
        before, word, after = f" {line} ".partition(f" {state} ")
        if word:
            return f"{before[1:]} {click.style(state, fg=colour)} {after}".rstrip()
    return line


def print_json(value: Any) -> None:
    """One document, for people and programs alike."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_json_line(value: Any) -> None:
    """One object on one line, out at once."""
    click.echo(msgspec.json.encode(value).decode())


def now_ms() -> int:
    """By this machine's clock: good enough to say how old something is."""
    return time.time_ns() // 1_000_000


def span(ms: float) -> str:
    """A length of time in words that fit a column: ``0.4 s``, ``12 min``, ``3 h``, ``5 d``."""
    seconds = max(0.0, ms / 1_000)
    if seconds < 9.95:  # rounds to 9.9 at most
        return f"{seconds:.1f} s"
    for unit, size, up_to in (("s", 1, 100), ("min", 60, 100), ("h", 3_600, 48)):
        if round(seconds / size) < up_to:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def ago(at: int | None) -> str:
    """How long ago a time of the store was; a dash for none."""
    return "-" if not at else span(now_ms() - at)


def rfc3339(ms: int) -> str:
    """A time of the store as text, in UTC."""
    text = datetime.fromtimestamp(ms / 1_000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def clip(text: str, width: int) -> str:
    """One line of at most so many characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"


def width() -> int:
    """Of the terminal; 120 where there is none, for files and pipes."""
    try:
        return max(60, os.get_terminal_size().columns)
    except OSError:
        return 120
