"""`stillhere jobs`: a list of jobs, chosen by filter words, page by page."""

from __future__ import annotations

from collections.abc import Sequence

import click

from stillhere.cli import filters
from stillhere.cli.describe import as_json, where
from stillhere.cli.options import Choices, Verb
from stillhere.cli.output import ago, clip, print_json, print_table, width
from stillhere.domain.job import JobRecord

_LONG_ID = 24
_TAIL = 12


@click.command(cls=Verb, epilog=filters.HELP)
@click.argument("words", nargs=-1, metavar="[FILTER]...")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@click.option("--after", metavar="CURSOR", help="Go on where the last page ended.")
@click.pass_obj
def jobs(choices: Choices, words: tuple[str, ...], limit: int, after: str | None) -> None:
    """List jobs; all of them, or those that the filter allows."""
    chosen = filters.parse(words)
    found, cursor = filters.look(choices.place().link, chosen, limit=limit, after=after)
    print_jobs(choices, found, cursor)


def print_jobs(choices: Choices, found: Sequence[JobRecord], cursor: str | None) -> None:
    """The page, and how to get the next one."""
    if choices.as_json:
        print_json({"jobs": [as_json(job) for job in found], "after": cursor})
        return
    if not found:
        click.echo("no jobs")
    else:
        rows = [(short(job.id), job.task, job.queue, job.state, ago(job.created), job.failures) for job in found]
        room = width() - max(len("  ".join(map(str, row))) for row in rows) - 12
        lines = [(*row, clip(where(job), max(20, room))) for row, job in zip(rows, found, strict=True)]
        header = ("ID", "TASK", "QUEUE", "STATE", "AGE", "FAILED", "")
        print_table(header, lines, right=("AGE", "FAILED"))
    if cursor is not None:
        click.echo(f"more: --after {cursor}", err=True)


def short(job_id: str) -> str:
    """What of an id is shown in a list: enough to find the job again."""
    return job_id if len(job_id) <= _LONG_ID else job_id[-_TAIL:]
