"""The yardstick: the shortest loop that can be written on redis-py for the same work.

XADD, then XREADGROUP in batches, one asyncio task a job, XACK and XDEL a batch. It keeps none of the promises: no
record, no token, no lease, no retry. `throughput.py` runs it as a process of its own, beside ours and in the same run.

    python benchmarks/bare.py drain unix:///path/to/socket JOBS
"""

from __future__ import annotations

import asyncio
import sys
import time

import redis.asyncio

STREAM, GROUP, CONSUMER = "bare", "bare", "one"
BATCH = 100
FIELDS = {"task": "noop", "args": '{"n":1}'}


async def add_one_by_one(client: redis.asyncio.Redis, jobs: int) -> float:
    """Return the seconds that `jobs` awaited XADDs take."""
    start = time.perf_counter()
    for _ in range(jobs):
        await client.xadd(STREAM, FIELDS)
    return time.perf_counter() - start


async def add_many(client: redis.asyncio.Redis, jobs: int) -> float:
    """Return the seconds that `jobs` XADDs in pipelines of `BATCH` take."""
    start = time.perf_counter()
    for _ in range(jobs // BATCH):
        pipe = client.pipeline(transaction=False)
        for _ in range(BATCH):
            pipe.xadd(STREAM, FIELDS)
        await pipe.execute()
    return time.perf_counter() - start


async def drain(url: str, jobs: int) -> float:
    """Run `jobs` no-op jobs; return the seconds from the first handler's start to the last one's end."""
    client = redis.asyncio.Redis.from_url(url)
    done = 0
    first = last = 0.0

    async def handler(_fields: object) -> None:
        nonlocal done, first, last
        last = time.perf_counter()
        first = first or last
        done += 1

    while done < jobs:
        reply = await client.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=BATCH)
        entries = reply[0][1] if reply else []
        if not entries:
            break
        await asyncio.gather(*(asyncio.create_task(handler(fields)) for _, fields in entries))
        pipe = client.pipeline(transaction=False)
        pipe.xack(STREAM, GROUP, *(entry for entry, _ in entries))
        pipe.xdel(STREAM, *(entry for entry, _ in entries))
        await pipe.execute()
    await client.aclose()
    if done != jobs:
        message = f"the bare loop ran {done} of {jobs} jobs"
        raise RuntimeError(message)
    return last - first


if __name__ == "__main__":
    print(asyncio.run(drain(sys.argv[2], int(sys.argv[3]))))
