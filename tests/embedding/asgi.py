"""A web application with a worker in its lifespan, as plain ASGI: any request enqueues a job, and answers its result.

The path names the task and its argument: ``/nap/3``. ``/bg/nap/3`` answers the id at once.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from tests.faults import jobs

Message = dict[str, Any]


async def application(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        return
    *background, task, seconds = scope["path"].strip("/").split("/")
    handle = await getattr(jobs, task).enqueue(float(seconds))
    answer = handle.id if background else str(await handle.result("20s"))
    headers = [(b"x-pid", str(os.getpid()).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer.encode()})


async def lifespan(receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]) -> None:
    await receive()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(jobs.app)
        await stack.enter_async_context(jobs.app.worker(slots=4, lease="2s", grace="2s"))
        await send({"type": "lifespan.startup.complete"})
        await receive()
    await send({"type": "lifespan.shutdown.complete"})
