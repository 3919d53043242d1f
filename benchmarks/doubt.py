"""Does what must not outlive its lease ever run beside its heir? Cut a worker off from its store again and again.

    python benchmarks/doubt.py [--trials 50]

A worker runs jobs with `on_lease_doubt="stop"` in processes of their own: some await, some block their loop, some keep
the interpreter's lock. Then the network takes all it says and hears, and a second worker takes the jobs over. A job's
lock file, which the kernel drops at its process's death, says whether its first run was over when the next one began.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.support.ledger import VARIABLE, Ledger  # noqa: E402 - the path comes first

PLACE = Path(tempfile.mkdtemp(prefix="doubt-"))
os.environ[VARIABLE] = str(PLACE / "ledger")

from tests.faults.doubt import STATES, Trial, cut_off  # noqa: E402 - its jobs read the environment
from tests.faults.kit import APART, LEASE_S, Stage  # noqa: E402 - as above
from tests.support.procs import WorkerProcess  # noqa: E402 - as above
from tests.support.proxy import Proxy  # noqa: E402 - as above
from tests.support.servers import RedisServer  # noqa: E402 - as above

EACH = 2
"""Jobs in each state that one worker runs at the time of its cut."""


@contextmanager
def staged(server: RedisServer, number: int) -> Iterator[tuple[Stage, Proxy]]:
    """A namespace, a ledger and a proxy of their own; everything ends with it."""
    place = PLACE / str(number)
    place.mkdir()
    workers: list[WorkerProcess] = []

    def make(target: str, *arguments: str, **options: object) -> WorkerProcess:
        workers.append(WorkerProcess(target, *arguments, log=place / f"{len(workers)}.log", **options))  # type: ignore[arg-type]
        return workers[-1]

    proxy = Proxy(server.address)
    stage = Stage(server.url, f"doubt{number}", Ledger(place / "ledger"), make, APART)
    try:
        yield stage, proxy
    finally:
        for worker in workers:
            worker.close()
        stage.close()
        proxy.close()


def main() -> None:
    """Run so many trials and print a row for each state."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=50)
    wanted = parser.parse_args().trials
    trials: list[Trial] = []
    server = RedisServer("valkey", append_only=True).start()
    try:
        for number in range(-(-wanted // (EACH * len(STATES)))):
            with staged(server, number) as (stage, proxy):
                trials += cut_off(stage, proxy, EACH)
    finally:
        server.close()
        shutil.rmtree(PLACE)
    print(f"Lease {LEASE_S:g} s, {len(trials)} trials, clean {sum(trial.clean for trial in trials)}.")
    print("| State | Clean | Silence before the next start | Next start after the cut |")
    print("|---|---|---|---|")
    for state in STATES:
        mine = [trial for trial in trials if trial.task == state]
        least = (
            f"at least {min(trial.margin_s for trial in mine):.2f} s" if state != "stops_never" else "it wrote nothing"
        )
        back = [trial.back_s for trial in mine]
        print(
            f"| `{state}` | {sum(trial.clean for trial in mine)} of {len(mine)} | {least} "
            f"| median {statistics.median(back):.1f} s, worst {max(back):.1f} s |"
        )
    sys.exit(not all(trial.clean for trial in trials))


if __name__ == "__main__":
    main()
