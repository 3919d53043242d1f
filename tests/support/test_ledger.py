"""The ledger tells what happened, and its overlaps are neither missed nor made up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ledger import Ledger, Story

ROOT = Path(__file__).resolve().parents[2]


def line(event: str, run: str, at: int, job: str = "j", **more: object) -> dict[str, object]:
    return {"event": event, "job": job, "token": 1, "pid": 1, "at": at, "run": run, "busy": False, **more}


def test_a_run_has_start_steps_and_end(ledger: Ledger) -> None:
    with ledger.run("j", 7) as run:
        run.step(1)
        run.step({"file": "a"})
    story = ledger.read()
    [seen] = story.runs("j")
    assert (seen.job, seen.token, seen.pid, seen.how, seen.busy) == ("j", 7, os.getpid(), "ok", False)
    assert story.steps("j") == [1, {"file": "a"}]
    assert (story.starts("j"), story.ends("j"), story.starts("other"), story.jobs()) == (1, 1, 0, {"j"})
    assert seen.end is not None
    assert seen.start < seen.last == seen.end


def test_an_exception_is_told_and_passes(ledger: Ledger) -> None:
    with pytest.raises(KeyError), ledger.run("j"):
        raise KeyError
    assert [run.how for run in ledger.read().runs()] == ["KeyError"]
    assert ledger.read().ends() == 0


def test_one_after_the_other_is_no_overlap(ledger: Ledger) -> None:
    for token in (1, 2):
        with ledger.run("j", token):
            pass
    assert ledger.read().overlaps() == []
    assert len(ledger.read().gap_s("j")) == 1


def test_two_at_once_are_an_overlap_even_when_the_first_never_says_another_word(ledger: Ledger) -> None:
    with ledger.run("j", 1), ledger.run("j", 2):
        story = ledger.read()
        assert [(a.token, b.token) for a, b in story.overlaps()] == [(1, 2)]
        assert story.runs()[1].busy


def test_different_jobs_may_run_at_once(ledger: Ledger) -> None:
    with ledger.run("a"), ledger.run("b"):
        pass
    assert ledger.read().overlaps() == []


def test_overlap_by_the_lines_alone() -> None:
    story = Story(
        [line("start", "1", 10), line("start", "2", 20), line("step", "1", 21, value=0), line("end", "2", 30, how="ok")]
    )
    assert [(a.key, b.key) for a, b in story.overlaps("j")] == [("1", "2")]
    apart = Story(
        [line("start", "1", 10), line("step", "1", 15, value=0), line("start", "2", 20), line("end", "2", 30, how="ok")]
    )
    assert apart.overlaps("j") == []
    assert apart.gap_s("j") == [5e-9]


def test_a_line_that_is_not_whole_is_left_out(ledger: Ledger) -> None:
    ledger.write("hello", "j", value=1)
    with ledger.path.open("a") as file:
        file.write('{"event": "hel')
    assert [event["value"] for event in ledger.read().events_of("hello")] == [1]


def test_an_empty_ledger_is_an_empty_story(ledger: Ledger) -> None:
    assert ledger.read().runs() == []


def test_lines_of_many_processes_do_not_mix(ledger: Ledger) -> None:
    program = (
        "from tests.support.ledger import Ledger\n"
        "ledger = Ledger.from_environ()\n"
        "with ledger.run('j') as run:\n"
        "    for n in range(300): run.step('x' * 500)\n"
    )
    environ = {**os.environ, **ledger.environ, "PYTHONPATH": str(ROOT)}
    writers = [subprocess.Popen([sys.executable, "-c", program], env=environ) for _ in range(4)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0, 0]
    story = ledger.read()
    assert len(story.events) == 4 * 302
    assert all(run.how == "ok" and len(run.steps) == 300 for run in story.runs())


def test_a_killed_run_keeps_its_lines_and_frees_its_lock(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l")
    program = (
        "import os, signal\n"
        "from tests.support.ledger import Ledger\n"
        "with Ledger.from_environ().run('j', 1) as run:\n"
        "    run.step(1)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environ = {**os.environ, **ledger.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run([sys.executable, "-c", program], env=environ, check=False).returncode == -9
    with ledger.run("j", 2):
        pass
    story = ledger.read()
    assert [(run.token, run.how, run.busy) for run in story.runs()] == [(1, None, False), (2, "ok", False)]
    assert story.steps("j") == [1]
    assert story.overlaps() == []
