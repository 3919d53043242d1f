"""A program with a worker in it.

    python -m tests.embedding.host '{"slots": 2, "lease": 2}'

SIGTERM ends its block; ``lingers``: seconds for which its loop turns on after the block. It says ``host PID``,
``worker ID``, ``left`` after the block, and ``threads N`` with what is left of them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import threading

from tests.faults.jobs import app


async def main() -> None:
    options = json.loads(sys.argv[1])
    lingers = options.pop("lingers", 0)
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    async with app.worker(**options) as worker:
        print("worker", worker.id, flush=True)
        await over.wait()
    print("left", flush=True)
    await asyncio.sleep(lingers)


logging.basicConfig(level="INFO")
print("host", os.getpid(), flush=True)
asyncio.run(main())
print("threads", threading.active_count(), flush=True)
