"""Draw the tables of `cli.md`: every verb with its options, their variables and defaults, as the program has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from stillhere.cli.face import PREFIX, VERBS, load, main
from stillhere.cli.options import GLOBAL

PAGE = Path(__file__).with_name("cli.md")
BEGIN = "<!-- options: begin -->"
END = "<!-- options: end -->"


def drawn(text: str) -> str:
    """Return the page with the tables of today between its markers."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    lines = "\n".join(tables())
    return f"{before}{BEGIN}\n\n{lines}\n{END}{after}"


def tables() -> Iterator[str]:
    """All lines."""
    yield from _section("Options of all verbs, before or after the verb", main, PREFIX)
    for verb in VERBS:
        yield from _command(load(verb), verb)


def _command(command: click.Command, path: str) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _command(inner, f"{path} {name}")
        return
    variable = f"{PREFIX}_{path.replace(' ', '_').replace('-', '_').upper()}"
    words = " ".join(p.make_metavar(click.Context(command)) for p in command.params if isinstance(p, click.Argument))
    yield from _section(f"`stillhere {f'{path} {words}'.strip()}`", command, variable)


def _section(title: str, command: click.Command, variable: str) -> Iterator[str]:
    yield f"### {title}"
    yield ""
    if command is not main:
        yield (command.help or "").split("\n\n", maxsplit=1)[0].replace("\n", " ")
        yield ""
    rows = [_row(p, variable) for p in command.params if isinstance(p, click.Option) and _is_shown(p, command)]
    if rows:
        yield "| Option | Variable | Default | |"
        yield "|---|---|---|---|"
        yield from rows
        yield ""


def _is_shown(option: click.Option, command: click.Command) -> bool:
    own = command is main or option.name not in GLOBAL
    return own and not option.hidden and option.name != "version"


def _row(option: click.Option, prefix: str) -> str:
    names = ", ".join(f"`{name}`" for name in sorted(option.opts, key=len, reverse=True))
    read = option.envvar if isinstance(option.envvar, str) else f"{prefix}_{(option.name or '').upper()}"
    special = {"url": "`STILLHERE_URL`, after the app", "app": "`STILLHERE_APP`", "namespace": "`STILLHERE_NAMESPACE`"}
    variable = special.get(option.name or "", f"`{read}`") if prefix == PREFIX else f"`{read}`"
    default = option.default if isinstance(option.default, (str, int, float)) and option.default != "" else ""
    shown = "" if option.is_flag or default == "" or option.name == "solo" else f"`{default}`"
    return f"| {names} | {variable} | {shown} | {(option.help or '').replace('|', '/')} |"
