"""The application that `throughput.py` drains: one no-op task whose handler keeps the figures itself.

The worker's own counters are not asked. The handler notes the time of the first start and of the last one, and writes
them, with the count, to the file named by `BENCH_OUT` when as many jobs as `BENCH_JOBS` says have run.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from stillhere import App

app = App()
EXPECTED = int(os.environ.get("BENCH_JOBS", "0"))
seen = {"jobs": 0, "first": 0.0, "last": 0.0}


@app.task
async def noop(n: int) -> None:  # noqa: ARG001 - an argument to carry, as real jobs have
    """Count, and say so at the end."""
    now = time.perf_counter()
    seen["first"] = seen["first"] or now
    seen["last"] = now
    seen["jobs"] += 1
    if seen["jobs"] == EXPECTED:
        Path(os.environ["BENCH_OUT"]).write_text(json.dumps(seen))  # noqa: ASYNC240 - once, after the last one


@app.task(retention=0)
async def forget(n: int) -> None:
    """Do the same, and keep neither record nor result."""
    await noop(n)
