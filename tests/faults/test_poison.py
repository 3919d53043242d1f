"""Jobs that kill their own process: the culprit is found and named, nobody else is charged (G7)."""

from __future__ import annotations

import json

import pytest

from stillhere.domain.job import JobRecord
from tests.faults.kit import Stage
from tests.support.procs import eventually


@pytest.mark.parametrize(
    ("how", "task"),
    [
        *((how, task) for how in ("SIGSEGV", "exit", "SIGKILL") for task in ("die", "die_sync")),
        ("SIGKILL", "die_in_helper"),  # nothing names it: all that ran beside it run apart, each 3 s, four at a time
    ],
)
def test_g7_two_killers_among_40_innocents(stage: Stage, how: str, task: str) -> None:
    """Four processes of ten slots, innocents of 3 s: the killers are found in a bounded time, and they alone pay."""
    worker = stage.ready_worker("-p", "4", "-c", "10")
    eventually(lambda: stage.workers() == 4, 30, what=lambda: worker.log)
    names = ["nap"] * 13 + [task] + ["nap"] * 14 + [task] + ["nap"] * 13
    jobs = stage.add_each([(name, 3.0 if name == "nap" else how) for name in names])
    stage.finished(*jobs, timeout=40)
    ended = [(name, stage.record(job)) for name, job in zip(names, jobs, strict=True)]
    killers = [record for name, record in ended if name == task]
    innocents = [record for name, record in ended if name == "nap"]

    named_exactly = (how, task) == ("SIGSEGV", "die")
    reason = "exit code 3" if how == "exit" else f"killed by {how}"
    assert [(record.state, record.losses, record.failures) for record in killers] == [("dead", 4, 0)] * 2
    errors = [json.loads(record.error or "{}") for record in killers]
    assert {error["exit"] for error in errors} == {reason}
    if how == "SIGSEGV":
        assert all(f"in {task}\n" in error["traceback"] for error in errors), "the stack is that of the killer's code"
    assert max(_took_s(record) for record in killers) < (10 if named_exactly else 20)
    assert {(record.state, record.losses) for record in innocents} == {("succeeded", 0)}
    assert max(_took_s(record) for record in innocents) < 20
    story = stage.story()
    assert max(story.starts(record.id) for record in innocents) <= (2 if named_exactly else 3)
    assert story.overlaps() == []


def _took_s(record: JobRecord) -> float:
    """From its enqueue to its end, by the store's clock."""
    return ((record.ended or 0) - record.created) / 1000


@pytest.mark.parametrize(("how", "reason"), [("SIGABRT", "killed by SIGABRT"), ("exit", "exit code 3")])
def test_g7_a_lone_killer_is_a_dead_letter_with_its_exit_reason(stage: Stage, how: str, reason: str) -> None:
    stage.ready_worker("-c", "4")
    killer = stage.add("die", how, max_attempts=1)
    stage.finished(killer, timeout=20)
    info = stage.record(killer)
    assert (info.state, info.losses, info.failures) == ("dead", 4, 0)
    assert json.loads(info.error or "{}")["exit"] == reason
    after = stage.add("quick")
    stage.finished(after)
