"""`stillhere dead`: the dead letters, jobs that have used up a budget; kept with the reason, retryable."""

from __future__ import annotations

from dataclasses import replace

import click

from stillhere.cli import filters
from stillhere.cli.bulk import Deed, act
from stillhere.cli.change import RETRY
from stillhere.cli.exits import VerdictNo
from stillhere.cli.find import find_job
from stillhere.cli.jobs import print_jobs
from stillhere.cli.kinds import NameKind
from stillhere.cli.options import Choices, Verb
from stillhere.cli.show import print_job
from stillhere.domain.states import State
from stillhere.ports.inspector import Purge

PURGE = Deed(
    name="purge",
    done="removed for good",
    states=(State.DEAD,),
    verb=lambda job: Purge(queue=job.queue, job=job.id),
    changed=lambda reply: reply is True,
    refusal=lambda job: f"is {job.state}, not dead; only a dead letter can be purged",
)


@click.group()
def dead() -> None:
    """Dead letters: jobs that failed for good. They are kept for 30 days, or until retried or purged."""


@dead.command("list", cls=Verb, epilog=filters.HELP)
@click.argument("words", nargs=-1, metavar="[FILTER]...")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@click.option("--after", metavar="CURSOR", help="Go on where the last page ended.")
@click.pass_obj
def list_dead(choices: Choices, words: tuple[str, ...], limit: int, after: str | None) -> None:
    """List dead letters and why they are dead."""
    chosen = replace(_of_dead(words), state=State.DEAD)
    found, cursor = filters.look(choices.place().link, chosen, limit=limit, after=after)
    print_jobs(choices, found, cursor)


@dead.command("show", cls=Verb)
@click.argument("job_id", metavar="ID")
@click.option("--queue", "-q", type=NameKind("queue"), help="Look in this queue only.")
@click.pass_obj
def show_dead(choices: Choices, job_id: str, queue: str | None) -> None:
    """Show one dead letter, with its error and traceback."""
    job = find_job(choices.place().link, job_id, queue)
    if job.state is not State.DEAD:
        raise VerdictNo(f"job {job.id} is {job.state}, not dead: stillhere show {job.id}")
    print_job(choices, job)


@dead.command("retry", cls=Verb, epilog=filters.HELP)
@click.argument("words", nargs=-1, metavar="[ID...|FILTER...]")
@click.option("--queue", "-q", type=NameKind("queue"), help="In this queue only.")
@click.option("--yes", is_flag=True, help="Yes, all that match; without a filter, all.")
@click.pass_obj
def retry_dead(choices: Choices, words: tuple[str, ...], queue: str | None, yes: bool) -> None:
    """Make dead letters ready again, with fresh budgets."""
    _of_dead([word for word in words if filters.is_filter(word)])
    act(choices, RETRY._replace(states=(State.DEAD,)), words, yes=yes, queue=queue, all_of=True)


@dead.command("purge", cls=Verb, epilog=filters.HELP)
@click.argument("words", nargs=-1, metavar="[ID...|FILTER...]")
@click.option("--queue", "-q", type=NameKind("queue"), help="In this queue only.")
@click.option("--yes", is_flag=True, help="Yes, all that match; without a filter, all.")
@click.pass_obj
def purge_dead(choices: Choices, words: tuple[str, ...], queue: str | None, yes: bool) -> None:
    """Remove dead letters for good."""
    _of_dead([word for word in words if filters.is_filter(word)])
    act(choices, PURGE, words, yes=yes, queue=queue, all_of=True)


def _of_dead(words: tuple[str, ...] | list[str]) -> filters.Filter:
    chosen = filters.parse(words)
    if chosen.state not in (None, State.DEAD):
        raise click.UsageError(f"state:{chosen.state}: dead letters are dead; for others use `stillhere jobs`.")
    return chosen
