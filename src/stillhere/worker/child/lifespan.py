"""The end of the app's lifespan: it gets as long as jobs get, and what it raises is its own loss, not the jobs'."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager

log = logging.getLogger("stillhere.worker")


async def leave_lifespan(lifespan: AbstractAsyncContextManager[None], within_s: float) -> None:
    """Leave it, in this time; raises nothing but what cancels the caller."""
    try:
        async with asyncio.timeout(within_s):
            await lifespan.__aexit__(None, None, None)
    except TimeoutError:
        log.error("The app's lifespan did not end within %.3g s: left as it is.", within_s)  # noqa: TRY400 - no trace
    except Exception:
        log.exception("The app's lifespan raised at its end.")
