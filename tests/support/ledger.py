"""What really happened, told by the jobs themselves, outside the store that is under test.

A job writes one line at its start, at each step and at its end; the test reads all lines afterwards and draws its
verdict from them alone. One line is one `write` to a file opened for appending, so lines of many processes never mix,
and what was written before a SIGKILL stays.

    ledger = Ledger.from_environ()
    with ledger.run(job.id, job.token) as run:
        for n in range(100):
            run.step(n)

Two ways show an overlap. By time: the spans of two runs of a job touch (a span reaches from the start to the last line,
so let long jobs step often). And exactly: a run holds a lock (`flock`, which the kernel drops at death) on a file of
its job; a run that finds it taken says so in its start line. Times are of the clock that counts suspend, the same one
in all processes of the machine.

Imports the standard library only and very little of it: it is loaded in every worker.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

VARIABLE = "TEST_LEDGER"

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_ns() -> int:
    """Now, on the clock of all ledger lines."""
    return time.clock_gettime_ns(_CLOCK)


class Ledger:
    """A ledger file; `write` and `run` for jobs, `read` for the test."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @classmethod
    def from_environ(cls) -> Ledger:
        """The ledger that the test has named to its workers."""
        return cls(os.environ[VARIABLE])

    @property
    def environ(self) -> dict[str, str]:
        """What a worker needs to find it."""
        return {VARIABLE: str(self.path)}

    def write(self, event: str, job: str, token: int = 0, **fields: Any) -> None:
        """One line, whole or not at all."""
        line = {"event": event, "job": job, "token": token, "pid": os.getpid(), "at": boot_ns(), **fields}
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, json.dumps(line, separators=(",", ":")).encode() + b"\n")
        finally:
            os.close(fd)

    @contextmanager
    def run(self, job: str, token: int = 0) -> Iterator[RunWriter]:
        """Start and end lines around a run; an exception is in the end line, and passes."""
        fd = os.open(f"{self.path}.{job}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        how = "ok"
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                busy = False
            except BlockingIOError:
                busy = True
            run = RunWriter(self, job, token, f"{os.getpid()}.{boot_ns()}")
            self.write("start", job, token, run=run.key, busy=busy)
            try:
                yield run
            except BaseException as error:
                how = type(error).__name__
                raise
            finally:
                self.write("end", job, token, run=run.key, how=how)
        finally:
            os.close(fd)

    def read(self) -> Story:
        """All that was written up to now; a line that is not whole yet is left out."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            text = ""
        return Story([json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")])


@dataclass
class RunWriter:
    """The pen of one run."""

    ledger: Ledger
    job: str
    token: int
    key: str

    def step(self, value: Any = None) -> None:
        """I am here, and this is what I just did."""
        self.ledger.write("step", self.job, self.token, run=self.key, value=value)


@dataclass
class Run:
    """One start of a job and what followed from it."""

    job: str
    token: int
    pid: int
    key: str
    busy: bool
    start: int
    last: int
    end: int | None = None
    how: str | None = None
    steps: list[Any] = field(default_factory=list)

    def touches(self, other: Run) -> bool:
        """Whether both ran at one instant, as far as their lines show."""
        return self.start <= other.last and other.start <= self.last


class Story:
    """The lines of a ledger and what follows from them."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self.events = events
        found: dict[str, Run] = {}
        for line in events:
            key = line.get("run")
            if key is None:
                continue
            if line["event"] == "start":
                at = line["at"]
                found[key] = Run(line["job"], line["token"], line["pid"], key, line["busy"], at, at)
                continue
            run = found[key]
            run.last = line["at"]
            if line["event"] == "step":
                run.steps.append(line["value"])
            elif line["event"] == "end":
                run.end, run.how = line["at"], line["how"]
        self._runs = sorted(found.values(), key=lambda run: run.start)

    def runs(self, job: str | None = None) -> list[Run]:
        """All runs, of one job or of all, in the order of their starts."""
        return [run for run in self._runs if job is None or run.job == job]

    def jobs(self) -> set[str]:
        """Who ever started."""
        return {run.job for run in self._runs}

    def starts(self, job: str | None = None) -> int:
        """How often it was started."""
        return len(self.runs(job))

    def ends(self, job: str | None = None) -> int:
        """How often it came to its own end without an exception."""
        return sum(run.how == "ok" for run in self.runs(job))

    def steps(self, job: str) -> list[Any]:
        """The values of all its steps, run after run."""
        return [value for run in self.runs(job) for value in run.steps]

    def overlaps(self, job: str | None = None) -> list[tuple[Run, Run]]:
        """Pairs of runs of one job alive at one instant: by their lines, or by the lock that one found taken."""
        pairs = []
        runs = self.runs(job)
        for index, later in enumerate(runs):
            earlier = [run for run in runs[:index] if run.job == later.job]
            clashes = [run for run in earlier if run.touches(later)]
            if later.busy and not clashes:
                clashes = [run for run in earlier if run.end is None or run.end >= later.start][-1:] or earlier[-1:]
            pairs += [(run, later) for run in clashes]
        return pairs

    def gap_s(self, job: str) -> list[float]:
        """Between each run's last line and the next run's start: how long nobody worked on it."""
        runs = self.runs(job)
        return [(later.start - earlier.last) / 1e9 for earlier, later in pairwise(runs)]

    def events_of(self, event: str, job: str | None = None) -> list[dict[str, Any]]:
        """Lines of a kind of the test's own."""
        return [line for line in self.events if line["event"] == event and (job is None or line["job"] == job)]
