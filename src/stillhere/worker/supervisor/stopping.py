"""What signals have ordered so far, and when that is enforced. Pure: the time is passed in.

The first signal drains, the second ends now, the third kills. Wrappers forward a Ctrl-C that the terminal has already
sent to all, so what comes within a moment of a signal that counted is the same signal. An order may only bring the end
nearer: a second signal in the last half second of the grace period does not give the jobs a whole second more.
"""

from __future__ import annotations

import math

from stillhere.worker.timeline import Timeline

ONE_SIGNAL_S = 0.3


class Stopping:
    """The orders to one supervisor."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._signals = 0
        self._counted_at = -math.inf
        self.timeline = Timeline.of(grace_s)
        """What children are told."""
        self.cancel_at = math.inf
        """When all that runs is told to stop."""
        self.kill_at = math.inf
        self.exit_at = math.inf

    @property
    def longest_s(self) -> float:
        """How long an end by the whole grace period takes."""
        return Timeline.of(self._grace_s).kill

    @property
    def ordered(self) -> bool:
        """Whether there is any order."""
        return self.exit_at < math.inf

    def signal(self, now: float) -> int:
        """Take a signal that means "stop": as which it counts (the first, second, third), 0 when it is none."""
        if now - self._counted_at < ONE_SIGNAL_S:
            return 0
        self._signals += 1
        self._counted_at = now
        steps = (Timeline.of(self._grace_s), Timeline.now(), Timeline.at_once())
        self.order(now, steps[min(self._signals, len(steps)) - 1])
        return min(self._signals, len(steps))

    def order(self, now: float, timeline: Timeline) -> None:
        """Stop by this timeline, or by an earlier order where that is sooner."""
        self.timeline = timeline
        self.cancel_at = min(self.cancel_at, now + timeline.cancel)
        self.kill_at = min(self.kill_at, now + timeline.kill)
        self.exit_at = min(self.exit_at, now + timeline.exit)
