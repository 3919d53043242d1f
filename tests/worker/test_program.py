"""The child as a process, with this test as its supervisor: a board, a control socket, and its exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stillhere import App
from stillhere.domain.job import Verdict
from stillhere.ports.backend import End, Renew
from stillhere.ports.inspector import Audit, Status
from stillhere.stores import open_sync
from stillhere.worker.anonymous import anonymous_file
from stillhere.worker.board import Board, Phase, SlotState
from stillhere.worker.child import main
from stillhere.worker.control import Channel, Message
from stillhere.worker.settings import WorkerSettings
from tests.support.procs import eventually
from tests.support.servers import RedisServer, bound

ROOT = Path(__file__).resolve().parents[2]


class Child:
    """A child process and both shared things."""

    def __init__(self, settings: WorkerSettings, environ: dict[str, str], log: Path, lanes: str = "pool") -> None:
        self.board = Board.create(64)
        self.channel, theirs = Channel.pair()
        self.heard: list[Message] = []
        self.log_path = log
        self.dump = anonymous_file("dump")
        fds = [self.board.fd, theirs.fileno(), self.dump]
        command = [
            sys.executable,
            "-m",
            "stillhere.worker.child",
            "--board",
            str(fds[0]),
            "--control",
            str(fds[1]),
            "--dump",
            str(fds[2]),
        ]
        with log.open("wb") as output, theirs:
            self._process = subprocess.Popen(
                bound(command),
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])} | environ,
            )
        self.pid = self._process.pid
        self.channel.send(m="start", settings=settings.to_json(), worker="w1", lanes=lanes, supervisor=os.getpid())

    def message(self, kind: str) -> Message:
        """Wait for a message."""

        def look() -> Message | None:
            self.heard += self.channel.receive()
            return next((message for message in self.heard if message["m"] == kind), None)

        found = eventually(look, 15, what=lambda: f"{kind}; heard {self.heard}\n{self.log}")
        assert found is not None
        return found

    def go(self) -> None:
        """Wait for `hello`, say `go`, wait until it works."""
        self.message("hello")
        self.channel.send(m="go")
        eventually(lambda: self.board.phase >= Phase.RUN, 15, what=lambda: self.log)

    def code(self, timeout: float = 15.0) -> int:
        """Wait for its end; the exit code."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still there after {timeout} s:\n{self.log}") from None

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        """End it and let go."""
        if self.running:
            os.kill(self.pid, signal.SIGKILL)
            self._process.wait(10)
        self.channel.close()
        self.board.close()


class Bench:
    def __init__(self, server: RedisServer, namespace: str, tmp_path: Path) -> None:
        self.story = tmp_path / "story"
        self.story.touch()
        self.tmp_path = tmp_path
        self.environ = {
            "STILLHERE_URL": server.url,
            "STILLHERE_NAMESPACE": namespace,
            "STORY": str(self.story),
        }
        self.client = App(server.url, namespace=namespace)
        self.store = open_sync(server.url, namespace)
        self.children: list[Child] = []

    def child(self, oddity: str = "", lanes: str = "pool", **options: Any) -> Child:
        known: dict[str, Any] = {"app": "tests.worker.jobs:app", "slots": 4, "lease_ms": 2_000, "grace_ms": 1_000}
        settings = WorkerSettings(**known | options)
        log = self.tmp_path / f"child-{len(self.children)}.log"
        self.children.append(Child(settings, self.environ | {"ODDITY": oddity}, log, lanes))
        return self.children[-1]

    def add(self, task: str, **arguments: Any) -> Any:
        return self.client.sender(task).enqueue_sync(**arguments)

    def told(self, line: str) -> None:
        eventually(lambda: line in self.lines, 15, what=lambda: f"{line} in {self.lines}; {self.children[-1].log}")

    @property
    def lines(self) -> list[str]:
        return [line.split()[0] if line.startswith("wedged") else line for line in self.story.read_text().splitlines()]

    @property
    def workers(self) -> int:
        return self.store.call(Status(queue="default")).workers

    def bury(self, child: Child) -> None:
        """What a supervisor does for the dead."""
        self.store.call(Renew(queue="default", worker="w1", answered=child.board.answered(0)))
        self.store.call(End(queue="default", worker="w1", reason="x", force=True, default=Verdict.INTERRUPTED))


