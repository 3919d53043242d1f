"""What only a supervisor can do for its children, with real ones: offspring, core dumps, drains, stops (G13, G14)."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from typing import Any

import pytest

from tests.faults.kit import LEASE_S, Stage
from tests.faults.offspring import KINDS
from tests.supervisor.kit import cores_are_files
from tests.support.ledger import Run, boot_ns
from tests.support.procs import alive, eventually, kill


def test_g13_no_offspring_of_the_dead_writes_after_the_next_start(stage: Stage) -> None:
    for _ in range(2):
        stage.ready_worker("-c", "2")
    job = stage.add("with_offspring", 60.0)
    for start in range(1, 11):
        run = stage.started(job, start)
        eventually(lambda run=run: {line["kind"] for line in writes(stage, run)} == KINDS, 10)  # type: ignore[misc]
        killed = boot_ns()
        kill([run.pid])
        heir = stage.started(job, start + 1)
        assert (heir.start - killed) / 1e9 < 1.0
    for run, later in pairwise(stage.story().runs(job.id)):
        assert [line for line in writes(stage, run) if line["at"] > later.start] == []
    left = {line["pid"] for line in stage.story().events_of("offspring") if line["token"] != heir.token}
    assert [pid for pid in left if alive(pid)] == []
    assert stage.story().overlaps() == [], "the fork holds the lock of its run as long as it lives"
    job.cancel()
    stage.finished(job)
    assert stage.record(job).deaths == 10


def writes(stage: Stage, run: Run) -> list[dict[str, Any]]:
    """What the offspring of a run wrote."""
    return [line for line in stage.story().events_of("offspring", run.job) if line["token"] == run.token]


@pytest.mark.alone
@pytest.mark.skipif(not cores_are_files(), reason="core dumps here do not go to a file")
def test_g14_a_crash_that_dumps_for_seconds_is_over_within_one(stage: Stage) -> None:
    for _ in range(2):
        stage.ready_worker("-c", "2")
    job = stage.add("dump_core", 600)
    first = stage.started(job)
    at = eventually(lambda: stage.story().events_of("dumping", job.id), 20)[0]["at"]
    again = stage.started(job, 2)
    assert (again.start - at) / 1e9 < 1.0
    stage.finished(job)
    info = stage.record(job)
    assert (info.state, info.losses, info.failures) == ("succeeded", 1, 0)
    eventually(lambda: not alive(first.pid), 30)
    for core in stage.ledger.path.parent.glob("core*"):
        core.unlink()


def test_g13_a_gil_held_in_mid_drain_keeps_the_short_lease(stage: Stage) -> None:
    """The child has lowered its lease to five seconds and cannot speak any more: its supervisor keeps that pace."""
    worker = stage.ready_worker("-c", "2", "--grace", "30s", lease=30)
    job = stage.add("hold_gil_late", 2.0, 8.0)
    stage.started(job)
    worker.terminate()
    stage.ready_worker("-c", "2", lease=1)
    stage.finished(job, timeout=30)
    assert stage.record(job).state == "succeeded"
    assert stage.story().starts(job.id) == 1
    assert worker.wait(10) == 0


def test_g4_a_child_that_was_stopped_alone_loses_its_lease_and_drops_what_it_ran(stage: Stage) -> None:
    worker = stage.ready_worker("-c", "2")
    job = stage.add("steps", 1000)
    first = stage.started(job)
    stage.answered(job)
    os.kill(first.pid, signal.SIGSTOP)
    stopped = boot_ns()
    other = stage.ready_worker("-c", "2")
    heir = stage.started(job, 2, timeout=3 * LEASE_S)
    assert (heir.start - stopped) / 1e9 > 0.9 * LEASE_S, "the supervisor did not give it up, its lease did"
    kill([first.pid], signal.SIGCONT)
    eventually(lambda: stage.story().runs(job.id)[0].end, 10)
    assert stage.story().runs(job.id)[0].how == "CancelledError"
    assert alive(first.pid), "it goes on under a new id"
    kill([pid for pid in other.children() if pid == heir.pid])
    stage.started(job, 3)
    job.cancel()
    stage.finished(job)
    assert worker.running
