"""The jobs that real workers run in fault tests; each writes to the ledger named by the test's environment.

`stillhere worker tests.faults.jobs:app` finds its store in `STILLHERE_URL` and `STILLHERE_NAMESPACE`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import random
import re
import resource
import signal
import threading
import time

from stillhere import App, Backoff, Retry, current_job, current_job_sync
from tests.faults.offspring import leave_all_kinds
from tests.support.ledger import Ledger, boot_ns

app = App()
ledger = Ledger.from_environ()
STEP_S = 0.05


@app.task(max_losses=1000)
async def steps(count: int, pause: float = STEP_S) -> int:
    """Walk `count` steps with a checkpoint after each; carry on where the last run got to."""
    job = current_job()
    done = job.restore(int, default=0)
    with ledger.run(job.id, job.token) as run:
        ledger.write("resumed", job.id, job.token, at_step=done, failures=job.failures, losses=job.losses)
        while done < count:
            await asyncio.sleep(pause)
            done += 1
            run.step(done)
            await job.checkpoint(done)
            job.progress(done, count)
    return done


@app.task
async def nap(seconds: float) -> str:
    """Sleep on the loop in small steps; tell the reason when it is stopped."""
    job = current_job()
    with ledger.run(job.id, job.token) as run:
        until = time.monotonic() + seconds
        try:
            while time.monotonic() < until:
                await asyncio.sleep(STEP_S)
                run.step()
        except asyncio.CancelledError:
            ledger.write("stopped", job.id, job.token, reason=job.stopping)
            raise
    return "rested"


@app.task
def nap_sync(seconds: float) -> str:
    """Sleep in a thread in small steps, asking at each whether to stop."""
    job = current_job_sync()
    with ledger.run(job.id, job.token) as run:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(STEP_S)
            run.step()
            try:
                job.check()
            except BaseException:
                ledger.write("stopped", job.id, job.token, reason=job.stopping)
                raise
    return "rested"


@app.task
async def quick(seconds: float = 0.0) -> int:
    """Be done soon."""
    job = current_job()
    with ledger.run(job.id, job.token):
        await asyncio.sleep(seconds)
    return job.token


@app.task
async def block_loop(seconds: float) -> None:
    """Sleep on the loop, the wrong way."""
    job = current_job()
    with ledger.run(job.id, job.token):
        time.sleep(seconds)  # noqa: ASYNC251 - that is the fault


@app.task
async def hold_gil(seconds: float) -> None:
    """Sleep in one C call that keeps the GIL: no thread of this process can speak."""
    job = current_job()
    with ledger.run(job.id, job.token):
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))


@app.task
def hold_gil_by_regex(seconds: float) -> None:
    """Backtrack without end in sight, the GIL held for each whole match."""
    job = current_job_sync()
    with ledger.run(job.id, job.token):
        until = time.monotonic() + seconds
        length = 20
        while time.monotonic() < until:
            start = time.monotonic()
            re.match(r"(a+)+$", "a" * length + "b")
            length += time.monotonic() - start < seconds / 4


@app.task
async def hold_gil_by_sort(seconds: float) -> None:
    """Sort millions of floats again and again."""
    job = current_job()
    with ledger.run(job.id, job.token):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            sorted(random.random() for _ in range(2_000_000))


@app.task
def wedge(seconds: float) -> None:
    """Be in a C call that nobody can cut short, in a thread."""
    job = current_job_sync()
    with ledger.run(job.id, job.token):
        ctypes.CDLL(None).sleep(int(seconds))


@app.task
async def fail(times: int) -> int:
    """Raise in the first `times` attempts."""
    job = current_job()
    with ledger.run(job.id, job.token):
        if job.failures < times:
            message = f"attempt {job.attempt} fails"
            raise ValueError(message)
    return job.attempt


@app.task
async def retry_in(seconds: float) -> int:
    """Ask to come back once, after this long; tell when it did."""
    job = current_job()
    with ledger.run(job.id, job.token):
        ledger.write("ran", job.id, job.token, failures=job.failures)
        if not job.failures:
            raise Retry(after=seconds)
    return boot_ns()


@app.task
async def die(how: str, after: float = 0.2) -> None:
    """Kill the process it runs in."""
    job = current_job()
    ledger.write("killer", job.id, job.token, pid=os.getpid())
    await asyncio.sleep(after)
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), signal.Signals[how])
    await asyncio.sleep(60)


@app.task
async def crash_main_loop(seconds: float) -> None:
    """Leave a non-daemon thread behind and make the main loop end with an exception."""
    job = current_job()
    ledger.write("crashing", job.id, job.token)
    threading.Thread(target=time.sleep, args=(seconds,), daemon=False).start()

    def stop() -> None:
        message = "the loop was made to crash"
        raise SystemExit(message)

    asyncio.get_running_loop().call_soon(stop)
    await asyncio.sleep(seconds)


@app.task(max_losses=1000)
async def with_offspring(seconds: float) -> None:
    """Have four processes write: a subprocess, one in a session of its own, a daemon, and a fork of this one."""
    job = current_job()
    with ledger.run(job.id, job.token) as run:
        leave_all_kinds(str(ledger.path), job.id, job.token)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await asyncio.sleep(STEP_S)
            run.step()


@app.task(max_losses=1000)
async def dump_core(megabytes: int) -> None:
    """The first run dies of SIGSEGV with so much memory to dump; the next one does not."""
    job = current_job()
    with ledger.run(job.id, job.token):
        if not job.losses:
            resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            os.chdir(ledger.path.parent)  # where the core goes, and is thrown away
            ballast = bytearray(os.urandom(1 << 20)) * megabytes
            ledger.write("dumping", job.id, job.token, size=len(ballast))
            os.kill(os.getpid(), signal.SIGSEGV)


@app.task
async def hold_gil_late(after: float, seconds: float) -> None:
    """Behave for a while, then keep the GIL."""
    job = current_job()
    with ledger.run(job.id, job.token):
        await asyncio.sleep(after)
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))


@app.task
async def big(size: int) -> str:
    """Give back a result of this many characters."""
    return "x" * size


@app.task
async def doubting(seconds: float) -> int:
    """Sleep in small steps; tell when the lease comes into doubt."""
    job = current_job()
    with ledger.run(job.id, job.token) as run:
        until, told = time.monotonic() + seconds, False
        while time.monotonic() < until:
            await asyncio.sleep(STEP_S)
            run.step()
            if job.lease_in_doubt and not told:
                told = True
                ledger.write("doubt", job.id, job.token)
    return job.token


@app.task
def grind(seconds: float) -> int:
    """Keep a thread busy with Python code, calls in calls."""

    def deep(left: int) -> int:
        return left and deep(left - 1)

    job = current_job_sync()
    rounds = 0
    with ledger.run(job.id, job.token):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            deep(50)
            rounds += 1
            if rounds % 1000 == 0:
                job.check()
    return rounds


@app.task
def die_sync(how: str, after: float = 0.2) -> None:
    """Kill the process it runs in, from a thread."""
    job = current_job_sync()
    ledger.write("killer", job.id, job.token, pid=os.getpid())
    time.sleep(after)
    if how == "exit":
        os._exit(3)
    if how == "SIGSEGV":
        signal.pthread_kill(threading.get_ident(), signal.SIGSEGV)  # as a fault does: at the thread that made it
    os.kill(os.getpid(), signal.Signals[how])
    time.sleep(60)


@app.task
async def die_in_helper(how: str) -> None:
    """Kill the process it runs in, from a thread that nobody can tell is its own."""
    job = current_job()
    ledger.write("killer", job.id, job.token, pid=os.getpid())

    def kill_later() -> None:
        time.sleep(0.2)  # the step that starts this is over by then
        os.kill(os.getpid(), signal.Signals[how])

    await asyncio.to_thread(kill_later)
    await asyncio.sleep(60)


def _spin(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def _sleep_in_short(seconds: float) -> None:
    """Sleep, and take every Exception for a reason to go on."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(Exception):
            time.sleep(STEP_S)


