"""The keeper: a thread beside the loop that says "still here", so that a blocked loop does not silence this process.

It renews the lease of all queues in one round trip each quarter lease, on a connection of its own, each try bounded; it
reads the control socket, so that the supervisor's death is noticed while the loop is busy; it ticks on the board. It
decides nothing: what a renewal says is lost or cancelled, what the supervisor ordered, and that the supervisor is gone,
is passed to the loop, which also asks whether the own voice is heard (`mute`). A handler that holds the GIL silences
this thread too; then the supervisor's voice is the one that is left. If this thread itself fails, so does the worker: a
process without a voice of its own must not look well.

`answered` is read before `held` is copied: the fetcher writes them in the other order, so a beat that says a claim was
answered also names what it brought.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import selectors
import threading
from collections.abc import Callable

from stillhere.domain.errors import StillhereError
from stillhere.domain.lease import RenewalClock
from stillhere.ports.backend import Beat, BeatReply, SyncStore
from stillhere.worker.child.identity import Identity
from stillhere.worker.child.runs import Holdings
from stillhere.worker.clock import boottime, boottime_ns
from stillhere.worker.control import Channel, Message

log = logging.getLogger("stillhere.worker")

TICK_S = 0.25


def beats(identity: Identity, holdings: Holdings, lease_ms: int | None = None) -> list[Beat]:
    """What this worker says now, one beat per queue."""
    board, worker = identity.board, identity.worker
    answered = [board.answered(index) for index in range(len(holdings.queues))]
    return [
        Beat(queue=queue, worker=worker, answered=number, held=holdings.pairs(queue), lease_ms=lease_ms)
        for queue, number in zip(holdings.queues, answered, strict=True)
    ]


class Keeper(threading.Thread):
    """Runs from registration to exit. The callbacks are called in this thread and must only pass things on."""

    def __init__(
        self,
        store: SyncStore,
        identity: Identity,
        holdings: Holdings,
        channel: Channel | None,
        *,
        on_reply: Callable[[str, list[Beat], list[BeatReply]], None],
        on_message: Callable[[Message], None],
        on_orphan: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        super().__init__(name="stillhere-keeper", daemon=True)
        self._store = store
        self._identity = identity
        self._holdings = holdings
        self._channel = channel
        self._on_reply, self._on_message, self._on_orphan = on_reply, on_message, on_orphan
        self._on_failure = on_failure
        self._clock = RenewalClock(identity.plan, random.Random())
        self._pipe_lock = threading.Lock()
        self._nudge_read, self._nudge_write = os.pipe()
        os.set_blocking(self._nudge_write, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._nudge_read, selectors.EVENT_READ)
        if channel is not None:
            self._selector.register(channel, selectors.EVENT_READ)
        self._lease_ms: int | None = None
        self._over = False
        self._beating = False
        self._doubted = False

    # ------------------------------------------------------------------------------------- from other threads

    def begin(self) -> None:
        """The worker is registered: renew from now on."""
        self._clock = RenewalClock(self._identity.plan, random.Random())
        registered = self._identity.board.read("child_sent_ns") / 1e9
        self._clock.sent(registered)  # long ago, if the answer was: then the first beat is due now
        self._clock.confirmed(registered)
        self._beating = True
        self._wake()

    def hold(self) -> None:
        """The worker id is gone: say nothing until `begin`."""
        self._beating = False

    def shorten(self) -> None:
        """The worker drains: hold a short lease from now on, so that a kill in mid-drain costs little."""
        plan = self._identity.plan.draining()
        self._lease_ms = round(plan.length_s * 1000)
        self._clock.shorten(plan)  # due at once; the old length is trusted until the store is told the new one
        self._wake()

    def stop(self) -> None:
        """End the thread after what it is at."""
        self._over = True
        self._wake()

    @property
    def mute(self) -> bool:
        """Whether the own voice has not been heard for half a lease, though it speaks."""
        return self._beating and self._clock.mute(boottime())

    def _wake(self) -> None:
        with self._pipe_lock, contextlib.suppress(BlockingIOError):
            if self._nudge_write >= 0:
                os.write(self._nudge_write, b"x")

    # ------------------------------------------------------------------------------------------ in this thread

    def run(self) -> None:
        """Wait, tick, renew, until stopped."""
        try:
            self._serve()
        except BaseException as error:  # noqa: BLE001 - passed on: it is the worker's end
            self._on_failure(error)
        finally:
            self._selector.close()
            with self._pipe_lock:  # the number may soon be another file's
                os.close(self._nudge_read)
                os.close(self._nudge_write)
                self._nudge_write = -1

    def _serve(self) -> None:
        self._hear()  # what came with `go`
        while not self._over:
            now = boottime()
            wait = min(TICK_S, self._clock.next_due(now) - now) if self._beating else TICK_S
            for key, _ in self._selector.select(max(0.0, wait)):
                if key.fileobj is self._channel:
                    self._hear()
                else:
                    os.read(self._nudge_read, 64)
            self._identity.board.write("keeper_tick_ns", boottime_ns())
            self._judge()
            if self._beating and not self._over and self._clock.next_due(boottime()) <= boottime():
                self._beat()

    def _hear(self) -> None:
        channel = self._channel
        if channel is None:
            return
        for message in channel.receive():
            self._identity.board.write("keeper_tick_ns", boottime_ns())  # a question takes its time
            self._on_message(message)
        if channel.eof:
            self._selector.unregister(channel)
            self._channel = None
            self._on_orphan()

    def _beat(self) -> None:
        sent, sent_ns = boottime(), boottime_ns()
        said = beats(self._identity, self._holdings, self._lease_ms)
        worker = said[0].worker  # the one that spoke: it may be another by the time of the answer
        if not self._beating or any(beat.worker != worker for beat in said):
            return
        self._clock.sent(sent)
        self._identity.plan = self._clock.plan
        try:
            replies = self._store.call_many(said, timeout=self._clock.plan.try_bound)
        except StillhereError as error:
            self._clock.failed(boottime())
            if self._beating:
                self._identity.complain("beat", error)
            return
        if worker != self._identity.worker:
            return
        self._clock.confirmed(sent)
        if all(reply.standing == "ok" for reply in replies):
            self._identity.confirm(sent_ns)
        self._on_reply(worker, said, replies)

    def _judge(self) -> None:
        """Say once when the lease comes into doubt."""
        doubted = self._beating and not self._identity.trusted
        if doubted and not self._doubted and (held := len(self._holdings)):
            log.warning(
                "The lease is in doubt: the store has not been heard for %.1f s. %d jobs go on; the token fences them.",
                self._identity.age, held,
            )  # fmt: skip
        self._doubted = doubted
