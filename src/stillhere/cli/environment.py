"""A set ``STILLHERE_`` variable that nothing reads is a typo that would be believed for months: say so at once.

Which names are read is known from the options themselves, so a new option needs no entry here; only the few that are
read elsewhere are listed. Importing all verbs costs some milliseconds, and happens only when a name is not among those
few.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click

from stillhere.cli.face import PREFIX, VERBS, load, main, nearest

ELSEWHERE = frozenset({"URL", "APP", "NAMESPACE", "EMBEDDED", "LOG_LEVEL"})
"""Read by `link`, `discovery`, the embedded store and `logs`; not by click."""


def warn_of_unread(environ: Mapping[str, str]) -> None:
    """One line for each."""
    few = {f"{PREFIX}_{name}" for name in ELSEWHERE} | set(_names(main, PREFIX))
    ours = [name for name in environ if name.startswith(f"{PREFIX}_")]
    if set(ours) <= few:
        return
    known = few | set(option_names())
    for name in sorted(set(ours) - known):
        click.echo(f"stillhere: {name} is set, but nothing reads it{nearest(name, known)}.", err=True)


def option_names() -> Iterator[str]:
    """The variables of all options of all verbs."""
    for verb in VERBS:
        yield from _of_command(load(verb), f"{PREFIX}_{_upper(verb)}")


def _of_command(command: click.Command, prefix: str) -> Iterator[str]:
    yield from _names(command, prefix)
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _of_command(inner, f"{prefix}_{_upper(name)}")


def _names(command: click.Command, prefix: str) -> Iterator[str]:
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name and parameter.allow_from_autoenv:
            yield f"{prefix}_{_upper(parameter.name)}"
        envvar = parameter.envvar
        yield from [envvar] if isinstance(envvar, str) else envvar or []


def _upper(name: str) -> str:
    return name.replace("-", "_").upper()
