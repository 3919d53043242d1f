"""What became of a job's runs, in words: how each ended, and for a run that its worker's death ended, who was blamed.

The store keeps one word for a run's end, and for a death the verdict that the supervisor gave. Which of them count
against the job is what people want to know when they see a job that was started seven times.
"""

from __future__ import annotations

from typing import Any

from stillhere.cli import describe
from stillhere.cli.output import rfc3339, span, table
from stillhere.domain.job import JobRecord, OutcomeKind, Verdict
from stillhere.domain.states import FINAL

_ENDS: dict[str, str] = {
    OutcomeKind.RETRY: "failed, to be tried again",
    OutcomeKind.SNOOZE: "asked to come back",
    Verdict.CULPRIT: "its worker died, and it was the cause",
    Verdict.SUSPECT: "its worker died, it or another job was the cause",
    Verdict.BESIDE: "its worker died, another job was the likelier cause",
    Verdict.VANISHED: "its worker vanished, nobody saw how",
}
"""Words for how a run that was not the last one ended; others speak for themselves."""

_DEATHS = (Verdict.CULPRIT, Verdict.SUSPECT, Verdict.BESIDE)
"""Deaths that somebody has seen."""


def runs_of(job: JobRecord) -> list[str]:
    """A table of all runs that are over, oldest first; empty when there are none."""
    runs = [describe.mapping(run) for run in job.runs]
    if job.state in FINAL and job.started is not None:
        runs.append(_last(job))
    if not runs:
        return []
    return table(("TOKEN", "WORKER", "START", "LASTED", "HOW"), [_row(run) for run in runs], right=("LASTED",))


def _last(job: JobRecord) -> dict[str, Any]:
    """The run that was the job's end stands in the record's own fields."""
    run = {"token": job.token, "worker": job.worker, "start": job.started, "end": job.ended, "how": str(job.state)}
    if job.reason == "lost":
        run["exit"] = describe.mapping(job.error).get("exit")
    return run


def _row(run: dict[str, Any]) -> tuple[object, ...]:
    start, end = run.get("start"), run.get("end")
    known = isinstance(start, int) and isinstance(end, int)
    return (
        run.get("token", ""),
        run.get("worker", ""),
        rfc3339(start) if isinstance(start, int) else "-",
        span(end - start) if known else "-",  # type: ignore[operator]  # both are ints when known
        _how(run),
    )


def _how(run: dict[str, Any]) -> str:
    word, reason = str(run.get("how", "")), run.get("exit")
    words = _ENDS.get(word, word)
    if reason and word in (*_DEATHS, "dead"):
        return f"{words}: {describe.printable(str(reason))}"
    return words
