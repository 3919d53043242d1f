"""The undertaker: the thread that releases what a dead child held, on a connection kept for that.

It closes the worker id in every queue in one round trip and makes the jobs ready with their verdicts, at most a hundred
a call, until nothing is left. A call that fails is repeated: the end of a worker is safe to repeat, and if this process
dies half-way, the next sweep of anybody finds the closed worker and goes on. The first tries are short, since a release
has a second to be done in and a connection that was well a moment ago may have been cut without a word.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import msgspec

from stillhere.domain.attribution import Crash, Seen, judge
from stillhere.domain.errors import StillhereError
from stillhere.domain.job import Outcome, Verdict
from stillhere.domain.lease import LeasePlan
from stillhere.ports.backend import BATCH, End, Ended, Renew, Settle, SyncStore, Verb
from stillhere.worker.supervisor.vouched import Vouched

log = logging.getLogger("stillhere.supervisor")

WARM_EVERY_S = 5.0
NOBODY = "-"
"""No worker has this id."""
FIRST_BOUND_S = 0.25
FIRST_PAUSE_S = 0.02
COMPLAIN_EVERY_S = 10.0


class Burial(msgspec.Struct, frozen=True, kw_only=True):
    """A dead child's worker, and what its death means for its jobs."""

    worker: str
    queues: list[str]
    reason: str
    default: Verdict
    verdicts: Mapping[str, Mapping[str, Verdict]]
    """By queue and job."""
    details: Mapping[str, Mapping[str, str]]
    """By queue and job: where a culprit's code was."""
    ends: Mapping[str, list[Outcome]]
    """By queue: how runs end that only this death could end; told before the rest is released."""
    answered: list[int]
    """The board's answered claims, by queue: only what was granted above them nobody has seen."""
    since: float
    """Monotonic time of the death, for the log."""

    @classmethod
    def of(cls, child: Vouched, seen: list[Seen], crash: Crash, reason: str, *, since: float) -> Burial:
        """What to release of a child, from its board and from what its death looks like."""
        judgement = judge(seen, crash)
        return cls(
            worker=child.worker,
            queues=child.queues,
            reason=reason,
            default=Verdict.INTERRUPTED if crash.deliberate else Verdict.BYSTANDER,
            verdicts=judgement.verdicts,
            details=judgement.details,
            ends=child.ends(),
            answered=[child.board.answered(index) for index in range(len(child.queues))],
            since=since,
        )


class Chief(Protocol):
    """Whom the undertaker tells; called in its thread, so it must only pass things on."""

    def buried(self, burial: Burial, suspects: int) -> None:
        """All of it is released; so many of its jobs run apart from now on."""

    def thread_failed(self, error: BaseException) -> None:
        """A fault of ours."""


class Undertaker(threading.Thread):
    """Works off burials, oldest first."""

    def __init__(self, store: SyncStore, plan: LeasePlan, chief: Chief, warm: list[str]) -> None:
        """`warm`: the first of these queues is asked something now and then, so that the connection is there."""
        super().__init__(name="stillhere-undertaker", daemon=True)
        self._store, self._plan, self._chief, self._warm = store, plan, chief, warm[:1]
        self._work: queue.SimpleQueue[Burial | None] = queue.SimpleQueue()
        self._complained_at = -COMPLAIN_EVERY_S
        self.pending = 0
        """Burials that are not done; counted on the main thread."""

    def bury(self, burial: Burial) -> None:
        """Release a dead child's jobs; called on the main thread, which counts down when it hears of the end."""
        self.pending += 1
        self._work.put(burial)

    def stop(self) -> None:
        """End after what is queued."""
        self._work.put(None)

    def run(self) -> None:
        """Bury, until stopped; in between keep the connection warm."""
        try:
            self._keep_warm()
            self._serve()
        except BaseException as error:  # noqa: BLE001 - passed on: a supervisor without this thread is none
            self._chief.thread_failed(error)
        finally:
            self._store.close()

    def _serve(self) -> None:
        while True:
            try:
                burial = self._work.get(timeout=WARM_EVERY_S)
            except queue.Empty:
                self._keep_warm()
                continue
            if burial is None:
                return
            self._chief.buried(burial, self._release(burial))

    def _keep_warm(self) -> None:
        """Ask what a release asks, of a worker that never was: then the connection is there, and knows the scripts.

        Bounded short: a death may come meanwhile.
        """
        verbs: list[Verb[Any]] = []
        for name in self._warm:
            verbs += [Renew(queue=name, worker=NOBODY, answered=0), End(queue=name, worker=NOBODY, reason="")]
        try:
            self._store.call_many(verbs, timeout=min(FIRST_BOUND_S, self._plan.try_bound))
        except StillhereError:
            log.debug("the undertaker's connection is down")

    def _release(self, burial: Burial) -> int:
        """All queues, again and again, until none has more; returns the number of new suspects."""
        suspects, open_queues, tries = 0, burial.queues, self._tries()
        while open_queues:
            verbs = [verb for name in open_queues for verb in _last_words(burial, name)]
            try:
                replies: list[Any] = self._store.call_many(verbs, timeout=next(tries))
            except StillhereError as error:
                self._complain(burial, error)
                continue
            tries = self._tries()
            ends = [reply for reply in replies if isinstance(reply, Ended)]
            for ended in ends:
                suspects += len(ended.suspects)
                _tell(burial, ended)
            open_queues = [name for name, ended in zip(open_queues, ends, strict=True) if ended.status == "more"]
        return suspects

    def _tries(self) -> Iterator[float]:
        """The bound of each try, after a pause from the second on; both double, up to what a renewal gets."""
        bound, pause = FIRST_BOUND_S, FIRST_PAUSE_S
        while True:
            yield min(bound, self._plan.try_bound)
            time.sleep(min(pause, self._plan.retry_after))
            bound, pause = 2 * bound, 2 * pause

    def _complain(self, burial: Burial, error: Exception) -> None:
        now = time.monotonic()
        if now - self._complained_at >= COMPLAIN_EVERY_S:
            self._complained_at = now
            log.warning("The jobs of worker %s are not released yet, trying again. %s", burial.worker, error)


def _last_words(burial: Burial, name: str) -> list[Verb[Any]]:
    """What the child answered since the last beat goes in front of its end, and so do the ends of its late runs.

    All in one round trip. A settle of a run that is settled already, or no longer this worker's, changes nothing.
    """
    answered = burial.answered[burial.queues.index(name)]
    late = burial.ends.get(name, [])
    return [
        Renew(queue=name, worker=burial.worker, answered=answered),
        *(
            Settle(queue=name, worker=burial.worker, outcomes=late[at : at + BATCH])
            for at in range(0, len(late), BATCH)
        ),
        End(
            queue=name,
            worker=burial.worker,
            reason=burial.reason,
            force=True,
            default=burial.default,
            verdicts=burial.verdicts.get(name, {}),
            details=burial.details.get(name, {}),
        ),
    ]


def _tell(burial: Burial, ended: Ended) -> None:
    for word, jobs in (("ready", ended.returned), ("suspects", ended.suspects), ("dead", ended.dead)):
        if jobs:
            log.warning(
                "Worker %s: %s. After %.0f ms %s: %s",
                burial.worker, burial.reason, (time.monotonic() - burial.since) * 1000, word, ", ".join(jobs),
            )  # fmt: skip
