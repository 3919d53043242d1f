"""One child, seen from its supervisor: started by exec, watched by its board, told by its channel.

Exec and not fork: a fork would inherit connections, locks in mid use and threads that are not there. The child leads a
session of its own, so a terminal's Ctrl-C reaches the supervisor alone, and its group can be killed as one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
from typing import Any

from stillhere.domain.attribution import Seen
from stillhere.ports.backend import Lanes
from stillhere.worker.board import WORKING, Board, Phase, SlotState
from stillhere.worker.clock import boottime, boottime_ns
from stillhere.worker.control import Channel
from stillhere.worker.settings import WorkerSettings
from stillhere.worker.supervisor import processes

SILENT_NS = 1_000_000_000


class ChildProcess:
    """A child from its start to its burial. Only the supervisor's main thread changes it; the beater reads."""

    def __init__(self, settings: WorkerSettings, lanes: Lanes) -> None:
        """Start it; called on the main thread only."""
        self.lanes: Lanes = lanes
        token = secrets.token_hex(8)
        self.first_worker = f"{settings.name}-{token}" if settings.name else token
        slots = 1 if lanes == "solo" else settings.slots
        long_places = 0 if lanes == "solo" else settings.long_places
        self.board = Board.create(2 * (slots + long_places) + 8)
        self.channel, theirs = Channel.pair()
        self.born = boottime()
        self.mark = secrets.token_hex(8)
        with theirs:
            self._popen = subprocess.Popen(
                [
                    sys.executable, "-m", "stillhere.worker.child",
                    "--board", str(self.board.fd), "--control", str(theirs.fileno()),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=[self.board.fd, theirs.fileno()],
                start_new_session=True,
                env=os.environ | {processes.MARK: self.mark},
            )  # fmt: skip
        self.pid = self._popen.pid
        self.queues: list[str] = []
        self.hello: dict[str, Any] | None = None
        self.gone_sent = False
        self.going = False
        """It was told `go`."""
        self.told_to_end = False
        self.killed = False
        """By us: what it ran is interrupted, not lost."""
        self.last_words = ""
        self.exit_since = 0.0
        self.zombie_since = 0.0
        self.silent = False
        """Its loop has not ticked for a second: hand back what it has not answered."""
        self.vouch_until: float | None = None
        self.channel.send(m="start", settings=settings.to_json(), worker=self.first_worker, lanes=lanes)

    @property
    def worker(self) -> str:
        """The id under which it is registered now."""
        return self.board.worker or self.first_worker

    @property
    def vouched(self) -> bool:
        """Whether the supervisor may speak for it: it lives, is not stopped, and is in a working phase.

        Silence is no reason to stop: a loop that is blocked, or a GIL that is held, is work.
        """
        if not self.going or self.killed or self.board.phase not in WORKING:
            return False
        if self.vouch_until is not None and boottime() > self.vouch_until:
            return False
        return processes.state(self.pid) not in ("T", "t", "Z", "X") and not processes.is_dumping(self.pid)

    def look(self) -> bool:
        """Look at the board; True when its loop has just gone silent."""
        phase, now = self.board.phase, boottime()
        self.exit_since = (self.exit_since or now) if phase == Phase.EXIT else 0.0
        ticked = self.board.read("loop_tick_ns")
        silent = bool(ticked) and phase in WORKING and boottime_ns() - ticked > SILENT_NS
        newly, self.silent = silent and not self.silent, silent
        return newly

    def must_be_killed(self) -> str:
        """Why it cannot be waited for any longer; "" when it can."""
        now = boottime()
        if self.exit_since and now - self.exit_since > 2.0:
            return "it hangs at its exit"
        zombie = processes.state(self.pid) == "Z" and processes.exit_status(self.pid) is None
        self.zombie_since = (self.zombie_since or now) if zombie else 0.0
        return "its main thread has left" if zombie and now - self.zombie_since > 1.0 else ""

    def kill(self) -> None:
        """SIGKILL for the child and its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def seen(self) -> list[Seen]:
        """What its board shows: the jobs it had."""
        return [
            Seen(self.queues[slot.queue], slot.job, running=slot.state == SlotState.STARTED)
            for slot in self.board.taken()
            if slot.queue < len(self.queues)
        ]

    def close(self) -> None:
        """Let go of a dead child: its status, its channel, its board."""
        self._popen.wait()
        self.channel.close()
        self.board.close()

    def describe(self) -> str:
        """One line for people."""
        running = [slot for slot in self.board.taken() if slot.state == SlotState.STARTED]
        names = ", ".join(f"{slot.task} {slot.job[-8:]}" for slot in running[:5])
        return (
            f"child {self.pid} worker {self.worker} lanes {self.lanes} phase {self.board.phase.name}"
            f"{' silent' if self.silent else ''} runs {len(running)}{': ' + names if names else ''}"
        )
