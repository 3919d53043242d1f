"""What the kernel tells about processes, and how a dead child's own children are found and ended.

A worker that is killed leaves behind what its handlers started: subprocesses, some in sessions of their own, some
forked twice to get away. If its jobs were ready elsewhere at once, the old ffmpeg and the new one would write the same
file. So first all of them die, then the jobs are released.

How they are found: the child leads a session, so its process group is one address for most of them, and the zombie that
the child now is keeps that number from being given to others; the rest lands on this process, which has declared itself
the reaper of its descendants, and carries the dead worker's mark in its environment. Orphans of living neighbours carry
another mark and are left alone. Without /proc (macOS) only the group is reached.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

MARK = "_STILLHERE_WORKER"
"""Set in the environment of each child to an id of this start; its offspring inherit it."""

_PR_SET_CHILD_SUBREAPER = 36
_PROC = Path("/proc")


def become_reaper() -> None:
    """Let orphans of our descendants land on this process (Linux)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def state(pid: int) -> str:
    """The kernel's letter for a process: R, S, D, T, t, Z, X; "" when there is none, or no /proc."""
    try:
        return (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def is_dumping(pid: int) -> bool:
    """Whether it is writing a core dump: no code of its own runs any more, although it is not dead yet."""
    try:
        return "\nCoreDumping:\t1" in (_PROC / str(pid) / "status").read_text(errors="replace")
    except OSError:
        return False


def exit_status(pid: int) -> int | None:
    """The wait status of a child that has died, without reaping it; None while it lives."""
    try:
        seen = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    if seen is None:
        return None
    return seen.si_status << 8 if seen.si_code == os.CLD_EXITED else seen.si_status


def reap(pid: int) -> None:
    """Take a dead child's status away."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def reap_strangers(known: set[int]) -> None:
    """Reap orphans that landed here and have ended; never a child that has an owner of its own."""
    for pid in _children_of(os.getpid()):
        if pid not in known and state(pid) == "Z":
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def end_offspring(pid: int, mark: str, within_s: float = 0.2) -> None:
    """Kill what a dead child (not reaped yet) has left behind, until there is none, for so long at most."""
    over = time.monotonic() + within_s
    while True:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        left = [orphan for orphan in _children_of(os.getpid()) if orphan != pid and _has_mark(orphan, mark)]
        for orphan in left:
            if state(orphan) == "Z":
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(orphan, os.WNOHANG)
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(orphan, signal.SIGKILL)
        if not left or time.monotonic() > over:
            return
        time.sleep(0.002)


def _children_of(parent: int) -> list[int]:
    found: list[int] = []
    if not _PROC.is_dir():
        return found
    for entry in os.scandir(_PROC):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                fields = Path(entry.path, "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(fields[1]) == parent:
                    found.append(int(entry.name))
    return found


def _has_mark(pid: int, mark: str) -> bool:
    """Whether its environment has the mark; a zombie has none any more."""
    try:
        return f"{MARK}={mark}".encode() in (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
