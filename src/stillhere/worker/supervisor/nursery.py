"""Which children there should be: the first ones, a new one for one that died, and solo children for suspects.

Pure bookkeeping over times that are passed in; the supervisor starts what is due. Three ways to come back after a
death. One that said `hello` before it died is replaced at once or after the back-off. One that never said it cannot
start: after the third in a row with the same cause there is no point in a fourth. A solo child is not replaced: the
next suspects ask for one, and when solo children die without having run anything the asking is put off.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from stillhere.ports.backend import Lanes
from stillhere.worker.settings import WorkerSettings
from stillhere.worker.supervisor.backoff import Backoff


class Death(NamedTuple):
    """What counts of a dead child for its replacement."""

    lanes: Lanes
    greeted: bool
    """It had said `hello`."""
    orderly: bool
    """It ended by itself, with nothing left."""
    expected: bool
    """It was told to end, or killed by its supervisor."""
    ran: bool
    """It ran jobs when it died."""
    lived_s: float
    cause: str


class Nursery:
    """The starts that are due, and the memory of failed ones."""

    def __init__(self, settings: WorkerSettings, backoff: Backoff) -> None:
        self._settings = settings
        self._backoff = backoff
        self._starts: list[tuple[float, Lanes]] = [(-math.inf, "pool")] * settings.processes
        self._solo_after = -math.inf

    @property
    def next_at(self) -> float:
        """When the next start is due."""
        return min((at for at, _ in self._starts), default=math.inf)

    @property
    def is_empty(self) -> bool:
        """Whether no start is due, now or later."""
        return not self._starts

    def due(self, now: float) -> list[Lanes]:
        """Take out what is to be started now."""
        due = [lanes for at, lanes in self._starts if at <= now]
        self._starts = [(at, lanes) for at, lanes in self._starts if at > now]
        return due

    def close(self) -> None:
        """Nobody is started any more."""
        self._starts = []

    def greeted(self) -> None:
        """A child said `hello`: starting works."""
        self._backoff.started()

    def failed_start(self, lanes: Lanes, cause: str, now: float) -> bool:
        """Note a child that could not be started, or died before `hello`; False: do not go on."""
        if self._backoff.failed_to_start(cause):
            return False
        self._again(lanes, now + self._backoff.start_delay())
        return True

    def died(self, death: Death, now: float) -> bool:
        """Note a death; False: the worker cannot go on."""
        if not death.greeted:
            return death.expected or self.failed_start(death.lanes, death.cause, now)
        if death.orderly and (death.lanes == "solo" or (self._settings.burst and not death.expected)):
            return True
        delay = 0.0 if death.expected else self._backoff.died(lived_s=death.lived_s, ran_jobs=death.ran)
        self._again(death.lanes, now + delay)
        return True

    def _again(self, lanes: Lanes, at: float) -> None:
        if lanes == "solo":
            self._solo_after = at
        else:
            self._starts.append((at, "pool"))

    def solos(self, now: float, *, wanted: int, solos: int, idle: int) -> int:
        """How many solo children to start: for jobs that no idle child is there for, up to the limit."""
        if now < self._solo_after:
            return 0
        return max(0, min(self._settings.solo - solos, wanted - idle))
