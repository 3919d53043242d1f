"""The children of one supervisor: started, heard, watched, ended, buried, replaced. On the main thread only.

A death goes one way: noticed (the kernel's SIGCHLD) -> offspring killed -> board read, verdicts -> undertaker closes
the worker and releases its jobs -> reaped -> replaced. Nothing is ready elsewhere before the last process of the dead
worker is gone. If this process dies in between, the children drain by themselves and the lease ends what is left.

Beside deaths, four times a second: is a loop silent, does a run not end that should (`warden`), has a child more memory
than it may, is there a child for each job that needs one to itself?
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import time
from collections.abc import Sequence
from typing import Protocol

from stillhere.domain.lease import LeasePlan
from stillhere.ports.backend import Lanes
from stillhere.worker import processes
from stillhere.worker.board import Phase
from stillhere.worker.clock import boottime, boottime_ns
from stillhere.worker.control import Message
from stillhere.worker.settings import WorkerSettings
from stillhere.worker.supervisor import warden
from stillhere.worker.supervisor.child_process import PROGRAM, ChildProcess
from stillhere.worker.supervisor.memory import OomKills
from stillhere.worker.supervisor.nursery import Death, Nursery
from stillhere.worker.supervisor.stopping import Stopping
from stillhere.worker.supervisor.undertaker import Burial

log = logging.getLogger("stillhere.supervisor")

TOO_MUCH = 1.25
"""A child that has so many times the memory it may have is killed, whatever runs in it."""
MEMORY_EVERY_S = 0.5


class Boss(Protocol):
    """What the children's keeper needs of the supervisor."""

    stopping: Stopping
    ready: bool
    """The store has answered: children may work."""

    def said_hello(self, hello: Message) -> str:
        """A child has its app; why it cannot be worked with, or ""."""

    def said(self, message: Message) -> None:
        """Any other message."""

    def cannot_start(self, cause: str, *, configuration: bool) -> None:
        """There is no point in going on, if there is no child yet that works."""

    def bury(self, burial: Burial) -> None:
        """Release what a dead child held."""

    def nudge(self) -> None:
        """Renew now: a child has fallen silent."""

    def left_some(self) -> None:
        """Something could not be ended in order."""