async def _stay(seconds: float) -> None:
    """Await, and take even a cancel for a reason to go on."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(BaseException):
            await asyncio.sleep(STEP_S)


def _hold_the_gil(seconds: float) -> None:
    """One C call, begun again when a signal cuts it short."""
    until = time.monotonic() + seconds
    library = ctypes.PyDLL(None)
    while (left := until - time.monotonic()) > 0:
        library.usleep(int(left * 1e6))


STUCK = {"spins": _spin, "sleeps": time.sleep, "swallows": _sleep_in_short, "holds the GIL": _hold_the_gil}


async def _stuck_on_the_loop(how: str, seconds: float) -> None:
    job = current_job()
    with ledger.run(job.id, job.token):
        if how == "awaits":
            await asyncio.sleep(seconds)
        elif how == "stays":
            await _stay(seconds)
        else:
            STUCK[how](seconds)


def _stuck_in_a_thread(how: str, seconds: float) -> None:
    job = current_job_sync()
    with ledger.run(job.id, job.token):
        STUCK[how](seconds)


stuck = app.task(name="stuck")(_stuck_on_the_loop)
stuck_silent = app.task(name="stuck_silent", stall_after=1.0)(_stuck_on_the_loop)
stuck_thread = app.task(name="stuck_thread", process=False)(_stuck_in_a_thread)
stuck_thread_silent = app.task(name="stuck_thread_silent", stall_after=1.0, process=False)(_stuck_in_a_thread)
stuck_limited = app.task(name="stuck_limited", timeout=1.0, backoff=Backoff(first=0.1))(_stuck_in_a_thread)
"""A `def` with a limit: it has a process to itself without asking."""
stuck_alone = app.task(name="stuck_alone", process=True)(_stuck_in_a_thread)


@app.task
async def leak(megabytes: float, pause: float, most: float) -> None:
    """Take so much more memory at each step, and keep it, up to `most`."""
    job = current_job()
    kept: list[bytes] = []
    with ledger.run(job.id, job.token) as run:
        while len(kept) * megabytes < most:
            kept.append(os.urandom(int(megabytes * (1 << 20))))
            run.step(len(kept))
            await asyncio.sleep(pause)


@app.task(process=True)
async def leak_alone(megabytes: float, pause: float, most: float) -> None:
    """As `leak`, in a process of its own."""
    await leak(megabytes, pause, most)


@app.task
async def slow(seconds: float) -> None:
    """Wait: of a task that nobody has declared long."""
    job = current_job()
    with ledger.run(job.id, job.token):
        await asyncio.sleep(seconds)


@app.task
async def slow_too(seconds: float) -> None:
    """The same under another name: what is learnt of the one is not known of the other."""
    job = current_job()
    with ledger.run(job.id, job.token):
        await asyncio.sleep(seconds)


@app.task(long=True)
async def slow_declared(seconds: float) -> None:
    """The same, and everybody knows."""
    job = current_job()
    with ledger.run(job.id, job.token):
        await asyncio.sleep(seconds)
