"""The judgement on a play, from the ledger (and, for what only the store can know, the job's own record).

Everything printed here was measured. `good` is the program's exit code: the long job ran again exactly once after its
worker died, never twice at a time, went on where it had got to, came to the right result; no short job was lost or ran
twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from stillhere.demo.ledger import Run, Story
from stillhere.demo.work import Tally

LONG, SHORT = "read_library", "short"
PROMISED_S = 1.0
"""A job is ready again within this time after its worker process died."""


@dataclass(frozen=True)
class Facts:
    """What the play knows beside the ledger."""

    expected: Tally
    """What the long job must come to."""
    shorts: int
    result: Tally | None = None
    """What it came to."""
    failures: int = 0
    losses: int = 0
    """Of the long job, by its record; charged or not."""
    errors_logged: int = 0
    workers: int = 6


@dataclass
class Verdict:
    """The lines, the same as figures, and what is wrong."""

    lines: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    figures: dict[str, float | int | None] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults


def judge(story: Story, facts: Facts) -> Verdict:
    """The verdict on the play with a kill in the middle."""
    runs, seconds = story.of(LONG), recovery_s(story)
    long_end = max((run.last for run in runs), default=0)
    again = sum(run.steps for run in runs) - max((run.done for run in runs), default=0)
    figures: dict[str, float | int | None] = {
        "runs": len(runs),
        "overlaps": story.overlaps(LONG),
        "losses": facts.losses,
        "attempts_charged": facts.failures,
        "resumed_at_file": runs[1].begun_at + 1 if len(runs) > 1 else None,
        "files": facts.expected.files,
        "files_read_again": max(0, again),
        "recovery_s": seconds,
        "shorts": facts.shorts,
        "shorts_done": done_shorts(story),
        "shorts_done_meanwhile": done_shorts(story, until=long_end),
        "slowest_wait_s": slowest_wait_s(story),
    }
    return Verdict(list(_lines(figures, facts)), list(_faults(story, facts, runs)), figures)


def recovery_s(story: Story) -> float | None:
    """From the kill to the first line of the next run of the long job."""
    if not story.killed:
        return None
    at = story.killed[0][1]
    starts = [run.start for run in story.of(LONG) if run.start > at]
    return (starts[0] - at) / 1e9 if starts else None


def slowest_wait_s(story: Story) -> float:
    """The longest time between the sending of a short job and its start."""
    waits = [run.start - story.sent[run.job] for run in story.of(SHORT) if run.job in story.sent]
    return max(waits, default=0) / 1e9


def done_shorts(story: Story, *, until: int | None = None) -> int:
    """Different short jobs that came to their end (before `until`)."""
    ends = [run.job for run in story.of(SHORT) if run.how == "ok" and (until is None or run.last <= until)]
    return len(set(ends))


def judge_naive(story: Story, facts: Facts) -> Verdict:
    """The verdict on the naive pool."""
    runs, done = story.of(LONG), done_shorts(story)
    figures: dict[str, float | int | None] = {
        "runs": len(runs),
        "overlaps": story.overlaps(LONG),
        "at_once": max((sum(one.start <= run.start <= one.last for one in runs) for run in runs), default=0),
        "shorts": facts.shorts,
        "shorts_done": done,
        "shorts_waiting": len(set(story.sent) - {run.job for run in story.runs.values()}),
        "errors_logged": facts.errors_logged,
    }
    at_once = f"at once on {figures['at_once']} of {facts.workers} workers"
    lines = [
        _row(LONG, f"runs {figures['runs']}   overlaps {figures['overlaps']}   {at_once}"),
        _row("short jobs", f"{done} of {facts.shorts} done, {figures['shorts_waiting']} waiting"),
        _row("errors logged", str(facts.errors_logged)),
    ]
    faults = []
    if figures["overlaps"]:
        faults.append(f"{LONG} ran {figures['at_once']} times at once")
    if done < facts.shorts:
        faults.append(f"{facts.shorts - done} short jobs were not done")
    return Verdict(lines, faults, figures)


def _lines(figures: dict[str, float | int | None], facts: Facts) -> Iterator[str]:
    words = ("runs", "overlaps", "losses", "attempts_charged")
    first = "   ".join(f"{name.replace('_', ' ')} {figures[name]}" for name in words)
    if figures["resumed_at_file"] is not None:
        first += f"   resumed at file {figures['resumed_at_file']} of {figures['files']}"
    yield _row(LONG, first)
    if figures["recovery_s"] is not None:
        again = f"files read again: {figures['files_read_again']}"
        yield _row("recovery", f"{figures['recovery_s']:.3f} s from kill -9 to the next run; {again}")
    found = facts.result
    if found is not None:
        right = "as it must be" if _is_right(facts) else "NOT as it must be"
        yield _row("result", f"{found.words:,} words and {found.functions:,} functions in {found.files:,} files;")
        yield _row("", f"fingerprint {found.fingerprint[:16]}, {right}")
    meanwhile = f"{figures['shorts_done_meanwhile']} of them while the long one ran"
    wait = f"slowest wait {figures['slowest_wait_s']:.2f} s"
    yield _row("short jobs", f"{figures['shorts_done']} of {facts.shorts} done, {meanwhile}; {wait}")


def _is_right(facts: Facts) -> bool:
    return facts.result == facts.expected


def _faults(story: Story, facts: Facts, runs: list[Run]) -> Iterator[str]:
    yield from _faults_of_death(story, runs)
    ended = sum(run.how == "ok" for run in runs)
    if ended != 1:
        yield f"{LONG} came to its end {ended} times"
    if overlaps := story.overlaps(LONG) + story.overlaps(SHORT):
        yield f"{overlaps} overlaps"
    if facts.failures:
        yield f"{facts.failures} attempts were charged for a death that was not its fault"
    if not _is_right(facts):
        yield "its result is not what it must be"
    if lost := facts.shorts - done_shorts(story):
        yield f"{lost} short jobs were not done"
    if twice := len(story.of(SHORT)) - len({run.job for run in story.of(SHORT)}):
        yield f"{twice} short jobs ran twice"


def _faults_of_death(story: Story, runs: list[Run]) -> Iterator[str]:
    if not story.killed:
        yield "no worker was killed, so nothing was shown"
        return
    seconds = recovery_s(story)
    if seconds is None:
        yield f"nobody took {LONG} over"
        return
    if len(runs) != len(story.killed) + 1:
        yield f"{LONG} ran {len(runs)} times"
    if not runs[1].begun_at:
        yield f"{LONG} started again from the beginning"
    if seconds > PROMISED_S:
        yield f"recovery took {seconds:.2f} s, over the promised {PROMISED_S:g} s"


def _row(name: str, text: str) -> str:
    return f"    {name:<15}{text}"
