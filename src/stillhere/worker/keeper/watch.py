"""The keeper at work: it speaks for its parent, and releases what the parent held when that is dead.

    host --"left", "bye", end of file--> watch        beater --gone--> watch --"gone"--> host

The threads are the supervisor's: a beater that renews, ticks and sweeps, an undertaker that releases, each on a
connection of its own; this one waits and never calls the store. Nothing here does anything to the host: it is neither
signalled nor killed, nor is what it started.

The ends. *Bye*: the worker in the host has ended in order, and so does this process, at once. *Death* of the host: its
board is read, its jobs get their verdicts and are released; when the store does not answer for as long as the lease
would have taken by itself, there is nothing to release any more. *Left*: the worker has ended and some of its code
still runs; until the host says bye, or is dead, the lease is kept, since to give such a job to somebody else would be
to run it twice; then what is left is released as interrupted. End of file without a word proves nothing: a fork
may have closed it, and the board and the kernel say more.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import time
from collections.abc import Callable

from stillhere.domain.attribution import Crash
from stillhere.domain.lease import plan_for
from stillhere.ports.backend import Asked, Held, SyncStore
from stillhere.worker.clock import boottime
from stillhere.worker.control import Channel
from stillhere.worker.keeper.host import Host, Pulse
from stillhere.worker.supervisor.beater import Beater
from stillhere.worker.supervisor.line import Line
from stillhere.worker.supervisor.mailbox import Mailbox
from stillhere.worker.supervisor.questions import Questions
from stillhere.worker.supervisor.undertaker import Burial, Undertaker
from stillhere.worker.supervisor.vouched import Vouched

log = logging.getLogger("stillhere.supervisor")

WATCH_S = 0.25
JOIN_S = 0.3


class Watch:
    """One keeper process at work."""

    def __init__(
        self, host: Host, pulse: Pulse, channel: Channel, open_store: Callable[[], SyncStore], lease_ms: int
    ) -> None:
        self._host, self._pulse, self._channel = host, pulse, channel
        self._plan = plan_for(lease_ms / 1000)
        self._nudge = os.pipe()
        for end in self._nudge:
            os.set_blocking(end, False)
        self._mailbox = Mailbox(self._nudge[1])
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ)
        self._selector.register(self._nudge[0], selectors.EVENT_READ)
        if pulse.fd >= 0:
            self._selector.register(pulse.fd, selectors.EVENT_READ)
        self._beater = Beater(Line(open_store), self._plan, lambda: host.queues, self._vouched, chief=self)
        self._undertaker = Undertaker(Line(open_store), self._plan, chief=self, warm=host.queues)
        self._questions = Questions(self._beater.answer)
        self._left = False
        self._dead = False
        self._over = False
        self._give_up_at = float("inf")

    # --------------------------------------------------------------------------------------------------- its life

    def run(self) -> None:
        """Watch until there is nothing left to do; raises what a thread of ours has raised."""
        self._beater.start()
        self._undertaker.start()
        try:
            while not self._over:
                self._turn()
        finally:
            self._close()

    def _turn(self) -> None:
        for key, _ in self._selector.select(WATCH_S):
            if key.fileobj is self._channel:
                self._hear()
            elif key.fd == self._nudge[0]:
                os.read(self._nudge[0], 4096)
        self._mailbox.deliver()
        self._questions.look()
        if self._over:
            return
        if not self._dead:
            self._look()
        elif boottime() >= self._give_up_at:
            log.error("The store is away: what the host held comes back when its lease ends.")
            self._over = True

    def _look(self) -> None:
        if self._host.look():
            self._beater.nudge()
        if self._pulse.is_over or self._host.is_dumping:
            self._bury("its host process died")

    def _vouched(self) -> list[Vouched]:
        return [] if self._dead else [self._host]

    def _bury(self, reason: str) -> None:
        """The host, or the worker in it, is no more: release what it held."""
        host, self._dead = self._host, True
        if self._pulse.fd >= 0:
            self._selector.unregister(self._pulse.fd)  # it stays readable
        self._give_up_at = boottime() + self._plan.recovery_bound
        if not host.worker:
            self._over = True
            return
        log.warning("Worker %s: %s.", host.worker, reason)
        crash = Crash(signal.SIGKILL, deliberate=self._left)  # no exit status is to be had: as if it came from outside
        self._undertaker.bury(Burial.of(host, host.seen(), crash, reason, since=time.monotonic()))

    def _hear(self) -> None:
        for message in self._channel.receive():
            match message.get("m"):
                case "stack":
                    self._questions.answered(str(message.get("req")), str(message.get("text")))
                case "left":
                    self._left = True
                case "bye" if message.get("closed"):
                    self._over = True
                case "bye" if not self._dead:
                    self._left = True
                    self._bury("the worker in it has ended")
        if self._channel.eof:
            self._selector.unregister(self._channel)

    def _close(self) -> None:
        self._beater.stop()
        self._undertaker.stop()
        self._beater.join(JOIN_S)
        self._undertaker.join(JOIN_S)
        self._selector.close()
        for end in self._nudge:
            os.close(end)

    # ------------------------------------------------------------------------------------ what the two threads say

    def store_answers(self) -> None:
        """The host has not waited for it."""

    def store_refuses(self, why: str) -> None:
        """The worker is told the same, and says it in its own words."""
        log.error("%s", why)
        self._mailbox.post(self._end)

    def worker_gone(self, child: Vouched, worker: str) -> None:
        """The host must drop everything and register anew; it is told when the id is still the one it has."""
        del child
        self._mailbox.post(self._tell_gone, worker)

    def cancelled(self, child: Vouched, queue: str, pairs: list[Held]) -> None:
        """Nothing in a host is ended from outside; its own voice hears of cancels when it can."""

    def turns(self) -> None:
        """Nobody asks a keeper for signs of life."""

    def asked(self, queue: str, asks: list[Asked]) -> None:
        """Somebody wants to know where these jobs' code is."""
        self._mailbox.post(lambda: self._questions.ask(queue, asks, self._vouched()))

    def jobs_wait(self, suspects: int, solo: int) -> None:
        """They wait for a worker that runs nothing beside them; the host takes them when it holds nothing."""

    def buried(self, burial: Burial, suspects: int) -> None:
        """All of it is released."""
        log.debug("worker %s is buried, with %d suspects", burial.worker, suspects)
        self._mailbox.post(self._end)

    def thread_failed(self, error: BaseException) -> None:
        """Without its two threads this is no keeper; the host starts another."""
        self._mailbox.post(_raise, error)

    def _tell_gone(self, worker: str) -> None:
        if not self._dead and self._host.worker == worker:
            self._host.declared_gone()

    def _end(self) -> None:
        self._over = True


def _raise(error: BaseException) -> None:
    raise error
