"""Who this process is to the store: its worker id, its lease, and when its lease was last confirmed.

An id is used once. When the store says `gone` the process takes a new one and starts from nothing; whatever belongs to
the old id is void, so a request that was sent under it compares the id it used with the one that stands here now.

Trust is the later of two voices: both write on the board when they sent the renewal that was last confirmed.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator

from stillhere.domain.lease import LeasePlan, plan_for
from stillhere.worker.board import Board
from stillhere.worker.clock import boottime_ns

log = logging.getLogger("stillhere.worker")

_COMPLAIN_EVERY_S = 10.0


def new_worker_id(name: str = "") -> str:
    """An id that no process ever had: never a host name or a process id, which come again."""
    token = secrets.token_hex(8)
    return f"{name}-{token}" if name else token


class Identity:
    """The worker id and lease of this process."""

    def __init__(self, board: Board, lease_ms: int, name: str = "", worker: str | None = None) -> None:
        self.board = board
        self.name = name
        self.lease_ms = lease_ms
        self.plan: LeasePlan = plan_for(lease_ms / 1000)
        self.worker = worker or new_worker_id(name)
        board.name_worker(self.worker)
        self._complained: dict[str, float] = {}
        self._doubted = False

    def renew_id(self) -> str:
        """Take a new id, after the old one was closed."""
        worker = new_worker_id(self.name)
        self.board.name_worker(worker)  # its claims start anew: never an old number under the new name
        self.worker = worker
        return worker

    def confirm(self, sent_ns: int) -> None:
        """Note that a beat of this process, sent at this time, was answered: a doubt is over, unless it came late.

        One that was sent before a freeze and is read after it has compared nothing since, whatever the other voice
        says.
        """
        self.board.write("child_sent_ns", max(sent_ns, self.board.read("child_sent_ns")))
        if (boottime_ns() - sent_ns) / 1e9 < self.plan.trust_limit:
            self._doubted = False

    @property
    def age(self) -> float:
        """Seconds since the send of the last confirmed renewal of either voice."""
        return (boottime_ns() - self.board.last_sent_ns()) / 1e9

    @property
    def trusted(self) -> bool:
        """Whether the lease cannot have been over since this process's own voice was last answered.

        A doubt stays until then: the supervisor's voice keeps the lease, but only the own beat compares what is held
        with what the store has, so only after it is it known that nothing was taken while nobody could be heard.
        """
        self._doubted = self._doubted or self.age >= self.plan.trust_limit
        return not self._doubted

    def growing_bounds(self) -> Iterator[float]:
        """Bounds for the tries of a call that carries much (a claim, a settle): T/8, doubled up to T or a minute.

        A lost reply is found soon, and a reply that only takes long over a slow line arrives all the same.
        """
        bound = self.plan.try_bound
        while True:
            yield bound
            bound = min(2 * bound, max(self.plan.length_s, 60.0))

    def complain(self, what: str, error: Exception) -> None:
        """Log a failed call: at most one line in ten seconds for each kind, since all of them fail together."""
        now = time.monotonic()
        if now - self._complained.get(what, -_COMPLAIN_EVERY_S) >= _COMPLAIN_EVERY_S:
            self._complained[what] = now
            log.warning("%s: no answer from the store, trying again. %s", what, error)
