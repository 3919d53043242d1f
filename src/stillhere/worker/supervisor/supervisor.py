"""The supervisor: a process without user code that starts children, speaks for them, and buries them.

Its main thread waits (on signals, children, sockets, timers) and never calls the store; the beater and the undertaker
do, each on a connection of its own. So nothing that hangs there delays the notice of a death, and nothing that hangs
here delays a beat. What concerns the children is the `Family`'s; here is the whole: its life, its orders, its threads.

States: START (no `go` given yet), UP, stopping (by signals, see `stopping`, or because it cannot go on), then gone. A
fault of our own in this thread, or in one of the two others, ends the worker in the plainest way there is: the children
are told to drain.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import time
from collections.abc import Sequence
from random import Random
from typing import Protocol

import msgspec

from stillhere.domain.lease import plan_for
from stillhere.ports.backend import Asked, Held, SyncStore
from stillhere.worker import processes
from stillhere.worker.clock import boottime
from stillhere.worker.control import Message
from stillhere.worker.settings import WorkerSettings
from stillhere.worker.supervisor.backoff import Backoff
from stillhere.worker.supervisor.beater import Beater
from stillhere.worker.supervisor.child_process import PROGRAM, ChildProcess
from stillhere.worker.supervisor.family import Family
from stillhere.worker.supervisor.greeting import greeting, refusal, shown
from stillhere.worker.supervisor.line import Line
from stillhere.worker.supervisor.mailbox import Mailbox
from stillhere.worker.supervisor.nursery import Nursery
from stillhere.worker.supervisor.questions import Questions
from stillhere.worker.supervisor.service import ServiceManager
from stillhere.worker.supervisor.stopping import Stopping
from stillhere.worker.supervisor.undertaker import Burial, Undertaker
from stillhere.worker.supervisor.vouched import Vouched
from stillhere.worker.timeline import Timeline

log = logging.getLogger("stillhere.supervisor")

OK, KILLED_SOME, FAULT, MISCONFIGURED = 0, 70, 70, 78
WATCH_S = 0.25
AWAIT_S = 0.3
"""How long the end waits for what it has killed."""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class OpenStore(Protocol):
    """How a supervisor gets its stores; given by the program, since this floor does not know them."""

    def __call__(self, url: str, namespace: str) -> SyncStore:
        """A store for one thread."""


class Supervisor:
    """One `stillhere worker`."""

    def __init__(
        self,
        settings: WorkerSettings,
        open_store: OpenStore,
        wakeup: tuple[int, int],
        program: Sequence[str] = PROGRAM,
        *,
        service: ServiceManager | None = None,
    ) -> None:
        """`wakeup`: both ends of the pipe into which signals write, neither blocking; `program`: the child's."""
        self._settings = settings
        self._open_store = open_store
        self._plan = plan_for(settings.lease_ms / 1000)
        self._selector = selectors.DefaultSelector()
        self._wakeup_fd, self._mailbox = wakeup[0], Mailbox(wakeup[1])
        self._selector.register(self._wakeup_fd, selectors.EVENT_READ)
        self.stopping = Stopping(settings.grace_ms / 1000)
        self.ready = False
        self._nursery = Nursery(settings, Backoff(Random()))
        self._family = Family(settings, self._plan, self._nursery, self._selector, self, program=program)
        self._stores: tuple[str, str] | None = None
        self._queues: list[str] = []
        self._beater: Beater | None = None
        self._undertaker: Undertaker | None = None
        self._questions = Questions(self._answer)
        self._service = service or ServiceManager({})
        self._code = OK

    # ------------------------------------------------------------------------------------------------ its life

    def run(self) -> int:
        """Work until told to stop, or until there is nothing left (burst); returns the exit code."""
        processes.become_reaper()
        try:
            while not self._is_over():
                self._turn()
        except Exception:
            log.exception("This is a fault of stillhere: the worker ends, its jobs may end before.")
            self._abandon()
            self._code = FAULT
        self._close()
        return self._code

    def _turn(self) -> None:
        self._wait()
        self._mailbox.deliver()
        self._family.watch()
        self._questions.look()
        if boottime() >= self.stopping.kill_at:
            self._family.kill_the_rest()
        self._family.start_due()

    def _wait(self) -> None:
        now = boottime()
        ahead = (self._nursery.next_at, self.stopping.kill_at, self.stopping.exit_at, self._family.next_look())
        wait = min([WATCH_S, *(at - now for at in ahead if at > now)])
        for key, _ in self._selector.select(0.0 if self._nursery.next_at <= now else wait):
            if key.fileobj == self._wakeup_fd:
                for number in os.read(self._wakeup_fd, 4096):
                    self._signalled(number)
            else:
                self._family.hear(key.data)

    def _is_over(self) -> bool:
        if boottime() >= self.stopping.exit_at:
            if self._buries:
                log.error("The store is away: what is left of this worker comes back when its lease ends.")
                self._code = self._code or KILLED_SOME
            return True
        return not self._family.children and self._nursery.is_empty and not self._buries and self._mailbox.is_empty

    @property
    def _buries(self) -> bool:
        return self._undertaker is not None and self._undertaker.pending > 0

    def _close(self) -> None:
        self._family.close(AWAIT_S)
        self._selector.close()
        if self._beater is not None and self._undertaker is not None:
            self._beater.stop()
            self._undertaker.stop()
            self._beater.join(AWAIT_S)
            self._undertaker.join(AWAIT_S)

    def _abandon(self) -> None:
        """Nothing here can be relied on any more: the children drain by themselves, and a signal ends this process."""
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        over = time.monotonic() + self._settings.grace_ms / 1000
        for child in self._family.children:
            child.channel.send(m="drain", timeline=msgspec.to_builtins(Timeline.of(self._settings.grace_ms / 1000)))
        while time.monotonic() < over and any(child.status() is None for child in self._family.children):
            time.sleep(0.05)

    # ------------------------------------------------------------------------------- what the other threads say

    def store_answers(self) -> None:
        """Children may work now."""
        self._mailbox.post(self._let_all_go)

    def store_refuses(self, why: str) -> None:
        """A worker that may not use its store cannot work."""
        self._mailbox.post(self._give_up, why)

    def worker_gone(self, child: Vouched, worker: str) -> None:
        """A child must drop everything and register anew."""
        self._mailbox.post(self._tell_gone, child, worker)

    def jobs_wait(self, suspects: int, solo: int) -> None:
        """There must be children that run nothing beside one."""
        self._mailbox.post(self._family.start_solos, suspects, solo)

    def cancelled(self, child: Vouched, queue: str, pairs: list[Held]) -> None:
        """A silent child cannot hear of cancels."""
        self._mailbox.post(self._tell_cancelled, child, queue, pairs)

    def turns(self) -> None:
        """The beater is alive, and so is this program."""
        self._service.alive()

    def asked(self, queue: str, asks: list[Asked]) -> None:
        """Somebody wants to know where these jobs' code is."""
        self._mailbox.post(lambda: self._questions.ask(queue, asks, self._family.children))

    def _answer(self, queue: str, id: str, text: str) -> None:
        if self._beater is not None:
            self._beater.answer(queue, id, text)

    def buried(self, burial: Burial, suspects: int) -> None:
        """A dead child's jobs are released."""
        log.debug("worker %s is buried", burial.worker)
        self._mailbox.post(self._buried, suspects)

    def thread_failed(self, error: BaseException) -> None:
        """Without its two threads this is no supervisor."""
        self._mailbox.post(_raise, error)

    def _buried(self, suspects: int) -> None:
        assert self._undertaker is not None  # noqa: S101 - it is the one that says so
        self._undertaker.pending -= 1
        if suspects:
            self._family.start_solos(suspects, 0)

    def _tell_gone(self, child: Vouched, worker: str) -> None:
        if child in self._family.children and child.worker == worker:
            child.declared_gone()

    def _tell_cancelled(self, child: ChildProcess, queue: str, pairs: list[Held]) -> None:
        if child in self._family.children:
            child.told_cancelled(queue, pairs)

    def _let_all_go(self) -> None:
        self.ready = True
        self._service.ready(f"{shown(self._stores[0])}, {', '.join(self._queues)}" if self._stores else "")
        self._family.let_all_go()

    # ---------------------------------------------------------------------------------- what the children's keeper says

    def said_hello(self, hello: Message) -> str:
        """A child has its app: learn the store from the first one."""
        why = refusal(hello, self._stores)
        if why:
            return why
        self._queues += [name for name in hello["queues"] if name not in self._queues]
        if self._stores is None:
            self._stores = hello["url"], hello["namespace"]
            for line in greeting(self._settings, hello, self._plan):
                log.info("%s", line)
            self._open(*self._stores)
        return ""

    def said(self, message: Message) -> None:
        """An answer to a question; nothing else is known."""
        if message.get("m") == "stack":
            self._questions.answered(str(message.get("req")), str(message.get("text")))

    def cannot_start(self, cause: str, *, configuration: bool) -> None:
        """A mistake of the user's counts until a child works: after that the others go on."""
        if not configuration or self._stores is None:
            self._give_up(cause)

    def bury(self, burial: Burial) -> None:
        """To the undertaker; without one nothing was ever granted."""
        if self._undertaker is not None:
            self._undertaker.bury(burial)

    def nudge(self) -> None:
        """To the beater."""
        if self._beater is not None:
            self._beater.nudge()

    def left_some(self) -> None:
        """It shows in the exit code."""
        self._code = self._code or KILLED_SOME

    def _open(self, url: str, namespace: str) -> None:
        lines = [Line(lambda: self._open_store(url, namespace)) for _ in range(2)]
        self._beater = Beater(
            lines[0], self._plan, lambda: list(self._queues), lambda: list(self._family.children), chief=self
        )
        self._undertaker = Undertaker(lines[1], self._plan, chief=self, warm=self._queues)
        self._beater.start()
        self._undertaker.start()

    # ----------------------------------------------------------------------------------------------- stopping

    def _signalled(self, number: int) -> None:
        if number in STOP_SIGNALS:
            self._told_to_stop(signal.Signals(number).name)
        elif number == signal.SIGTSTP:
            log.warning("A worker cannot be suspended from the terminal; stop it with Ctrl-C.")
        elif number == signal.SIGUSR1:
            for child in self._family.children:
                log.info("%s", child.describe())

    def _told_to_stop(self, name: str) -> None:
        counts = self.stopping.signal(boottime())
        if counts == 1:
            cancel = Timeline.of(self._settings.grace_ms / 1000).cancel
            log.info("%s: stopping. What still runs after %.3g s is told to stop and handed over.", name, cancel)
        elif counts == 2:
            log.warning("%s again: ending now.", name)
        if counts:
            self._drain()

    def _give_up(self, text: str) -> None:
        """It cannot go on. Children that work get the time to end; if there are none it ends at once."""
        if self._code == MISCONFIGURED:
            return  # the second child that says the same
        log.error("%s", text)
        self._code = MISCONFIGURED
        works = any(child.going for child in self._family.children)
        timeline = Timeline.of(self._settings.grace_ms / 1000) if works else Timeline.at_once()
        self.stopping.order(boottime(), timeline)
        self._drain()

    def _drain(self) -> None:
        self._service.stopping(self.stopping.exit_at - boottime())
        self._family.drain(msgspec.to_builtins(self.stopping.timeline))


def _raise(error: BaseException) -> None:
    raise error
