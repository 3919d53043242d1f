"""The play with stillhere: six one-slot workers, one long job, short jobs all the time, and kill -9 half-way.

What is drawn comes from the store, by the same verbs as `stillhere status` and `jobs`; what is judged comes from the
ledger. The victim is the process that wrote the long job's last start line.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field

import msgspec

from stillhere import App, SyncHandle
from stillhere.demo.ledger import Run, Story
from stillhere.demo.screen import Screen, bar, mark
from stillhere.demo.stage import Failed, Plan, Stage
from stillhere.demo.verdict import LONG, SHORT, Facts, Verdict, done_shorts, judge, recovery_s
from stillhere.demo.work import Tally, expected, library_files
from stillhere.domain.job import JobRecord
from stillhere.domain.states import FINAL, State
from stillhere.ports.backend import Look
from stillhere.ports.inspector import Jobs, WorkerRecord, Workers

_QUEUE = "default"
_TICK_S = 0.1
_START_S = 10.0
_RESERVE_S = 5.0
"""Of the limit: for the recovery, for what runs late, and for the end."""
_SHORTEST_S = 3.0


@dataclass
class Seen:
    """One look at the store."""

    workers: dict[int, WorkerRecord] = field(default_factory=dict)
    """By process id."""
    holds: dict[str, list[JobRecord]] = field(default_factory=dict)
    """By worker id."""
    long: JobRecord | None = None


class Show:
    """One performance."""

    def __init__(self, plan: Plan, stage: Stage, screen: Screen) -> None:
        self.plan, self.stage, self.screen = plan, stage, screen
        self.client = App(stage.url)
        self.story: Story = stage.story()
        self.rows: list[int] = []
        """Which process each row shows."""
        self.labels: dict[int, str] = {}
        self.files = library_files(plan.files)
        self.total = len(self.files)
        self._long: SyncHandle[object] | None = None
        self._sent = 0
        self._told_resume = False

    def play(self) -> Verdict:
        """From the start of the workers to the verdict."""
        try:
            self._start_workers()
            wanted = expected(self.files)
            self._wait_for_workers()
            begun = time.monotonic()
            self._long = self.client.sender(LONG).enqueue_sync(seconds=self._long_seconds(), limit=self.plan.files)
            while not self._is_over(begun):
                self._send_shorts(time.monotonic() - begun)
                self._draw(self._look())
                self._maybe_kill()
                self._tell_resume()
                time.sleep(_TICK_S)
            return self._judge(wanted)
        finally:
            self.client.close()

    # ----------------------------------------------------------------------------------------------------- deeds

    def _long_seconds(self) -> float:
        """As planned; less on a machine that was slow to start the workers, so that all of it fits into the limit."""
        left = self.plan.limit_s - (time.monotonic() - self.screen.begun) - _RESERVE_S
        return max(_SHORTEST_S, min(self.plan.long_s, left))

    def _start_workers(self) -> None:
        options = ["-p", str(self.plan.workers), "-c", "1", "--lease", f"{self.plan.lease_s:g}s", "--grace", "1s"]
        command = ["-m", "stillhere", "worker", "stillhere.demo.jobs:app", *options]
        self.stage.start(*command, environ={"STILLHERE_URL": self.stage.url})

    def _wait_for_workers(self) -> None:
        over = time.monotonic() + _START_S
        while len(self._look().workers) < self.plan.workers:
            self.stage.must_live()
            if time.monotonic() > over:
                raise Failed(
                    f"only {len(self._look().workers)} of {self.plan.workers} workers came up in {_START_S:g} s"
                )
            time.sleep(0.02)

    def _send_shorts(self, elapsed: float) -> None:
        due = min(self.plan.shorts, int(self.plan.shorts * elapsed / self.plan.spread_s) + 1)
        if due <= self._sent:
            return
        prepare = self.client.sender(SHORT).prepare
        jobs = [prepare(seconds=self.plan.short_s) for _ in range(due - self._sent)]
        for job in jobs:
            self.stage.ledger.write("sent", job.id)
        self.client.enqueue_many_sync(jobs)
        self._sent = due

    def _maybe_kill(self) -> None:
        run = self._current()
        if self.story.killed or run is None or run.done < self.total // 2:
            return
        self.stage.ledger.write("killed", run.job, victim=run.pid)
        os.kill(run.pid, signal.SIGKILL)
        label = self.labels.get(run.pid, "its worker")
        self.screen.event(mark(f"kill -9 {label} (pid {run.pid}) at file {run.done}: that was us", fg="red", bold=True))

    def _tell_resume(self) -> None:
        seconds = recovery_s(self.story.read())
        if seconds is None or self._told_resume:
            return
        self._told_resume = True
        run = self.story.of(LONG)[-1]
        where = self.labels.get(run.pid, f"a new process ({run.pid})")
        self.screen.event(
            mark(f"{LONG} goes on, on {where}, at file {run.begun_at + 1}, {seconds:.3f} s after the kill", fg="green")
        )

    # ----------------------------------------------------------------------------------------------------- looks

    def _look(self) -> Seen:
        store = self.client.link.sync_store()
        workers = store.call(Workers(queue=_QUEUE))
        running = store.call(Jobs(queue=_QUEUE, state=State.RUNNING, limit=100)).jobs
        seen = Seen(workers={int(worker.info.get("pid", 0)): worker for worker in workers if not worker.gone})
        for job in running:
            seen.holds.setdefault(job.worker or "", []).append(job)
        if self._long is not None:
            seen.long = store.call(Look(queue=_QUEUE, job=self._long.id))
        self.story.read()
        self._place_rows(seen)
        return seen

    def _place_rows(self, seen: Seen) -> None:
        """A new process takes the row of one that is gone; all others stay where they are."""
        for pid in sorted(set(seen.workers) - set(self.rows)):
            self.labels[pid] = f"w{len(self.labels) + 1}"
            empty = next((i for i, old in enumerate(self.rows) if old not in seen.workers), None)
            if empty is None:
                self.rows.append(pid)
            else:
                self.rows[empty] = pid

    def _current(self) -> Run | None:
        runs = self.story.of(LONG)
        return runs[-1] if runs and runs[-1].how is None else None

    def _is_over(self, begun: float) -> bool:
        self.stage.must_live()
        if time.monotonic() - self.screen.begun > self.plan.limit_s:
            return True
        record = self._record()
        ended = record is not None and record.state in FINAL
        all_sent = self._sent >= self.plan.shorts and time.monotonic() > begun
        return ended and all_sent and done_shorts(self.story.read()) >= self.plan.shorts

    def _record(self) -> JobRecord | None:
        if self._long is None:
            return None
        return self.client.link.sync_store().call(Look(queue=_QUEUE, job=self._long.id))

    def _judge(self, wanted: Tally) -> Verdict:
        self._draw(self._look())
        record = self._record()
        result = None
        if record is not None and record.result is not None:
            result = msgspec.json.decode(record.result, type=Tally)
        facts = Facts(
            expected=wanted,
            shorts=self.plan.shorts,
            result=result,
            failures=0 if record is None else record.failures,
            losses=0 if record is None else record.deaths,
        )
        return judge(self.story.read(), facts)

    # --------------------------------------------------------------------------------------------------- picture

    def _draw(self, seen: Seen) -> None:
        run, total = self._current(), self.total
        done = max((each.done for each in self.story.of(LONG)), default=0)
        holder = next((w for w in seen.workers.values() if seen.long and w.id == seen.long.worker), None)
        if holder is not None:
            label = self.labels.get(int(holder.info.get("pid", 0)), holder.id)
            words = f"{LONG} is on {label}, last sign of life {_age(holder)} ago"
        else:
            words = f"{LONG} has ended" if run is None and done >= total else f"{LONG} waits for a worker"
        shorts = self._shorts()
        lines = [
            "",
            f"  {self.screen.clock}  {mark(words, bold=True)}",
            f"         file {done:>5} of {total}  {bar(done, total)} {100 * done // max(1, total):>3} %",
            "",
            *(self._row(pid, seen) for pid in self.rows),
            "",
            f"         {shorts}",
        ]
        self.screen.picture(lines, f"{words}; file {done} of {total}; {shorts}")

    def _row(self, pid: int, seen: Seen) -> str:
        label, worker = self.labels[pid], seen.workers.get(pid)
        if worker is None:
            return f"  {label:>4}  {mark('dead', fg='red')}"
        held = seen.holds.get(worker.id, [])
        now = time.time_ns() // 1_000_000
        names = ", ".join(f"{job.task} {max(0, now - (job.started or now)) / 1_000:.1f} s" for job in held) or "-"
        shown = f"{names:<28}"
        if any(job.task == LONG for job in held):
            shown = mark(shown, fg="green")
        return (
            f"  {label:>4}  {shown} sign of life {_age(worker)} ago, lease {max(0, worker.left_ms) / 1_000:.1f} s left"
        )

    def _shorts(self) -> str:
        runs = self.story.of(SHORT)
        done, running = done_shorts(self.story), sum(run.how is None for run in runs)
        return f"short jobs: {done} done, {running} running, {max(0, self._sent - done - running)} waiting"


def _age(worker: WorkerRecord) -> str:
    return f"{max(0, time.time_ns() // 1_000_000 - worker.seen) / 1_000:.1f} s"
