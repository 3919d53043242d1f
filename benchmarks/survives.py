"""What a running job survives, and in how long: the figures of the README's table, measured now and here.

    python benchmarks/survives.py [--kills 20]
    python benchmarks/survives.py --offspring 200    one row: kills of a process whose job has started others

Real servers (Valkey, append-only), real worker processes, a lease of 2 s. The tools are those of the fault tests, which
hold each of these to its bound; here it is only measured. Figures come from the ledger that the jobs write themselves.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
WORKERS = 3
KILLS_OF_ONE_JOB = 20
"""A hundred deaths make any job a dead letter; and reading a long ledger again and again takes the workers' time."""
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.faults.kit import LEASE_S, Stage  # noqa: E402 - the path comes first
from tests.faults.offspring import KINDS  # noqa: E402 - the path comes first
from tests.support.ledger import VARIABLE, Ledger, Run, Story, boot_ns  # noqa: E402 - as above
from tests.support.procs import WorkerProcess, eventually, kill  # noqa: E402 - as above
from tests.support.servers import RedisServer  # noqa: E402 - as above


@contextmanager
def staged() -> Iterator[tuple[Stage, RedisServer]]:
    """A stage on a fresh server; everything ends with it."""
    server = RedisServer("valkey", append_only=True).start()
    workers: list[WorkerProcess] = []
    directory = Path(os.environ[VARIABLE]).parent

    def make(target: str, *arguments: str, **options: object) -> WorkerProcess:
        workers.append(WorkerProcess(target, *arguments, log=directory / f"{len(workers)}.log", **options))  # type: ignore[arg-type]
        return workers[-1]

    stage = Stage(server.url, "bench", Ledger.from_environ(), make)
    try:
        yield stage, server
    finally:
        stage.close()
        for worker in workers:
            worker.close()
        server.close()


class Toll(NamedTuple):
    """What kills again and again have cost."""

    gaps_ms: list[float]
    """From each kill to the next start."""
    overlaps: int
    failures: int
    left_wrote: int
    """Lines that offspring wrote."""
    too_late: int
    """Those of them that came after the next start."""

    @property
    def counts(self) -> str:
        """What must be 0."""
        return _counts(self.overlaps, self.failures)


def killed_processes(kills: int) -> str:
    """Kill -9 of the process that runs the job, again and again."""
    with staged() as (stage, _):
        toll = _kill_again_and_again(stage, kills, "steps", 100_000, ready=lambda _, run: len(run.steps) >= 5)
    median, worst = statistics.median(toll.gaps_ms), max(toll.gaps_ms)
    return f"runs on after {median:.0f} ms (median of {kills}; worst {worst:.0f} ms); {toll.counts}"


def killed_with_offspring(kills: int) -> str:
    """Kill -9 of the process that runs the job, while four processes that the job has started are alive and write."""

    def all_write(story: Story, run: Run) -> bool:
        return {line["kind"] for line in story.events_of("offspring") if line["token"] == run.token} == KINDS

    with staged() as (stage, _):
        toll = _kill_again_and_again(stage, kills, "with_offspring", 3_600.0, ready=all_write)
    median, worst = statistics.median(toll.gaps_ms), max(toll.gaps_ms)
    p99 = statistics.quantiles(toll.gaps_ms, n=100, method="inclusive")[98]
    return (
        f"runs on after {median:.0f} ms (median of {kills}; p99 {p99:.0f} ms, worst {worst:.0f} ms); of "
        f"{toll.left_wrote} lines that they wrote, after the next start: {toll.too_late}; {toll.counts}"
    )


def _kill_again_and_again(
    stage: Stage, kills: int, task: str, argument: float, *, ready: Callable[[Story, Run], bool]
) -> Toll:
    """Three workers; a kill comes when the run is `ready`, and the worker of the last kill has a new process."""
    for _ in range(WORKERS):
        stage.ready_worker("-c", "1")
    gaps: list[float] = []
    overlaps = failures = left_wrote = too_late = 0
    while len(gaps) < kills:
        job = stage.add(task, argument)
        for number in range(1, min(kills - len(gaps), KILLS_OF_ONE_JOB) + 1):
            run = stage.started(job, number)
            eventually(lambda job=job: ready(story := stage.story(), story.runs(job.id)[-1]), 10)  # type: ignore[misc]
            eventually(lambda: stage.workers() == WORKERS, 20)
            killed = boot_ns()
            kill([run.pid])
            gaps.append((stage.started(job, number + 1).start - killed) / 1e6)
        job.cancel()
        stage.finished(job)
        story = stage.story()
        overlaps += len(story.overlaps())
        failures += stage.record(job).failures
        next_start = {run.token: later.start for run, later in pairwise(story.runs())}
        lines = story.events_of("offspring")
        left_wrote += len(lines)
        too_late += sum(line["at"] > next_start.get(line["token"], line["at"]) for line in lines)
        stage.forget()
    return Toll(gaps, overlaps, failures, left_wrote, too_late)


