"""The undertaker: the thread that releases what a dead child held, on a connection kept for that.

It closes the worker id first, in every queue, and makes the jobs ready with their verdicts, at most a hundred a call,
until nothing is left. A call that fails is repeated: the end of a worker is safe to repeat, and if this process dies
half-way, the next sweep of anybody finds the closed worker and goes on.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from stillhere.domain.errors import StillhereError
from stillhere.domain.job import Verdict
from stillhere.domain.lease import LeasePlan
from stillhere.ports.backend import End, Ended, Renew, SyncStore, Tick, Verb

log = logging.getLogger("stillhere.supervisor")

WARM_EVERY_S = 5.0


class Burial(msgspec.Struct, frozen=True, kw_only=True):
    """A dead child's worker, and what its death means for its jobs."""

    worker: str
    queues: list[str]
    reason: str
    default: Verdict
    verdicts: Mapping[str, Mapping[str, Verdict]]
    """By queue and job."""
    answered: list[int]
    """The board's answered claims, by queue: only what was granted above them nobody has seen."""
    since: float
    """Monotonic time of the death, for the log."""


class Undertaker(threading.Thread):
    """Works off burials, oldest first."""

    def __init__(self, store: SyncStore, plan: LeasePlan, on_done: Callable[[Burial, int], None]) -> None:
        """`on_done(burial, suspects)` is called in this thread and must only pass it on."""
        super().__init__(name="stillhere-undertaker", daemon=True)
        self._store, self._plan, self._on_done = store, plan, on_done
        self._work: queue.SimpleQueue[Burial | None] = queue.SimpleQueue()
        self._warm: list[str] = []
        self.pending = 0

    def bury(self, burial: Burial) -> None:
        """Release a dead child's jobs; called on the main thread."""
        self.pending += 1
        self._work.put(burial)

    def stop(self) -> None:
        """End after what is queued."""
        self._work.put(None)

    def warm(self, queues: list[str]) -> None:
        """Keep the connection open by a tick of the first queue now and then."""
        self._warm = queues[:1]

    def run(self) -> None:
        """Bury, until stopped; in between keep the connection warm."""
        while True:
            try:
                burial = self._work.get(timeout=WARM_EVERY_S)
            except queue.Empty:
                self._keep_warm()
                continue
            if burial is None:
                return
            suspects = self._release(burial)
            self.pending -= 1
            self._on_done(burial, suspects)

    def _keep_warm(self) -> None:
        for name in self._warm:
            try:
                self._store.call(Tick(queue=name), timeout=self._plan.try_bound)
            except StillhereError:
                log.debug("the undertaker's connection is down")

    def _release(self, burial: Burial) -> int:
        suspects = 0
        for name, answered in zip(burial.queues, burial.answered, strict=True):
            last_word = Renew(queue=name, worker=burial.worker, answered=answered)
            end = End(
                queue=name,
                worker=burial.worker,
                reason=burial.reason,
                force=True,
                default=burial.default,
                verdicts=burial.verdicts.get(name, {}),
            )
            suspects += self._end(last_word, end, burial)
        return suspects

    def _end(self, last_word: Renew, end: End, burial: Burial) -> int:
        """What the child answered since the last beat goes in front, in the same round trip."""
        suspects = 0
        while True:
            try:
                verbs: list[Verb[Any]] = [last_word, end]
                reply: Ended = self._store.call_many(verbs, timeout=self._plan.try_bound)[1]
            except StillhereError as error:
                log.warning("The jobs of worker %s are not released yet, trying again. %s", end.worker, error)
                time.sleep(self._plan.retry_after)
                continue
            suspects += len(reply.suspects)
            for word, jobs in (("ready", reply.returned), ("suspects", reply.suspects), ("dead", reply.dead)):
                if jobs:
                    log.warning(
                        "Worker %s: %s. After %.0f ms %s: %s",
                        end.worker, burial.reason, (time.monotonic() - burial.since) * 1000, word, ", ".join(jobs),
                    )  # fmt: skip
            if reply.status != "more":
                return suspects
