"""One worker process at work: it puts the parts together and moves them through the phases.

    fetcher --take--> holdings, places --start--> executor --on_end--> settler --confirmed--> out of holdings
    keeper (thread) --replies--> lost, cancelled, gone          hints --> fetcher, cancels

The worker runs under a supervisor, or by itself in a test: it needs a store (two faces of it), tasks and a board, no
process. Everything here is on the loop except where it says otherwise.

Its ends. *Drain*: claim nothing, hold a short lease, let runs finish, tell the rest to stop, settle, leave; only runs
that have ended are handed back, the others are the supervisor's to kill. *Gone*: the store closed this worker id; all
runs are void, a new id is registered, work goes on. *Orphan*: the supervisor is dead: drain with the own voice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from stillhere.domain.errors import StillhereError, StopReason, StoreUnavailable
from stillhere.domain.job import Grant, Outcome, Verdict
from stillhere.domain.task import Tasks
from stillhere.ports.backend import AsyncStore, Beat, BeatReply, End, Held, Hints, Lanes, Register, SyncStore
from stillhere.worker.board import Board, Phase
from stillhere.worker.child.executor import Executor
from stillhere.worker.child.fetcher import Fetcher
from stillhere.worker.child.identity import Identity
from stillhere.worker.child.keeper import Keeper, beats
from stillhere.worker.child.places import Places
from stillhere.worker.child.records import Records
from stillhere.worker.child.runs import Holdings, Run
from stillhere.worker.child.settler import Settler
from stillhere.worker.clock import boottime, boottime_ns
from stillhere.worker.control import Channel, Message
from stillhere.worker.timeline import Timeline

log = logging.getLogger("stillhere.worker")
job_log = logging.getLogger("stillhere.job")

TICK_S = 0.1
SOLO_IDLE_S = 5.0


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker process is: times in ms."""

    slots: int
    long_places: int
    queues: dict[str, int]
    lease_ms: int
    grace_ms: int
    long_after_ms: int
    lanes: Lanes = "pool"
    burst: bool = False
    name: str = ""
    worker: str | None = None

    @property
    def board_slots(self) -> int:
        """Room on the board: all seats, and as many runs again that have ended and are not confirmed yet."""
        return 2 * (self.slots + self.long_places) + 8


