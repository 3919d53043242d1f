"""The supervisor: a process without user code that starts children, speaks for them, and buries them.

Its main thread waits (on signals, children, sockets, timers) and never calls the store; the beater and the undertaker
do, each on a connection of its own. So nothing that hangs there delays the notice of a death, and nothing that hangs
here delays a beat.

A death goes one way: noticed (the kernel's SIGCHLD) -> offspring killed -> board read, verdicts -> undertaker closes
the worker and releases its jobs -> reaped -> replaced. Nothing is ready elsewhere before the last process of the dead
worker is gone. If this process dies in between, the children drain by themselves and the lease ends what is left.

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
from stillhere.ports.backend import Lanes, SyncStore
from stillhere.worker.clock import boottime
from stillhere.worker.control import Message
from stillhere.worker.settings import WorkerSettings
from stillhere.worker.supervisor import processes
from stillhere.worker.supervisor.backoff import Backoff
from stillhere.worker.supervisor.beater import Beater
from stillhere.worker.supervisor.child_process import PROGRAM, ChildProcess
from stillhere.worker.supervisor.greeting import greeting, refusal
from stillhere.worker.supervisor.line import Line
from stillhere.worker.supervisor.mailbox import Mailbox
from stillhere.worker.supervisor.nursery import Death, Nursery
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
    ) -> None:
        """`wakeup`: both ends of the pipe into which signals write, neither blocking; `program`: the child's."""
        self._settings, self._program = settings, program
        self._open_store = open_store
        self._plan = plan_for(settings.lease_ms / 1000)
        self._selector = selectors.DefaultSelector()
        self._wakeup_fd, self._mailbox = wakeup[0], Mailbox(wakeup[1])
        self._selector.register(self._wakeup_fd, selectors.EVENT_READ)
        self._children: list[ChildProcess] = []
        self._dumping: list[ChildProcess] = []
        """Dead and buried, but still writing their core dump."""
        self._nursery = Nursery(settings, Backoff(Random()))
        self._stopping = Stopping(settings.grace_ms / 1000)
        self._stores: tuple[str, str] | None = None
        self._queues: list[str] = []
        self._beater: Beater | None = None
        self._undertaker: Undertaker | None = None
        self._ready = False
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
        self._watch()
        if boottime() >= self._stopping.kill_at:
            self._kill_the_rest()
        for lanes in self._nursery.due(boottime()):
            self._start(lanes)

    def _wait(self) -> None:
        now = boottime()
        ahead = (self._nursery.next_at, self._stopping.kill_at, self._stopping.exit_at)
        wait = min([WATCH_S, *(at - now for at in ahead if at > now)])
        for key, _ in self._selector.select(0.0 if self._nursery.next_at <= now else wait):
            if key.fileobj == self._wakeup_fd:
                for number in os.read(self._wakeup_fd, 4096):
                    self._signalled(number)
            else:
                self._hear(key.data)

    def _is_over(self) -> bool:
        if boottime() >= self._stopping.exit_at:
            if self._buries:
                log.error("The store is away: what is left of this worker comes back when its lease ends.")
                self._code = self._code or KILLED_SOME
            return True
        return not self._children and self._nursery.is_empty and not self._buries and self._mailbox.is_empty

    @property
    def _buries(self) -> bool:
        return self._undertaker is not None and self._undertaker.pending > 0

    def _close(self) -> None:
        for child in self._children:
            child.kill("the worker ends", deliberate=True)
        over = time.monotonic() + AWAIT_S
        while not all(child.is_reaped for child in self._children) and time.monotonic() < over:
            time.sleep(0.005)
        for child in self._children:
            child.close()
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
        for child in self._children:
            child.channel.send(m="drain", timeline=msgspec.to_builtins(Timeline.of(self._settings.grace_ms / 1000)))
        while time.monotonic() < over and any(child.status() is None for child in self._children):
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

    def suspects_wait(self, count: int) -> None:
        """There must be children that run nothing beside one."""
        self._mailbox.post(self._start_solos, count)

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
        self._start_solos(suspects)

    def _tell_gone(self, child: Vouched, worker: str) -> None:
        if child in self._children and child.worker == worker:
            child.declared_gone()

    # ------------------------------------------------------------------------------------------------ children

    def _start(self, lanes: Lanes) -> None:
        try:
            if lanes == "pool" and self._settings.slots == 1:
                lanes = "both"  # what it runs is alone anyhow
            child = ChildProcess(self._settings, lanes, self._program)
        except OSError as error:
            log.error("A worker process cannot be started: %s", error)  # noqa: TRY400 - the system's words say it all
            self._failed_to_start(self._nursery.failed_start(lanes, str(error), boottime()), str(error))
            return
        self._children.append(child)
        self._selector.register(child.channel, selectors.EVENT_READ, child)

    def _start_solos(self, suspects: int) -> None:
        if self._stopping.ordered or not self._ready:
            return
        solos = sum(child.lanes == "solo" for child in self._children)
        idle = sum(child.waits_for_suspects for child in self._children)
        for _ in range(self._nursery.solos(boottime(), suspects=suspects, solos=solos, idle=idle)):
            self._start("solo")

    def _hear(self, child: ChildProcess) -> None:
        for message in child.channel.receive():
            match message.get("m"):
                case "hello":
                    self._greet(child, message)
                case "crashed":
                    self._crashed(child, message)
                case "draining":
                    child.drains(Timeline.of(self._settings.grace_ms / 1000).kill)
                case "bye" if message.get("left") and self._stopping.ordered:
                    self._code = self._code or KILLED_SOME  # its threads were in the middle of something
                case "solo" if child.lanes != "solo":
                    child.lanes = "solo"
                    log.info("Child %d has a long suspect to itself; another child takes its place.", child.pid)
                    if not self._stopping.ordered:
                        self._start("pool")
        if child.channel.eof:
            self._selector.unregister(child.channel)  # no proof of death: the kernel tells that

    def _crashed(self, child: ChildProcess, message: Message) -> None:
        child.last_words = str(message.get("text", ""))
        if message.get("type") != "configuration":
            child.last_words = f"{message.get('type')}: {child.last_words}"
        elif self._stores is None:
            self._give_up(child.last_words)

    def _greet(self, child: ChildProcess, hello: Message) -> None:
        """A child has its app: learn the store from the first one, and let it work once the store has answered."""
        why = refusal(hello, self._stores)
        if why:
            child.last_words = why
            child.kill(why, deliberate=False)
            return
        child.greeted, child.queues = True, list(hello["queues"])
        self._nursery.greeted()
        self._queues += [name for name in child.queues if name not in self._queues]
        if self._stores is None:
            self._stores = hello["url"], hello["namespace"]
            for line in greeting(self._settings, hello, self._plan):
                log.info("%s", line)
            self._open(*self._stores)
        if self._ready:
            self._let_go(child)

    def _open(self, url: str, namespace: str) -> None:
        lines = [Line(lambda: self._open_store(url, namespace)) for _ in range(2)]
        self._beater = Beater(
            lines[0], self._plan, lambda: list(self._queues), lambda: list(self._children), chief=self
        )
        self._undertaker = Undertaker(lines[1], self._plan, chief=self, warm=self._queues)
        self._beater.start()
        self._undertaker.start()

    def _let_all_go(self) -> None:
        self._ready = True
        for child in self._children:
            if child.greeted:
                self._let_go(child)

    def _let_go(self, child: ChildProcess) -> None:
        if not self._stopping.ordered:
            child.going = True
            child.channel.send(m="go")

    # ------------------------------------------------------------------------------------------------- deaths

    def _watch(self) -> None:
        """Find the dead, and those that must be ended; notice silence."""
        for child in list(self._children):
            status = child.status()
            if status is not None:
                self._died(child, status)
                continue
            if child.look() and self._beater is not None:
                self._beater.nudge()
            reason, deliberate = child.must_be_killed()
            if reason and not child.killed:
                log.warning("Child %d is killed: %s.", child.pid, reason)
                child.kill(reason, deliberate=deliberate)
            child.channel.flush()
        self._dumping = [child for child in self._dumping if not child.is_reaped]
        processes.reap_strangers({child.pid for child in self._children + self._dumping})

    def _died(self, child: ChildProcess, status: int) -> None:
        since = time.monotonic()
        processes.end_offspring(child.pid, child.mark, dumping=not child.is_dead)
        reason, well = child.reason(status), child.ended_well(status)
        seen = child.seen()
        if child.going and self._undertaker is not None:
            self._undertaker.bury(Burial.of(child, seen, reason, forgiven=child.deliberate or well, since=since))
        self._children.remove(child)
        if not child.channel.eof:
            self._hear_last(child)
        told = self._code == MISCONFIGURED and not child.going
        if not well and not child.deliberate and not told:
            log.warning(
                "Child %d (worker %s): %s", child.pid, child.worker, f"{reason}. {child.last_words}".rstrip(" .")
            )
        if not self._stopping.ordered:
            self._replace(child, well=well, reason=reason, ran=any(one.running for one in seen))
        if not child.is_reaped:
            self._dumping.append(child)
        child.close()

    def _hear_last(self, child: ChildProcess) -> None:
        """What it said just before it died is still in the socket."""
        self._hear(child)
        if not child.channel.eof:
            self._selector.unregister(child.channel)

    def _replace(self, child: ChildProcess, *, well: bool, reason: str, ran: bool) -> None:
        cause = child.last_words or reason
        death = Death(
            lanes=child.lanes,
            greeted=child.greeted,
            orderly=well,
            expected=child.told_to_end or child.deliberate,
            ran=ran,
            lived_s=boottime() - child.born,
            cause=cause,
        )
        self._failed_to_start(self._nursery.died(death, boottime()), cause)

    def _failed_to_start(self, may_go_on: bool, cause: str) -> None:  # noqa: FBT001 - the nursery's answer, passed on
        if not may_go_on:
            self._give_up(f"The worker's process cannot start: {cause}")

    # ----------------------------------------------------------------------------------------------- stopping

    def _signalled(self, number: int) -> None:
        if number in STOP_SIGNALS:
            self._told_to_stop(signal.Signals(number).name)
        elif number == signal.SIGTSTP:
            log.warning("A worker cannot be suspended from the terminal; stop it with Ctrl-C.")
        elif number == signal.SIGUSR1:
            for child in self._children:
                log.info("%s", child.describe())

    def _told_to_stop(self, name: str) -> None:
        counts = self._stopping.signal(boottime())
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
        works = any(child.going for child in self._children)
        timeline = Timeline.of(self._settings.grace_ms / 1000) if works else Timeline.at_once()
        self._stopping.order(boottime(), timeline)
        self._drain()

    def _drain(self) -> None:
        self._nursery.close()
        for child in self._children:
            child.told_to_end = True
            child.channel.send(m="drain", timeline=msgspec.to_builtins(self._stopping.timeline))

    def _kill_the_rest(self) -> None:
        """What is still there when its time is over: dead first, handed back then."""
        for child in self._children:
            if not child.killed:
                child.kill("it had not ended in time", deliberate=True)
                if child.going:
                    self._code = self._code or KILLED_SOME
                    log.warning("Child %d has not ended in time and is killed; its jobs are handed back.", child.pid)


def _raise(error: BaseException) -> None:
    raise error
