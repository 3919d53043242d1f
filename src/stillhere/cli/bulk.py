"""One deed on one job, on several, or on all that match a filter: what cancel, retry and purge have in common.

Ids are acted on at once. A filter may mean thousands, so it is counted first, and without ``--yes`` nothing happens.
The jobs are collected before the first is touched: a list that is changed while it is paged through skips some. Each
deed is atomic by itself and safe to repeat, so a call that was cut short is mended by calling again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from stillhere.cli import filters
from stillhere.cli.exits import Code, Refusal
from stillhere.cli.find import find_job
from stillhere.cli.output import print_json
from stillhere.domain.job import JobRecord
from stillhere.domain.states import State

if TYPE_CHECKING:
    from stillhere.cli.options import Choices
    from stillhere.cli.place import CommandLink
    from stillhere.ports.backend import Verb

_BATCH = 100


class Deed(NamedTuple):
    """What is done to each job."""

    name: str
    """The word of the command: ``cancel``."""
    done: str
    """The word of its success: ``cancelled``."""
    states: tuple[State, ...]
    """Where a filter without ``state:`` looks."""
    verb: Callable[[JobRecord], Verb[Any]]
    changed: Callable[[Any], bool]
    """Whether the reply says that it changed something."""
    refusal: Callable[[JobRecord], str]
    """Why nothing changed, for one job."""
    note: Callable[[JobRecord], str] = lambda _job: ""
    """What else there is to say of one job."""


def act(
    choices: Choices, deed: Deed, words: Sequence[str], *, yes: bool, queue: str | None = None, all_of: bool = False
) -> None:
    """Do it; exits with 1 when nothing changed. `all_of`: no words mean every job in the deed's states."""
    if not words and not all_of:
        raise click.UsageError("Give the ID of a job, or filter words.")
    chosen = [word for word in words if filters.is_filter(word)]
    ids = [word for word in words if not filters.is_filter(word)]
    if chosen and ids:
        raise click.UsageError(f"Give ids or filter words, not both: {ids[0]!r} is no filter word. {filters.HELP}")
    link = choices.place(may_make=False).link
    if ids:
        found = [find_job(link, job_id, queue) for job_id in dict.fromkeys(ids)]
    else:
        found = list(filters.walk(link, _within(chosen, queue), deed.states))
        _ask(deed, found, " ".join(words), yes=yes)
    _report(choices, deed, found, _do(link, deed, found), by_id=bool(ids))


def _within(words: Sequence[str], queue: str | None) -> filters.Filter:
    chosen = filters.parse(words)
    if queue is None or chosen.queue in (None, queue):
        return filters.Filter(**{**vars(chosen), "queue": queue or chosen.queue})
    raise click.UsageError(f"queue:{chosen.queue} and --queue {queue} are two queues.")


def _ask(deed: Deed, found: Sequence[JobRecord], words: str, *, yes: bool) -> None:
    if found and not yes:
        count = "1 job matches" if len(found) == 1 else f"{len(found)} jobs match"
        what = f" ({words})" if words else ""
        raise Refusal(f"{deed.name}: {count}{what}. Nothing was done; repeat it with --yes.")


def _do(link: CommandLink, deed: Deed, found: Sequence[JobRecord]) -> list[Any]:
    replies: list[Any] = []
    for start in range(0, len(found), _BATCH):
        replies += link.ask_many([deed.verb(job) for job in found[start : start + _BATCH]])
    return replies


def _report(choices: Choices, deed: Deed, found: Sequence[JobRecord], replies: Sequence[Any], *, by_id: bool) -> None:
    changed = [deed.changed(reply) for reply in replies]
    if choices.as_json:
        rows = zip(found, changed, strict=True)
        print_json([{"id": job.id, "queue": job.queue, "changed": did, "state": job.state} for job, did in rows])
    elif by_id:
        for job, did in zip(found, changed, strict=True):
            if did:
                click.echo(f"{job.id} {deed.done}{deed.note(job)}")
            else:
                click.echo(f"stillhere: {job.id} {deed.refusal(job)}.", err=True)
    else:
        click.echo(f"{sum(changed)} of {len(found)} {deed.done}" if found else "no jobs match")
    if not any(changed):
        raise click.exceptions.Exit(Code.NO)
