"""The judgement: a good play is good, and each single thing that may be wrong makes it bad."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stillhere.demo.ledger import Ledger, Story
from stillhere.demo.verdict import LONG, SHORT, Facts, Verdict, judge, judge_naive, recovery_s
from stillhere.demo.work import Tally

TOTAL = 10
TALLY = Tally(files=TOTAL, size=1, words=2, functions=3, fingerprint="f" * 64)
FACTS = Facts(expected=TALLY, shorts=2, result=TALLY, losses=1)
MS = 1_000_000
Steps = Sequence[tuple[int, int]]


class Script:
    """Lines of a ledger, at times of our choice (ms)."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def line(self, at: int, event: str, job: str, **fields: Any) -> None:
        self.lines.append({"event": event, "job": job, "pid": 1, "at": at * MS, **fields})

    def run(self, task: str, job: str, key: str, *, at: int, steps: Steps = (), end: int | None) -> None:
        done = steps[0][1] - 1 if steps else 0
        self.line(at, "start", job, run=key, task=task, done=done)
        for when, count in steps:
            self.line(when, "step", job, run=key, done=count)
        if end is not None:
            self.line(end, "end", job, run=key, how="ok")

    def story(self, tmp_path: Path) -> Story:
        path = tmp_path / "ledger"
        ordered = sorted(self.lines, key=lambda line: line["at"])
        path.write_text("".join(json.dumps(line) + "\n" for line in ordered))
        return Story(path).read()


def good() -> Script:
    """A play as it should be: killed at file 5, on again at 6 after 40 ms, two short jobs meanwhile."""
    script = Script()
    script.run(LONG, "long", "a", at=100, steps=[(100 + n, n) for n in range(1, 6)], end=None)
    script.line(110, "killed", "long", victim=1)
    script.run(LONG, "long", "b", at=150, steps=[(150 + n, n) for n in range(6, 11)], end=170)
    for number, sent in enumerate((100, 140)):
        script.line(sent, "sent", f"s{number}")
        script.run(SHORT, f"s{number}", f"k{number}", at=sent + 10 * (number + 1), end=sent + 25)
    return script


def test_a_good_play(tmp_path: Path) -> None:
    verdict = judge(good().story(tmp_path), FACTS)
    assert verdict.faults == []
    assert verdict.figures == {
        "runs": 2,
        "overlaps": 0,
        "losses": 1,
        "attempts_charged": 0,
        "resumed_at_file": 6,
        "files": 10,
        "files_read_again": 0,
        "recovery_s": 0.04,
        "shorts": 2,
        "shorts_done": 2,
        "shorts_done_meanwhile": 2,
        "slowest_wait_s": 0.02,
    }
    text = "\n".join(verdict.lines)
    assert "runs 2   overlaps 0   losses 1   attempts charged 0   resumed at file 6 of 10" in text
    assert "0.040 s from kill -9 to the next run; files read again: 0" in text
    assert "2 words and 3 functions in 10 files" in text
    assert "2 of 2 done, 2 of them while the long one ran; slowest wait 0.02 s" in text


def without(event: str, job: str | None = None, key: str | None = None) -> Callable[[Script], None]:
    def change(script: Script) -> None:
        script.lines = [
            line
            for line in script.lines
            if not (line["event"] == event and (job is None or line["job"] == job) and key in (None, line.get("run")))
        ]

    return change


def overlapping(script: Script) -> None:
    script.run(LONG, "long", "c", at=160, steps=[(161, 8)], end=165)


def slow(script: Script) -> None:
    for line in script.lines:
        if line.get("run") == "b":
            line["at"] += 1_000 * MS


def from_the_beginning(script: Script) -> None:
    next(line for line in script.lines if line.get("run") == "b" and line["event"] == "start")["done"] = 0


def short_twice(script: Script) -> None:
    script.run(SHORT, "s0", "again", at=300, end=310)


def not_taken_over(script: Script) -> None:
    script.lines = [line for line in script.lines if line.get("run") != "b"]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (without("killed"), "no worker was killed, so nothing was shown"),
        (without("end", "long"), "read_library came to its end 0 times"),
        (overlapping, "1 overlaps"),
        (slow, "recovery took 1.04 s, over the promised 1 s"),
        (from_the_beginning, "read_library started again from the beginning"),
        (without("end", "s1"), "1 short jobs were not done"),
        (short_twice, "1 short jobs ran twice"),
        (not_taken_over, "nobody took read_library over"),
    ],
)
def test_each_fault_in_the_ledger_is_named(tmp_path: Path, change: Callable[[Script], None], fault: str) -> None:
    script = good()
    change(script)
    verdict = judge(script.story(tmp_path), FACTS)
    assert fault in verdict.faults
    assert not verdict.good


@pytest.mark.parametrize(
    ("facts", "fault"),
    [
        (replace(FACTS, failures=1), "1 attempts were charged for a death that was not its fault"),
        (replace(FACTS, result=replace(TALLY, fingerprint="e")), "its result is not what it must be"),
        (replace(FACTS, result=None), "its result is not what it must be"),
        (replace(FACTS, shorts=3), "1 short jobs were not done"),
    ],
)
def test_each_fault_in_the_facts_is_named(tmp_path: Path, facts: Facts, fault: str) -> None:
    assert judge(good().story(tmp_path), facts).faults == [fault]


def test_the_naive_pool(tmp_path: Path) -> None:
    script = Script()
    for index in range(3):
        script.run(LONG, "long", f"r{index}", at=100 + 100 * index, steps=[(900 + index, 5)], end=None)
    for number in range(4):
        script.line(100, "sent", f"s{number}")
    script.run(SHORT, "s0", "k", at=110, end=120)
    verdict = judge_naive(script.story(tmp_path), Facts(expected=TALLY, shorts=4, workers=3))
    assert (verdict.figures["runs"], verdict.figures["overlaps"], verdict.figures["at_once"]) == (3, 2, 3)
    assert (verdict.figures["shorts_done"], verdict.figures["shorts_waiting"]) == (1, 3)
    assert verdict.faults == ["read_library ran 3 times at once", "3 short jobs were not done"]
    assert "runs 3   overlaps 2   at once on 3 of 3 workers" in verdict.lines[0]


def test_an_empty_ledger_is_no_good(tmp_path: Path) -> None:
    assert not judge(Script().story(tmp_path), FACTS).good
    naive: Verdict = judge_naive(Script().story(tmp_path), FACTS)
    assert not naive.good


def test_the_ledger_is_followed_line_by_line(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    story = Story(ledger.path)
    with ledger.run("j", LONG, 3) as run:
        assert [each.begun_at for each in story.read().of(LONG)] == [3]
        run.step(4)
        with ledger.path.open("a") as file:
            file.write('{"event":"sent","job":"x",')  # a line that is not whole yet
        assert story.read().of(LONG)[0].done == 4
        with ledger.path.open("a") as file:
            file.write('"at":5}\n')
        assert story.read().sent == {"x": 5}
    assert story.read().of(LONG)[0].how == "ok"
    with pytest.raises(KeyError), ledger.run("j2", LONG):
        raise KeyError
    assert story.read().of(LONG)[1].how == "KeyError"


def test_recovery_counts_from_the_first_kill(tmp_path: Path) -> None:
    script = good()
    assert recovery_s(script.story(tmp_path)) == pytest.approx(0.04)
    assert recovery_s(Script().story(tmp_path)) is None
