"""Questions about running jobs: from the store to the child that runs it, and back.

A question stands in the store until it is answered, and each tick brings it again; so what is pending is kept here, and
so is what was answered just now. The child's keeper thread answers, if it runs. A child whose interpreter is held by a
call of C's cannot: after a second the supervisor says what it knows from the board, and adds the stack that `py-spy`
reads from outside, where that is installed. It stops the process for some milliseconds, which costs no lease.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from stillhere.ports.backend import Asked
from stillhere.worker.board import Slot
from stillhere.worker.clock import boottime, boottime_ns
from stillhere.worker.supervisor.vouched import Vouched

PATIENCE_S = 1.0
PATIENCE_MAX_S = 8.0
"""For a child whose keeper thread runs: it may have other questions before it."""
FORGET_S = 60.0
SPY_WITHIN_S = 8.0

Tell = Callable[[str, str, str], None]
"""Queue, question, answer: pass it to the store."""


class Questions:
    """On the main thread; only the reading from outside is done in a thread of its own, which tells by itself."""

    def __init__(self, tell: Tell) -> None:
        """`tell` may be called from any thread."""
        self._tell = tell
        self._pending: dict[str, tuple[str, Asked, Vouched, float]] = {}
        self._known: dict[str, float] = {}

    def ask(self, queue: str, asks: Iterable[Asked], workers: Sequence[Vouched]) -> None:
        """Pass on what is new and about one of these."""
        now = boottime()
        self._known = {one: at for one, at in self._known.items() if now - at < FORGET_S}
        by_worker = {child.worker: child for child in workers}
        for asked in asks:
            child = by_worker.get(asked.worker)
            if child is not None and asked.id not in self._known:
                self._known[asked.id] = now
                self._pending[asked.id] = (queue, asked, child, now)
                child.ask(asked.id, asked.job)

    def answered(self, question: str, text: str) -> None:
        """The answer of one of them."""
        if (pending := self._pending.pop(question, None)) is not None:
            queue, asked, child, _ = pending
            self._tell(queue, question, f"{about(child, asked.job)}\n{text}")

    def look(self) -> None:
        """Answer for those that cannot."""
        for queue, asked, child, at in list(self._pending.values()):
            quiet_s = (boottime_ns() - child.board.read("keeper_tick_ns")) / 1e9
            if boottime() - at > (PATIENCE_S if quiet_s > PATIENCE_S else PATIENCE_MAX_S):
                del self._pending[asked.id]
                known = f"{about(child, asked.job)}\n{_held(child)}"
                told = (queue, asked.id, known, child.pid)
                threading.Thread(
                    target=self._answer_from_outside, args=told, name="stillhere-stack", daemon=True
                ).start()

    def _answer_from_outside(self, queue: str, question: str, known: str, pid: int) -> None:
        self._tell(queue, question, f"{known}\n{stack_from_outside(pid)}")


def stack_from_outside(pid: int) -> str:
    """What py-spy reads of a process, or why there is nothing to read."""
    spy = Path(sys.executable).with_name("py-spy")
    if not spy.exists():
        return "Its stack can be read from outside by py-spy: pip install py-spy, in the worker's environment."
    try:
        done = subprocess.run(
            [str(spy), "dump", "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SPY_WITHIN_S,
            check=False,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"py-spy could not read its stack: {error}"
    return done.stdout.rstrip() or f"py-spy could not read its stack: {done.stderr.strip()}"


def about(child: Vouched, job: str) -> str:
    """The first line of an answer."""
    slot = next((one for one in child.board.taken() if one.job == job and one.started_ns), None)
    since = f" for {(boottime_ns() - slot.started_ns) / 1e9:.1f} s" if slot else ""
    return f"job {job} runs{since}; process {child.pid} on {os.uname().nodename}, worker {child.worker}"


def _held(child: Vouched) -> str:
    current: Slot | None = child.board.current()
    quiet = (boottime_ns() - child.board.read("keeper_tick_ns")) / 1e9
    by = f", in a step of job {current.job} ({current.task})" if current else ""
    return f"No Python code of its process has run for {quiet:.1f} s: a call holds the interpreter{by}."
