"""Stopping: one timeline, signals that count, exit codes that say what happened, and an end whatever happens."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stillhere.worker.settings import WorkerSettings
from tests.supervisor.kit import Home, Worker, since
from tests.support.procs import alive, eventually

Play = Callable[..., Worker]


def test_children_that_end_in_time_make_it_zero(play: Play) -> None:
    worker = play("steady:job", processes=2)
    worker.event("runs", 2)
    worker.terminate()
    assert worker.wait(5) == 0
    told = worker.events("drain")
    assert len(told) == 2
    assert told[0]["timeline"] == {"cancel": 0.4, "leave": 0.7, "kill": 0.8, "exit": 1.3}
    assert "SIGTERM: stopping. What still runs after 0.4 s is told to stop and handed over." in worker.log


def test_g7_what_does_not_end_is_killed_and_handed_back_as_interrupted(play: Play) -> None:
    worker = play("deaf:job")
    ran = worker.event("runs")
    worker.terminate()
    told = since(0)
    assert worker.wait(5) == 70
    took = since(0) - told
    assert 0.7 < took < 1.3, "dead and released within the grace of 1 s"
    end = next(end for end in worker.ends() if end["queue"] == "default")
    assert (end["verdicts"], end["default"]) == ({"job": "interrupted"}, "interrupted")
    assert end["reason"] == "killed by its supervisor: it had not ended in time"
    assert not alive(ran["pid"])
    last = max(renew["at"] for renew in worker.verbs("Renew", thread="stillhere-beater"))
    assert (end["at"] - last) / 1e9 < 0.7, "renewed to the last"


def test_two_signals_at_once_are_one_and_a_later_one_ends_now(play: Play) -> None:
    worker = play("deaf:job", grace_ms=60_000)
    worker.event("runs")
    worker.signal(signal.SIGINT)
    time.sleep(0.02)
    worker.signal(signal.SIGINT)
    assert worker.event("drain")["timeline"]["kill"] == 59.0
    time.sleep(0.5)
    assert len(worker.events("drain")) == 1
    worker.signal(signal.SIGINT)
    told = since(0)
    assert worker.event("drain", 2)["timeline"] == {"cancel": 0.0, "leave": 0.8, "kill": 1.0, "exit": 2.0}
    assert worker.wait(5) == 70
    assert 0.9 < since(0) - told < 2
    assert "SIGINT again: ending now." in worker.log


def test_a_third_signal_kills(play: Play) -> None:
    worker = play("deaf:job", grace_ms=60_000)
    worker.event("runs")
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        told = since(0)
        worker.signal(number)
        time.sleep(0.35)
    assert worker.wait(5) == 70
    assert since(0) - told < 0.9


def test_threads_cut_off_by_the_exit_are_told_by_the_exit_code(play: Play) -> None:
    worker = play("leaves_threads")
    worker.event("runs")
    worker.terminate()
    assert worker.wait(5) == 70


def test_a_stop_before_anything_works_is_zero(play: Play) -> None:
    worker = play("steady", lease_ms=500)
    worker.mood(away=True)
    worker.wait_for("no answer")
    worker.terminate()
    assert worker.wait(5) == 0


def test_a_store_that_is_away_does_not_keep_it_alive(play: Play) -> None:
    worker = play("deaf:job")
    worker.event("runs")
    worker.mood(away=True)
    worker.terminate()
    told = since(0)
    assert worker.wait(5) == 70
    assert since(0) - told < 2
    assert "comes back when its lease ends" in worker.log


def test_a_burst_ends_when_its_children_have(play: Play) -> None:
    worker = play("has_nothing_left", burst=True, processes=2)
    assert worker.wait(10) == 0
    assert len(worker.events("start")) == 2


def test_a_child_that_is_told_directly_is_replaced_and_killed_when_it_does_not_end(play: Play) -> None:
    worker = play("told_directly")
    ran = worker.event("runs")
    os.kill(ran["pid"], signal.SIGTERM)
    told = since(0)
    end = worker.ends()[0]
    assert 0.6 < end["at"] / 1e9 - told < 1.6
    assert {verdict for one in worker.ends() for verdict in one["verdicts"].values()} == {"interrupted"}
    worker.event("runs", 2)
    assert worker.running


def test_usr1_shows_the_children_and_tstp_changes_nothing(play: Play) -> None:
    worker = play("steady:a-job-with-a-long-name")
    ran = worker.event("runs")
    worker.signal(signal.SIGUSR1)
    worker.wait_for(f"child {ran['pid']} worker {ran['worker']} lanes pool phase RUN runs 1: one ong-name")
    worker.signal(signal.SIGTSTP)
    worker.wait_for("stop it with Ctrl-C")
    assert worker.running


def test_a_dead_supervisor_is_an_end_of_file_to_its_children(play: Play) -> None:
    worker = play("steady:job", processes=2)
    worker.event("runs", 2)
    worker.signal(signal.SIGKILL)
    killed = since(0)
    assert worker.event("eof", 2)["at"] / 1e9 - killed < 1


# ------------------------------------------------------------------------------------------- how it may be started


def test_started_with_signals_ignored_and_blocked_it_still_sees_deaths_and_orders(play: Play) -> None:
    """Some launchers hand on an ignored SIGCHLD, and a mask."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1])
    try:
        worker = play("steady:job")
    finally:
        signal.signal(signal.SIGCHLD, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    ran = worker.event("runs")
    os.kill(ran["pid"], signal.SIGABRT)
    assert worker.ends()[0]["reason"] == "killed by SIGABRT"
    worker.event("runs", 2)
    status = Path(f"/proc/{worker.events('runs')[1]['pid']}/status").read_text()
    assert "SigBlk:\t0000000000000000" in status
    worker.terminate()
    assert worker.wait(5) == 0


def test_a_hangup_that_was_ignored_stays_so(play: Play) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        worker = play("steady:job")
    finally:
        signal.signal(signal.SIGHUP, before)
    worker.event("runs")
    worker.signal(signal.SIGHUP)
    worker.signal(signal.SIGUSR1)
    worker.wait_for("phase RUN")
    assert worker.running
    assert "stopping" not in worker.log


def unread(pipe: int) -> int:
    """How many bytes wait in a pipe."""
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0])


