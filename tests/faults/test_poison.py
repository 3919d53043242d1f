"""Jobs that kill their own process: the culprit is found and named, nobody else is charged (G7)."""

from __future__ import annotations

import json
import random

import pytest

from stillhere import SyncHandle
from tests.faults.kit import Stage
from tests.support.procs import eventually


def test_g7_two_killers_among_40_innocents(stage: Stage) -> None:
    for _ in range(4):
        stage.worker("-p", "1", "-c", "10")
    eventually(lambda: stage.workers() == 4, 30)
    dice = random.Random(40)
    innocents = [stage.add("quick", dice.uniform(1, 3)) for _ in range(20)]
    killers = [stage.add("die", "SIGSEGV"), stage.add("die", "SIGKILL")]
    innocents += [stage.add("quick", dice.uniform(1, 3)) for _ in range(20)]
    flowing: list[SyncHandle[int]] = []
    for _ in range(10):
        eventually(lambda: len(stage.story().events_of("killer")) > len(flowing) / 3, 15)
        flowing.append(stage.add("quick", 0.05))
    stage.finished(*killers, timeout=15)
    stage.finished(*innocents, *flowing, timeout=40)
    assert {stage.record(job).state for job in innocents + flowing} == {"succeeded"}
    story = stage.story()
    assert max(story.starts(job.id) for job in innocents) <= 4
    assert {stage.record(job).losses for job in innocents} == {0}
    for killer, name in zip(killers, ["SIGSEGV", "SIGKILL"], strict=True):
        info = stage.record(killer)
        assert info.state == "dead"
        assert json.loads(info.error or "{}")["exit"] == f"killed by {name}"
        assert info.losses == 4


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
