"""The same jobs on a hand-written pool: read a stream group, run, acknowledge; claim what has been idle for too long.

This is how many fleets run, and it works as long as each job is shorter than the idle limit. Idle time counts from the
delivery of an entry and does not know that its handler is still running, so a longer job is claimed by the next worker
at each limit, and by the next. No error is ever raised. Started by `stage`, one process for each worker.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import redis

from stillhere.demo.ledger import VARIABLE, Ledger
from stillhere.demo.work import Tally, library_files, read_all

STREAM, GROUP = "jobs", "workers"
_BLOCK_MS = 100


def main(url: str, name: str, idle_ms: int) -> None:
    """One worker, until it is killed."""
    client = redis.Redis.from_url(url, decode_responses=True)
    ledger = Ledger(os.environ[VARIABLE])
    while True:
        found = client.xautoclaim(STREAM, GROUP, name, idle_ms, count=1)[1]
        if not found:
            reply: Any = client.xreadgroup(GROUP, name, {STREAM: ">"}, count=1, block=_BLOCK_MS)
            found = reply[0][1] if reply else []
        for entry, fields in found:
            run(ledger, fields)
            client.xack(STREAM, GROUP, entry)


def run(ledger: Ledger, fields: dict[str, str]) -> None:
    """One job."""
    seconds = float(fields["seconds"])
    with ledger.run(fields["id"], fields["task"]) as pen:
        if fields["task"] == "short":
            time.sleep(seconds)
            return
        files = library_files(int(fields["limit"]) or None)
        for done in read_all(files, Tally(), seconds):
            pen.step(done.files)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
