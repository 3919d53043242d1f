"""How this worker stands with the store: registered, heard, told of losses and cancels, declared dead, born again.

Everything that the store says about the worker id as a whole, or about a grant's standing, arrives here: the replies to
beats of the keeper (passed over from its thread), to the fetcher's own beats, and the supervisor's word that the id is
closed. A reply counts only for the id that asked.

*Born again*: the store has closed the id, so everything under it is void. Its runs are told that their lease is lost
and say nothing more, a new id is made, registered and shown on the board, and work goes on. Two that hear of the same
death make one rebirth. A crash in between leaves an id that nobody registered, or one whose lease ends by itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence

from stillhere.domain.errors import ConfigurationError, StillhereError, StopReason
from stillhere.domain.job import Verdict
from stillhere.domain.task import Tasks
from stillhere.ports.backend import AsyncStore, Beat, BeatReply, End, Held, Register
from stillhere.worker.child.identity import Identity
from stillhere.worker.child.keeper import beats
from stillhere.worker.child.runs import Holdings, Run
from stillhere.worker.clock import boottime_ns

log = logging.getLogger("stillhere.worker")


class Standing:
    """See the module. `on_death` is called at a rebirth, before the new id is registered; `on_birth` after it."""

    def __init__(
        self,
        store: AsyncStore,
        identity: Identity,
        holdings: Holdings,
        *,
        tasks: Tasks,
        slots: int,
        declares: bool = True,
        stop: Callable[[Run, StopReason], None],
        on_death: Callable[[], None],
        on_birth: Callable[[], None],
    ) -> None:
        self._store, self._identity, self._holdings = store, identity, holdings
        self._tasks, self._slots, self._declares = tasks, slots, declares
        self._stop, self._on_death, self._on_birth = stop, on_death, on_birth
        self._lock = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None

    # ---------------------------------------------------------------------------------------------------- births

    async def register(self) -> None:
        """Open the lease in all queues; repeated until it is answered, since the same id twice is no harm.

        Raises `ConfigurationError` when the store refuses this worker for good.
        """
        first = boottime_ns()
        while True:
            sent = boottime_ns()
            try:
                replies = await self._store.call_many(self._registrations(), timeout=self._identity.plan.try_bound * 2)
            except ConfigurationError:
                raise
            except StillhereError as error:
                self._identity.complain("register", error)
                await asyncio.sleep(self._identity.plan.retry_after)
                continue
            if "gone" in replies:
                self._identity.renew_id()
                first = boottime_ns()
                continue
            # `exists`: an earlier try came through, and the lease counts from then
            self._identity.confirm(first if "exists" in replies else sent)
            return

    def _registrations(self) -> list[Register]:
        info = {
            "host": socket.gethostname(),
            "pid": str(os.getpid()),
            "name": self._identity.name,
            "slots": str(self._slots),
        }
        return [
            Register(
                queue=queue,
                worker=self._identity.worker,
                lease_ms=self._identity.lease_ms,
                tasks=self._tasks.names(),
                lanes=self._tasks.lanes() if self._declares else {},
                declares=self._declares,
                info=info,
            )
            for queue in self._holdings.queues
        ]

    async def reborn(self, worker: str) -> None:
        """The id is closed: what was under it is void; go on under a new one. Another one's death changes nothing."""
        async with self._lock:
            if worker != self._identity.worker:
                return
            log.warning(
                "Worker %s was declared dead in the store: its runs are stopped, and it goes on under a new id.", worker
            )
            self._on_death()
            self._identity.renew_id()
            runs = self._holdings.all()
            for run in runs:
                self._lose(run)
                if run.ended:
                    self._holdings.drop(run)
            self._closing = asyncio.get_running_loop().create_task(self._close(worker, runs))
            await self.register()
            self._on_birth()

    async def _close(self, worker: str, runs: list[Run]) -> None:
        """Close the old id in the queues that still hold it open, once nothing of it runs any more.

        One queue may have declared it dead while another has not: without this its jobs there would wait for the lease.
        """
        while not all(run.ended for run in runs):  # noqa: ASYNC110 - a run has no event to wait for, and this is rare
            await asyncio.sleep(self._identity.plan.retry_after)
        ends = [
            End(queue=queue, worker=worker, reason="born again", force=True, default=Verdict.INTERRUPTED)
            for queue in self._holdings.queues
        ]
        while ends:
            try:
                replies = await self._store.call_many(ends, timeout=self._identity.plan.try_bound)
            except StillhereError as error:
                self._identity.complain("end", error)
                await asyncio.sleep(self._identity.plan.retry_after)
                continue
            ends = [end for end, reply in zip(ends, replies, strict=True) if reply.status == "more"]

    # ----------------------------------------------------------------------------------------------------- words

    async def confirm(self) -> bool:
        """Send a beat to all queues now, repeated until it is answered, and act on it; False: the id is gone.

        All queues, because trust is one for the whole process: it is restored only when each has compared.
        """
        while True:
            said, sent = beats(self._identity, self._holdings), boottime_ns()
            worker = said[0].worker
            try:
                replies = await self._store.call_many(said, timeout=self._identity.plan.try_bound)
            except StillhereError as error:
                self._identity.complain("beat", error)
                await asyncio.sleep(self._identity.plan.retry_after)
                continue
            if worker != self._identity.worker:
                return False
            if any(reply.standing == "gone" for reply in replies):
                await self.reborn(worker)
                return False
            self._identity.confirm(sent)
            for beat, reply in zip(said, replies, strict=True):
                self.take(beat, reply)
            return True

    async def heard(self, worker: str, said: Sequence[Beat], replies: Sequence[BeatReply]) -> None:
        """Act on the answers to the keeper's beats."""
        if any(reply.standing == "gone" for reply in replies):
            await self.reborn(worker)
        elif worker == self._identity.worker:
            for beat, reply in zip(said, replies, strict=True):
                self.take(beat, reply)

    def take(self, said: Beat, reply: BeatReply) -> None:
        """Stop what is lost or cancelled. Only pairs that were sent can be lost, and a run that was settled is over."""
        for pair in reply.lost:
            run = self._find(said.queue, pair)
            if run is not None and not run.ended:
                self._lose(run)
        for pair in reply.cancelled:
            run = self._find(said.queue, pair)
            if run is not None and not run.ended:
                self._stop(run, "cancelled")
        if reply.returned:
            log.info("Queue %s: handed back what never arrived here: %s", said.queue, ", ".join(reply.returned))

    def flag(self, said: Sequence[Beat], replies: Sequence[BeatReply]) -> None:
        """Put on the board what the answers end, before the loop hears of it: it may be blocked. From any thread."""
        for beat, reply in zip(said, replies, strict=True):
            lost = beat.held if reply.standing == "gone" else reply.lost
            told: list[tuple[Sequence[Held], StopReason]] = [(lost, "lease_lost"), (reply.cancelled, "cancelled")]
            for pairs, reason in told:
                for run in (self._find(beat.queue, pair) for pair in pairs):
                    if run is not None and not run.ended and run.stopping is None:
                        run.flag(reason)

    def _lose(self, run: Run) -> None:
        """A lost lease outdoes a cancel or a drain: nothing that this run says counts any more."""
        if run.lose():
            if not run.ended:
                log.warning("Job %s (%s): the lease is lost, somebody else may run it.", run.grant.id, run.grant.task)
            self._stop(run, "lease_lost")

    def _find(self, queue: str, pair: Held) -> Run | None:
        return self._holdings.find(queue, pair.job, pair.token)
