"""The beater: the thread that speaks for all children, ticks the lease clock and sweeps.

One round trip renews all children in all queues, and ticks. Nothing else that this thread asks of the store may delay
a renewal: each such call is bounded by the time that is left until the next one is due, a long release of a dead host's
jobs is cut into calls with a look at the clock between them, and after a call that failed nothing else is asked until a
renewal has come through. The answers are few: confirmed (written on the child's board: it is the second witness of
trust), or `gone` (told to the main thread).

A child that drains holds a short lease, so while one does all are renewed at its pace.

It has a connection of its own, as has the undertaker: a renewal that hangs must not delay the release of a dead child.
What it finds over and does not get to, the next sweep of anybody finds again.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from stillhere.domain.errors import ConfigurationError, StillhereError
from stillhere.domain.job import Verdict
from stillhere.domain.lease import LeasePlan, RenewalClock, jittered
from stillhere.ports.backend import Asked, End, Held, Renew, Sweep, SyncStore, Tick, Ticked, Verb
from stillhere.ports.inspector import Answer
from stillhere.worker.board import Phase
from stillhere.worker.clock import boottime, boottime_ns
from stillhere.worker.supervisor.vouched import Vouched

log = logging.getLogger("stillhere.supervisor")

PATIENCE_S, PATIENCE_MAX_S = 10.0, 600.0
"""Of an outage there is one line, and a next one after so long, then after twice as long."""
COMPLAIN_AT = 4
"""A chore is cut short when a renewal is due, so one that failed is no news; so many in a row are."""
LOOK_S = 1.0
"""The longest wait: so soon a child that has begun to drain by itself is renewed at the shorter pace."""


class Chief(Protocol):
    """Whom the beater tells; called in the beater's thread, so it must only pass things on."""

    def store_answers(self) -> None:
        """The store has answered for the first time."""

    def store_refuses(self, why: str) -> None:
        """The store can be reached and will not serve this worker."""

    def worker_gone(self, child: Vouched, worker: str) -> None:
        """The store has closed this id."""

    def jobs_wait(self, suspects: int, solo: int) -> None:
        """So many jobs wait in the suspects' lanes, and in the solo lanes."""

    def cancelled(self, child: Vouched, queue: str, pairs: list[Held]) -> None:
        """The store says that these runs are cancelled, and their worker is silent."""

    def turns(self) -> None:
        """The thread is alive: at least once in a few seconds, whether the store answers or not."""

    def asked(self, queue: str, asks: list[Asked]) -> None:
        """Somebody wants to know where these jobs' code is."""

    def thread_failed(self, error: BaseException) -> None:
        """A fault of ours."""


