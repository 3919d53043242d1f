"""Gives every store that this process opens a clock of its own: the real one, plus what a file says at each call.

A server's clock cannot be set from a test. But all time of the protocol is the time that its scripts are told, so a
worker whose stores tell another time sees a server whose clock has stepped. Found by a worker through `PYTHONPATH`.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stillhere import stores

_OFFSET = Path(os.environ["TEST_CLOCK_OFFSET"])


def stepped() -> int:
    """Milliseconds since 1970, by the server that stepped."""
    return time.time_ns() // 1_000_000 + int(_OFFSET.read_text() or 0)


def _with_clock(opens: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(opens)
    def wrapper(url: str, namespace: str) -> Any:
        return opens(url, namespace, clock=stepped)

    return wrapper


stores.open_sync = _with_clock(stores.open_sync)
stores.open_async = _with_clock(stores.open_async)
