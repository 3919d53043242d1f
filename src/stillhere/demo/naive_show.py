"""The same jobs on the naive pool: nobody is killed, and still the night goes wrong."""

from __future__ import annotations

import time

import redis

from stillhere.demo.ledger import Run, Story
from stillhere.demo.naive import GROUP, STREAM
from stillhere.demo.screen import Screen, bar, mark
from stillhere.demo.stage import Plan, Stage
from stillhere.demo.verdict import LONG, SHORT, Facts, Verdict, done_shorts, judge_naive
from stillhere.demo.work import Tally, library_files

_TICK_S = 0.1
_LINGER_S = 1.5
"""So long we look at a pool that is all in one job."""


class NaiveShow:
    """One performance."""

    def __init__(self, plan: Plan, stage: Stage, screen: Screen) -> None:
        self.plan, self.stage, self.screen = plan, stage, screen
        self.client = redis.Redis.from_url(stage.url, decode_responses=True)
        self.story: Story = stage.story()
        self.labels: dict[int, str] = {}
        self.total = len(library_files(plan.files))
        self._sent = 0
        self._told = 0
        self._full_since: float | None = None

    def play(self) -> Verdict:
        """Until all workers are in the one job, or time is up."""
        try:
            self.client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
            self._add("long", LONG, self.plan.long_s)
            idle = str(int(self.plan.lease_s * 1_000))
            for number in range(1, self.plan.workers + 1):
                process = self.stage.start("-m", "stillhere.demo.naive", self.stage.url, f"w{number}", idle)
                self.labels[process.pid] = f"w{number}"
            begun = None
            while not self._is_over():
                begun = begun or (time.monotonic() if self.story.of(LONG) else None)
                self._send_shorts(0.0 if begun is None else time.monotonic() - begun)
                self._tell()
                self._draw()
                time.sleep(_TICK_S)
            self._draw()
            facts = Facts(
                expected=Tally(),
                shorts=self.plan.shorts,
                errors_logged=self.stage.errors_logged(),
                workers=self.plan.workers,
            )
            return judge_naive(self.story.read(), facts)
        finally:
            self.client.close()

    def _add(self, job: str, task: str, seconds: float) -> None:
        fields = {"id": job, "task": task, "seconds": str(seconds), "limit": str(self.plan.files or 0)}
        self.client.xadd(STREAM, fields)  # type: ignore[arg-type]  # its stub is narrower than it is

    def _send_shorts(self, elapsed: float) -> None:
        due = min(self.plan.shorts, int(self.plan.shorts * elapsed / self.plan.spread_s) + 1)
        for number in range(self._sent, due):
            self.stage.ledger.write("sent", f"short-{number}")
            self._add(f"short-{number}", SHORT, self.plan.short_s)
        self._sent = max(self._sent, due)

    def _open(self) -> list[Run]:
        return [run for run in self.story.read().of(LONG) if run.how is None]

    def _is_over(self) -> bool:
        self.stage.must_live()
        if time.monotonic() - self.screen.begun > self.plan.limit_s:
            return True
        if len(self._open()) == self.plan.workers:
            self._full_since = self._full_since or time.monotonic()
            return time.monotonic() - self._full_since > _LINGER_S
        runs = self.story.of(LONG)
        return bool(runs) and not self._open() and done_shorts(self.story) >= self.plan.shorts

    def _tell(self) -> None:
        runs = self.story.of(LONG)
        for index, run in enumerate(runs[self._told :], self._told + 1):
            text = f"{self.labels.get(run.pid, run.pid)} starts {LONG}"
            if index == 1:
                self.screen.event(text)
            else:
                others = len(self._open()) - 1
                busy = "1 other is" if others == 1 else f"{others} others are"
                self.screen.event(mark(f"{text}, which {busy} at work on", fg="red"))
        self._told = len(runs)

    def _draw(self) -> None:
        runs = self._open()
        words = f"{LONG} is on {len(runs)} of {self.plan.workers} workers"
        done = done_shorts(self.story)
        running = sum(run.how is None for run in self.story.of(SHORT))
        shorts = f"short jobs: {done} done, {running} running, {max(0, self._sent - done - running)} waiting"
        rows = [self._row(pid, label) for pid, label in self.labels.items()]
        lines = ["", f"  {self.screen.clock}  {mark(words, bold=True)}", "", *rows, "", f"         {shorts}"]
        self.screen.picture(lines, f"{words}; {shorts}")

    def _row(self, pid: int, label: str) -> str:
        held = [run for run in self.story.runs.values() if run.pid == pid and run.how is None]
        if not held:
            return f"  {label:>4}  -"
        run = held[-1]
        if run.task == SHORT:
            return f"  {label:>4}  {SHORT}"
        where = f"file {run.done:>5} of {self.total}  {bar(run.done, self.total)}"
        return f"  {label:>4}  {mark(f'{LONG:<14}', fg='red')} {where}"