class Family:
    """See the module."""

    def __init__(
        self,
        settings: WorkerSettings,
        plan: LeasePlan,
        nursery: Nursery,
        selector: selectors.BaseSelector,
        boss: Boss,
        *,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self._settings, self._plan, self._program = settings, plan, program
        self.nursery, self._selector, self._boss = nursery, selector, boss
        self.children: list[ChildProcess] = []
        self._dumping: list[ChildProcess] = []
        """Dead and buried, but still writing their core dump."""
        self._oom = OomKills()
        self._memory_at = 0.0
        self._wants_spare = False
        """There are tasks that need a process of their own."""

    # ------------------------------------------------------------------------------------------------- starting

    def start_due(self) -> None:
        """Start what the nursery says."""
        for lanes in self.nursery.due(boottime()):
            self._start(lanes)

    def _start(self, lanes: Lanes) -> ChildProcess | None:
        try:
            if lanes == "pool" and self._settings.slots == 1:
                lanes = "both"  # what it runs is alone anyhow
            child = ChildProcess(self._settings, lanes, self._program)
        except OSError as error:
            log.error("A worker process cannot be started: %s", error)  # noqa: TRY400 - the system's words say it all
            if not self.nursery.failed_start(lanes, str(error), boottime()):
                self._give_up(str(error))
            return None
        self.children.append(child)
        self._selector.register(child.channel, selectors.EVENT_READ, child)
        return child

    def start_solos(self, suspects: int, solo: int) -> None:
        """See that there is a child for each job that waits for one, and one to spare where tasks ask for processes.

        A suspect is also taken by a pool child of one slot that runs nothing.
        """
        if self._boss.stopping.ordered or not self._boss.ready:
            return
        free = [child for child in self.children if child.waits_for_suspects]
        idle = [child for child in free if child.lanes == "solo"]
        solos = sum(child.lanes == "solo" and not child.retired_at for child in self.children)
        wanted = max(0, suspects - len(free) + len(idle)) + solo + self._wants_spare
        starts = range(self.nursery.solos(boottime(), wanted=wanted, solos=solos, idle=len(idle)))
        idle += [child for _ in starts if (child := self._start("solo")) is not None]
        listening = [child for child in idle if child.going]  # one that boots would not hear of it
        if self._wants_spare and listening:
            self._choose_spare(listening)

    @staticmethod
    def _choose_spare(idle: list[ChildProcess]) -> None:
        """One of those that wait stays, also if no job comes; the others leave: each was the one before."""
        chosen = next((child for child in idle if child.spare), idle[0])
        for child in idle:
            if child.spare != (child is chosen):
                child.spare = child is chosen
                child.channel.send(m="spare", spare=child.spare)

    # -------------------------------------------------------------------------------------------------- hearing

    def hear(self, child: ChildProcess) -> None:
        """Read what it says."""
        for message in child.channel.receive():
            match message.get("m"):
                case "hello":
                    self._greet(child, message)
                case "crashed":
                    self._crashed(child, message)
                case "draining":
                    child.drains(self._boss.stopping.longest_s)
                case "retiring" if child.retire(""):
                    self._replace_retired(child)
                case "bye" if message.get("left") and self._boss.stopping.ordered:
                    self._boss.left_some()  # its threads were in the middle of something
                case "solo" if child.lanes != "solo":
                    child.lanes = "solo"
                    log.info("Child %d has a long suspect to itself; another child takes its place.", child.pid)
                    if not self._boss.stopping.ordered:
                        self._start("pool")
                case _:
                    self._boss.said(message)
        if child.channel.eof:
            self._selector.unregister(child.channel)  # no proof of death: the kernel tells that

    def _greet(self, child: ChildProcess, hello: Message) -> None:
        why = self._boss.said_hello(hello)
        if why:
            child.last_words = why
            child.kill(why, deliberate=False)
            return
        child.greeted, child.queues = True, list(hello["queues"])
        self._wants_spare |= bool(hello.get("solo"))
        self.nursery.greeted()
        if self._boss.ready:
            self._let_go(child)

    def let_all_go(self) -> None:
        """The store answers: work."""
        for child in self.children:
            if child.greeted:
                self._let_go(child)

    def _let_go(self, child: ChildProcess) -> None:
        if not self._boss.stopping.ordered:
            child.going = True
            child.channel.send(m="go")

    def _crashed(self, child: ChildProcess, message: Message) -> None:
        child.last_words = str(message.get("text", ""))
        if message.get("type") != "configuration":
            child.last_words = f"{message.get('type')}: {child.last_words}"
        else:
            self._boss.cannot_start(child.last_words, configuration=True)

    # ------------------------------------------------------------------------------------------------- watching

    def watch(self) -> None:
        """Find the dead, and those that must be ended; notice silence."""
        for child in list(self.children):
            status = child.status()
            if status is not None:
                self._died(child, status)
                continue
            if child.look():
                self._boss.nudge()
            reason, deliberate = child.must_be_killed()
            if reason and not child.killed:
                log.warning("Child %d is killed: %s.", child.pid, reason)
                child.kill(reason, deliberate=deliberate)
            self._enforce(child)
            child.channel.flush()
        self._mind_memory()
        self.start_solos(0, 0)
        self._dumping = [child for child in self._dumping if not child.is_reaped]
        processes.reap_strangers({child.pid for child in self.children + self._dumping})

    def next_look(self) -> float:
        """When some run must be ended to the moment: what must not outlive its lease."""
        return min((self._doubt_ns(child) / 1e9 for child in self.children if child.has_doubters), default=float("inf"))

    def _doubt_ns(self, child: ChildProcess) -> int:
        plan = self._plan.draining() if child.board.phase == Phase.DRAIN else self._plan
        return warden.doubt_ns(child.board.last_sent_ns(), plan)

    def _enforce(self, child: ChildProcess) -> None:
        stopping = self._boss.stopping
        doing = child.case(
            doubt_ns=self._doubt_ns(child),
            draining=stopping.ordered,
            stop_all_ns=int(stopping.cancel_at * 1e9) if stopping.cancel_at <= boottime() else 0,
        )
        if doing.cut is not None:
            child.cut(doing.cut)
        if doing.kill:
            log.warning("Child %d is killed: %s.", child.pid, doing.kill)
            child.late = doing.late
            child.kill(doing.kill, deliberate=True)
        elif doing.retire and child.retire(doing.retire):
            log.warning(
                "Child %d takes no more jobs: %s. Its other jobs have %.3g s to end.",
                child.pid, doing.retire, self._settings.retire_grace_ms / 1000,
            )  # fmt: skip
            self._replace_retired(child)

    def _replace_retired(self, child: ChildProcess) -> None:
        if child.lanes != "solo" and not self._boss.stopping.ordered:
            self._start("pool")

    def _mind_memory(self) -> None:
        most, now = self._settings.max_memory, boottime()
        if now < self._memory_at:
            return
        self._memory_at = now + MEMORY_EVERY_S
        self._oom.look(now)
        for child in self.children if most else ():
            has = processes.resident_bytes(child.pid)
            why = f"it has {has >> 20} MiB of memory, more than --max-memory {most >> 20} MiB"
            if has > most * (1 if child.lanes == "solo" and child.board.taken() else TOO_MUCH) and not child.killed:
                log.warning("Child %d is killed: %s.", child.pid, why)
                child.kill(why, deliberate=False)
            elif has > most and child.retire(why):
                log.warning("Child %d takes no more jobs and is replaced: %s.", child.pid, why)
                self._replace_retired(child)

    # --------------------------------------------------------------------------------------------------- deaths

    def _died(self, child: ChildProcess, status: int) -> None:
        since = time.monotonic()
        processes.end_offspring(child.pid, child.mark, dumping=not child.is_dead)
        by_somebody = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL and not child.killed
        crash = child.crash(status, out_of_memory=by_somebody and self._oom.explain(boottime()))
        reason = child.reason(status, out_of_memory=crash.out_of_memory)
        seen, well = child.seen(), child.ended_well(status)
        if child.going:
            self._boss.bury(Burial.of(child, seen, crash, reason, since=since))
        self.children.remove(child)
        if not child.channel.eof:
            self._hear_last(child)
        told = self._boss.stopping.ordered and not child.going
        if not well and not child.deliberate and not told:
            log.warning(
                "Child %d (worker %s): %s", child.pid, child.worker, f"{reason}. {child.last_words}".rstrip(" .")
            )
        if not self._boss.stopping.ordered:
            self._replace(child, well=well, reason=reason, ran=any(one.running for one in seen))
        if not child.is_reaped:
            self._dumping.append(child)
        child.close()

    def _hear_last(self, child: ChildProcess) -> None:
        """What it said just before it died is still in the socket."""
        self.hear(child)
        if not child.channel.eof:
            self._selector.unregister(child.channel)

    def _replace(self, child: ChildProcess, *, well: bool, reason: str, ran: bool) -> None:
        if child.retired_at:
            return  # its place is taken
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
        if not self.nursery.died(death, boottime()):
            self._give_up(cause)

    def _give_up(self, cause: str) -> None:
        self._boss.cannot_start(f"The worker's process cannot start: {cause}", configuration=False)

    # --------------------------------------------------------------------------------------------------- ending

    def drain(self, timeline: object) -> None:
        """Have all of them end by this timeline."""
        self.nursery.close()
        for child in self.children:
            child.told_to_end = True
            child.channel.send(m="drain", timeline=timeline)

    def kill_the_rest(self) -> None:
        """What is still there when its time is over: dead first, handed back then."""
        for child in self.children:
            if not child.killed:
                child.late = child.overdue(boottime_ns())
                child.kill("it had not ended in time", deliberate=True)
                if child.going:
                    self._boss.left_some()
                    log.warning("Child %d has not ended in time and is killed; its jobs are handed back.", child.pid)

    def close(self, within_s: float) -> None:
        """Kill all, await them a moment."""
        for child in self.children:
            child.kill("the worker ends", deliberate=True)
        over = time.monotonic() + within_s
        while not all(child.is_reaped for child in self.children) and time.monotonic() < over:
            time.sleep(0.005)
        for child in self.children:
            child.close()
