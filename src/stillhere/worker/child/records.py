"""Checkpoints and progress on their way to the store, under the token and in their own order.

Each write under one token carries a number that rises, so a request that the client gave up and that runs late changes
nothing. A checkpoint is stored when the call returns; it waits through an outage, because a short one must not fail a
long job, and it ends early when the run is told to stop. Progress is cheap talk: the newest word, at most once a
second and job, many jobs in one call, lost without harm.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict

import msgspec

from stillhere.domain.errors import JobStopped, StillhereError, StoreUnavailable
from stillhere.ports.backend import BATCH, AsyncStore, Checkpoint, Progress, ProgressItem, SyncStore, WriteStatus
from stillhere.worker.child.crew import Crew
from stillhere.worker.child.identity import Identity
from stillhere.worker.child.runs import Run
from stillhere.worker.clock import boottime

log = logging.getLogger("stillhere.worker")

PATIENCE_S = 300.0
"""A checkpoint waits at least so long for a store that is away, or ten lease lengths if that is longer."""
PROGRESS_EVERY_S = 1.0


class Records:
    """What handlers want written down, for all runs of this process."""

    def __init__(self, store: AsyncStore, own: SyncStore, identity: Identity, crew: Crew) -> None:
        self._store, self._own = store, own
        self._identity, self._crew = identity, crew
        self._loop = asyncio.get_running_loop()
        self._told: set[Run] = set()
        self._flushing = False

    # -------------------------------------------------------------------------------------------- checkpoints

    async def checkpoint(self, run: Run, value: object) -> None:
        """Store it, from the loop."""
        verb = self._checkpoint_verb(run, value)
        until = time.monotonic() + self._patience
        while True:
            try:
                status = await self._store.call(verb, timeout=self._bound)
            except StoreUnavailable as error:
                self._identity.complain("checkpoint", error)
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(self._identity.plan.retry_after)
                continue
            break
        if status == "stale":
            run.stop("lease_lost")
            await asyncio.sleep(0)  # the cancellation arrives here
            raise JobStopped("lease_lost")
        run.checkpoint = verb.value
        run.moved()

    def checkpoint_sync(self, run: Run, value: object) -> None:
        """Store it, from a thread."""
        verb = self._checkpoint_verb(run, value)
        until = time.monotonic() + self._patience
        while True:
            try:
                status: WriteStatus = self._own.call(verb, timeout=self._bound)
            except StoreUnavailable as error:
                self._identity.complain("checkpoint", error)
                if time.monotonic() > until:
                    raise
                time.sleep(self._identity.plan.retry_after)
                if run.stopping is not None:
                    raise JobStopped(run.stopping) from None
                continue
            break
        if status == "stale":
            self._loop.call_soon_threadsafe(run.stop, "lease_lost")
            raise JobStopped("lease_lost")
        run.checkpoint = verb.value
        run.moved()

    def _checkpoint_verb(self, run: Run, value: object) -> Checkpoint:
        grant = run.grant
        return Checkpoint(
            queue=grant.queue,
            worker=self._identity.worker,
            job=grant.id,
            token=grant.token,
            number=next(run.numbers),
            value=run.task.codec.encode_checkpoint(value),
        )

    @property
    def _patience(self) -> float:
        return max(PATIENCE_S, self._identity.lease_ms / 100)

    @property
    def _bound(self) -> float:
        return max(1.0, self._identity.plan.try_bound)

    # ----------------------------------------------------------------------------------------------- progress

    def note(self, run: Run, done: float, total: float | None, note: str) -> None:
        """Keep it for the next flush; from any thread."""
        run.moved()
        text = note[:500].encode(errors="replace").decode()  # cheap talk must not fail a job
        value = {"done": done, "total": total, "note": text}
        run.progress = (next(run.numbers), msgspec.json.encode(value).decode())
        self._told.add(run)

    def flush_due(self) -> None:
        """Send what is due, on the loop; one flush at a time."""
        if self._told and not self._flushing:
            now = boottime()
            due = [run for run in list(self._told) if run.ended or now - run.progress_at >= PROGRESS_EVERY_S]
            if due:
                self._flushing = True
                self._crew.spawn(self._flush(due, now))

    async def _flush(self, due: list[Run], now: float) -> None:
        """Send the newest word of each; what has ended takes its last word along with its settle."""
        by_queue: dict[str, list[tuple[Run, int, str]]] = defaultdict(list)
        for run in due:
            self._told.discard(run)
            run.progress_at = now
            number, value = run.progress
            if number > run.progress_sent and not run.ended:
                by_queue[run.grant.queue].append((run, number, value))
        try:
            for queue, words in by_queue.items():
                for start in range(0, len(words), BATCH):
                    await self._send(queue, words[start : start + BATCH])
        except StillhereError as error:
            self._identity.complain("progress", error)
            self._told.update(due)
        finally:
            self._flushing = False

    async def _send(self, queue: str, words: list[tuple[Run, int, str]]) -> None:
        items = [
            ProgressItem(job=run.grant.id, token=run.grant.token, number=number, value=value)
            for run, number, value in words
        ]
        verb = Progress(queue=queue, worker=self._identity.worker, items=items)
        await self._store.call(verb, timeout=self._bound)
        for run, number, _ in words:
            run.progress_sent = max(run.progress_sent, number)
