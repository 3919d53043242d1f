"""What the supervisor does when it is the one that fails: no process to be had, an exception where none may be."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from stillhere.ports.backend import Lanes, SyncStore
from stillhere.worker import processes
from stillhere.worker.settings import WorkerSettings
from stillhere.worker.supervisor import family as module
from stillhere.worker.supervisor import main
from stillhere.worker.supervisor.child_process import ChildProcess
from stillhere.worker.supervisor.supervisor import Supervisor
from tests.supervisor.program import RecordingStore

Make = Callable[..., Supervisor]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """A supervisor in this process, its children fake and its signals left alone."""
    monkeypatch.setattr(processes, "become_reaper", lambda: None)
    monkeypatch.setattr(processes, "reap_strangers", lambda _: None)
    monkeypatch.setenv("FAKE_CHILD_LOG", str(tmp_path / "children"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).resolve().parents[2]), *_source()]))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    pipe = os.pipe()
    for end in pipe:
        os.set_blocking(end, False)

    def build(story: str, **settings: Any) -> Supervisor:
        told = WorkerSettings(app=story, **{"lease_ms": 500, "grace_ms": 1_000, **settings})
        return Supervisor(
            told,
            lambda *_: cast("SyncStore", RecordingStore(tmp_path)),
            pipe,
            program=("-m", "tests.supervisor.fake_child"),
        )

    yield build
    for end in pipe:
        os.close(end)


def _source() -> list[str]:
    import stillhere

    return [str(Path(stillhere.__file__).parents[1])]


def test_no_process_to_be_had_is_tried_again_and_then_told(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries = []

    def refuse(_: WorkerSettings, lanes: Lanes, __: Sequence[str]) -> ChildProcess:
        tries.append(lanes)
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(module, "ChildProcess", refuse)
    assert make("steady").run() == 78
    assert tries == ["pool"] * 3
    assert "cannot start: [Errno 11] Resource temporarily unavailable" in caplog.text


def test_a_fault_in_the_main_thread_lets_the_children_drain(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = make("steady:job")
    watch = supervisor._family.watch

    def break_once_it_works() -> None:
        watch()
        if "runs" in (tmp_path / "children").read_text(errors="replace") if (tmp_path / "children").exists() else "":
            raise ZeroDivisionError

    monkeypatch.setattr(supervisor._family, "watch", break_once_it_works)
    assert supervisor.run() == 70
    assert '"drain"' in (tmp_path / "children").read_text()
    assert "a fault of stillhere" in caplog.text


def test_a_fault_in_another_thread_does_the_same(make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    supervisor = make("steady:job")
    (tmp_path / "mood").write_text('{"suspects": "many"}')  # an answer that no store gives
    assert supervisor.run() == 70
    assert "a fault of stillhere" in caplog.text


def test_signals_are_installed_once_and_read_from_one_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "_pipe", [])
    before = {number: signal.getsignal(number) for number in main._HANDLED}
    wakeup = signal.set_wakeup_fd(-1)
    try:
        read, write = main.install_signals()
        assert main.install_signals() == (read, write)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert os.read(read, 10) == bytes([signal.SIGUSR1])
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(read)
        os.close(write)
