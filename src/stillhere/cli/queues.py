"""`stillhere queue`: list queues, pause and resume one."""

from __future__ import annotations

import click

from stillhere.cli.exits import Code
from stillhere.cli.filters import queues_of
from stillhere.cli.kinds import NameKind
from stillhere.cli.options import Choices, Verb
from stillhere.cli.output import print_json
from stillhere.cli.status import looks_at, print_queues
from stillhere.ports.inspector import Pause


@click.group()
def queue() -> None:
    """List queues; pause or resume one."""


@queue.command("list", cls=Verb)
@click.pass_obj
def list_queues(choices: Choices) -> None:
    """List all queues in figures."""
    found = looks_at(choices.place().link, ())
    if choices.as_json:
        print_json(found)
    else:
        print_queues(found)


@queue.command("pause", cls=Verb)
@click.argument("name", type=NameKind("queue"))
@click.pass_obj
def pause(choices: Choices, name: str) -> None:
    """Start no more jobs of a queue; what runs goes on, and jobs can still be sent."""
    _set(choices, name, paused=True)


@queue.command("resume", cls=Verb)
@click.argument("name", type=NameKind("queue"))
@click.pass_obj
def resume(choices: Choices, name: str) -> None:
    """Start jobs of a paused queue again."""
    _set(choices, name, paused=False)


def _set(choices: Choices, name: str, *, paused: bool) -> None:
    link = choices.place().link
    changed = link.ask(Pause(queue=name, paused=paused))
    word = "paused" if paused else "resumed"
    if choices.as_json:
        print_json({"queue": name, "paused": paused, "changed": changed})
    elif changed:
        unseen = "" if name in queues_of(link, None) else " (it has never been used; is the name right?)"
        click.echo(f"queue {name} {word}{unseen}")
    else:
        click.echo(f"stillhere: queue {name} is {'paused' if paused else 'not paused'} already.", err=True)
    if not changed:
        raise click.exceptions.Exit(Code.NO)
