"""What the kernel tells, on real processes; also as a system tells it that shows less."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from stillhere.domain.attribution import exit_reason
from stillhere.worker import processes
from tests.support.procs import eventually, state

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a Python program in a session of its own."""
    started: list[subprocess.Popen[bytes]] = []

    def run(code: str, **environ: str) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True, env=os.environ | environ
        )
        started.append(child)
        return child

    yield run
    for child in started:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


SLEEP = "import time; print(flush=True); time.sleep(60)"


def ready(child: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    assert child.stdout is not None
    child.stdout.readline()
    return child


@pytest.mark.parametrize("portable", [False, True], ids=["linux", "less"])
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os; os._exit(7)", "exit code 7"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL"),
    ],
)
def test_a_death_is_seen_with_its_reason(
    start: Start, monkeypatch: pytest.MonkeyPatch, portable: bool, code: str, reason: str
) -> None:
    if portable:
        monkeypatch.delattr(os, "waitid")
    child = start(code)
    statuses = [eventually(lambda: (processes.exit_status(child),), 10) for _ in range(1)]
    status = eventually(lambda: processes.exit_status(child), 10)
    assert statuses
    assert status is not None
    assert exit_reason(status) == reason
    assert processes.exit_status(child) == status, "looking takes nothing away"
    if not portable:
        assert state(child.pid) == "Z", "not reaped: its number is still its own"


def test_a_status_that_somebody_else_took_is_an_end_all_the_same(start: Start) -> None:
    child = start("pass")
    os.waitpid(child.pid, 0)
    assert processes.exit_status(child) is not None


def test_a_living_process_has_no_status(start: Start) -> None:
    child = ready(start(SLEEP))
    assert processes.exit_status(child) is None
    assert not processes.is_stopped(child.pid)
    assert not processes.is_dumping(child.pid)


@pytest.mark.parametrize("portable", [False, True], ids=["proc", "waitid"])
def test_a_stopped_process_is_seen_again_and_again(
    start: Start, monkeypatch: pytest.MonkeyPatch, portable: bool
) -> None:
    if portable:
        monkeypatch.setattr(processes, "_read", lambda _: b"")
    child = ready(start(SLEEP))
    assert not processes.is_stopped(child.pid)
    os.kill(child.pid, signal.SIGSTOP)
    eventually(lambda: processes.is_stopped(child.pid), 5)
    assert processes.is_stopped(child.pid), "one look takes nothing away from the next"
    os.kill(child.pid, signal.SIGCONT)
    eventually(lambda: not processes.is_stopped(child.pid), 5)


def test_strangers_are_reaped_and_known_children_left_to_their_owner(start: Start) -> None:
    known, stranger = start("pass"), start("pass")
    eventually(lambda: state(known.pid) == state(stranger.pid) == "Z", 5)
    for _ in range(3):
        processes.reap_strangers({known.pid})
    assert state(known.pid) == "Z"
    processes.reap_strangers({known.pid, stranger.pid})
    known.wait()
    processes.reap_strangers(set())
    assert state(stranger.pid) == ""


def test_offspring_of_a_process_that_is_still_there_is_found_by_descent(start: Start) -> None:
    """One that is dumping core keeps its children; neither it nor a stranger is touched."""
    code = (
        "import subprocess, sys, time\n"
        "sleep = 'import time; time.sleep(60)'\n"
        "twice = f'import subprocess,sys; subprocess.run([sys.executable, \"-c\", {sleep!r}])'\n"
        "subprocess.Popen([sys.executable, '-c', sleep], start_new_session=True)\n"
        "subprocess.Popen([sys.executable, '-c', twice], start_new_session=True)\n"
    )
    dying = ready(start(code + SLEEP, **{processes.MARK: "mine"}))
    other = ready(start(SLEEP, **{processes.MARK: "mine-not"}))
    eventually(lambda: len(processes._offspring(dying.pid, "mine")) == 3, 10)
    processes.end_offspring(dying.pid, "mine", dumping=True)
    left = processes._offspring(dying.pid, "mine")
    assert [state(pid) for pid in left if state(pid) not in ("Z", "")] == []
    assert processes.exit_status(dying) is None
    assert processes.exit_status(other) is None
