"""One child, seen from its supervisor: started by exec, watched by its board, told by its channel.

Exec and not fork: a fork would inherit connections, locks in mid use and threads that are not there. The child leads a
session of its own, so a terminal's Ctrl-C reaches the supervisor alone, and its group can be killed as one.

Silence of its ticks proves nothing: a blocked loop and a held GIL are work. What proves something is the kernel's word
(dead, stopped, dumping core), the phase that the child itself wrote, and a worker id that the store has closed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Sequence

from stillhere.domain.attribution import Crash, Seen, exit_reason
from stillhere.domain.job import Outcome
from stillhere.ports.backend import Held, Lanes
from stillhere.worker import processes
from stillhere.worker.anonymous import anonymous_file, read_all
from stillhere.worker.board import WORKING, Board, Phase, Slot
from stillhere.worker.clock import boottime, boottime_ns
from stillhere.worker.control import Channel
from stillhere.worker.cut import CUT_SIGNAL
from stillhere.worker.settings import WorkerSettings
from stillhere.worker.supervisor import warden
from stillhere.worker.supervisor.vouched import LOOK_CLOSER_S, SILENT_S, seen_on, silence
from stillhere.worker.timeline import Timeline

log = logging.getLogger("stillhere.supervisor")

PROGRAM = ("-m", "stillhere.worker.child")
EXIT_S = 2.0
ZOMBIE_S = 1.0
_WARN_EVERY_S = 60.0


class ChildProcess:
    """A child from its start to its burial. Only the supervisor's main thread changes it; the beater reads."""

    def __init__(self, settings: WorkerSettings, lanes: Lanes, program: Sequence[str] = PROGRAM) -> None:
        """Start it; on the main thread only. Raises `OSError` when there is no memory or no process to be had."""
        self.lanes: Lanes = lanes
        self._settings = settings
        token = secrets.token_hex(8)
        self._first_worker = f"{settings.name}-{token}" if settings.name else token
        slots = 1 if lanes == "solo" else settings.slots
        long_places = 0 if lanes == "solo" else settings.long_places
        self.born = boottime()
        self.mark = secrets.token_hex(8)
        self.board = Board.create(2 * (slots + long_places) + 8)
        self._dump = anonymous_file("stillhere-dump")
        try:
            self.channel, theirs = Channel.pair()
            with theirs:
                self._popen = self._exec(program, theirs.fileno())
        except OSError:
            self.board.close()
            os.close(self._dump)
            raise
        self.pid = self._popen.pid
        self.queues: list[str] = []
        self.greeted = False
        self.going = False
        """It was told `go`: it may have registered, so its death is to be told to the store."""
        self.told_to_end = False
        self.last_words = ""
        self.killed = ""
        """Why it was killed by this supervisor."""
        self.deliberate = False
        """Killed at a deadline, for no fault of its own: what it ran is interrupted, not lost."""
        self.end_by: float | None = None
        """It drains by itself, and is killed then."""
        self.silent = False
        """Its loop has not ticked for a second: hand back what it has not answered."""
        self.spare = False
        """It waits, so that the next job that needs a process of its own need not wait for one to start."""
        self.retired_at = 0.0
        """It takes no more jobs, and another child has its place; 0: it does."""
        self.late: frozenset[warden.Key] = frozenset()
        """Runs that it could not end: with its death they end."""
        self.void = warden.Void()
        self.cancelled: dict[warden.Key, int] = {}
        """Runs that the store says are cancelled while it is silent, and since when that is known here, in ns."""
        self._exit_since = self._zombie_since = self._silent_since = self._cut_at = 0.0
        self._warned_at = -_WARN_EVERY_S
        self.channel.send(
            m="start", settings=settings.to_json(), worker=self._first_worker, lanes=lanes, supervisor=os.getpid()
        )

    def _exec(self, program: Sequence[str], control: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                sys.executable,
                *program,
                "--board",
                str(self.board.fd),
                "--control",
                str(control),
                "--dump",
                str(self._dump),
            ],
            stdin=subprocess.DEVNULL,
            pass_fds=[self.board.fd, control, self._dump],
            start_new_session=True,
            env=os.environ | {processes.MARK: self.mark},
        )

    # ------------------------------------------------------------------------------------------------- vouching

    @property
    def worker(self) -> str:
        """The id under which it is registered now."""
        return self.board.worker or self._first_worker

    @property
    def vouched(self) -> bool:
        """Whether the supervisor may speak for it: it lives, is not stopped, and is in a working phase."""
        if not self.going or self.killed or self.board.phase not in WORKING:
            return False
        return not processes.is_stopped(self.pid) and not processes.is_dumping(self.pid)

    def look(self) -> bool:
        """Look at the board; True when its loop has just gone silent."""
        now = boottime()
        self._exit_since = (self._exit_since or now) if self.board.phase == Phase.EXIT else 0.0
        if self.board.phase in (Phase.DRAIN, Phase.ORPHAN) and self.end_by is None and not self.told_to_end:
            self.drains(self._settings.grace_ms / 1000 + Timeline.of(self._settings.grace_ms / 1000).kill)
        silent, newly = self._silence() > SILENT_S, False
        if silent and not self.silent:
            newly, self._silent_since = True, now - SILENT_S
            self._warn_of_silence(now)
        elif self.silent and not silent and self._silent_since > self._warned_at - 2 * SILENT_S:
            log.info("Child %d: its event loop moves again, after %.1f s.", self.pid, now - self._silent_since)
        self.silent = silent
        return newly

    @property
    def waits_for_suspects(self) -> bool:
        """Whether it takes suspects and has nothing: not when it is on its way out."""
        free = self.lanes != "pool" and self.board.phase < Phase.RETIRE and not self.retired_at
        return free and not self.board.taken()

    @property
    def is_silent(self) -> bool:
        """Whether its loop is silent at this moment: asked last before a hand-back, since it may have woken."""
        return self._silence() > SILENT_S

    def _silence(self) -> float:
        """Seconds since its loop ticked last; 0 for a child that has no loop yet, or none any more."""
        return silence(self.board)

    def _warn_of_silence(self, now: float) -> None:
        """Blocking the loop is the commonest mistake in an async handler; now and then it is worth a line."""
        if now - self._warned_at < _WARN_EVERY_S or processes.is_stopped(self.pid):
            return
        self._warned_at = now
        current = self.board.current()
        by = f"it is in a step of {self._names([current])}" if current else "it is in none of its jobs' steps"
        keeper = self.board.read("keeper_tick_ns")
        if keeper and (boottime_ns() - keeper) / 1e9 > SILENT_S:
            by += ", and no other thread gets to run"
        log.warning(
            "Child %d: its event loop has not moved for %.1f s: %s. It runs %s. The lease is kept, but a handler that "
            "blocks holds up all others: let it await, or write it as `def`.",
            self.pid, self._silence(), by, self._names(self._running(), "nothing"),
        )  # fmt: skip

    # --------------------------------------------------------------------------------------------------- its end

    def status(self) -> int | None:
        """Its wait status when it is dead; None while it lives. One that is dumping core is dead."""
        status = processes.exit_status(self._popen)
        if status is None and self.is_dumping:
            return processes.dumping_status(self.pid)
        return status

    @property
    def is_dumping(self) -> bool:
        """Whether it is writing a core dump; asked only when its loop is silent."""
        return self._silence() > LOOK_CLOSER_S and processes.is_dumping(self.pid)

    @property
    def is_dead(self) -> bool:
        """Whether it has ended altogether; one that is dumping core has not."""
        return processes.exit_status(self._popen) is not None

    @property
    def is_reaped(self) -> bool:
        """As `is_dead`; its status is taken away then."""
        if not self.is_dead:
            return False
        self._popen.wait()
        return True

    def must_be_killed(self) -> tuple[str, bool]:
        """Why it cannot be waited for any longer ("" when it can), and whether that is for no fault of its own."""
        now = boottime()
        if self._exit_since and now - self._exit_since > EXIT_S:
            return "it hangs at its exit", False
        zombie = processes.state(self.pid) == "Z" and processes.exit_status(self._popen) is None
        self._zombie_since = (self._zombie_since or now) if zombie else 0.0
        if zombie and now - self._zombie_since > ZOMBIE_S:
            return "its main thread has left", False
        if self.end_by is not None and now > self.end_by:
            return "it had not ended in time", True
        return "", False

    def ask(self, question: str, job: str) -> None:
        """Where is the code of this job? Its keeper thread answers, if it runs."""
        self.channel.send(m="stack", req=question, job=job)

    def declared_gone(self) -> None:
        """The store has closed its worker id: what runs under it is void."""
        self.channel.send(m="gone", worker=self.worker)
        started = frozenset(map(warden.key_of, self._running()))
        if not self.void.runs & started:
            self.void = warden.Void(boottime_ns(), started)

    def told_cancelled(self, queue: str, pairs: Sequence[Held]) -> None:
        """The store says that these are cancelled, and the child is silent."""
        index = self.queues.index(queue)
        held = {warden.key_of(slot) for slot in self._running()}
        told = {(index, pair.job, pair.token) for pair in pairs} & held
        self.cancelled = {key: self.cancelled.get(key, boottime_ns()) for key in told | (self.cancelled.keys() & held)}

    def case(self, *, doubt_ns: int, draining: bool, stop_all_ns: int) -> warden.Doing:
        """What is to be done about runs of its that are over; see `warden.Case`."""
        if not self.going or self.killed:
            return warden.NOTHING
        case = warden.Case(
            solo=self.lanes == "solo",
            cuttable=bool(self.board.read("cuttable")),
            retired_ns=int(self.retired_at * 1e9),
            retire_grace_ns=self._settings.retire_grace_ms * 1_000_000,
            void=self.void,
            cancelled=self.cancelled,
            doubt_ns=doubt_ns,
            draining=draining,
            stop_all_ns=stop_all_ns,
        )
        return warden.look(self.board, case, boottime_ns())

    @property
    def has_doubters(self) -> bool:
        """Whether a run of its must not outlive its lease."""
        return self.going and not self.killed and any(slot.limits.stops_in_doubt for slot in self._running())

    def overdue(self, now_ns: int) -> frozenset[warden.Key]:
        """The runs that are past their own limits, or were cancelled, and go on."""
        return frozenset(
            warden.key_of(slot)
            for slot in self._running()
            if slot.over_ns and slot.over_ns <= now_ns and slot.why_over in ("timeout", "stalled", "cancelled")
        )

    def cut(self, run: Slot) -> None:
        """Send the signal that ends this run, if it holds the loop when the signal comes; not too often."""
        now = boottime()
        if now - self._cut_at >= warden.CUT_EVERY_S:
            self._cut_at = now
            log.warning("Job %s (%s) blocks the loop of child %d after its time: cut.", run.job, run.task, self.pid)
            self.board.write("cut_slot", run.index + 1)
            self.board.write("cut_token", run.token)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, CUT_SIGNAL)

    def retire(self, why: str) -> bool:
        """Have it take no more jobs; False: it knows already."""
        if self.retired_at or self.told_to_end:
            return False
        self.retired_at = boottime()
        self.channel.send(m="retire", why=why)
        return True

    def drains(self, seconds: float) -> None:
        """It was told to end, by us or by somebody else: it has so long."""
        self.told_to_end = True
        self.end_by = min(boottime() + seconds, self.end_by or float("inf"))

    def kill(self, why: str, *, deliberate: bool) -> None:
        """SIGKILL for the child and its group; the first reason stays."""
        if not self.killed:
            self.killed, self.deliberate = why, deliberate
        processes.kill_group(self.pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def ended_well(self, status: int) -> bool:
        """Whether it left by its own will. A handler that calls `os._exit(0)` has not written the phase."""
        return status == 0 and self.board.phase == Phase.EXIT

    def reason(self, status: int, *, out_of_memory: bool = False) -> str:
        """Why it is dead, in words."""
        if self.killed:
            return f"killed by its supervisor: {self.killed}"
        return exit_reason(status, out_of_memory=out_of_memory)

    def seen(self) -> list[Seen]:
        """What its board shows: the jobs it had."""
        return seen_on(self.board, self.queues)

    def crash(self, status: int, *, out_of_memory: bool) -> Crash:
        """What its death looks like, beside its board."""
        return Crash(
            status=status,
            deliberate=self.deliberate or self.ended_well(status),
            ours=bool(self.killed),
            out_of_memory=out_of_memory and not self.killed,
            dump=read_all(self._dump),
            loop_thread=self.board.read("loop_thread"),
        )

    def ends(self) -> dict[str, list[Outcome]]:
        """How runs end that it could not end and that its death has ended, by queue."""
        return warden.outcomes(self.board, self.queues, self.late, self.void, self.cancelled)

    def close(self) -> None:
        """Let go of what is shared with a dead child."""
        self.channel.close()
        self.board.close()
        os.close(self._dump)

    # ------------------------------------------------------------------------------------------------ for people

    def describe(self) -> str:
        """One line."""
        running, current = self._running(), self.board.current()
        return (
            f"child {self.pid} worker {self.worker} lanes {self.lanes} phase {self.board.phase.name}"
            f"{' silent' if self.silent else ''}{f' in a step of {current.job}' if current else ''}"
            f" runs {len(running)}{': ' if running else ''}{self._names(running)}"
        )

    def _running(self) -> list[Slot]:
        return warden.running(self.board)

    @staticmethod
    def _names(running: list[Slot], none: str = "") -> str:
        more = f" and {len(running) - 5} more" if len(running) > 5 else ""
        return (", ".join(f"{slot.task} {slot.job[-8:]}" for slot in running[:5]) or none) + more
