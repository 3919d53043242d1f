"""Brings work: never more than there are free slots for, and nothing starts that might be somebody else's by now.

One claim is in flight. It carries a number, one higher than the last of its queue that was *answered*, and is repeated
with the same number until it is answered; the store gives the same grants again. So a lost reply loses nothing.

From the reply to the start of a handler, in this order: the grants go into the book and on the board; the number is
answered (on the board, where the supervisor reads it); if this process was silent for long between send and reply, or
the lease is no longer beyond doubt, a beat is sent and awaited, because somebody may have handed the grants back or the
lease may be over; what that beat calls lost is dropped; the rest starts. A crash anywhere in between leaves grants that
are held and not started: they return without a charge.

A claim is never given up half-way, not even by a drain: what it granted would be nobody's until its lease is over.

When nothing is to be had it waits for a hint, the next due time, or a second, whichever comes first. A hint may be
lost (G10), so the poll is what makes it complete and the hint what makes it fast. Slots and long places are asked for
together where there are both, but what is known of the one says nothing of the other: a worker whose slots are full
goes on asking for its long places, finds nothing, and must not take that for an empty queue when a slot is free again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from stillhere.domain.errors import StillhereError
from stillhere.domain.job import Grant
from stillhere.ports.backend import BATCH, AsyncStore, Claim, Claimed, Lanes
from stillhere.worker.child.identity import Identity
from stillhere.worker.child.runs import Run
from stillhere.worker.clock import boottime

log = logging.getLogger("stillhere.worker")


class Room(NamedTuple):
    """What a worker has room for now."""

    slots: int
    long: int
    """Long places."""
    lanes: Lanes
    seated: Mapping[str, int] = MappingProxyType({})
    """What sits in slots, by task."""

    @property
    def any(self) -> bool:
        """Whether there is any."""
        return self.slots > 0 or self.long > 0


class Questions:
    """Where there may be work: the queues to ask when there is a slot, and those to ask when there is a long place."""

    def __init__(self, queues: Iterable[str]) -> None:
        self._queues = frozenset(queues)
        self._slots, self._long = set(self._queues), set(self._queues)

    def raise_all(self) -> None:
        """There may be work anywhere."""
        self._slots, self._long = set(self._queues), set(self._queues)

    def open(self, queue: str, *, slots: bool = True, long: bool = True) -> None:
        """There may be work in this queue for such places."""
        if slots:
            self._slots.add(queue)
        if long:
            self._long.add(queue)

    def put(self, queue: str, room: Room) -> None:
        """They are being asked, for as much as there is room for."""
        if room.slots:
            self._slots.discard(queue)
        if room.long:
            self._long.discard(queue)

    def for_(self, room: Room) -> set[str]:
        """The queues to ask when this is the room."""
        return (self._slots if room.slots > 0 else set()) | (self._long if room.long > 0 else set())


POLL_S = 1.0
SILENCE_S = 0.5
"""A claim whose reply was read later than this may have been handed back by the supervisor (it does so after 1 s)."""


class Fetcher:
    """Claims for one worker. Its owner gives it the ways to take in, check and start grants."""

    def __init__(
        self,
        store: AsyncStore,
        identity: Identity,
        queues: dict[str, int],
        *,
        room: Callable[[], Room],
        take: Callable[[Grant], Run | None],
        start: Callable[[Run], None],
        keep: Callable[[int], None],
        confirm: Callable[[], Awaitable[bool]],
        gone: Callable[[str], Awaitable[None]],
        poll_s: float = POLL_S,
    ) -> None:
        """`room`: how many jobs are wanted, from which lanes. `keep`: so many long places are spoken for.

        `confirm` sends a beat and says whether it counts.
        """
        self._store = store
        self._identity = identity
        self._weights = queues
        self._index = {queue: index for index, queue in enumerate(queues)}
        self._credit = dict.fromkeys(queues, 0)
        self._questions = Questions(queues)
        self._due: dict[str, float] = {}
        self._room, self._take, self._start, self._keep = room, take, start, keep
        self._confirm, self._gone = confirm, gone
        self._poll_s = poll_s
        self._stopping = False
        self._news = asyncio.Event()
        self.barren = False
        """The last claims of all queues brought nothing, nothing has happened since, and no claim is on its way."""

    @property
    def expecting(self) -> bool:
        """Whether a queue has told of jobs that are not due yet."""
        return bool(self._due)

    def hint(self, queue: str) -> None:
        """There may be work in this queue."""
        self._questions.open(queue)
        self._look()

    def ask_all(self) -> None:
        """There may be work anywhere: a new worker id, or a worker that must know whether anything is left."""
        self._questions.raise_all()
        self._look()

    def freed(self) -> None:
        """A slot has become free, or this worker may claim again."""
        self._look()

    def stop(self) -> None:
        """Claim no more. A claim that is on its way is seen to its end, but what it brings does not start."""
        self._stopping = True
        self._look()

    def _look(self) -> None:
        self.barren = False
        self._news.set()

    async def run(self) -> None:
        """Fetch until told to stop."""
        while not self._stopping:
            self._news.clear()
            room = self._room()
            queue = self._next_queue(room)
            if queue is not None:
                await self._fetch(queue, room)
            else:
                self.barren = room.slots > 0
                await self._wait(may_claim=room.any)

    def _next_queue(self, room: Room) -> str | None:
        """Among the queues that may have work for this room: the one whose turn it is by weight."""
        may_have = self._questions.for_(room)
        asked = [queue for queue in self._weights if queue in may_have]
        if not asked:
            return None
        for queue in asked:
            self._credit[queue] += self._weights[queue]
        chosen = max(asked, key=lambda queue: self._credit[queue])
        self._credit[chosen] -= sum(self._weights[queue] for queue in asked)
        return chosen

    async def _wait(self, *, may_claim: bool) -> None:
        now = boottime()
        soonest = min([now + self._poll_s, *(self._due.values() if may_claim else ())])
        try:
            async with asyncio.timeout(max(0.001, soonest - now)):
                await self._news.wait()
        except TimeoutError:
            self._questions.raise_all()

    async def _fetch(self, queue: str, room: Room) -> None:
        worker = self._identity.worker
        sent = boottime()
        number = self._identity.board.answered(self._index[queue]) + 1
        self._questions.put(queue, room)  # a hint that comes while the claim is on its way must not be forgotten
        room = room._replace(slots=min(room.slots, BATCH), long=min(room.long, BATCH))
        self._keep(room.long)
        reply = await self._claim(
            Claim(
                queue=queue,
                worker=worker,
                n=number,
                slots=room.slots,
                long=room.long,
                lanes=room.lanes,
                seated=dict(room.seated),
            )
        )
        if reply is None or self._identity.worker != worker:
            self._questions.open(queue)
            self._keep(0)
            return
        self._note(queue, room, reply)
        runs = [run for grant in reply.jobs if (run := self._take(grant)) is not None]
        self._keep(0)  # the seats are taken: what is left over is for whoever needs it
        self._identity.board.answer(self._index[queue], number)
        if runs and not self._stopping and await self._beyond_doubt(sent):
            for run in runs:
                if not run.ended and not self._stopping:
                    self._start(run)

    def _note(self, queue: str, room: Room, reply: Claimed) -> None:
        """What a reply says of the queue: ask again, when, and what was thrown out."""
        long = sum(grant.lane == "long" for grant in reply.jobs)
        slots_full, long_full = 0 < room.slots <= len(reply.jobs) - long, 0 < room.long <= long
        self._questions.open(queue, slots=slots_full, long=long_full)
        if reply.more and not slots_full and not long_full:
            self._questions.open(queue)  # the store had more to look through than a call may
        self._due.pop(queue, None)
        if reply.next_due_ms is not None and not reply.paused:
            self._due[queue] = boottime() + reply.next_due_ms / 1000
        if reply.dropped:
            log.warning("Queue %s: set aside what was no job: %s", queue, ", ".join(reply.dropped))

    async def _beyond_doubt(self, sent: float) -> bool:
        """The gate before a start; False: the worker id is gone, and with it the grants."""
        if boottime() - sent > SILENCE_S and not await self._confirm():
            return False
        while not self._identity.trusted:
            if not await self._confirm():
                return False
        return True

    async def _claim(self, claim: Claim) -> Claimed | None:
        """Send it until it is answered; None: this worker id is gone, or was by the time of the answer."""
        for bound in self._identity.growing_bounds():
            if self._identity.worker != claim.worker:
                break
            try:
                reply = await self._store.call(claim, timeout=bound)
            except StillhereError as error:
                self._identity.complain("claim", error)
                await asyncio.sleep(self._identity.plan.retry_after)
                continue
            if reply.standing == "ok":
                return reply
            if reply.standing != "over":
                await self._gone(claim.worker)
            elif await self._confirm():
                continue
            break
        return None
