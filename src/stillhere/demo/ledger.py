"""What really happened, told by the jobs themselves in a file outside the store.

A line is one `write` to a file opened for appending: lines of many processes never mix, and what was written before a
SIGKILL stays. Times are of a clock that all processes of the machine share. The verdict is drawn from these lines
alone; a store that lied to us could not make it better.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stillhere.worker.clock import boottime_ns

VARIABLE = "_STILLHERE_DEMO_LEDGER"
"""Where the processes of the demo find it."""


class Ledger:
    """The file; one object in each process."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, event: str, job: str, **fields: Any) -> None:
        """One line."""
        line = {"event": event, "job": job, "pid": os.getpid(), "at": boottime_ns(), **fields}
        os.write(self._fd, json.dumps(line, separators=(",", ":")).encode() + b"\n")

    @contextmanager
    def run(self, job: str, task: str, start: int = 0) -> Iterator[RunPen]:
        """The lines round one run; `start` is how far an earlier run had got."""
        pen = RunPen(self, job, f"{os.getpid()}.{boottime_ns()}")
        self.write("start", job, run=pen.key, task=task, done=start)
        try:
            yield pen
        except BaseException as error:
            self.write("end", job, run=pen.key, how=type(error).__name__)
            raise
        self.write("end", job, run=pen.key, how="ok")


@dataclass
class RunPen:
    """Writes for one run."""

    ledger: Ledger
    job: str
    key: str

    def step(self, done: int) -> None:
        """So far I am."""
        self.ledger.write("step", self.job, run=self.key, done=done)


@dataclass
class Run:
    """One start of a job and what followed."""

    job: str
    task: str
    pid: int
    start: int
    """When, ns."""
    begun_at: int
    """How far the run before it had got."""
    last: int
    done: int
    how: str | None = None
    steps: int = 0

    def touches(self, other: Run) -> bool:
        """Whether both were at work at one instant."""
        return self.start <= other.last and other.start <= self.last


@dataclass
class Story:
    """All lines up to now; `read` takes in what was added since the last time."""

    path: Path
    runs: dict[str, Run] = field(default_factory=dict)
    """By key, in the order of their starts."""
    sent: dict[str, int] = field(default_factory=dict)
    """When each job was sent, ns."""
    killed: list[tuple[int, int]] = field(default_factory=list)
    """(pid, when) of each kill."""
    _offset: int = 0

    def read(self) -> Story:
        """Follow the file."""
        with self.path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text.rpartition(b"\n")[0]
        self._offset += len(whole) + 1 if whole else 0
        for line in whole.splitlines():
            self._take(json.loads(line))
        return self

    def _take(self, line: dict[str, Any]) -> None:
        match line["event"]:
            case "sent":
                self.sent[line["job"]] = line["at"]
            case "killed":
                self.killed.append((line["victim"], line["at"]))
            case "start":
                at, done = line["at"], line["done"]
                self.runs[line["run"]] = Run(line["job"], line["task"], line["pid"], at, done, at, done)
            case "step":
                run = self.runs[line["run"]]
                run.last, run.done, run.steps = line["at"], line["done"], run.steps + 1
            case "end":
                run = self.runs[line["run"]]
                run.last, run.how = line["at"], line["how"]

    def of(self, task: str) -> list[Run]:
        """The runs of one task."""
        return [run for run in self.runs.values() if run.task == task]

    def overlaps(self, task: str) -> int:
        """Runs of a job that began while another run of the same job was at work."""
        by_job: dict[str, list[Run]] = {}
        for run in self.of(task):
            by_job.setdefault(run.job, []).append(run)
        return sum(
            any(earlier.touches(later) for earlier in runs[:index])
            for runs in by_job.values()
            for index, later in enumerate(runs)
        )
