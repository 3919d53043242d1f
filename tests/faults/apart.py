"""The jobs of fault tests that run in processes of their own, and a plain one beside them; see `jobs`."""

from __future__ import annotations

import asyncio
import ctypes
import time

from stillhere import App, current_job
from tests.faults.offspring import leave_all_kinds
from tests.support.ledger import Ledger

app = App()
ledger = Ledger.from_environ()
STEP_S = 0.02


@app.task
async def pooled(seconds: float) -> None:
    """Beside others, in a slot."""
    await _steps(seconds)


@app.task(process=True, max_losses=1000)
async def alone(seconds: float) -> None:
    """In a process of its own."""
    await _steps(seconds)


@app.task(process=True, max_losses=1000)
async def with_offspring(seconds: float) -> None:
    """Leave behind a subprocess, one in a session of its own, a daemon, and a fork: each writes for ever."""
    job = current_job()
    leave_all_kinds(str(ledger.path), job.id, job.token)
    await _steps(seconds)


@app.task(on_lease_doubt="stop", max_losses=1000)
async def stops_awaiting(seconds: float) -> None:
    """Must not run beside another run of itself; it can hear that it must stop."""
    await _steps(seconds)


@app.task(on_lease_doubt="stop", max_losses=1000)
async def stops_blocked(seconds: float) -> None:
    """The same, with its loop blocked."""
    job = current_job()
    with ledger.run(job.id, job.token) as run:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(STEP_S)  # noqa: ASYNC251 - that is the fault
            run.step()


@app.task(on_lease_doubt="stop", max_losses=1000)
async def stops_never(seconds: float) -> None:
    """The same, in one C call that keeps the GIL: nothing in this process can act."""
    job = current_job()
    with ledger.run(job.id, job.token):
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))


async def _steps(seconds: float) -> None:
    job = current_job()
    with ledger.run(job.id, job.token) as run:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await asyncio.sleep(STEP_S)
            run.step()