@pytest.fixture
def bench(valkey_server: RedisServer, namespace: str, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(valkey_server, namespace, tmp_path)
    yield made
    for child in made.children:
        child.close()
    complaints = made.store.call(Audit(queue="default"))
    made.client.close()
    made.store.close()
    assert complaints == []


def test_hello_says_what_its_supervisor_must_know(bench: Bench) -> None:
    child = bench.child()
    hello = child.message("hello")
    assert hello["pid"] == child.pid
    assert (hello["worker"], hello["namespace"], hello["lease_ms"]) == (
        "w1",
        bench.environ["STILLHERE_NAMESPACE"],
        2_000,
    )
    assert hello["url"] == bench.environ["STILLHERE_URL"]
    assert hello["queues"] == {"default": 1}
    assert child.board.phase == Phase.BOOT
    assert bench.workers == 0, "nothing before `go`"
    assert bench.lines == []


def test_a_job_runs_inside_the_lifespan(bench: Bench) -> None:
    job = bench.add("state")
    child = bench.child()
    child.go()
    assert job.result(timeout=15) == "a pool in default"
    assert child.board.worker == "w1"
    assert child.board.answered(0) >= 1
    assert child.board.read("loop_tick_ns") > 0
    assert child.board.read("keeper_tick_ns") > 0
    child.channel.send(m="drain")
    assert child.message("bye") == {"m": "bye", "code": 0, "left": 0}
    assert child.code() == 0
    assert child.board.phase == Phase.EXIT
    assert bench.lines == ["lifespan begins", "lifespan ends", "atexit"]
    assert bench.workers == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_mean_drain_any_number_of_times(bench: Bench, number: signal.Signals) -> None:
    job = bench.add("sleeps", seconds=0.5)
    child = bench.child(grace_ms=20_000)
    child.go()
    bench.told("sleeps")
    for _ in range(3):
        os.kill(child.pid, number)
    child.message("draining")
    assert child.code() == 0
    assert job.info().state == "succeeded", "none of them cut the job short"


def test_a_signal_during_a_slow_import_is_not_lost(bench: Bench) -> None:
    child = bench.child("slow import")
    eventually(lambda: b"stillhere.worker.child" in Path(f"/proc/{child.pid}/cmdline").read_bytes(), 5)
    eventually(lambda: _catches(child.pid, signal.SIGTERM), 5, what="handlers come first")
    os.kill(child.pid, signal.SIGTERM)
    assert child.code() == 0


def _catches(pid: int, number: int) -> bool:
    """Whether the process has a handler for this signal, as the kernel knows it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) & 1 << (number - 1))
    return False


def test_an_order_to_drain_before_go_ends_it_at_once(bench: Bench) -> None:
    child = bench.child()
    child.message("hello")
    child.channel.send(m="drain")
    assert child.code() == 0
    assert bench.workers == 0


def test_an_order_to_drain_that_comes_with_go_is_heard(bench: Bench) -> None:
    child = bench.child()
    child.message("hello")
    child.channel.send(m="go")
    child.channel.send(m="drain")
    assert child.code() == 0
    assert bench.workers == 0


@pytest.mark.parametrize(
    ("app", "oddity", "words"),
    [
        ("tests.worker.jobs:application", "", "tests.worker.jobs has no attribute 'application'"),
        ("tests.worker.nowhere:app", "", "No module named 'tests.worker.nowhere'"),
        ("tests.worker.jobs:app", "broken import", "ZeroDivisionError"),
    ],
)
def test_a_mistake_of_the_user_s_is_one_message_and_78(bench: Bench, app: str, oddity: str, words: str) -> None:
    child = bench.child(oddity, app=app)
    crashed = child.message("crashed")
    assert crashed["type"] == "configuration"
    assert words in crashed["text"]
    assert child.code() == 78
    assert not any(message["m"] == "hello" for message in child.heard)


def test_more_queues_than_a_board_can_show_are_refused(bench: Bench) -> None:
    child = bench.child(queues={f"q{n}": 1 for n in range(257)})
    assert child.message("crashed")["text"] == (
        "257 queues are too many for one worker (at most 256): name some with -q."
    )
    assert child.code() == 78


def test_a_lifespan_that_breaks_is_a_crash(bench: Bench) -> None:
    child = bench.child("broken lifespan")
    child.message("hello")
    child.channel.send(m="go")
    assert child.message("crashed")["type"] == "ZeroDivisionError"
    assert child.code() == 70
    assert bench.workers == 0


def test_a_lifespan_that_hangs_at_the_end_is_left(bench: Bench) -> None:
    child = bench.child("hanging lifespan", grace_ms=500)
    child.go()
    child.channel.send(m="drain")
    assert child.code() == 0
    assert "is left" in child.log or "left as it is" in child.log
    assert bench.lines == ["lifespan begins", "atexit"]


def test_g13_an_orphan_drains_and_exits_with_75(bench: Bench) -> None:
    job = bench.add("sleeps", seconds=0.5)
    child = bench.child(grace_ms=20_000)
    child.go()
    bench.told("sleeps")
    child.channel.close()
    assert child.code() == 75
    assert job.info().state == "succeeded"
    assert bench.workers == 0


def test_a_crash_of_the_main_loop_ends_the_process_though_a_thread_lives_on(bench: Bench) -> None:
    job = bench.add("crashes_the_loop")
    child = bench.child()
    child.go()
    assert child.message("crashed")["type"] == "SystemExit"
    assert child.code(5) == 70
    assert child.board.phase == Phase.EXIT
    assert [(slot.job, slot.state) for slot in child.board.taken()] == [(job.id, SlotState.STARTED)]
    bench.bury(child)


def test_a_wedged_thread_does_not_keep_the_process(bench: Bench) -> None:
    job = bench.add("wedged", seconds=60)
    child = bench.child()
    child.go()
    bench.told("wedged")
    child.channel.send(m="drain")
    bye = child.message("bye")
    assert bye["left"] == 1
    assert child.code(5) == 0
    assert bench.lines[-1] == "atexit", "exit handlers are run by hand"
    assert job.info().state == "running", "what has not ended is not handed back by the child"
    bench.bury(child)
    assert job.info().interruptions == 1


@pytest.mark.parametrize("oddity", ["hanging atexit", "left thread"])
def test_an_exit_that_hangs_is_ended_by_the_watchdog(bench: Bench, oddity: str) -> None:
    child = bench.child(oddity)
    child.go()
    if oddity == "left thread":
        bench.add("leaves_a_thread").result(timeout=15)
    child.channel.send(m="drain")
    child.message("bye")
    assert child.code(6) == 1
    assert "Timeout (0:00:02)" in child.log, "it names where it hung"


def test_a_solo_child_leaves_by_itself(bench: Bench) -> None:
    child = bench.child(lanes="solo")
    child.go()
    assert child.code(15) == 0
    assert bench.workers == 0


def test_g2_the_board_shows_what_runs(bench: Bench) -> None:
    jobs = [bench.add("sleeps", seconds=30) for _ in range(3)]
    child = bench.child()
    child.go()
    eventually(lambda: [slot.state for slot in child.board.taken()] == [SlotState.STARTED] * 3, 15)
    slots = child.board.taken()
    assert {slot.job for slot in slots} == {job.id for job in jobs}
    assert {(slot.task, slot.queue) for slot in slots} == {("sleeps", 0)}
    assert all(slot.token for slot in slots)
    child.channel.send(m="drain")
    assert child.code() == 0
    assert {job.info().interruptions for job in jobs} == {1}


def test_nothing_of_ours_is_inherited_by_what_a_handler_starts(bench: Bench) -> None:
    child = bench.child()
    child.go()
    flags = {}
    for fd in _fds(child.pid):
        for line in Path(f"/proc/{child.pid}/fdinfo/{fd}").read_text().splitlines():
            if line.startswith("flags:"):
                flags[fd] = int(line.split()[1], 8)
    kept_open = [fd for fd, bits in flags.items() if fd > 2 and not bits & os.O_CLOEXEC]
    assert kept_open == []


def _fds(pid: int) -> list[int]:
    return [int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()]


def test_what_is_said_before_go_is_heard_after_it() -> None:
    """A solo child is told that it is the spare one as soon as it is started, long before it may go."""
    ours, theirs = Channel.pair()
    with theirs:
        channel = Channel.inherit(os.dup(theirs.fileno()))
    for kind in ("start", "spare", "go", "retire"):
        ours.send(m=kind)
    signals: Any = SimpleNamespace(came=False)
    assert main._receive(channel, "start", signals)["m"] == "start"
    assert main._receive(channel, "go", signals)["m"] == "go"
    assert [message["m"] for message in channel.receive()] == ["spare", "retire"]
    ours.send(m="spare")
    ours.send(m="drain")
    with pytest.raises(main.Stopped):
        main._receive(channel, "go", signals)
    channel.close()
    ours.close()
