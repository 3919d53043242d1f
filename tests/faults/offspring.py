"""What a handler leaves behind: writes into the ledger each 5 ms. ``offspring.py LEDGER JOB TOKEN KIND``.

Of kind `daemon` it gets away from its parent first: two forks, and a session of its own between them.
It imports nothing of ours: it starts in no time.
"""

import json
import multiprocessing
import os
import subprocess
import sys
import time

KINDS = frozenset({"plain", "session", "daemon", "fork"})
"""What the job `with_offspring` starts; `fork` is a fork of its own process, that calls `write_for_ever`."""


def become_daemon() -> None:
    """Be nobody's child, in a session of nobody's."""
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)


def write_for_ever(ledger: str, job: str, token: int, kind: str) -> None:
    """Say that this process is still there."""
    while True:
        line = {"event": "offspring", "job": job, "token": token, "kind": kind, "pid": os.getpid()}
        line["at"] = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        file = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)  # it may be the first to write
        os.write(file, json.dumps(line).encode() + b"\n")
        os.close(file)
        time.sleep(0.005)


def leave_all_kinds(ledger: str, job: str, token: int) -> None:
    """Start one of each kind, from a handler."""
    for kind in ("plain", "session", "daemon"):
        program = [sys.executable, __file__, ledger, job, str(token), kind]
        subprocess.Popen(program, start_new_session=kind == "session")
    fork = multiprocessing.get_context("fork")
    fork.Process(target=write_for_ever, args=(ledger, job, token, "fork")).start()


if __name__ == "__main__":
    path, job_id, its_token, its_kind = sys.argv[1:]
    if its_kind == "daemon":
        become_daemon()
    write_for_ever(path, job_id, int(its_token), its_kind)