class Beater(threading.Thread):
    """Runs from the first `hello` to the exit."""

    def __init__(
        self,
        store: SyncStore,
        plan: LeasePlan,
        queues: Callable[[], list[str]],
        children: Callable[[], Sequence[Vouched]],
        chief: Chief,
    ) -> None:
        super().__init__(name="stillhere-beater", daemon=True)
        self._store, self._plan, self._queues, self._children, self._chief = store, plan, queues, children, chief
        self._draining = plan.draining()
        self._dice = random.Random()
        self._clock = RenewalClock(plan, self._dice)
        self._gap_s = plan.gap_s
        self._lease_clocks: dict[str, int] = {}
        self._silent: set[int] = set()
        self._tick_at = self._sweep_at = 0.0
        self._found_over: deque[tuple[str, str]] = deque()
        self._answers: deque[Answer] = deque(maxlen=100)
        self._nudged = threading.Event()
        self._over = False
        self._healthy = True
        self._chores_failed = 0
        self._failing_since: float | None = None
        self._complain_at, self._patience_s, self._complained = 0.0, PATIENCE_S, False

    def nudge(self) -> None:
        """Renew now: a child has gone silent, and what it has not seen must go back; or it drains."""
        self._clock.hurry()
        self._nudged.set()

    def answer(self, queue: str, id: str, text: str) -> None:
        """Tell the store, when there is time between two renewals; from any thread."""
        self._answers.append(Answer(queue=queue, id=id, text=text))
        self._nudged.set()

    def stop(self) -> None:
        """End the thread after what it is at."""
        self._over = True
        self._nudged.set()

    # ---------------------------------------------------------------------------------------------- in this thread

    def run(self) -> None:
        """Wait for the store, then renew, tick and sweep, until stopped."""
        try:
            self._wait_for_store()
            while not self._over:
                self._turn()
        except BaseException as error:  # noqa: BLE001 - passed on: a supervisor without this thread is none
            self._chief.thread_failed(error)
        finally:
            self._store.close()

    def _wait_for_store(self) -> None:
        while not self._over:
            self._chief.turns()
            try:
                self._tick(self._plan.try_bound)
            except ConfigurationError as error:
                self._chief.store_refuses(str(error))
                return
            except StillhereError as error:
                self._complain(error)
                self._rest(self._plan.retry_after)
            else:
                self._recovered()
                self._chief.store_answers()
                return

    def _turn(self) -> None:
        self._chief.turns()
        self._choose_pace()
        now = boottime()
        left = self._clock.next_due(now) - now
        if left <= 0:
            self._renew()
        elif self._healthy and self._has_chore(now, left):
            self._try_chore(min(left, self._clock.plan.try_bound))
        else:
            chores = (self._tick_at, self._sweep_at) if self._healthy else ()
            self._rest(min([left, LOOK_S, *(at - now for at in chores if at > now)]))

    def _choose_pace(self) -> None:
        drains = any(child.board.phase == Phase.DRAIN for child in self._children())
        plan = self._draining if drains else self._plan
        if plan is not self._clock.plan:
            self._clock.shorten(plan)

    def _rest(self, seconds: float) -> None:
        self._nudged.wait(max(seconds, 0.001))
        self._nudged.clear()

    def _renew(self) -> None:
        """One round trip: a tick of each queue, then a renewal of each vouched child in each of its queues.

        A hand-back goes by the lease clock as it was last read, so the one at once after a child has fallen silent may
        know too old a time: a second renewal with the time that the first one brought back follows.
        """
        sent, sent_ns = boottime(), boottime_ns()
        self._clock.sent(sent)
        queues = self._queues()
        spoken_for = [(child, child.worker) for child in self._children() if child.vouched]
        silent = {child.pid for child, _ in spoken_for if child.is_silent}
        verbs: list[Verb[Any]] = [Tick(queue=queue) for queue in queues]
        verbs += [
            Renew(
                queue=queue,
                worker=worker,
                answered=child.board.answered(index),
                hand_back=self._lease_clocks.get(queue, 0) if child.pid in silent else 0,
            )
            for child, worker in spoken_for
            for index, queue in enumerate(child.queues)
        ]
        try:
            replies = self._store.call_many(verbs, timeout=self._clock.plan.try_bound)
        except StillhereError as error:
            self._healthy = False
            self._clock.failed(boottime())
            self._complain(error)
            return
        self._clock.confirmed(sent)
        self._healthy = True
        self._recovered()
        self._ticked(queues, replies[: len(queues)])
        if silent - self._silent:
            self._clock.hurry()
        self._silent = silent
        replies = replies[len(queues) :]
        for child, worker in spoken_for:
            own, replies = replies[: len(child.queues)], replies[len(child.queues) :]
            if any(reply.standing == "gone" for reply in own):
                self._chief.worker_gone(child, worker)
            elif all(reply.standing == "ok" for reply in own):
                child.board.write("supervisor_sent_ns", sent_ns)
            for queue, reply in zip(child.queues, own, strict=True):
                if reply.cancelled:
                    self._chief.cancelled(child, queue, reply.cancelled)
            if returned := [job for reply in own for job in reply.returned]:
                log.warning("Child %d is silent; handed back what it has not seen: %s", child.pid, ", ".join(returned))

    # --------------------------------------------------------------------------------------------------- chores

    def _has_chore(self, now: float, left: float) -> bool:
        """Whether there is something to do, and enough time for it before the next renewal."""
        ticks = now >= self._tick_at and left >= self._clock.plan.retry_after
        waits = bool(self._found_over or self._answers) or now >= self._sweep_at
        return ticks or (left >= self._clock.plan.try_bound / 2 and waits)

    def _try_chore(self, bound: float) -> None:
        """One call to the store: what is due most. If it fails, the next renewal says whether the store is away."""
        try:
            if boottime() >= self._tick_at:
                self._tick(bound)
            elif self._answers:
                self._store.call(self._answers.popleft(), timeout=bound)
            elif self._found_over:
                self._end(*self._found_over[0], bound)
            else:
                self._sweep(bound)
            self._chores_failed = 0
        except StillhereError as error:
            self._healthy = False
            self._found_over.clear()
            self._chores_failed += 1
            if self._chores_failed % COMPLAIN_AT == 0:
                log.warning("The supervisor's ticks and sweeps fail, though renewals may not. %s", error)

    def _tick(self, bound: float) -> None:
        queues = self._queues()
        self._ticked(queues, self._store.call_many([Tick(queue=queue) for queue in queues], timeout=bound))

    def _ticked(self, queues: list[str], replies: list[Ticked]) -> None:
        self._lease_clocks = {queue: reply.lease_clock for queue, reply in zip(queues, replies, strict=True)}
        self._gap_s = min(reply.gap_ms for reply in replies) / 1000
        self._tick_at = boottime() + self._gap_s / 2
        for queue, reply in zip(queues, replies, strict=True):
            if reply.asks:
                self._chief.asked(queue, reply.asks)
        suspects, solo = sum(reply.suspects for reply in replies), sum(reply.solo for reply in replies)
        if suspects or solo:
            self._chief.jobs_wait(suspects, solo)

    def _sweep(self, bound: float) -> None:
        queues = self._queues()
        swept = self._store.call_many([Sweep(queue=queue) for queue in queues], timeout=bound)
        for queue, found in zip(queues, swept, strict=True):
            self._found_over.extend((queue, worker) for worker in found.over)
        plan = LeasePlan(self._plan.length_s, min(self._gap_s, self._plan.gap_s))
        self._sweep_at = boottime() + jittered(plan.sweep_every, self._dice)

    def _end(self, queue: str, worker: str, bound: float) -> None:
        """Give a dead host's jobs back, one step."""
        end = End(queue=queue, worker=worker, reason="lease ended", default=Verdict.VANISHED)
        reply = self._store.call(end, timeout=bound)
        moved = reply.returned + reply.suspects
        if moved or reply.dead:
            log.warning(
                "Queue %s: worker %s is dead, its lease is over. Ready again: %s; dead letters: %s",
                queue, worker, ", ".join(moved) or "none", ", ".join(reply.dead) or "none",
            )  # fmt: skip
        if reply.status != "more":
            self._found_over.popleft()

    # ----------------------------------------------------------------------------------------------- complaining

    def _complain(self, error: Exception) -> None:
        now = boottime()
        self._failing_since = self._failing_since or now
        if now >= self._complain_at:
            self._complained = True
            self._complain_at = now + self._patience_s
            self._patience_s = min(2 * self._patience_s, PATIENCE_MAX_S)
            log.warning("The supervisor gets no answer from the store and keeps trying. %s", error)

    def _recovered(self) -> None:
        """The next outage may be told, but not sooner than the patience allows: a line that comes and goes is one."""
        if self._failing_since is None:
            return
        now = boottime()
        if self._complained:
            log.info("The store answers again, after %.1f s.", now - self._failing_since)
        self._failing_since, self._complained, self._patience_s = None, False, PATIENCE_S
        self._complain_at = min(self._complain_at, now + PATIENCE_S)
