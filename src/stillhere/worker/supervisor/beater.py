"""The beater: the thread that speaks for all children, ticks the lease clock and sweeps.

One round trip renews all children in all queues; each try is bounded, and after a failed one nothing else is asked of
the store until a renewal has come through, so a hung tick never delays a beat. The answers are few: confirmed (written
on the child's board: it is the second witness of trust), or `gone` (told to the main thread).

It has a connection of its own, as has the undertaker: a renewal that hangs must not delay the release of a dead child.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence

from stillhere.domain.errors import StillhereError
from stillhere.domain.job import Verdict
from stillhere.domain.lease import LeasePlan, RenewalClock, jittered
from stillhere.ports.backend import End, Renew, Sweep, SyncStore, Tick
from stillhere.worker.clock import boottime, boottime_ns
from stillhere.worker.supervisor.child_process import ChildProcess

log = logging.getLogger("stillhere.supervisor")

_COMPLAIN_EVERY_S = 10.0


class Beater(threading.Thread):
    """Runs from the first `hello` to the exit."""

    def __init__(
        self,
        store: SyncStore,
        plan: LeasePlan,
        queues: Sequence[str],
        children: Callable[[], list[ChildProcess]],
        *,
        on_ready: Callable[[], None],
        on_gone: Callable[[ChildProcess, str], None],
        on_suspects: Callable[[int], None],
    ) -> None:
        """The callbacks are called in this thread and must only pass things on."""
        super().__init__(name="stillhere-beater", daemon=True)
        self._store, self._plan, self._queues, self._children = store, plan, list(queues), children
        self._on_ready, self._on_gone, self._on_suspects = on_ready, on_gone, on_suspects
        self._dice = random.Random()
        self._clock = RenewalClock(plan, self._dice)
        self._gap_s = plan.gap_s
        self._tick_at = self._sweep_at = 0.0
        self._nudged = threading.Event()
        self._hurry = False
        self._over = False
        self._complained = 0.0
        self.turn = 0.0
        """When the loop last came round, for a watchdog."""

    def nudge(self) -> None:
        """Renew now: a child has gone silent, what it has not seen must go back."""
        self._hurry = True
        self._nudged.set()

    def stop(self) -> None:
        """End the thread after what it is at."""
        self._over = True
        self._nudged.set()

    def run(self) -> None:
        """Wait for the store, then renew, tick and sweep, until stopped."""
        while not self._over and not self._tick():
            self._nudged.wait(self._plan.retry_after)
        if not self._over:
            self._on_ready()
        healthy = True
        while not self._over:
            now = self.turn = boottime()
            if self._hurry or now >= self._clock.next_due(now):
                self._hurry = False
                healthy = self._renew()
            if healthy and now >= self._tick_at:
                healthy = self._tick()
            if healthy and now >= self._sweep_at:
                healthy = self._sweep()
            now = boottime()
            soonest = min(self._clock.next_due(now), *([self._tick_at, self._sweep_at] if healthy else []), now + 1.0)
            self._nudged.wait(max(0.0, soonest - now))
            self._nudged.clear()

    def _renew(self) -> bool:
        sent, sent_ns = boottime(), boottime_ns()
        self._clock.sent(sent)
        spoken_for = [(child, child.worker) for child in self._children() if child.vouched]
        verbs = [
            Renew(queue=queue, worker=worker, answered=child.board.answered(index), hand_back=child.silent)
            for child, worker in spoken_for
            for index, queue in enumerate(child.queues)
        ]
        try:
            replies = self._store.call_many(verbs, timeout=self._plan.try_bound)
        except StillhereError as error:
            self._clock.failed(boottime())
            self._complain("renew", error)
            return False
        self._clock.confirmed(sent)
        at = 0
        for child, worker in spoken_for:
            own, at = replies[at : at + len(child.queues)], at + len(child.queues)
            if all(reply.standing == "ok" for reply in own):
                child.board.write("supervisor_sent_ns", sent_ns)
            elif any(reply.standing == "gone" for reply in own):
                self._on_gone(child, worker)
            if returned := [job for reply in own for job in reply.returned]:
                log.warning("Child %d is silent; handed back what it has not seen: %s", child.pid, ", ".join(returned))
        return True

    def _tick(self) -> bool:
        verbs = [Tick(queue=queue) for queue in self._queues]
        try:
            replies = self._store.call_many(verbs, timeout=self._plan.try_bound)
        except StillhereError as error:
            self._complain("tick", error)
            return False
        self._gap_s = min(reply.gap_ms for reply in replies) / 1000
        self._tick_at = boottime() + self._gap_s / 2
        self._on_suspects(sum(reply.suspects for reply in replies))
        return True

    def _sweep(self) -> bool:
        try:
            for queue in self._queues:
                swept = self._store.call(Sweep(queue=queue), timeout=self._plan.try_bound)
                for worker in swept.over:
                    self._end(queue, worker)
        except StillhereError as error:
            self._complain("sweep", error)
            return False
        plan = LeasePlan(self._plan.length_s, min(self._gap_s, self._plan.gap_s))
        self._sweep_at = boottime() + jittered(plan.sweep_every, self._dice)
        return True

    def _end(self, queue: str, worker: str) -> None:
        """Give a dead host's jobs back, step by step; whoever sweeps next goes on if this process dies meanwhile."""
        end = End(queue=queue, worker=worker, reason="lease ended", default=Verdict.VANISHED)
        while not self._over:
            reply = self._store.call(end, timeout=self._plan.try_bound)
            moved = reply.returned + reply.suspects
            if moved or reply.dead:
                log.warning(
                    "Queue %s: worker %s is dead, its lease is over. Ready again: %s; dead letters: %s",
                    queue, worker, ", ".join(moved) or "none", ", ".join(reply.dead) or "none",
                )  # fmt: skip
            if reply.status != "more":
                return

    def _complain(self, what: str, error: Exception) -> None:
        now = time.monotonic()
        if now - self._complained > _COMPLAIN_EVERY_S:
            self._complained = now
            log.warning("%s: no answer from the store, trying again. %s", what, error)
