"""One worker process at work: it puts the parts together and moves them through the phases.

    fetcher --take--> holdings, places --start--> executor --on_end--> settler --confirmed--> out of holdings
    keeper (thread) --replies--> standing --lost, cancelled, gone--> executor          ear --hints--> fetcher, cancels

The worker runs under a supervisor, or by itself in a test: it needs a store (two faces of it), tasks and a board, no
process. Everything here is on the loop except where it says otherwise.

Its ends. *Drain*: claim nothing, hold a short lease, let runs finish, tell the rest to stop, settle, leave; only runs
that have ended are handed back, the others are the supervisor's to kill. *Orphan*: the supervisor is dead: drain, with
the own voice alone. *Failure* of a part of the worker itself: `run` raises, and the process ends as crashed. That the
store has closed the worker id is not an end: see `standing`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
from collections.abc import Callable

from stillhere.domain.errors import StillhereError
from stillhere.domain.job import Grant, Outcome, Verdict
from stillhere.domain.task import Tasks
from stillhere.ports.backend import AsyncStore, Beat, BeatReply, End, Hint, Lanes, SyncStore
from stillhere.worker import processes
from stillhere.worker.board import Board, Phase
from stillhere.worker.child.broom import Broom
from stillhere.worker.child.crew import Crew
from stillhere.worker.child.desk import Desk
from stillhere.worker.child.ear import Ear
from stillhere.worker.child.executor import Executor
from stillhere.worker.child.fetcher import POLL_S, Fetcher, Room
from stillhere.worker.child.identity import Identity
from stillhere.worker.child.keeper import Keeper
from stillhere.worker.child.lessons import Lessons
from stillhere.worker.child.options import Options
from stillhere.worker.child.places import Places
from stillhere.worker.child.records import Records
from stillhere.worker.child.runs import Holdings, Run
from stillhere.worker.child.settler import Settler
from stillhere.worker.child.stacks import Stacks
from stillhere.worker.child.standing import Standing
from stillhere.worker.clock import boottime, boottime_ns
from stillhere.worker.control import Channel, Message
from stillhere.worker.timeline import Timeline

log = logging.getLogger("stillhere.worker")

TICK_S = 0.1
DRAIN_LOOK_S = 0.02
SOLO_IDLE_S = 5.0
SOLO_POLL_S = 0.25
LAST_CALL_S = 1.0
"""A drain waits so long for a claim or a registration that is on its way: what they did goes back in order then."""
LEAVE_WITHIN_S = 1.0
THREAD_BACK_S = 0.1
"""A thread that has told the end of its call may not be back in its pool yet."""


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
        self._spare = False
        self._taken = 0
        self.crew = Crew()
        self.identity = Identity(board, options.lease_ms, options.name, options.worker)
        self.holdings = Holdings(list(options.queues), board)
        self.places = Places(options.slots, options.long_places)
        self.executor = Executor(board, self.places, self._ended, options.long_after_ms)
        self._broom = Broom(options.mark, self.executor.threads, self._swept, self.crew.fail)
        self.settler = Settler(store, self.identity, self.holdings, self.crew, self._settled)
        self.records = Records(store, own, self.identity, self.crew)
        self._desk = Desk(self.identity, self.records)
        self.stacks = Stacks(self._loop, self.holdings, board)
        self.standing = Standing(
            store,
            self.identity,
            self.holdings,
            tasks=tasks,
            slots=options.slots,
            declares=not options.alone,
            stop=self.executor.stop,
            on_death=self._died,
            on_birth=self._born,
        )
        self.fetcher = Fetcher(
            store,
            self.identity,
            options.queues,
            room=self._room,
            take=self._take,
            start=self.executor.start,
            keep=self.executor.keep,
            confirm=self.standing.confirm,
            gone=self.standing.reborn,
            poll_s=SOLO_POLL_S if options.lanes == "solo" else POLL_S,
        )
        self.lessons = Lessons(store, self.identity, self.crew, self.fetcher.freed)
        self.ear = Ear(store, self.identity, list(options.queues), self._hinted)
        self.keeper = Keeper(
            own,
            self.identity,
            self.holdings,
            channel,
            on_reply=self._answered,
            on_message=self._spoken_to,
            on_orphan=lambda: self._from_thread(self._orphaned),
            on_failure=lambda error: self._from_thread(lambda: self.crew.fail(error)),
        )
        self.orphan = False
        self._leaving = False
        self._told: asyncio.Future[None] = self._loop.create_future()
        self._cancel_at = self._leave_at = math.inf

    # -------------------------------------------------------------------------------------------------- its life

    async def run(self) -> int:
        """Register, work, drain, leave; returns how many runs have not ended (their threads go on)."""
        self.keeper.start()
        try:
            registering = self.crew.spawn(self.standing.register())
            await self.crew.first(registering, self._told)
            if self._told.done():
                await self.crew.first(registering, timeout=LAST_CALL_S)
            else:
                await self._work()
            await self._drain()
        finally:
            self._leaving = True
            await self.crew.disband()
            self.keeper.hold()
            self.keeper.stop()
            self.executor.threads.close()
        return await self._leave()

    def drain(self, timeline: Timeline | None = None) -> None:
        """Stop claiming, let runs end for the grace period, leave. A second order may only bring the end nearer."""
        now, timeline = boottime(), timeline or Timeline.of(self.options.grace_ms / 1000)
        self._cancel_at = min(self._cancel_at, now + timeline.cancel)
        self._leave_at = min(self._leave_at, now + timeline.leave)
        self.board.phase = max(self.board.phase, Phase.DRAIN)
        if not self._told.done():
            log.info("Claiming nothing more; %d runs may end within %.3g s.", len(self.holdings), timeline.cancel)
            self._told.set_result(None)

    async def _work(self) -> None:
        self.board.phase = Phase.RUN
        self.keeper.begin()
        fetching = self.crew.spawn(self.fetcher.run())
        self.crew.spawn(self.ear.run())
        self.crew.spawn(self._tick())
        await self.crew.first(self._told)
        self.keeper.shorten()
        self.fetcher.stop()
        await self.crew.first(fetching, timeout=LAST_CALL_S)
        fetching.cancel()

    async def _drain(self) -> None:
        """Wait for what runs; what was granted and not started goes back at once."""
        for run in self.holdings.active():
            if not run.started:
                self.executor.stop(run, "shutdown")
        while self.holdings.active() or self._broom.busy or not self.settler.idle:
            now = boottime()
            if now >= self._leave_at:
                return
            if now >= self._cancel_at:
                self._stop_all()
            await self.crew.first(timeout=DRAIN_LOOK_S)

    def _stop_all(self) -> None:
        """Their time is up. What a solo job has started gets the signal that means so, once, as from a shell."""
        for run in self.holdings.active():
            if self._lanes == "solo" and self.options.mark and run.stopping is None:
                processes.signal_own_offspring(self.options.mark, signal.SIGTERM)
            self.executor.stop(run, "shutdown")

    async def _leave(self) -> int:
        """Close this worker id, if nothing under it still runs: what is left of it then is handed back."""
        left = len(self.holdings.active()) + self._broom.busy
        left = left or await self.executor.threads.settle(THREAD_BACK_S)
        if not left:
            ends = [
                End(queue=queue, worker=self.identity.worker, reason="left", force=True, default=Verdict.INTERRUPTED)
                for queue in self.options.queues
            ]
            with contextlib.suppress(StillhereError, TimeoutError):
                async with asyncio.timeout(LEAVE_WITHIN_S):
                    while any(end.status == "more" for end in await self._store.call_many(ends)):
                        pass
        return left

    # ------------------------------------------------------------------------------------------- coming and going

    def _room(self) -> Room:
        """How many jobs are wanted now, and from which lanes."""
        room = self._wanted()
        if self._lanes != "solo" and room.any:
            self.ear.want(True)
        return room

    def _wanted(self) -> Room:
        """A suspect has the process to itself; and a worker that leaves, is not heard, or cleans up, wants nothing."""
        suspect = any(run.grant.suspect for run in self.holdings.active())
        if suspect or self._broom.busy or self.board.phase != Phase.RUN:
            return Room(0, 0, self._lanes)
        most = self.holdings.room
        if self.options.max_jobs:
            most = min(most, self.options.max_jobs - self._taken)
        slots = 0 if self.lessons.pending else min(self.places.free, most)
        if self._lanes == "solo":
            return Room(slots, 0, "solo")
        alone = (self.options.slots == 1 or self.options.alone) and not len(self.holdings)
        long = min(self.places.free_long, most - slots)
        return Room(slots, long, "both" if alone else "pool", self.places.seated if long > 0 else {})

    def _take(self, grant: Grant) -> Run | None:
        if (task := self.tasks.get(grant.task)) is None:
            log.error("Job %s was granted although this worker does not know its task %r.", grant.id, grant.task)
            return None  # answered and not held: the next beat hands it back
        if self.holdings.find(grant.queue, grant.id, grant.token) is not None:
            return None
        run = self.holdings.add(grant, task, self._desk)
        self._taken += 1
        self.executor.seat(run)
        return run

    def _ended(self, run: Run, outcome: Outcome | None) -> None:
        if self._lanes == "solo" and self.options.mark:
            self._broom.sweep(run, outcome)
        else:
            self._tell(run, outcome)

    def _swept(self, run: Run, outcome: Outcome | None, found: bool) -> None:  # noqa: FBT001 - passed on
        """A process whose job has left something may have modules that counted on it: it takes no other job."""
        if found:
            self._retire("its job had left processes running")
        elif self.options.max_memory and processes.resident_bytes(os.getpid()) > self.options.max_memory / 2:
            self._retire("what its job has left in memory is not the next one's fault")
        self._tell(run, None if run.stopping == "lease_lost" else outcome)

    def _tell(self, run: Run, outcome: Outcome | None) -> None:
        if outcome is None:
            self.holdings.drop(run)
        else:
            self.settler.add(run, outcome)
        self._changed()

    def _settled(self) -> None:
        self._changed()

    def _changed(self) -> None:
        """A run or its settle is over: there is room, and to a worker that ends when all is done it may be news."""
        self.fetcher.freed()
        if self.options.burst:
            self.fetcher.ask_all()

    def _answered(self, worker: str, said: list[Beat], replies: list[BeatReply]) -> None:
        """An answer to the keeper, in its thread."""
        self.standing.flag(said, replies)
        self._from_thread(lambda: self._heard(worker, said, replies))

    def _heard(self, worker: str, said: list[Beat], replies: list[BeatReply]) -> None:
        """An answer to the keeper. One that comes while this worker closes its own id brings no rebirth."""
        if not self._leaving:
            self.crew.spawn(self.standing.heard(worker, said, replies))

    def _died(self) -> None:
        self.keeper.hold()
        self.settler.forget()

    def _born(self) -> None:
        self.keeper.begin()
        self.fetcher.ask_all()

    def _hinted(self, hint: Hint) -> None:
        if hint.kind == "wake":
            self.fetcher.hint(hint.queue)
        elif hint.job is not None:
            run = self.holdings.find(hint.queue, hint.job, hint.token)
            if run is not None:
                self.executor.stop(run, "cancelled")

    # ------------------------------------------------------------------------------------------------- ten a second

    async def _tick(self) -> None:
        """The loop's own sign of life, long runs, progress, whether this worker is heard, whether anything is left."""
        idle_since = boottime()
        while True:
            now = boottime()
            self.board.write("loop_tick_ns", boottime_ns())
            for run in self.executor.find_long():
                self._passed_long(run)
            self.executor.enforce_limits()
            self.records.flush_due()
            self._judge()
            if self._lanes == "solo" or not self._wanted().any:
                self.ear.want(False)
            if len(self.holdings) or not (self.fetcher.barren or self.board.phase == Phase.RETIRE):
                idle_since = now
            elif self._is_done(now - idle_since):
                self.drain()
            await asyncio.sleep(TICK_S)

    def _judge(self) -> None:
        """Claim nothing while the own voice is not heard: what it cannot renew it could not settle either."""
        if not self.identity.trusted:
            self.executor.stop_in_doubt()
        if self.options.max_jobs and self._taken >= self.options.max_jobs:
            self._retire(f"it has taken {self._taken} jobs")
        if self.keeper.mute and self.board.phase == Phase.RUN:
            self.board.phase = Phase.MUTE
            log.warning("Nothing has been heard from the store for half a lease: this worker claims nothing for now.")
        elif self.board.phase == Phase.MUTE and not self.keeper.mute:
            self.board.phase = Phase.RUN
            self.fetcher.ask_all()

    def _is_done(self, idle_s: float) -> bool:
        """A burst ends when its queues are empty (what is due later counts), a solo child when no job is for it."""
        if self.board.phase == Phase.RETIRE:
            return True
        if self._lanes == "solo":
            return idle_s > SOLO_IDLE_S and not self._spare
        return self.options.burst and not self.fetcher.expecting

    def _passed_long(self, run: Run) -> None:
        """A run is long now. A long suspect must not take a pool worker: this process becomes its solo child."""
        if not run.grant.suspect:
            self.lessons.tell(run.grant.queue, run.grant.task)
            return
        self.fetcher.freed()
        if self._lanes != "solo" and self._channel is not None:
            self._lanes = "solo"
            self._channel.send(m="solo")

    def _retire(self, why: str) -> None:
        """Take no more jobs, and leave when those that run are over; the supervisor starts another process at once."""
        if self.board.phase < Phase.RETIRE:
            self.board.phase = Phase.RETIRE
            log.info("Taking no more jobs: %s.", why)
            if self._channel is not None:
                self._channel.send(m="retiring", why=why)

    # --------------------------------------------------------------------------------------------- the supervisor

    def gone(self, worker: str) -> None:
        """The second voice has heard that this id is closed; from any thread."""
        self._from_thread(lambda: self._ordered({"m": "gone", "worker": worker}))

    async def close_id(self) -> int:
        """Close the worker id if nothing under it runs any more; how many runs have not ended."""
        return await self._leave()

    def _from_thread(self, call: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is nobody to tell any more
            self._loop.call_soon_threadsafe(call)

    def _spoken_to(self, message: Message) -> None:
        """A message, in the keeper's thread: questions are answered there, since the loop may be the answer."""
        if message.get("m") == "stack" and self._channel is not None:
            self._channel.send(m="stack", req=message.get("req"), text=self.stacks.of(str(message.get("job"))))
        else:
            self._from_thread(lambda: self._ordered(message))

    def _ordered(self, message: Message) -> None:
        """A message of the supervisor's."""
        kind = message.get("m")
        if kind == "drain":
            self.drain(Timeline.read(message.get("timeline")))
        elif kind == "retire":
            self._retire(str(message.get("why")))
        elif kind == "spare":
            self._spare = bool(message.get("spare"))
        elif kind == "gone" and isinstance(message.get("worker"), str) and not self._leaving:
            self.crew.spawn(self.standing.reborn(message["worker"]))

    def _orphaned(self) -> None:
        log.error("The supervisor is gone. Claiming nothing more; what runs may end within the grace period.")
        self.orphan = True
        self.drain()
        self.board.phase = Phase.ORPHAN
