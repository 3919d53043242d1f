"""What a running job survives, and in how long: the figures of the README's table, measured now and here.

    python benchmarks/survives.py [--kills 20]

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
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.faults.kit import LEASE_S, Stage  # noqa: E402 - the path comes first
from tests.support.ledger import VARIABLE, Ledger, Run, boot_ns  # noqa: E402 - as above
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


def killed_processes(kills: int) -> str:
    """Kill -9 of the process that runs the job, again and again."""
    with staged() as (stage, _):
        for _ in range(3):
            stage.ready_worker("-c", "1")
        job = stage.add("steps", 100_000)
        gaps = []
        for number in range(1, kills + 1):
            run = stage.started(job, number)
            eventually(lambda: len(stage.story().runs(job.id)[-1].steps) >= 5, 10)
            killed = boot_ns()
            kill([run.pid])
            gaps.append((stage.started(job, number + 1).start - killed) / 1e6)
        overlaps, record = len(stage.story().overlaps(job.id)), stage.record(job)
    median, worst = statistics.median(gaps), max(gaps)
    return (
        f"runs on after {median:.0f} ms (median of {kills}; worst {worst:.0f} ms); {_counts(overlaps, record.failures)}"
    )


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


def main() -> None:
    """Measure each and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    kills = parser.parse_args().kills
    place = Path(tempfile.mkdtemp(prefix="survives-"))
    os.environ[VARIABLE] = str(place / "ledger")
    print("| What happens | What was measured |")
    print("|---|---|")
    for what, measure in ROWS:
        print(f"| {what} | {measure(kills)} |", flush=True)
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
