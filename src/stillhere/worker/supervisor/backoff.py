"""When a child that died is replaced.

One that ran jobs is replaced at once: those jobs have budgets of their own. The growing delay is for children that die
without having started anything, which no budget bounds; it ends with the first one that did, or that lived for long.
Children that this supervisor killed or told to end do not count.
"""

from __future__ import annotations

from random import Random

FIRST_S = 0.5
CEILING_S = 30.0
LONG_LIFE_S = 10.0
JITTER = 0.2
SAME_CAUSE_LIMIT = 3


class Backoff:
    """One supervisor's memory of failed starts."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._failures = 0
        self._cause = ""
        self._same_cause = 0

    def died(self, *, lived_s: float, ran_jobs: bool) -> float:
        """Return the delay in seconds before the replacement of a child that died after its `hello`."""
        if ran_jobs or lived_s > LONG_LIFE_S:
            self._failures = 0
            return 0.0
        delay = min(CEILING_S, FIRST_S * 2.0**self._failures)
        self._failures = min(self._failures + 1, 16)
        return delay * self._random.uniform(1 - JITTER, 1 + JITTER)

    def failed_to_start(self, cause: str) -> bool:
        """Note a death before `hello`; True when it was the third in a row with the same cause."""
        self._same_cause = self._same_cause + 1 if cause == self._cause else 1
        self._cause = cause
        return self._same_cause >= SAME_CAUSE_LIMIT

    def start_delay(self) -> float:
        """How long to wait before the next try after a failed start: it may be a deploy that is being copied."""
        return FIRST_S * self._same_cause * self._random.uniform(1 - JITTER, 1 + JITTER)

    def started(self) -> None:
        """A child said `hello`."""
        self._same_cause = 0
