"""The clock of everything that two processes of one host compare: it counts the time a machine is suspended.

A lease that was renewed before a laptop slept is old when it wakes, and has to look old. On Linux that is
CLOCK_BOOTTIME; on macOS the C library's CLOCK_MONOTONIC counts sleep, elsewhere it is the nearest there is.
"""

from __future__ import annotations

import time

CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boottime_ns() -> int:
    """Nanoseconds since some fixed point, the same one in all processes of this host."""
    return time.clock_gettime_ns(CLOCK)


def boottime() -> float:
    """Seconds on the same clock."""
    return time.clock_gettime(CLOCK)
