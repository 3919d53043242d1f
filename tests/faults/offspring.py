"""What a handler leaves behind: writes into the ledger each 5 ms. ``offspring.py LEDGER JOB TOKEN TWICE``.

With TWICE it first forks itself away from its parent, as daemons do. It imports nothing of ours: it starts in no time.
"""

import json
import os
import sys
import time
from typing import NoReturn


def write(ledger: str, job: str, token: int) -> NoReturn:
    """Write for ever."""
    while True:
        line = {"event": "offspring", "job": job, "token": token, "pid": os.getpid()}
        line["at"] = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        file = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(file, json.dumps(line).encode() + b"\n")
        os.close(file)
        time.sleep(0.005)


if __name__ == "__main__":
    where, whose, under, twice = sys.argv[1:]
    if twice == "1" and os.fork():
        os._exit(0)
    write(where, whose, int(under))
