"""`stillhere config`: every setting, its value and where it comes from; passwords are masked.

It shows what a worker started here and now would use, so it may name an embedded store that is not there yet. Options
of other verbs are listed when the environment sets them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import click
from click.core import ParameterSource

from stillhere.cli.environment import option_names
from stillhere.cli.exits import Code
from stillhere.cli.face import PREFIX, load, say
from stillhere.cli.options import GLOBAL, Choices, Verb
from stillhere.cli.output import print_json, print_table
from stillhere.domain.durations import spell
from stillhere.domain.errors import ConfigurationError

Row = tuple[str, str, str]


@click.command(cls=Verb)
@click.pass_context
def config(ctx: click.Context) -> None:
    """Print every setting and where it comes from."""
    choices: Choices = ctx.obj
    error = None
    rows: list[Row] = []
    try:
        rows += place_rows(choices)
    except ConfigurationError as raised:
        error = raised
    rows += [*log_rows(ctx), *worker_rows(ctx), *other_rows()]
    if choices.as_json:
        print_json({name: {"value": value, "origin": origin} for name, value, origin in rows})
    else:
        print_table(("SETTING", "VALUE", "FROM"), rows)
    if error is not None:
        say(str(error))
        raise click.exceptions.Exit(Code.CONFIGURATION)


def place_rows(choices: Choices) -> Iterator[Row]:
    """The store, the app, the namespace."""
    from stillhere.backends.redis.connection import masked

    place = choices.place(may_make=True)
    yield "url", masked(place.address.url), place.address.origin
    path = place.app_path
    yield (
        "app",
        path.path if path else "-",
        path.origin if path else "not set" if not choices.url else "not asked: --url",
    )
    yield "namespace", *place.namespace
    embedded = os.environ.get("STILLHERE_EMBEDDED", "").strip()
    yield "embedded", embedded or "auto", "STILLHERE_EMBEDDED" if embedded else "default"


def log_rows(ctx: click.Context) -> Iterator[Row]:
    """How to log and print."""
    choices: Choices = ctx.obj
    level = os.environ.get("STILLHERE_LOG_LEVEL", "").strip()
    yield "log level", level or "warning", "STILLHERE_LOG_LEVEL" if level else "default"
    for name, value in (("log", choices.log), ("no-color", choices.no_color), ("verbose", choices.verbose)):
        yield (
            name,
            _text(name, value),
            _origin(ctx, name.replace("-", "_"), f"{PREFIX}_{name.upper().replace('-', '_')}"),
        )


def _origin(ctx: click.Context, name: str, variable: str) -> str:
    """Of an option of all verbs: after the verb, before it, or from the environment."""
    at: click.Context | None = ctx
    while at is not None:
        match at.get_parameter_source(name):
            case ParameterSource.COMMANDLINE:
                return "the command line"
            case ParameterSource.ENVIRONMENT:
                return variable
        at = at.parent
    return "default"


def worker_rows(ctx: click.Context) -> Iterator[Row]:
    """What `stillhere worker` would take without further words."""
    command = load("worker")
    parent = ctx.find_root()
    with command.make_context("worker", [], parent=parent) as inner:
        for option in command.params:
            name = option.name or ""
            if not isinstance(option, click.Option) or name in GLOBAL:
                continue
            told = inner.get_parameter_source(name) is ParameterSource.ENVIRONMENT
            origin = f"{PREFIX}_WORKER_{name.upper()}" if told else "default"
            yield f"worker {_flag(option)}", _value(option, inner.params[name]), origin


def other_rows() -> Iterator[Row]:
    """What the environment says about other verbs."""
    worker = f"{PREFIX}_WORKER_"
    shown = {f"{PREFIX}_{name}" for name in ("JSON", "LOG", "NO_COLOR", "VERBOSE")}
    for variable in sorted(set(option_names()) - shown):
        if variable in os.environ and not variable.startswith(worker):
            verb, _, option = variable.removeprefix(f"{PREFIX}_").lower().partition("_")
            yield f"{verb} {option.replace('_', '-')}", os.environ[variable], variable


def _flag(option: click.Option) -> str:
    return max(option.opts, key=len).lstrip("-")


def _value(option: click.Option, value: Any) -> str:
    if option.type.name == "duration" and isinstance(value, int):
        return spell(value)
    return _text(_flag(option), value)


def _text(_name: str, value: Any) -> str:
    if value is None or value == ():
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join(f"{name}:{weight}" for name, weight in value)
    return str(value)
