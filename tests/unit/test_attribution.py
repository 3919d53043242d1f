"""Who is to blame when a worker process dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from stillhere.domain.attribution import Seen, exit_reason, judge
from stillhere.domain.job import Verdict

RUNS, OTHER = Seen("q", "a", running=True), Seen("p", "b", running=True)
HELD = Seen("q", "c", running=False)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL"),
        ("import os; os.abort()", "killed by SIGABRT"),
        ("import os; os._exit(3)", "exit code 3"),
        ("pass", "exit code 0"),
    ],
)
def test_the_reason_is_what_the_kernel_says(code: str, words: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", code])
    _, status = os.waitpid(child.pid, 0)
    child.returncode = 0
    assert exit_reason(status) == words


def test_a_signal_without_a_name_has_its_number() -> None:
    assert exit_reason(signal.SIGRTMIN + 3) == f"killed by signal {signal.SIGRTMIN + 3}"


def test_g7_alone_is_the_culprit_and_what_was_only_held_a_bystander() -> None:
    assert judge([RUNS, HELD], deliberate=False) == {"q": {"a": Verdict.CULPRIT, "c": Verdict.BYSTANDER}}


def test_g7_of_several_all_are_suspects_in_whatever_queue() -> None:
    assert judge([RUNS, OTHER, HELD], deliberate=False) == {
        "q": {"a": Verdict.SUSPECT, "c": Verdict.BYSTANDER},
        "p": {"b": Verdict.SUSPECT},
    }


def test_g7_a_deliberate_end_charges_nobody() -> None:
    verdicts = judge([RUNS, OTHER, HELD], deliberate=True)
    assert verdicts == {"q": {"a": Verdict.INTERRUPTED, "c": Verdict.BYSTANDER}, "p": {"b": Verdict.INTERRUPTED}}


def test_nothing_held_is_nothing_judged() -> None:
    assert judge([], deliberate=False) == {}
