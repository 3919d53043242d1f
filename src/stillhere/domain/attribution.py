"""Who is to blame when a worker process dies: the exit reason in words, and a verdict for each job it had.

Pure rules over what the kernel said (the wait status, whether the machine was out of memory), what the board showed
(what ran, in whose step the loop was) and what the dying process wrote (its fatal-signal dump, which names a thread).

- A process that was stopped on purpose charges nobody.
- A job that ran alone in its process is charged, whatever the reason: there was nobody else.
- A fatal signal (a fault in some C code) comes from the thread that the dump names. If that is a job's thread, or the
  loop's while it was in a job's step, this job did it and the others are innocent.
- An exit by code (`os._exit` in a handler) names nobody. With the loop in a job's step and no job in a thread it was
  that step. Otherwise it was one of those that had a thread of execution: the thread jobs, and the step.
- A SIGKILL comes from outside or from a job itself. The job whose step it hit is the likeliest; if the loop was in
  nobody's step, those in threads: nobody else could have sent it. They are no more than the likeliest, and run apart,
  uncharged. When the machine was out of memory the kernel chose, and it means nothing.
- Else nobody knows: all that ran are suspects; they run apart, and the culprit shows itself there.

Beside a suspect the others are put down as having been beside it, so that a wrong guess cannot go on for ever: the
second time they run apart too. What had not started, or was over, is a bystander.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable
from typing import NamedTuple

from stillhere.domain.job import Verdict

_FAULTS = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})
_CRASHED = re.compile(r"^Current thread (0x[0-9a-f]+)[^\n]*\n((?:  [^\n]*\n?)*)", re.MULTILINE)
_FRAMES = 30


class Seen(NamedTuple):
    """A job that the dead process had, as its board shows it."""

    queue: str
    job: str
    running: bool
    """Its handler had started and had not ended."""
    thread: int = 0
    """Ident of the thread that ran it; 0: it ran on the loop."""
    current: bool = False
    """The loop was in its step."""


class Crash(NamedTuple):
    """What is known of a death beside the board."""

    status: int
    """The wait status."""
    deliberate: bool = False
    """It was killed, or told to end, for no fault of what it ran."""
    ours: bool = False
    """It was killed by its own supervisor."""
    out_of_memory: bool = False
    """The kernel has killed somebody for want of memory just now."""
    dump: str = ""
    """What it wrote when a fatal signal came."""
    loop_thread: int = 0


class Judgement(NamedTuple):
    """What a death means for the jobs, by queue and job."""

    verdicts: dict[str, dict[str, Verdict]]
    details: dict[str, dict[str, str]]
    """Where a culprit's code was."""


def exit_reason(status: int, *, out_of_memory: bool = False) -> str:
    """The words for a wait status: `killed by SIGSEGV`, `killed by SIGKILL (out of memory)`, `exit code 3`."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        return f"killed by {name}{' (out of memory)' if out_of_memory and number == signal.SIGKILL else ''}"
    return f"exit code {os.WEXITSTATUS(status)}"


def judge(seen: Iterable[Seen], crash: Crash) -> Judgement:
    """Return the verdicts, and for a culprit that the dump names the stack of its thread."""
    jobs = list(seen)
    running = [one for one in jobs if one.running]
    thread, stack = crashed_thread(crash.dump)
    verdicts = _verdicts(running, crash, thread)
    found = Judgement({}, {})
    for one in jobs:
        verdict = verdicts[one] if one.running else Verdict.BYSTANDER
        found.verdicts.setdefault(one.queue, {})[one.job] = verdict
        if stack and verdict == Verdict.CULPRIT:
            found.details.setdefault(one.queue, {})[one.job] = stack
    return found


def crashed_thread(dump: str) -> tuple[int, str]:
    """The ident and the stack of the thread that a fatal-signal dump names; (0, "") when it names none."""
    found = _CRASHED.search(dump, max(0, dump.rfind("Fatal Python error")))
    if found is None:
        return 0, ""
    frames = [line.strip() for line in found[2].splitlines()][:_FRAMES]
    return int(found[1], 16), "\n".join(frames)


def _verdicts(running: list[Seen], crash: Crash, thread: int) -> dict[Seen, Verdict]:
    if crash.deliberate:
        return dict.fromkeys(running, Verdict.INTERRUPTED)
    if len(running) == 1:
        return {running[0]: Verdict.CULPRIT}
    current = [one for one in running if one.current]
    in_threads = [one for one in running if one.thread]
    suspects = running
    if crash.ours or crash.out_of_memory:
        pass
    elif os.WIFSIGNALED(crash.status) and os.WTERMSIG(crash.status) in _FAULTS:
        named = current if thread == crash.loop_thread else [one for one in in_threads if one.thread == thread]
        if thread and len(named) == 1:
            return {one: Verdict.CULPRIT if one in named else Verdict.BYSTANDER for one in running}
    elif os.WIFSIGNALED(crash.status):
        suspects = current or in_threads or running
    elif current and not in_threads:
        return {one: Verdict.CULPRIT if one in current else Verdict.BYSTANDER for one in running}
    else:
        suspects = in_threads + [one for one in current if not one.thread] or running
    return {one: Verdict.SUSPECT if one in suspects else Verdict.BESIDE for one in running}
