"""The group of all verbs: what `stillhere --help` shows, how a verb is found, and how any error ends the program.

The table below is all that is known of a verb before it is called. Options that belong to all verbs may stand before
the verb or after it; each verb gets them (hidden in its own help) from `Verb`. Every option can be set as
``STILLHERE_<VERB>_<OPTION>``, those of all verbs as ``STILLHERE_<OPTION>``; click does it from the prefix.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import click

from stillhere import __version__
from stillhere.cli.exits import Code, code_of
from stillhere.cli.options import Choices, global_options

PREFIX = "STILLHERE"

VERBS: dict[str, tuple[str, str]] = {
    "worker": ("worker", "Run jobs: a supervisor and its worker processes."),
    "enqueue": ("enqueue", "Send one job."),
    "status": ("status", "Show queues and workers in figures; tell whether one is stuck."),
    "jobs": ("jobs", "List jobs, by filter."),
    "show": ("show", "Show all that is known of one job."),
    "stack": ("stack", "Show where the code of a running job is."),
    "cancel": ("change", "Cancel a job, or all that match a filter."),
    "retry": ("change", "Run a job that failed again, or all that match a filter."),
    "dead": ("dead", "List, show, retry or purge dead letters."),
    "queue": ("queues", "List queues; pause or resume one."),
    "wait": ("wait", "Wait until queues are empty, or until a job has ended."),
    "config": ("config", "Print every setting and where it comes from."),
    "demo": ("demo", "See a long job outlive the death of its worker, in 30 seconds."),
}
"""Verb: (module in this package, which has a command of the verb's name; one line of help)."""

EPILOG = """Exit codes: 0 done or well, 1 the verdict is no (nothing changed, job failed, stuck), 2 ill, 64 usage,
69 store unreachable, 77 refused or needs --yes, 78 configuration."""


class Face(click.Group):
    """A group that imports a verb when it is called, and ends in one of our exit codes whatever happens."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """All verbs, in the order of the table."""
        return list(VERBS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        """Import the verb's module and give its command."""
        return load(name) if name in VERBS else None

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The help's list of verbs, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, with the nearest verb for one that does not exist."""
        if args and not args[0].startswith("-") and args[0] not in VERBS:
            ctx.fail(f"There is no command {args[0]!r}{nearest(args[0], VERBS)}.")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; when the reader of a pipe has seen enough (`stillhere jobs | head`), end without a word."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(Code.BROKEN_PIPE)
        return result

    def main(  # type: ignore[override]  # one of click's overloads returns; this one never does
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any
    ) -> NoReturn:
        """Run a command line and exit."""
        extra["standalone_mode"] = False
        sys.exit(guarded(lambda: super(Face, self).main(args=args, prog_name=prog_name, **extra)))


def guarded(run: Callable[[], object]) -> int:
    """Run it; the exit code, with a line on stderr for every error."""
    try:
        result = run()
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        return Code.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last stop: nothing leaves as a traceback
        return failed(error)
    return result if isinstance(result, int) else Code.WELL


def failed(error: Exception) -> int:
    """Show an error; its code."""
    if isinstance(error, click.UsageError):
        error.show()
        return Code.USAGE
    if isinstance(error, click.ClickException):
        say(error.format_message())
        return error.exit_code
    code = code_of(error)
    if code is not None:
        say(str(error))
        return code
    if Choices.debug:
        import traceback

        traceback.print_exception(error)
    hint = "" if Choices.debug else " Run it with -v to see where."
    say(f"{type(error).__name__}: {error}. This is a fault of stillhere {__version__}, not yours.{hint}")
    return Code.FAULT


def say(text: str) -> None:
    """One message to the user, beside whatever goes to stdout."""
    click.echo(f"stillhere: {text}", err=True)


def load(name: str) -> click.Command:
    """The command of a verb."""
    from importlib import import_module

    module = import_module(f"stillhere.cli.{VERBS[name][0]}")
    command = getattr(module, name)
    assert isinstance(command, click.Command)  # noqa: S101 - a mistake in the table
    return command


def nearest(word: str, known: Any) -> str:
    """The hint `` (did you mean 'x'?)``, or nothing."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


@click.group(
    cls=Face,
    context_settings={"auto_envvar_prefix": PREFIX, "help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EPILOG,
)
@click.version_option(__version__, message="stillhere %(version)s", allow_from_autoenv=False)
@click.pass_context
def main(ctx: click.Context, /, **given: Any) -> None:
    """Jobs that take seconds or days: never lost, never run twice by accident."""
    ctx.obj = Choices().take(ctx, given)
    if any(name.startswith(f"{PREFIX}_") for name in os.environ):
        from stillhere.cli.environment import warn_of_unread

        warn_of_unread(os.environ)


main.params[:0] = global_options(hidden=False)
