"""When a worker that was told to stop does what: one table for the supervisor, who enforces it, and its children.

With a grace of 8 s or more the last three seconds are the ending: cancel what still runs, let children settle and hand
back, kill what is left, release what the killed ones held. A shorter grace is cut in the same order, so that a grace of
one second still ends every run in an orderly way. "Now" (a second signal) is the ending without the wait; "at once" (a
third) is its last step alone.
"""

from __future__ import annotations

import msgspec

NOW_S = 2.0
"""How long the ending takes when nobody wants to wait: cancel at once, kill after half of it."""
RELEASE_S = 0.5
"""How long the release of the killed may take at least, also when the grace is over by then: it spares a lease."""


class Timeline(msgspec.Struct, frozen=True):
    """Seconds from the moment the order came."""

    cancel: float
    """Runs that have not ended are told to stop."""
    leave: float
    """Children have settled and handed back what ended, and leave."""
    kill: float
    """What is still there is killed, and released as interrupted."""
    exit: float
    """The worker is gone; what could not be released by then comes back when its lease ends."""

    @classmethod
    def of(cls, grace_s: float) -> Timeline:
        """The timeline of a grace period."""
        if grace_s >= 8.0:
            return cls(grace_s - 3.0, grace_s - 1.5, grace_s - 1.0, grace_s)
        return cls(0.4 * grace_s, 0.7 * grace_s, 0.8 * grace_s, max(grace_s, 0.8 * grace_s + RELEASE_S))

    @classmethod
    def read(cls, given: object) -> Timeline | None:
        """The one in a message; None when there is none that makes sense."""
        try:
            return msgspec.convert(given, cls)
        except msgspec.ValidationError:
            return None

    @classmethod
    def now(cls) -> Timeline:
        """The timeline of a second signal."""
        return cls(0.0, NOW_S * 0.4, NOW_S * 0.5, NOW_S)

    @classmethod
    def at_once(cls) -> Timeline:
        """The timeline of a third."""
        return cls(0.0, 0.0, 0.0, RELEASE_S)
