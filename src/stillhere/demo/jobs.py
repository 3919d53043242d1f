"""The demo's app, as anybody would write it: one long task with checkpoints, one short task.

Started by `stage` as ``stillhere worker stillhere.demo.jobs:app``; the store is named by the environment.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from stillhere import App, current_job, current_job_sync
from stillhere.demo.ledger import VARIABLE, Ledger
from stillhere.demo.work import Tally, library_files, read_all

PARENT = "_STILLHERE_DEMO_PARENT"
"""The pid of the demo: its workers end when it does."""

_LOOK_S = 0.5
_CHECKPOINT_SHARE = 3


@asynccontextmanager
async def lifespan() -> AsyncGenerator[Ledger]:
    """Open the ledger; end the whole worker when the demo itself was killed."""
    threading.Thread(target=_watch_parent, args=(int(os.environ[PARENT]),), daemon=True).start()
    yield Ledger(os.environ[VARIABLE])


app = App(lifespan=lifespan)


@app.task(long_after=None, max_attempts=1)
def read_library(seconds: float, limit: int | None = None) -> Tally:
    """Read every file of the standard library; go on behind the last checkpoint after a crash."""
    job = current_job_sync()
    done = job.restore(Tally, default=Tally())
    checkpoint_end = cost = 0.0
    with app.state.run(job.id, job.task, done.files) as run:
        files = library_files(limit)
        for done in read_all(files, done, seconds):  # noqa: B020 - what is done so far, as the last run left it
            run.step(done.files)
            began = time.monotonic()
            if began - checkpoint_end >= _CHECKPOINT_SHARE * cost or done.files == len(files):
                job.checkpoint(done)  # after each file, unless the disk is so slow that little else would be done
                checkpoint_end = time.monotonic()
                cost = checkpoint_end - began
            job.progress(done.files, len(files))
    return done


@app.task
async def short(seconds: float) -> None:
    """Do what most jobs do: wait for somebody else."""
    job = current_job()
    with app.state.run(job.id, job.task):
        await asyncio.sleep(seconds)


def _watch_parent(pid: int) -> None:
    while True:
        time.sleep(_LOOK_S)
        try:
            os.kill(pid, 0)
        except OSError:
            os.kill(os.getppid(), signal.SIGTERM)