def test_a_log_that_nobody_reads_stops_neither_the_beats_nor_the_end(tmp_path: Path) -> None:
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    settings = WorkerSettings(app="steady:job", lease_ms=2_000, slots=4, grace_ms=1_000)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.supervisor.program", str(tmp_path), settings.to_json()],
        stderr=write,
        env=os.environ | {"FAKE_CHILD_LOG": str(tmp_path / "children"), "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    home = Home(tmp_path)
    try:
        home.event("runs")
        while unread(read) < 3700:  # until no line fits any more, and then some more
            process.send_signal(signal.SIGUSR1)
            time.sleep(0.002)
        for _ in range(20):
            process.send_signal(signal.SIGUSR1)
            time.sleep(0.002)
        begun = since(0)
        eventually(lambda: any(renew["at"] / 1e9 > begun + 1.5 for renew in home.verbs("Renew")), 10)
        process.terminate()
        told = since(0)
        assert process.wait(5) == 0
        assert since(0) - told < 2
    finally:
        process.kill()
        process.wait()
        os.close(read)
        os.close(write)


# ------------------------------------------------------------------------------------------- what cannot be started


def test_a_mistake_of_the_users_is_one_line_and_78_at_once(play: Play) -> None:
    worker = play("refuses:proj.jobs has no app. Name it as module:attribute.", processes=2)
    assert worker.wait(10) == 78
    assert worker.log.count("proj.jobs has no app") == 1
    assert "Traceback" not in worker.log


def test_three_equal_failures_before_hello_are_78(play: Play) -> None:
    worker = play("breaks_at_start")
    assert worker.wait(15) == 78
    assert len(worker.events("start")) == 3
    assert "The worker's process cannot start: ZeroDivisionError: division by zero" in worker.log


def test_a_deploy_that_breaks_the_app_lets_what_works_end(play: Play, tmp_path: Path) -> None:
    """One of two children dies when the app cannot be imported any more: the other one gets the grace period."""
    worker = play("breaks_once_deployed", processes=2)
    worker.event("runs", 2)
    dead, living = worker.events("runs")
    (tmp_path / "deployed").touch()
    os.kill(dead["pid"], signal.SIGKILL)
    assert worker.wait(15) == 78
    assert len(worker.events("start")) == 5
    assert [event["pid"] for event in worker.events("drain")] == [living["pid"]]
    reasons = {end["worker"]: end["reason"] for end in worker.ends(2)}
    assert reasons == {dead["worker"]: "killed by SIGKILL", living["worker"]: "exit code 0"}


def test_a_child_with_another_store_is_not_spoken_for(play: Play) -> None:
    worker = play("other_store_at_second_start")
    os.kill(worker.event("runs")["pid"], signal.SIGKILL)
    assert worker.wait(20) == 78
    assert "names another store now" in worker.log


@pytest.mark.parametrize(("story", "says"), [("old_protocol", "of another version of stillhere"), ("refuses:x", "x")])
def test_what_no_supervisor_can_speak_for(play: Play, story: str, says: str) -> None:
    worker = play(story)
    assert worker.wait(20) == 78
    assert says in worker.log


def test_a_store_that_refuses_is_78(play: Play) -> None:
    worker = play("steady", lease_ms=500)
    worker.mood(refuse="Not allowed by redis://store: tick (NOPERM).")
    assert worker.wait(10) == 78
    assert "Not allowed by redis://store: tick (NOPERM)." in worker.log
    assert "secret" not in worker.log


def test_g14_the_first_lines_name_store_queues_slots_and_bound(play: Play) -> None:
    worker = play("steady", processes=2, name="web")
    worker.event("runs")
    worker.wait_for("Lease 2s")
    assert "store redis://***@store:6379/0 (from the test), namespace ns" in worker.log
    assert "Queues: default, mail (weight 3)." in worker.log
    assert "2 processes x 4 slots = 8 jobs at once, and up to 8 long ones beside them." in worker.log
    assert "ready again within 1 s, a dead host's within 3.6 s. Grace 1s." in worker.log
    assert worker.events("runs")[0]["worker"].startswith("web-")