def killed_host(_kills: int) -> str:
    """Supervisor and children at one blow."""
    with staged() as (stage, _):
        doomed = stage.ready_worker("-c", "1")
        job = stage.add("steps", 1_000)
        stage.started(job)
        stage.answered(job)
        stage.ready_worker("-c", "1")
        doomed.kill9_all()
        killed = boot_ns()
        gap = (stage.started(job, 2, timeout=20).start - killed) / 1e9
        overlaps, record = len(stage.story().overlaps(job.id)), stage.record(job)
    bound = 1.3 * LEASE_S + 1
    lease = f"with a lease of {LEASE_S:g} s (bound {bound:.1f} s)"
    return f"runs on after {gap:.1f} s {lease}; {_counts(overlaps, record.failures)}"


def deployed(_kills: int) -> str:
    """SIGTERM with a grace of 1 s to the worker of a job that does not end so soon."""
    with staged() as (stage, _):
        first = stage.ready_worker("-c", "1", "--grace", "1s")
        job = stage.add("steps", 1_000)
        stage.started(job)
        stage.ready_worker("-c", "1")
        first.terminate()
        told = boot_ns()
        gap = (stage.started(job, 2).start - told) / 1e9
        overlaps, record = len(stage.story().overlaps(job.id)), stage.record(job)
    return f"runs on elsewhere {gap:.1f} s after the signal, grace 1 s; {_counts(overlaps, record.failures)}"


def held(task: str) -> Callable[[int], str]:
    """A handler that lets nobody else in its process speak, for five leases."""

    def measure(_kills: int) -> str:
        with staged() as (stage, _):
            for _ in range(2):
                stage.ready_worker("-c", "2")
            job = stage.add(task, 5 * LEASE_S)
            stage.finished(job, timeout=60)
            runs = stage.story().runs(job.id)
        return (
            f"{(runs[0].last - runs[0].start) / 1e9 / LEASE_S:.0f} leases long: starts {len(runs)}, ends {_ends(runs)}"
        )

    return measure


def frozen(_kills: int) -> str:
    """SIGSTOP of a whole worker for three leases, then SIGCONT."""
    with staged() as (stage, _):
        first = stage.ready_worker("-c", "1")
        job = stage.add("steps", 250)
        stage.started(job)
        stage.answered(job)
        first.freeze()
        stage.ready_worker("-c", "1")
        heir = stage.started(job, 2, timeout=20)
        time.sleep(2 * LEASE_S)  # the third went by until the heir began
        first.thaw()
        stage.finished(job, timeout=60)
        record = stage.record(job)
    late = "what it says late changes nothing" if record.token == heir.token else "THE LATE WORD COUNTED"
    return f"its heir's result stands, {late}; failures {record.failures}"


def restarted_store(_kills: int) -> str:
    """The server killed, and back after one and a half leases."""
    with staged() as (stage, server):
        for _ in range(2):
            stage.ready_worker("-c", "1")
        job = stage.add("steps", 150)
        stage.started(job)
        server.kill9()
        time.sleep(1.5 * LEASE_S)
        server.start()
        stage.finished(job, timeout=60)
        runs, record = stage.story().runs(job.id), stage.record(job)
    return f"down for {1.5 * LEASE_S:g} s: {record.state}, starts {len(runs)}, ends {_ends(runs)}"


def _ends(runs: list[Run]) -> int:
    return sum(run.how == "ok" for run in runs)


def _counts(overlaps: int, failures: int) -> str:
    return f"overlaps {overlaps}, attempts charged {failures}"


ROWS: list[tuple[str, Callable[[int], str]]] = [
    ("`kill -9` of the worker process", killed_processes),
    ("`kill -9` of supervisor and workers together (a host that dies)", killed_host),
    ("a deploy: SIGTERM in mid-job", deployed),
    ("a coroutine that blocks its event loop", held("block_loop")),
    ("a C call that holds the interpreter's lock", held("hold_gil")),
    ("a worker frozen for three leases that wakes", frozen),
    ("the store killed and restarted", restarted_store),
]

WITH_OFFSPRING: list[tuple[str, Callable[[int], str]]] = [
    (
        "`kill -9` of the worker process while a subprocess, one in its own session, a daemon and a fork of its live",
        killed_with_offspring,
    )
]


def main() -> None:
    """Measure each and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--offspring", type=int, metavar="KILLS", help="measure only kills amid offspring, so many")
    told = parser.parse_args()
    rows, kills = (WITH_OFFSPRING, told.offspring) if told.offspring else (ROWS, told.kills)
    place = Path(tempfile.mkdtemp(prefix="survives-"))
    os.environ[VARIABLE] = str(place / "ledger")
    print("| What happens | What was measured |")
    print("|---|---|")
    for what, measure in rows:
        print(f"| {what} | {measure(kills)} |", flush=True)
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
