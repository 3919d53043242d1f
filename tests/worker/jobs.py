"""An app for tests of the child's program: its store is `STILLHERE_URL`, its oddities are chosen by the environment."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import os
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from stillhere import App, current_job, current_job_sync

ODDITY = os.environ.get("ODDITY", "")
STORY = Path(os.environ.get("STORY", os.devnull))

if ODDITY == "broken import":
    raise ZeroDivisionError("at import")
if ODDITY == "slow import":
    time.sleep(1.0)


def tell(what: str) -> None:
    """Write a line that the test can read."""
    with STORY.open("a", encoding="utf-8") as story:
        story.write(f"{what}\n")


@asynccontextmanager
async def lifespan() -> AsyncGenerator[str]:
    """Tell when it begins and ends."""
    tell("lifespan begins")
    if ODDITY == "broken lifespan":
        raise ZeroDivisionError("in the lifespan")
    yield "a pool"
    if ODDITY == "hanging lifespan":
        await asyncio.sleep(60)
    tell("lifespan ends")


app = App(lifespan=lifespan)
atexit.register(tell, "atexit")
if ODDITY == "hanging atexit":
    atexit.register(time.sleep, 60)


@app.task
async def state() -> str:
    """Give back what the lifespan yielded."""
    return f"{app.state} in {current_job().queue}"


@app.task
async def sleeps(seconds: float) -> str:
    """Wait on the loop."""
    tell("sleeps")
    await asyncio.sleep(seconds)
    return "slept"


@app.task
def wedged(seconds: int) -> None:
    """Be in one C call of a thread."""
    tell(f"wedged {current_job_sync().id}")
    ctypes.CDLL(None).sleep(seconds)


@app.task
async def crashes_the_loop() -> None:
    """End the main loop by an exception, with a thread alive that the interpreter would wait for."""
    threading.Thread(target=time.sleep, args=(60,), daemon=False).start()

    def leave() -> None:
        raise SystemExit("the main loop was made to end")

    asyncio.get_running_loop().call_soon(leave)
    await asyncio.sleep(60)


@app.task
def leaves_a_thread() -> None:
    """Leave a thread behind that the interpreter would wait for."""
    threading.Thread(target=time.sleep, args=(60,), daemon=False).start()
