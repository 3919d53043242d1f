"""Who is to blame when a worker process dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from stillhere.domain.attribution import Crash, Seen, crashed_thread, exit_reason, judge
from stillhere.domain.job import Verdict
from stillhere.worker.anonymous import anonymous_file, read_all

KILLED, SEGV, EXITED = Crash(signal.SIGKILL), Crash(signal.SIGSEGV), Crash(3 << 8)
LOOP, POOL, ALIEN = 0x1000, 0x2000, 0x3000

STEP = Seen("q", "step", running=True, current=True)
WAITS = Seen("p", "waits", running=True)
WAITS_2 = Seen("q", "waits2", running=True)
THREAD = Seen("q", "thread", running=True, thread=POOL)
THREAD_2 = Seen("q", "thread2", running=True, thread=0x2001)
HELD = Seen("q", "held", running=False)
C, S, N, T, B = Verdict.CULPRIT, Verdict.SUSPECT, Verdict.BYSTANDER, Verdict.INTERRUPTED, Verdict.BESIDE


def dumped(thread: int) -> Crash:
    """A SEGV in this thread, as faulthandler tells it."""
    dump = (
        "Fatal Python error: Segmentation fault\n\n"
        f'Thread 0x{thread + 5:016x} (most recent call first):\n  File "a.py", line 1 in idle\n\n'
        f"Current thread 0x{thread:016x} (most recent call first):\n"
        '  File "jobs.py", line 12 in crash\n  File "jobs.py", line 40 in fetch\n\n'
        "Extension modules: msgspec._core (total: 1)\n"
    )
    return Crash(signal.SIGSEGV, dump=dump, loop_thread=LOOP)


def verdicts(crash: Crash, *jobs: Seen) -> dict[str, Verdict]:
    """By job."""
    found = judge([*jobs, HELD], crash).verdicts
    return {job: verdict for of_queue in found.values() for job, verdict in of_queue.items()}


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


def test_out_of_memory_stands_beside_a_kill_and_nothing_else() -> None:
    assert exit_reason(signal.SIGKILL, out_of_memory=True) == "killed by SIGKILL (out of memory)"
    assert exit_reason(signal.SIGSEGV, out_of_memory=True) == "killed by SIGSEGV"


@pytest.mark.parametrize("crash", [KILLED, SEGV, EXITED, Crash(signal.SIGKILL, out_of_memory=True)])
def test_g7_alone_is_the_culprit_whatever_the_reason(crash: Crash) -> None:
    assert verdicts(crash, WAITS) == {"waits": C, "held": N}


@pytest.mark.parametrize("crash", [KILLED, SEGV, EXITED, dumped(LOOP)])
def test_g7_a_deliberate_end_charges_nobody(crash: Crash) -> None:
    assert verdicts(crash._replace(deliberate=True), STEP, THREAD) == {"step": T, "thread": T, "held": N}


@pytest.mark.parametrize(
    ("crash", "jobs", "expected"),
    [
        pytest.param(dumped(LOOP), [STEP, WAITS, THREAD], {"step": C, "waits": N, "thread": N}, id="the loop's step"),
        pytest.param(dumped(POOL), [STEP, THREAD, THREAD_2], {"step": N, "thread": C, "thread2": N}, id="a thread"),
        pytest.param(dumped(ALIEN), [STEP, THREAD], {"step": S, "thread": S}, id="a thread that is no job's"),
        pytest.param(dumped(LOOP), [WAITS, THREAD], {"waits": S, "thread": S}, id="the loop, in nobody's step"),
        pytest.param(SEGV, [STEP, WAITS], {"step": S, "waits": S}, id="no dump"),
        pytest.param(EXITED, [STEP, WAITS], {"step": C, "waits": N}, id="exit in a step"),
        pytest.param(EXITED, [STEP, WAITS, THREAD], {"step": S, "waits": B, "thread": S}, id="exit, step or thread"),
        pytest.param(EXITED, [WAITS, THREAD], {"waits": B, "thread": S}, id="exit in a thread"),
        pytest.param(
            EXITED, [WAITS, Seen("q", "w2", running=True)], {"waits": S, "w2": S}, id="exit by none that is seen"
        ),
        pytest.param(KILLED, [STEP, WAITS, THREAD], {"step": S, "waits": B, "thread": B}, id="a kill in a step"),
        pytest.param(KILLED, [WAITS, THREAD], {"waits": B, "thread": S}, id="a kill in no step, beside a thread"),
        pytest.param(KILLED, [WAITS, WAITS_2], {"waits": S, "waits2": S}, id="a kill in no step"),
        pytest.param(
            KILLED._replace(out_of_memory=True), [STEP, WAITS], {"step": S, "waits": S}, id="the kernel's choice"
        ),
        pytest.param(KILLED._replace(ours=True), [STEP, WAITS], {"step": S, "waits": S}, id="our own kill"),
    ],
)
def test_g7_verdicts(crash: Crash, jobs: list[Seen], expected: dict[str, Verdict]) -> None:
    assert verdicts(crash, *jobs) == expected | {"held": N}


def test_g7_every_death_of_several_leaves_a_trace_on_one_at_least() -> None:
    """A death that nobody is put down for would come again for ever."""
    for crash in (KILLED, SEGV, EXITED, dumped(LOOP), dumped(POOL), dumped(ALIEN)):
        for jobs in ([STEP, WAITS], [WAITS, THREAD], [STEP, THREAD, THREAD_2], [THREAD, THREAD_2]):
            assert {C, S} & set(verdicts(crash, *jobs).values()), (crash, jobs)


def test_a_culprit_s_stack_is_kept() -> None:
    assert judge([THREAD, STEP], dumped(POOL)).details == {
        "q": {"thread": 'File "jobs.py", line 12 in crash\nFile "jobs.py", line 40 in fetch'}
    }


def test_of_several_dumps_the_last_counts() -> None:
    first, second = dumped(ALIEN).dump, dumped(POOL).dump
    assert crashed_thread(first + second)[0] == POOL


def test_nothing_held_is_nothing_judged() -> None:
    assert judge([], KILLED).verdicts == {}


DYING = """
import faulthandler, os, sys, threading
faulthandler.enable(file=int(sys.argv[1]), all_threads=True)
def die():
    print(threading.get_ident(), flush=True)
    faulthandler._sigsegv() if sys.argv[2] == "segv" else os.abort()
threading.Thread(target=die).start()
"""


@pytest.mark.parametrize("how", ["segv", "abort"])
def test_a_real_dump_names_the_thread(how: str) -> None:
    fd = anonymous_file("dump")
    dying = subprocess.run(
        [sys.executable, "-c", DYING, str(fd), how], pass_fds=[fd], check=False, capture_output=True, text=True
    )
    thread, stack = crashed_thread(read_all(fd))
    os.close(fd)
    assert thread == int(dying.stdout)
    assert "in die" in stack
