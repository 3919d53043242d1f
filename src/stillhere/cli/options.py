"""The options of all verbs, and the object that carries them to the verb.

They may stand before the verb or after it (`stillhere --json status`, `stillhere status --json`); the later one wins.
`--url` and `--app` are not read from the environment here: what the app itself says comes before ``STILLHERE_URL``, and
that order is `place`'s.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from stillhere.cli.place import Place

GLOBAL = ("url", "app", "namespace", "as_json", "verbose", "log", "no_color")
LOG_STYLES = ("plain", "json")


def global_options(*, hidden: bool) -> list[click.Parameter]:
    """Fresh ones: for the group (shown, read from the environment) or for a verb (hidden)."""

    def option(*names: str, auto: bool = True, **extra: Any) -> click.Option:
        return click.Option(names, hidden=hidden, allow_from_autoenv=auto and not hidden, **extra)

    return [
        option("--url", auto=False, metavar="URL", help="The store: redis://, rediss://, unix://, embedded://."),
        option("--app", auto=False, metavar="MOD[:ATTR]", help="The app; its store is used unless --url is given."),
        option("--namespace", auto=False, metavar="NAME", help="First part of every key in the store."),
        option(
            "--json",
            "as_json",
            auto=False,
            is_flag=True,
            envvar=None if hidden else "STILLHERE_JSON",
            help="Print JSON.",
        ),
        option("-v", "--verbose", is_flag=True, help="Log more; show where an error came from."),
        option("--log", type=click.Choice(LOG_STYLES), default="plain", help="Form of log lines (on stderr)."),
        option("--no-color", is_flag=True, help="Plain text without colours."),
    ]


class Choices:
    """What was chosen for this call, by any of the ways to choose it."""

    debug = False
    """Whether -v was given: for the handler of errors, which runs when there is no context any more."""

    def __init__(self) -> None:
        self.url: str | None = None
        self.app: str | None = None
        self.namespace: str | None = None
        self.as_json = False
        self.verbose = False
        self.log = "plain"
        self.no_color = False
        self._place: Place | None = None

    def take(self, ctx: click.Context, params: MutableMapping[str, Any]) -> Choices:
        """Take the options of all verbs out of `params`; given ones replace what was chosen before."""
        for name in GLOBAL:
            value = params.pop(name, None)
            if ctx.get_parameter_source(name) not in (None, ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP):
                setattr(self, name, value)
        type(self).debug = self.verbose
        ctx.color = self.colour
        return self

    @property
    def colour(self) -> bool | None:
        """For click: False takes colours out everywhere, None where there is no terminal."""
        return False if self.no_color or os.environ.get("NO_COLOR") else None

    @property
    def is_live(self) -> bool:
        """Whether a person looks at a terminal that can be drawn on."""
        return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")

    def place(self, *, may_make: bool = False) -> Place:
        """The store this call is about, found once; `may_make`: an embedded one may be made."""
        from stillhere.cli.place import find_place

        if self._place is None:
            self._place = find_place(self, os.environ, may_make=may_make)
            if (ctx := click.get_current_context(silent=True)) is not None:
                ctx.find_root().call_on_close(self._place.link.close)
        return self._place

    def start_logging(self) -> None:
        """Log lines go to stderr, so that they never mix with what is printed."""
        from stillhere.cli.logs import start

        start(self.log, verbose=self.verbose)


class Verb(click.Command):
    """A command that takes the options of all verbs, too; its function gets a `Choices` first (`click.pass_obj`)."""

    starts_logging = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params = [*self.params, *global_options(hidden=True)]

    def invoke(self, ctx: click.Context) -> Any:
        """Take them, then run."""
        choices = ctx.obj.take(ctx, ctx.params)
        if self.starts_logging:
            choices.start_logging()
        return super().invoke(ctx)
