"""`stillhere cancel` and `stillhere retry`: on a job by its id, or on all that match a filter."""

from __future__ import annotations

import click

from stillhere.cli import filters
from stillhere.cli.bulk import Deed, act
from stillhere.cli.kinds import NameKind
from stillhere.cli.options import Choices, Verb
from stillhere.cli.output import ago
from stillhere.domain.job import JobRecord
from stillhere.domain.states import State
from stillhere.ports.backend import Cancel, Cancelled, Retried, Retry


def _not_cancelled(job: JobRecord) -> str:
    if job.state is State.RUNNING:
        return f"is being cancelled already; it runs on {job.worker}"
    return f"has ended already: {job.state} {ago(job.ended)} ago"


def _not_retried(job: JobRecord) -> str:
    match job.state:
        case State.RUNNING:
            return f"is running since {ago(job.started)} on {job.worker}; cancel it first"
        case State.READY:
            return "is ready already"
    return f"has {job.state}; a retry is for a job that failed: enqueue it again"


RETRY = Deed(
    name="retry",
    done="ready again",
    states=(State.SCHEDULED, State.DEAD),
    verb=lambda job: Retry(queue=job.queue, job=job.id),
    changed=lambda reply: isinstance(reply, Retried) and reply.changed,
    refusal=_not_retried,
)


def _cancel_deed(reason: str) -> Deed:
    return Deed(
        name="cancel",
        done="cancelled",
        note=lambda job: f": told to its worker {job.worker}" if job.state is State.RUNNING else "",
        states=(State.SCHEDULED, State.READY, State.RUNNING),
        verb=lambda job: Cancel(queue=job.queue, job=job.id, reason=reason),
        changed=lambda reply: isinstance(reply, Cancelled) and reply.changed,
        refusal=_not_cancelled,
    )


@click.command(cls=Verb, epilog=filters.HELP)
@click.argument("words", nargs=-1, metavar="ID...|FILTER...")
@click.option("--reason", default="cancelled", show_default=True, help="Kept with the job.")
@click.option("--queue", "-q", type=NameKind("queue"), help="Look in this queue only.")
@click.option("--yes", is_flag=True, help="Yes, all that match the filter.")
@click.pass_obj
def cancel(choices: Choices, words: tuple[str, ...], reason: str, queue: str | None, yes: bool) -> None:
    """Cancel jobs: at once what waits; what runs is told within a second, and ends cancelled."""
    act(choices, _cancel_deed(reason), words, yes=yes, queue=queue)


@click.command(cls=Verb, epilog=filters.HELP)
@click.argument("words", nargs=-1, metavar="ID...|FILTER...")
@click.option("--queue", "-q", type=NameKind("queue"), help="Look in this queue only.")
@click.option("--yes", is_flag=True, help="Yes, all that match the filter.")
@click.pass_obj
def retry(choices: Choices, words: tuple[str, ...], queue: str | None, yes: bool) -> None:
    """Run jobs again: now, what waits for its next try; with fresh budgets, a dead letter."""
    act(choices, RETRY, words, yes=yes, queue=queue)