class Worker:
    """See the module. `run` works until it is told to drain, or until burst or a solo child has nothing left."""

    def __init__(
        self,
        store: AsyncStore,
        own: SyncStore,
        tasks: Tasks,
        board: Board,
        options: Options,
        *,
        channel: Channel | None = None,
    ) -> None:
        """`own` is the keeper's store, for calls from threads."""
        self.options, self.board, self.tasks, self._store = options, board, tasks, store
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        self._lanes: Lanes = options.lanes
        self.identity = Identity(board, options.lease_ms, options.name, options.worker)
        self.holdings = Holdings(list(options.queues), board)
        self.places = Places(options.slots, options.long_places)
        self.executor = Executor(board, self.places, self._ended, options.long_after_ms)
        self.settler = Settler(store, self.identity, self.holdings)
        self.records = Records(store, own, self.identity, self.holdings)
        self.fetcher = Fetcher(
            store,
            self.identity,
            options.queues,
            room=self._room,
            take=self._take,
            start=self.executor.start,
            confirm=self._confirm,
            gone=self._reborn,
        )
        self.keeper = Keeper(
            own,
            self.identity,
            self.holdings,
            channel,
            on_reply=lambda *args: self._from_thread(self._heard, *args),
            on_message=lambda message: self._from_thread(self._ordered, message),
            on_orphan=lambda: self._from_thread(self._orphaned),
        )
        self.orphan = False
        self._hints: Hints | None = None
        self._told = asyncio.Event()
        self._timeline = Timeline.of(options.grace_ms / 1000)
        self._told_at = 0.0
        self._rebirth: asyncio.Lock = asyncio.Lock()

    # -------------------------------------------------------------------------------------------------- its life

    async def run(self) -> int:
        """Register, work, drain, leave; returns how many runs have not ended (their threads go on)."""
        self.keeper.start()
        await self._until_told(self._register())
        if not self._told.is_set():
            self.board.phase = Phase.RUN
            self.keeper.begin()
            async with asyncio.TaskGroup() as group:
                services = [self.fetcher.run(), self._listen(), self._tick()]
                tasks = [group.create_task(service) for service in services]
                await self._told.wait()
                tasks[0].cancel()
                await self._drain()
                for task in tasks:
                    task.cancel()
        return await self._leave()

    def drain(self, timeline: Timeline | None = None) -> None:
        """Stop claiming, let runs end for the grace period, leave. Again with a shorter timeline: sooner."""
        now = boottime()
        if timeline is not None or not self._told.is_set():
            self._timeline = timeline or self._timeline
            self._told_at = now
        self.board.phase = max(self.board.phase, Phase.DRAIN)
        self._told.set()

    async def _until_told(self, work: Any) -> None:
        """Do this, unless the order to stop comes first."""
        doing = self._loop.create_task(work)
        waiting = self._loop.create_task(self._told.wait())
        await asyncio.wait([doing, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not doing.done():
            doing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await doing

    async def _register(self) -> None:
        """Open the lease in all queues, repeated until it is answered: the same id twice is no harm."""
        info = {
            "host": socket.gethostname(), "pid": str(os.getpid()), "name": self.options.name,
            "slots": str(self.options.slots), "lanes": self._lanes,
        }  # fmt: skip
        while True:
            verbs = [
                Register(
                    queue=queue,
                    worker=self.identity.worker,
                    lease_ms=self.options.lease_ms,
                    tasks=self.tasks.names(),
                    info=info,
                )
                for queue in self.options.queues
            ]
            sent = boottime_ns()
            try:
                replies = await self._store.call_many(verbs, timeout=self.identity.plan.try_bound * 2)
            except StillhereError as error:
                self.identity.complain("register", error)
                await asyncio.sleep(self.identity.plan.retry_after)
                continue
            if "gone" in replies:
                self.identity.renew_id()
                continue
            self.identity.confirm(sent)
            return

    async def _drain(self) -> None:
        self.keeper.shorten()
        self.fetcher.news.set()
        while (self.holdings.active() or not self.settler.idle) and (passed := self._passed()) < self._timeline.leave:
            if passed >= self._timeline.cancel:
                for run in self.holdings.active():
                    self.executor.stop(run, "shutdown")
            await asyncio.sleep(0.02)

    def _passed(self) -> float:
        return boottime() - self._told_at

    async def _leave(self) -> int:
        """Hand back what is left under this id, if nothing of it still runs; close the ear and the voice."""
        left = len(self.holdings.active()) + self.executor.threads.busy
        if self._hints is not None:
            await self._hints.aclose()
        self.keeper.hold()
        self.keeper.stop()
        if not left and self.identity.board.last_sent_ns():
            ends = [
                End(queue=queue, worker=self.identity.worker, reason="left", force=True, default=Verdict.INTERRUPTED)
                for queue in self.options.queues
            ]
            with contextlib.suppress(StoreUnavailable, TimeoutError):
                async with asyncio.timeout(1.0):
                    while any(end.status == "more" for end in await self._store.call_many(ends)):
                        pass
        return left

    # ----------------------------------------------------------------------------------------------- the fetcher

    def _room(self) -> tuple[int, Lanes]:
        """How many jobs are wanted now. A suspect has the process to itself."""
        if self.board.phase != Phase.RUN or any(run.grant.suspect for run in self.holdings.active()):
            slots = 0
        else:
            slots = min(self.places.free, self.holdings.room)
        if self._hints is not None:
            self._hints.want(slots > 0)
        if self._lanes != "solo":
            return slots, "both" if self.options.slots == 1 and not len(self.holdings) else "pool"
        return slots, "solo"

    def _take(self, grant: Grant) -> Run | None:
        task = self.tasks.get(grant.task)
        if task is None:  # the store asked for the name at registration, so this is a job of another version
            log.error(
                "Job %s asks for the task %r, which is not here; its lease end gives it back.", grant.id, grant.task
            )
            return None
        run = self.holdings.find(grant.queue, grant.id, grant.token)
        if run is not None:
            return None
        run = self.holdings.add(grant, task, self)
        self.places.take(run)
        return run

    async def _confirm(self, queue: str) -> bool:
        """Send a beat now and take in what it says; False: this worker id is gone."""
        while True:
            (said,) = (beat for beat in beats(self.identity, self.holdings) if beat.queue == queue)
            sent = boottime_ns()
            try:
                reply = await self._store.call(said, timeout=self.identity.plan.try_bound)
            except StillhereError as error:
                self.identity.complain("beat", error)
                await asyncio.sleep(self.identity.plan.retry_after)
                continue
            if said.worker != self.identity.worker:
                return False
            if reply.standing == "ok":
                self.identity.confirm(sent)
            self._heard(said.worker, [said], [reply])
            return reply.standing == "ok"

    # ------------------------------------------------------------------------------------- ends, losses, cancels

    def _ended(self, run: Run, outcome: Outcome | None) -> None:
        if outcome is None:
            self.holdings.drop(run)
        else:
            self.settler.add(run, outcome)
        self.fetcher.hint()

    def _heard(self, worker: str, said: list[Beat], replies: list[BeatReply]) -> None:
        """Act on the answers to beats."""
        if worker != self.identity.worker:
            return
        if any(reply.standing == "gone" for reply in replies):
            self._loop.create_task(self._reborn())
            return
        for beat, reply in zip(said, replies, strict=True):
            self._stop(beat.queue, reply.lost, "lease_lost")
            self._stop(beat.queue, reply.cancelled, "cancelled")
            if reply.returned:
                log.info("Queue %s: handed back what never arrived here: %s", beat.queue, ", ".join(reply.returned))

    def _stop(self, queue: str, pairs: list[Held], reason: StopReason) -> None:
        for pair in pairs:
            run = self.holdings.find(queue, pair.job, pair.token)
            if run is None:
                continue
            if reason == "lease_lost" and run.stopping != "lease_lost":
                log.warning("Job %s (%s): the lease is lost, somebody else may run it.", run.grant.id, run.grant.task)
                run.stopping = None  # it outdoes a cancel or a drain: nothing this run says counts any more
            if run.ended:
                continue  # its settle is on its way and will be told the same
            self.executor.stop(run, reason)

    async def _reborn(self) -> None:
        """The worker id is closed: everything under it is void; go on under a new one."""
        async with self._rebirth:
            worker = self.identity.worker
            self.keeper.hold()
            log.warning(
                "Worker %s was declared dead in the store; its runs are stopped. Going on under a new id.", worker
            )
            self.settler.forget()
            self.identity.renew_id()
            for run in self.holdings.all():
                run.stopping = None
                self.executor.stop(run, "lease_lost")
                if run.ended:
                    self.holdings.drop(run)
            if self._hints is not None:
                await self._hints.aclose()
                self._hints = None
            await self._register()
            self.keeper.begin()
            self.fetcher.restart()

    # -------------------------------------------------------------------------------------------- hints and ticks

    async def _listen(self) -> None:
        """Hear of work and of cancels; a broken ear is replaced, what it missed is polled."""
        while True:
            worker = self.identity.worker
            hints = self._hints = self._store.hints(worker, list(self.options.queues))
            try:
                while worker == self.identity.worker:
                    hint = await hints.next(1.0)
                    if hint is None:
                        continue
                    if hint.kind == "wake":
                        self.fetcher.hint(hint.queue)
                    elif hint.job is not None:
                        run = self.holdings.find(hint.queue, hint.job, hint.token)
                        if run is not None:
                            self.executor.stop(run, "cancelled")
            except StillhereError as error:
                self.identity.complain("hints", error)
                self._hints = None
                await hints.aclose()
                await asyncio.sleep(self.identity.plan.retry_after)

    async def _tick(self) -> None:
        """Ten times a second: the loop's own sign of life, long runs, progress, and whether there is anything left."""
        idle_since = boottime()
        while True:
            now = boottime()
            self.board.write("loop_tick_ns", boottime_ns())
            for run in self.executor.find_long():
                self._passed_long(run)
            self.records.flush_due()
            if len(self.holdings) or not self.fetcher.barren:
                idle_since = now
            elif self.options.burst or (self._lanes == "solo" and now - idle_since > SOLO_IDLE_S):
                self.drain()
            await asyncio.sleep(TICK_S)

    def _passed_long(self, run: Run) -> None:
        """A run is long now. A long suspect must not take a pool worker: this process becomes its solo child."""
        self.fetcher.hint()
        if run.grant.suspect and self._lanes != "solo" and self._channel is not None:
            self._lanes = "solo"
            self._channel.send(m="solo")

    # ------------------------------------------------------------------------------------------------ the host

    def in_doubt(self) -> bool:
        """Whether the lease may be over by now."""
        return not self.identity.trusted

    def note_progress(self, run: Run, done: float, total: float | None, note: str) -> None:
        """A handler's progress."""
        self.records.note(run, done, total, note)

    async def checkpoint(self, run: Run, value: object) -> None:
        """A handler's checkpoint, from the loop."""
        await self.records.checkpoint(run, value)

    def checkpoint_sync(self, run: Run, value: object) -> None:
        """A handler's checkpoint, from a thread."""
        self.records.checkpoint_sync(run, value)

    def log(self, run: Run, line: str) -> None:
        """A handler's line."""
        job_log.info("%s (%s): %s", run.grant.id, run.grant.task, line)

    # --------------------------------------------------------------------------------------------- the supervisor

    def _from_thread(self, call: Callable[..., None], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is nobody to tell any more
            self._loop.call_soon_threadsafe(call, *args)

    def _ordered(self, message: Message) -> None:
        """A message of the supervisor's."""
        kind = message.get("m")
        if kind == "drain":
            self.drain(_timeline(message.get("timeline")))
        elif kind == "gone" and message.get("worker") == self.identity.worker:
            self._loop.create_task(self._reborn())

    def _orphaned(self) -> None:
        log.error("The supervisor is gone. Claiming nothing more; what runs may end within the grace period.")
        self.orphan = True
        self.drain()
        self.board.phase = Phase.ORPHAN


def _timeline(given: Any) -> Timeline | None:
    if isinstance(given, Mapping):
        with contextlib.suppress(msgspec.ValidationError):
            return msgspec.convert(given, Timeline)
    return None
