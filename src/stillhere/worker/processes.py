"""What the kernel tells about processes, and how a dead child's own children are found and ended.

A worker that is killed leaves behind what its handlers started: subprocesses, some in sessions of their own, some
forked twice to get away. If its jobs were ready elsewhere at once, the old ffmpeg and the new one would write the same
file. So first all of them die, then the jobs are released.

How they are found: the child leads a session, so its process group is one address for most of them, and the zombie that
the child now is keeps that number from being given to others; the rest lands on this process, which has declared itself
the reaper of its descendants, and carries the dead worker's mark in its environment. Orphans of living neighbours carry
another mark and are left alone. A program that was started with an environment of its own choice gets away.

Without /proc (macOS) only the group is reached, and a core dump looks like work. Where a death cannot be looked at
without reaping (Python below 3.13 there), the child is reaped first; its group's number is free then, for the instant
until the group is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time

MARK = "_STILLHERE_WORKER"
"""Set in the environment of each child to an id of this start; its offspring inherit it."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_STATE, _PARENT, _EXIT_CODE = 0, 1, 49  # in /proc/PID/stat, counted after the name
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PEEK = os.WNOHANG | getattr(os, "WNOWAIT", 0)


def become_reaper() -> None:
    """Let orphans of our descendants land on this process (Linux)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread ends that started it, the main thread of `parent` (Linux).

    For the process of one job only: a job that must not outlive its lease has nobody left to end it then. If the
    parent has died before this was said, nothing would ever come: then this process ends now.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


def be_the_first_to_go() -> None:
    """When memory runs out, the kernel should take this process rather than its supervisor (Linux)."""
    with contextlib.suppress(OSError, ValueError):
        path = f"/proc/{os.getpid()}/oom_score_adj"
        score = min(1000, int(_read(path)) + 100)
        with open(path, "w") as file:  # noqa: PTH123 - as in `_read`
            file.write(str(score))


def state(pid: int) -> str:
    """The kernel's letter for a process: R, S, D, T, t, Z, X; "" when there is none, or no /proc."""
    return _stat(pid)[_STATE].decode()


def resident_bytes(pid: int) -> int:
    """How much memory a process has resident; 0: there is no such process, or no /proc."""
    try:
        return int(_read(f"/proc/{pid}/statm").split()[1]) * _PAGE
    except (IndexError, ValueError):
        return 0


def is_stopped(pid: int) -> bool:
    """Whether a child of ours is stopped or traced, or its main thread has left."""
    letter = state(pid)
    if letter or not hasattr(os, "waitid"):
        return letter in ("T", "t", "Z", "X")
    with contextlib.suppress(ChildProcessError):
        return os.waitid(os.P_PID, pid, os.WSTOPPED | _PEEK) is not None
    return False


def is_dumping(pid: int) -> bool:
    """Whether it is writing a core dump: no code of its own runs any more, although it is not dead yet."""
    return b"\nCoreDumping:\t1" in _read(f"/proc/{pid}/status")


def dumping_status(pid: int) -> int:
    """The wait status that a process which is writing a core dump is going to have."""
    return int(_stat(pid)[_EXIT_CODE]) or signal.SIGABRT


def exit_status(child: subprocess.Popen[bytes]) -> int | None:
    """The wait status of a child that has died; None while it lives. Not reaped, where that can be had."""
    if child.returncode is None and hasattr(os, "waitid"):
        with contextlib.suppress(ChildProcessError):
            seen = os.waitid(os.P_PID, child.pid, os.WEXITED | _PEEK)
            if seen is None:
                return None
            return seen.si_status << 8 if seen.si_code == os.CLD_EXITED else seen.si_status
    code = child.poll()
    if code is None:
        return None
    return -code if code < 0 else code << 8


def reap_strangers(known: set[int]) -> None:
    """Reap orphans that landed here and have ended; never a child that has an owner of its own."""
    if not hasattr(os, "waitid"):
        return
    with contextlib.suppress(ChildProcessError):
        while (seen := os.waitid(os.P_ALL, 0, os.WEXITED | _PEEK)) is not None and seen.si_pid not in known:
            os.waitpid(seen.si_pid, os.WNOHANG)


def end_offspring(pid: int, mark: str, *, dumping: bool = False, within_s: float = 0.2) -> None:
    """Kill what a dead child (not reaped yet) has left behind, until there is none, for so long at most.

    One that is dumping core is left to it; its children are still its own, and are found by that.
    """
    over = time.monotonic() + within_s
    while True:
        if not dumping:
            kill_group(pid)
        left = [one for one in _offspring(pid, mark) if state(one) not in ("Z", "X", "")]
        _signal_all(left, signal.SIGKILL)
        if not left or time.monotonic() > over:
            return
        time.sleep(0.002)


def kill_group(pid: int) -> None:
    """SIGKILL for the process group that a child leads."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def end_own_offspring(mark: str, within_s: float = 1.0) -> bool:
    """Kill what this process has started and what carries its mark, until there is none; whether there was any.

    For the process of one job, when that job is over. A program that was started with an environment of its own choice
    and has got away from its parent is not found.
    """
    over, found = time.monotonic() + within_s, False
    while left := _own_offspring(mark):
        found = True
        _signal_all(left, signal.SIGKILL)
        if time.monotonic() > over:
            break
        time.sleep(0.002)
    return found


def signal_own_offspring(mark: str, number: int) -> None:
    """Send this to all that this process has started and that carries its mark."""
    _signal_all(_own_offspring(mark), number)


def _own_offspring(mark: str) -> list[int]:
    me = os.getpid()
    parents = {one: int(_stat(one)[_PARENT]) for one in _all()}
    found = {one for one in parents if one != me and _has_mark(one, mark)}
    generation = {me}
    while generation := {one for one, parent in parents.items() if parent in generation}:
        found |= generation
    return [one for one in found if state(one) not in ("Z", "X", "")]


def _signal_all(pids: list[int], number: int) -> None:
    for one in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(one, number)


def _offspring(pid: int, mark: str) -> list[int]:
    """The descendants of a child, and the orphans with its mark that have landed on us."""
    parents = {one: int(_stat(one)[_PARENT]) for one in _all()}
    found = [one for one, parent in parents.items() if parent == os.getpid() and one != pid and _has_mark(one, mark)]
    generation = {pid}
    while generation := {one for one, parent in parents.items() if parent in generation}:
        found += generation
    return found


def _all() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - as in `_read`
    except FileNotFoundError:
        return []


def _has_mark(pid: int, mark: str) -> bool:
    """Whether its environment has the mark; a zombie has none any more."""
    return f"{MARK}={mark}".encode() in _read(f"/proc/{pid}/environ").split(b"\0")


def _stat(pid: int) -> list[bytes]:
    """The fields behind the name, which may hold anything; all empty when there is no such process."""
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return fields if len(fields) > _EXIT_CODE else [b"", b"0"] + [b"0"] * _EXIT_CODE


def _read(path: str) -> bytes:
    """A file of /proc; empty when its process is gone, or not ours to read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - half the time of a Path, for each process there is
            return file.read()
    except OSError:
        return b""
