"""When a worker that was told to stop does what: one table for the supervisor, who enforces it, and its children.

With a grace of 8 s or more the last three seconds are the ending: cancel what still runs, let children settle and hand
back, kill what is left. A shorter grace is cut in the same order, so that a grace of one second still ends every run in
an orderly way. "Now" (a second signal) is the ending without the wait.
"""

from __future__ import annotations

import msgspec

NOW_S = 2.0
"""How long the ending takes when nobody wants to wait: cancel at once, kill after half of it."""


class Timeline(msgspec.Struct, frozen=True):
    """Seconds from the moment the order came."""

    cancel: float
    """Runs that have not ended are told to stop."""
    leave: float
    """Children have settled and handed back what ended, and leave."""
    kill: float
    """What is still there is killed, and released as interrupted."""

    @classmethod
    def of(cls, grace_s: float) -> Timeline:
        """The timeline of a grace period."""
        if grace_s >= 8.0:
            return cls(grace_s - 3.0, grace_s - 1.5, grace_s - 1.0)
        return cls(0.4 * grace_s, 0.7 * grace_s, 0.8 * grace_s)

    @classmethod
    def now(cls) -> Timeline:
        """The timeline of a second signal."""
        return cls(0.0, NOW_S * 0.4, NOW_S * 0.5)
