"""The night that started it: one long job, many short ones, six workers."""

from __future__ import annotations

from tests.faults.kit import LEASE_S, Stage
from tests.support.procs import eventually


def test_g13_a_job_of_20_leases_starts_once_and_the_short_ones_flow(stage: Stage) -> None:
    for _ in range(6):
        stage.worker("-p", "1", "-c", "1")
    eventually(lambda: stage.workers() == 6, 30)
    long = stage.add("nap", 20 * LEASE_S)
    stage.started(long)
    shorts = stage.add_many("quick", 30, 0.1)
    stage.finished(*shorts, timeout=20)
    assert stage.story().runs(long.id)[0].end is None, "the short ones were done before the long one ended"
    assert long.result(timeout=25 * LEASE_S) == "rested"
    story = stage.story()
    assert story.starts(long.id) == 1
    assert story.overlaps() == []
    assert all(story.starts(short.id) == 1 for short in shorts)


def test_g13_six_long_jobs_do_not_take_six_one_slot_workers(stage: Stage) -> None:
    stage.worker("-p", "6", "-c", "1", "--long-after", "1s")
    eventually(lambda: stage.workers() == 6, 30)
    longs = stage.add_many("nap", 6, 6 * LEASE_S)
    for long in longs:
        stage.started(long)
    shorts = stage.add_many("quick", 30, 0.05)
    stage.finished(*shorts, timeout=10)
    assert all(stage.story().runs(long.id)[0].end is None for long in longs)
    assert [long.result(timeout=10 * LEASE_S) for long in longs] == ["rested"] * 6
    story = stage.story()
    assert all(story.starts(job.id) == 1 for job in [*longs, *shorts])
