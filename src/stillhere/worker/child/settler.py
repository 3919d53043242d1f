"""Sends how runs ended: in batches, one on its way per queue; what ends meanwhile rides on the next.

A settle may be lost with its reply, so it is repeated with the same content until the store has answered; it says
`already` when it had taken the first. Until then the run stays in the book of what is held: the beat must not call it
lost. A crash before the answer leaves the job running in the store; the supervisor's end hands it back, and if the
settle was served after all, the job had ended before.

The last progress of a run travels in front of its end, in the same round trip.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from stillhere.domain.errors import StillhereError
from stillhere.domain.job import Outcome
from stillhere.ports.backend import BATCH, AsyncStore, Progress, ProgressItem, Settle, SettledOne, Verb
from stillhere.worker.child.crew import Crew
from stillhere.worker.child.identity import Identity
from stillhere.worker.child.runs import Holdings, Run

log = logging.getLogger("stillhere.worker")


class Settler:
    """Collects outcomes and flushes them."""

    def __init__(
        self,
        store: AsyncStore,
        identity: Identity,
        holdings: Holdings,
        crew: Crew,
        on_settled: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_settled` is called when the store has answered a batch."""
        self._store = store
        self._crew, self._on_settled = crew, on_settled
        self._identity = identity
        self._holdings = holdings
        self._pending: dict[str, deque[tuple[Run, Outcome]]] = {queue: deque() for queue in holdings.queues}
        self._flushes: dict[str, asyncio.Task[None]] = {}
        self.settled = 0

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is on its way."""
        return not self._flushes

    def add(self, run: Run, outcome: Outcome) -> None:
        """Send it with the next batch of its queue."""
        queue = run.grant.queue
        self._pending[queue].append((run, outcome))
        if queue not in self._flushes:
            self._flushes[queue] = self._crew.spawn(self._flush(queue))

    def forget(self) -> None:
        """The worker id is gone: nothing that was held can be settled any more."""
        for pending in self._pending.values():
            pending.clear()

    async def _flush(self, queue: str) -> None:
        pending = self._pending[queue]
        try:
            while pending:
                batch = [pending.popleft() for _ in range(min(BATCH, len(pending)))]
                replies = await self._send(queue, batch)
                for (run, _), reply in zip(batch, replies, strict=True):
                    self._confirm(run, reply)
                self._on_settled()
        finally:
            del self._flushes[queue]

    async def _send(self, queue: str, batch: list[tuple[Run, Outcome]]) -> list[SettledOne]:
        worker = self._identity.worker
        verbs: list[Verb[Any]] = [Settle(queue=queue, worker=worker, outcomes=[outcome for _, outcome in batch])]
        last = [
            ProgressItem(job=run.grant.id, token=run.grant.token, number=run.progress[0], value=run.progress[1])
            for run, _ in batch
            if run.progress[0] > run.progress_sent
        ]
        if last:
            verbs.insert(0, Progress(queue=queue, worker=worker, items=last))
        for bound in self._identity.growing_bounds():
            if self._identity.worker != worker:
                break
            try:
                replies: list[Any] = await self._store.call_many(verbs, timeout=bound)
            except StillhereError as error:
                self._identity.complain("settle", error)
                await asyncio.sleep(self._identity.plan.retry_after)
            else:
                settled: list[SettledOne] = replies[-1]
                return settled
        return [SettledOne(status="stale")] * len(batch)

    def _confirm(self, run: Run, reply: SettledOne) -> None:
        if reply.status in ("ok", "already"):
            self.settled += 1
        elif run.stopping != "lease_lost":
            log.warning(
                "The end of job %s changes nothing: it is no longer under token %s.", run.grant.id, run.grant.token
            )
        self._holdings.drop(run)
