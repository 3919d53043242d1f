"""Who is to blame when a worker process dies: the exit reason in words, and a verdict for each job it had.

Pure rules over what the kernel said (the wait status) and what the board showed (what ran, what was only held). A job
that ran alone in its process is charged. Of several nobody knows which it was: none is charged, all run apart from then
on, and the culprit shows itself there. What had not started, or was over, is a bystander. A process that was stopped on
purpose charges nobody.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from typing import NamedTuple

from stillhere.domain.job import Verdict


class Seen(NamedTuple):
    """A job that the dead process had, as its board shows it."""

    queue: str
    job: str
    running: bool
    """Its handler had started and had not ended."""


def exit_reason(status: int) -> str:
    """The words for a wait status: `killed by SIGSEGV`, `exit code 3`."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return f"killed by {signal.Signals(number).name}"
        except ValueError:
            return f"killed by signal {number}"
    return f"exit code {os.WEXITSTATUS(status)}"


def judge(seen: Iterable[Seen], *, deliberate: bool) -> dict[str, dict[str, Verdict]]:
    """Return queue -> job -> verdict; `deliberate`: the process was killed by its own supervisor."""
    jobs = list(seen)
    running = sum(one.running for one in jobs)
    guess = Verdict.CULPRIT if running == 1 else Verdict.SUSPECT
    for_running = Verdict.INTERRUPTED if deliberate else guess
    verdicts: dict[str, dict[str, Verdict]] = {}
    for one in jobs:
        verdicts.setdefault(one.queue, {})[one.job] = for_running if one.running else Verdict.BYSTANDER
    return verdicts
