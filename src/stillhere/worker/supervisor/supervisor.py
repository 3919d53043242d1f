"""The supervisor: a process without user code that starts children, speaks for them, and buries them.

Its main thread waits (on signals, children, sockets, timers) and never calls the store; the beater and the undertaker
do, each on a connection of its own. So nothing that hangs there delays the notice of a death, and nothing that hangs
here delays a beat.

A death goes one way: noticed (the kernel's SIGCHLD) -> offspring killed -> board read, verdicts -> undertaker closes
the worker and releases its jobs -> reaped -> replaced. Nothing is ready elsewhere before the last process of the dead
worker is gone. If this process dies in between, the children drain by themselves and the lease ends what is left.

States: START (no `go` given yet), UP, DRAIN (told to stop), then gone. Signals: the first one drains, one that comes
at least 0.3 s later ends now, a third kills.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import selectors
import signal
import time
from collections.abc import Callable
from random import Random
from typing import Protocol

import msgspec

from stillhere.domain.attribution import exit_reason, judge
from stillhere.domain.job import Verdict
from stillhere.domain.lease import plan_for
from stillhere.ports.backend import Lanes, SyncStore
from stillhere.worker.clock import boottime
from stillhere.worker.control import PROTOCOL, Message
from stillhere.worker.settings import WorkerSettings
from stillhere.worker.supervisor import processes
from stillhere.worker.supervisor.backoff import Backoff
from stillhere.worker.supervisor.beater import Beater
from stillhere.worker.supervisor.child_process import ChildProcess
from stillhere.worker.supervisor.greeting import greeting
from stillhere.worker.supervisor.undertaker import Burial, Undertaker
from stillhere.worker.timeline import Timeline

log = logging.getLogger("stillhere.supervisor")

OK, KILLED_SOME, MISCONFIGURED = 0, 70, 78
WATCH_S = 0.25
ONE_SIGNAL_S = 0.3
"""Wrappers forward a signal that the terminal has sent already: within this time it is one."""
RELEASE_WITHIN_S = 3.0
"""At the exit the undertaker gets so long; what it cannot release is left to the lease."""


class OpenStore(Protocol):
    """How a supervisor gets its stores; given by the program, since this floor does not know them."""

    def __call__(self, url: str, namespace: str) -> SyncStore:
        """A store for one thread."""


class Supervisor:
    """One `stillhere worker`."""

    def __init__(self, settings: WorkerSettings, open_store: OpenStore, wakeup: tuple[int, int]) -> None:
        """`wakeup`: both ends of the pipe into which signals write; neither blocks."""
        self._settings = settings
        self._open_store = open_store
        self._plan = plan_for(settings.lease_ms / 1000)
        self._selector = selectors.DefaultSelector()
        self._wakeup_fd, self._nudge_fd = wakeup
        self._selector.register(self._wakeup_fd, selectors.EVENT_READ)
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._children: list[ChildProcess] = []
        self._starts: list[tuple[float, Lanes]] = []
        self._backoff = Backoff(Random())
        self._beater: Beater | None = None
        self._undertaker: Undertaker | None = None
        self._stores: list[SyncStore] = []
        self._ready = False
        self._signals = 0
        self._signal_at = 0.0
        self._stop_at: float | None = None
        self._timeline = Timeline.of(settings.grace_ms / 1000)
        self._killed_some = False
        self._code: int | None = None

    # ------------------------------------------------------------------------------------------------ its life

    def run(self) -> int:
        """Work until told to stop, or until there is nothing left (burst); returns the exit code."""
        processes.become_reaper()
        for _ in range(self._settings.processes):
            self._start("pool")
        while self._code is None:
            self._wait()
            self._serve_calls()
            self._watch()
            self._start_due()
            if self._stop_at is not None:
                self._enforce(boottime() - self._stop_at)
            if not self._children and not self._starts:
                self._code = KILLED_SOME if self._killed_some else OK
        return self._finish()

    def _wait(self) -> None:
        soonest = min([boottime() + WATCH_S, *(at for at, _ in self._starts)])
        for key, _ in self._selector.select(max(0.0, soonest - boottime())):
            if key.fileobj == self._wakeup_fd:
                for number in os.read(self._wakeup_fd, 4096):
                    self._signalled(number)
            elif isinstance(key.data, ChildProcess):
                self._hear(key.data)

    def _finish(self) -> int:
        """Let the undertaker end, then everything else."""
        for child in list(self._children):
            child.kill()
            processes.reap(child.pid)
        over = time.monotonic() + RELEASE_WITHIN_S
        undertaker = self._undertaker
        while undertaker is not None and undertaker.pending and time.monotonic() < over:
            time.sleep(0.005)
        if undertaker is not None and undertaker.pending:
            log.error("The store is away: what is left of this worker returns when its lease ends.")
            self._code = self._code or KILLED_SOME
        if self._beater is not None:
            self._beater.stop()
        if undertaker is not None:
            undertaker.stop()
        return self._code or OK

    def _later(self, call: Callable[[], None]) -> None:
        """Have the main thread do it; from any thread."""
        self._calls.put(call)
        with contextlib.suppress(BlockingIOError):
            os.write(self._nudge_fd, b"\0")

    def _serve_calls(self) -> None:
        while not self._calls.empty():
            self._calls.get()()

    # ---------------------------------------------------------------------------------------------- children

    def _start(self, lanes: Lanes) -> None:
        if self._settings.slots == 1 and lanes == "pool":
            child = ChildProcess(self._settings, "both")
        else:
            child = ChildProcess(self._settings, lanes)
        self._children.append(child)
        self._selector.register(child.channel, selectors.EVENT_READ, child)

    def _start_due(self) -> None:
        now = boottime()
        due = [lanes for at, lanes in self._starts if at <= now]
        self._starts = [(at, lanes) for at, lanes in self._starts if at > now]
        if self._stop_at is None:
            for lanes in due:
                self._start(lanes)
        else:
            self._starts = []

    def _hear(self, child: ChildProcess) -> None:
        for message in child.channel.receive():
            kind = message.get("m")
            if kind == "hello":
                self._greet(child, message)
            elif kind == "crashed":
                child.last_words = str(message.get("text", ""))
                if message.get("type") == "configuration":
                    self._misconfigured(child.last_words)
            elif kind == "draining":
                child.told_to_end = True
            elif kind == "solo" and child.lanes != "solo":
                child.lanes = "solo"
                log.info("Child %d has a long suspect to itself; another child takes its place.", child.pid)
                if self._stop_at is None:
                    self._start("pool")
        if child.channel.eof:
            self._selector.unregister(child.channel)  # no proof of death: the kernel tells that

    def _greet(self, child: ChildProcess, hello: Message) -> None:
        """A child has its app: learn the store from the first one, and let it work once the store has answered."""
        if hello.get("proto") != PROTOCOL:
            self._misconfigured("The child is of another version of stillhere than its supervisor. Restart the worker.")
            return
        child.hello = hello
        child.queues = list(hello["queues"])
        self._backoff.started()
        if self._beater is None:
            for line in greeting(self._settings, hello, self._plan):
                log.info("%s", line)
            self._open(hello["url"], hello["namespace"], child.queues)
        if self._ready:
            self._let_go(child)

    def _open(self, url: str, namespace: str, queues: list[str]) -> None:
        self._stores = [self._open_store(url, namespace) for _ in range(2)]
        self._beater = Beater(
            self._stores[0],
            self._plan,
            queues,
            lambda: list(self._children),
            on_ready=lambda: self._later(self._store_ready),
            on_gone=lambda child, worker: self._later(lambda: self._tell_gone(child, worker)),
            on_suspects=lambda count: self._later(lambda: self._start_solo(count)) if count else None,
        )
        self._undertaker = Undertaker(
            self._stores[1], self._plan, lambda _, suspects: self._later(lambda: self._start_solo(suspects))
        )
        self._undertaker.warm(queues)
        self._beater.start()
        self._undertaker.start()

    def _store_ready(self) -> None:
        self._ready = True
        for child in self._children:
            if child.hello is not None and not child.going:
                self._let_go(child)

    def _let_go(self, child: ChildProcess) -> None:
        child.going = True
        child.channel.send(m="go")
        if self._stop_at is not None:
            self._tell_drain(child)

    def _tell_gone(self, child: ChildProcess, worker: str) -> None:
        """The store has closed a child's worker id: it must drop all and register anew."""
        if child in self._children and child.worker == worker:
            child.channel.send(m="gone", worker=worker)

    def _start_solo(self, suspects: int) -> None:
        """Suspects wait: have enough children that run nothing beside one."""
        if self._stop_at is not None or not self._ready:
            return
        solos = sum(child.lanes == "solo" for child in self._children)
        idle = sum(child.lanes != "pool" and not child.board.taken() for child in self._children)
        for _ in range(min(self._settings.solo - solos, suspects - idle)):
            self._start("solo")

    # ----------------------------------------------------------------------------------------------- deaths

    def _watch(self) -> None:
        """Find the dead, and those that must be ended; notice silence."""
        for child in list(self._children):
            status = processes.exit_status(child.pid)
            if status is not None:
                self._died(child, status)
                continue
            if child.look() and self._beater is not None:
                self._beater.nudge()
            reason = child.must_be_killed()
            if reason:
                log.warning("Child %d is killed: %s.", child.pid, reason)
                child.kill()
        processes.reap_strangers({child.pid for child in self._children})

    def _died(self, child: ChildProcess, status: int) -> None:
        since = time.monotonic()
        processes.end_offspring(child.pid, child.mark)
        reason = "stopped by its supervisor" if child.killed else exit_reason(status)
        seen = child.seen()
        if child.going and self._undertaker is not None:
            self._undertaker.bury(
                Burial(
                    worker=child.worker,
                    queues=child.queues,
                    reason=reason,
                    default=Verdict.INTERRUPTED if child.killed else Verdict.BYSTANDER,
                    verdicts=judge(seen, deliberate=child.killed or status == 0),
                    answered=[child.board.answered(index) for index in range(len(child.queues))],
                    since=since,
                )
            )
        self._children.remove(child)
        if not child.channel.eof:
            self._hear_last(child)
        ran = any(one.running for one in seen)
        if status != 0 and not child.killed and self._stop_at is None:
            log.warning("Child %d (worker %s): %s. %s", child.pid, child.worker, reason, child.last_words)
        lived = boottime() - child.born
        self._replace(child, status, reason, lived_s=lived, ran=ran)
        child.close()

    def _hear_last(self, child: ChildProcess) -> None:
        """What it said just before it died is still in the socket."""
        self._hear(child)
        if not child.channel.eof:
            self._selector.unregister(child.channel)

    def _replace(self, child: ChildProcess, status: int, reason: str, *, lived_s: float, ran: bool) -> None:
        if self._stop_at is not None or self._code is not None or child.lanes == "solo":
            return
        if child.hello is None:
            cause = child.last_words or reason
            if self._backoff.failed_to_start(cause):
                self._misconfigured(f"The worker's process cannot start: {cause}")
            self._starts.append((boottime() + 0.2, "pool"))
        elif status == 0 and self._settings.burst and not child.told_to_end:
            return
        else:
            delay = 0.0 if child.told_to_end else self._backoff.died(lived_s=lived_s, ran_jobs=ran)
            self._starts.append((boottime() + delay, "pool"))

    def _misconfigured(self, text: str) -> None:
        log.error("%s", text)
        self._code = MISCONFIGURED

    # ---------------------------------------------------------------------------------------------- stopping

    def _signalled(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._told_to_stop(signal.Signals(number).name)
        elif number == signal.SIGTSTP:
            log.warning("A worker cannot be suspended from the terminal; stop it with Ctrl-C.")
        elif number == signal.SIGUSR1:
            for child in self._children:
                log.info("%s", child.describe())

    def _told_to_stop(self, name: str) -> None:
        now = boottime()
        if self._signals and now - self._signal_at < ONE_SIGNAL_S:
            return
        self._signals += 1
        self._signal_at = now
        if self._signals == 1:
            log.info("%s: stopping. Jobs may end within %.3g s.", name, self._settings.grace_ms / 1000)
            self._stop_at = now
        elif self._signals == 2:
            log.warning("%s again: ending now.", name)
            self._stop_at, self._timeline = now, Timeline.now()
        else:
            self._stop_at, self._timeline = now, Timeline(0.0, 0.0, 0.0)
        for child in self._children:
            self._tell_drain(child)

    def _tell_drain(self, child: ChildProcess) -> None:
        child.told_to_end = True
        child.channel.send(m="drain", timeline=msgspec.to_builtins(self._timeline))

    def _enforce(self, passed: float) -> None:
        """Kill what is still there when its time is over: dead first, handed back then."""
        if passed < self._timeline.kill:
            return
        for child in self._children:
            if not child.killed:
                child.killed = self._killed_some = True
                log.warning("Child %d has not ended in time and is killed; its jobs are handed back.", child.pid)
                child.kill()
