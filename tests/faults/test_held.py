"""A lease that holds through everything a handler does to its process (G13)."""

from __future__ import annotations

import time

import pytest

from tests.faults.kit import LEASE_S, Stage

LONG_S = 5 * LEASE_S


@pytest.mark.parametrize("task", ["nap", "nap_sync", "block_loop", "hold_gil", "hold_gil_by_regex", "hold_gil_by_sort"])
def test_g13_one_start_and_one_end_whatever_the_handler_does(stage: Stage, task: str) -> None:
    stage.ready_worker("-c", "8")
    neighbours = stage.add_many("nap", 3, 1.0)
    for neighbour in neighbours:
        stage.started(neighbour)
    job = stage.add(task, LONG_S)
    pid = stage.started(job).pid
    stage.ready_worker("-c", "8")
    stage.finished(job, *neighbours, timeout=3 * LONG_S)
    story = stage.story()
    assert [stage.record(job).state for job in [job, *neighbours]] == ["succeeded"] * 4
    assert [(run.pid, run.how) for run in story.runs(job.id)] == [(pid, "ok")]
    assert [story.starts(neighbour.id) for neighbour in neighbours] == [1, 1, 1]
    assert stage.record(job).losses == 0


def test_g13_a_job_that_runs_while_its_worker_drains_is_left_alone(stage: Stage) -> None:
    worker = stage.ready_worker("-c", "2", "--grace", "60s")
    job = stage.add("nap", LONG_S)
    stage.started(job)
    stage.ready_worker("-c", "2")
    worker.terminate()
    worker.wait_for("stopping")
    time.sleep(0.3)  # the order travels to the child
    late = stage.add("quick")
    stage.finished(late)
    assert job.result(timeout=3 * LONG_S) == "rested"
    assert stage.story().starts(job.id) == 1
    assert stage.story().runs(late.id)[0].pid != stage.story().runs(job.id)[0].pid, "a draining worker claims nothing"
    assert worker.wait(10) == 0
