"""`stillhere show ID`: one job with all that is known of it, its counters in plain words."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click

from stillhere.cli import describe
from stillhere.cli.find import find_job
from stillhere.cli.history import runs_of
from stillhere.cli.kinds import NameKind
from stillhere.cli.options import Choices, Verb
from stillhere.cli.output import ago, clip, coloured, print_json, rfc3339
from stillhere.domain.job import DEFAULT_MAX_ATTEMPTS, DEFAULT_MAX_LOSSES, JobRecord
from stillhere.domain.states import State

_MEANING = {
    "unknown_task": "no live worker knows this task",
    "newer_record": "its record was written by a newer version than any live worker's",
    "interrupted": "its last worker stopped and handed it back",
    "lost": "its last worker died",
    "retry": "its last run failed",
    "snoozed": "it asked to come back",
}
"""The words of a reason; one that is not here speaks for itself."""

_LABEL = 11
_VALUE = 2_000


@click.command(cls=Verb)
@click.argument("job_id", metavar="ID")
@click.option("--queue", "-q", type=NameKind("queue"), help="Look in this queue only.")
@click.pass_obj
def show(choices: Choices, job_id: str, queue: str | None) -> None:
    """Show one job: what it is, where it is, its runs, its error. ID may be a tail of 6 characters or more."""
    print_job(choices, find_job(choices.place().link, job_id, queue))


def print_job(choices: Choices, job: JobRecord) -> None:
    """As JSON, or as lines for people."""
    if choices.as_json:
        print_json(describe.as_json(job))
        return
    for label, text in lines_of(job):
        first, *rest = text.splitlines() or [""]
        click.echo(coloured(f"{label:<{_LABEL}}{first}"))
        for line in rest:
            click.echo(f"{'':<{_LABEL}}{line}")


def lines_of(job: JobRecord) -> Iterator[tuple[str, str]]:
    """Label and text, in the order in which people ask."""
    yield "job", job.id
    yield "task", f"{job.task}  (queue {job.queue}, priority {describe.priority(job)})"
    yield "state", _state(job)
    if told := describe.progress(job):
        at = describe.mapping(job.progress).get("at")
        yield "progress", f"{told}, {ago(at)} ago" if isinstance(at, int) else told
    yield from _times(job)
    yield "counters", counters(job)
    if job.unique:
        yield "unique", job.unique
    for name in ("args", "checkpoint", "result"):
        value = getattr(job, name)
        if value is not None:
            yield name, clip(value, _VALUE)
    if job.headers:
        yield "headers", json.dumps(job.headers, ensure_ascii=False)
    yield from _error(job)
    if runs := runs_of(job):
        yield "runs", "\n".join(runs)


def _state(job: JobRecord) -> str:
    meaning = _MEANING.get(job.reason or "", job.reason or "")
    asked = ", asked to stop" if job.cancelling else ""
    match job.state:
        case State.RUNNING:
            return f"running for {ago(job.started)} on {job.worker}, token {job.token}{asked}"
        case State.SCHEDULED:
            return f"scheduled, due {describe.due(job)}{f': {meaning}' if meaning else ''}"
        case State.READY:
            return f"ready, waiting for a worker{f': {meaning}' if meaning else ''}"
        case State.SUCCEEDED:
            return "succeeded"
    if job.state is State.DEAD and job.reason == "lost":
        return "dead (lost): too many of its runs ended with their worker"
    return f"{job.state}{f' ({job.reason})' if job.reason and job.reason != job.state else ''}"


def _times(job: JobRecord) -> Iterator[tuple[str, str]]:
    for name in ("created", "due", "started", "ended"):
        at = getattr(job, name)
        if at:
            relative = describe.due(job) if name == "due" else f"{ago(at)} ago"
            yield name, f"{rfc3339(at)}  ({relative})"


def counters(job: JobRecord) -> str:
    """What has been charged to it and what has not, in words."""
    attempts = DEFAULT_MAX_ATTEMPTS if job.max_attempts is None else job.max_attempts
    losses = DEFAULT_MAX_LOSSES if job.max_losses is None else job.max_losses
    unsure = "" if job.max_attempts is not None else ", unless its task says otherwise"
    limit = f"of {attempts} allowed{unsure}" if attempts else "of any number"
    words = [f"{_times_word(job.failures)} failed ({limit})"]
    if job.losses:
        words.append(f"killed its worker {_times_word(job.losses)} (more than {losses} make it dead)")
    if job.shared:
        words.append(f"was a suspect when a worker died {_times_word(job.shared)}, not charged")
    if job.beside:
        words.append(f"was beside a likelier cause when the worker died {_times_word(job.beside)}, not charged")
    if job.vanished:
        words.append(f"its worker vanished {_times_word(job.vanished)}, not charged")
    if job.deaths > job.losses + job.shared + job.beside + job.vanished:
        words.append(f"{job.deaths} deaths of workers in all; a checkpoint set the counts back")
    if job.interruptions:
        words.append(f"handed back by a stopping worker {_times_word(job.interruptions)}, not charged")
    return "\n".join(words)


def _times_word(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _error(job: JobRecord) -> Iterator[tuple[str, str]]:
    error = describe.mapping(job.error)
    if not error:
        return
    yield "error", describe.printable(describe.why(job))
    told = describe.printable(str(error.get("traceback") or "")).rstrip()
    if told and error.get("exit"):
        yield "code", f"where it was when its worker died, innermost call first:\n{told}"
    elif told:
        yield "", told
