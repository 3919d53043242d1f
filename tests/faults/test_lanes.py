"""Long jobs, however many, do not take the slots of short ones: moved out, learnt, and kept in places of their own."""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from stillhere import SyncHandle
from tests.faults.kit import Stage
from tests.support.ledger import boot_ns
from tests.support.procs import eventually

LONG_AFTER_S = 2.0
SHORT_S = 0.2
LOAD = 0.3
"""The share of all slots that the short jobs need."""
FOR_EVER_S = 600.0
LEASE_S = 10.0
"""A burst on a small machine is no test of the lease."""


class Flow:
    """Short jobs at a steady pace, and how long each waited for its start."""

    def __init__(self, stage: Stage, slots: int) -> None:
        self._stage, self._rate = stage, LOAD * slots / SHORT_S
        self._added: dict[str, int] = {}

    def go_on(self, seconds: float) -> None:
        """Add jobs for so long."""
        start, count = time.monotonic(), 0
        while (since := time.monotonic() - start) < seconds:
            due = int(since * self._rate) - count
            now = boot_ns()
            if due:
                handles = self._stage.add_many("quick", due, SHORT_S)
                self._added |= {handle.id: now for handle in handles}
                count += due
            time.sleep(0.02)

    def waits(self, since_ns: int = 0) -> list[float]:
        """Seconds from enqueue to start, for each that was added from then on, once all of them have begun."""
        added = {job: at for job, at in self._added.items() if at >= since_ns}
        assert added
        eventually(lambda: added.keys() <= self._stage.story().jobs(), 20, what="all short jobs started")
        begun = {run.job: run.start for run in self._stage.story().runs()}
        return [(begun[job] - at) / 1e9 for job, at in added.items()]


def running(stage: Stage, jobs: list[SyncHandle[Any]]) -> Counter[int]:
    """How many of these run, by process."""
    ids = {job.id for job in jobs}
    return Counter(run.pid for run in stage.story().runs() if run.job in ids and run.end is None)


def cleared(stage: Stage, jobs: list[SyncHandle[Any]]) -> None:
    """End them all, those that wait first, so that none takes the place of another."""
    ids = {run.job for run in stage.story().runs()}
    for job in sorted(jobs, key=lambda job: job.id in ids):
        job.cancel()
    stage.finished(*jobs, timeout=20)


@pytest.mark.parametrize(("slots", "count"), [(1, 24), (10, 300)])
def test_a_burst_of_long_jobs_does_not_take_the_slots(stage: Stage, slots: int, count: int) -> None:
    stage.worker("-p", "6", "-c", str(slots), "--long-after", f"{LONG_AFTER_S}s", lease=LEASE_S)
    eventually(lambda: stage.workers() == 6, 30)
    longs = stage.add_many("slow", count, FOR_EVER_S)
    eventually(lambda: running(stage, longs).total() == 6 * slots, 20, what=lambda: running(stage, longs))
    known = boot_ns() + int((LONG_AFTER_S + 0.5) * 1e9)
    flow = Flow(stage, 6 * slots)
    flow.go_on(3.5 * LONG_AFTER_S)
    assert max(flow.waits()) < 1.5 * LONG_AFTER_S
    assert max(flow.waits(known)) < 0.5 * LONG_AFTER_S
    assert stage.status().long_tasks == ["slow", "slow_declared"]
    assert set(running(stage, longs).values()) == {slots}, "the long places are full, and no slot has a long job"
    cleared(stage, longs)


def test_a_declared_long_job_never_sits_in_a_slot(stage: Stage) -> None:
    stage.ready_worker("-c", "2", "--overflow", "1", lease=LEASE_S)
    longs = [stage.add("slow_declared", FOR_EVER_S), stage.add("slow", FOR_EVER_S, long=True)]
    longs.append(stage.add("slow_declared", FOR_EVER_S))
    stage.started(longs[0])
    flow = Flow(stage, 2)
    flow.go_on(1.5)
    assert max(flow.waits()) < 0.5
    assert running(stage, longs).total() == 1, "one long place, and free slots beside it"
    for first, then in pairwise(longs):
        first.cancel()
        stage.started(then, timeout=5)
        assert running(stage, longs).total() <= 2, "the one that was cancelled may have its last words"
    cleared(stage, longs)


def test_what_one_worker_has_learnt_all_know(stage: Stage) -> None:
    teacher = stage.ready_worker("-c", "1", "--long-after", "1s", lease=LEASE_S)
    first = stage.add("slow", FOR_EVER_S)
    stage.started(first)
    eventually(lambda: "slow" in stage.status().long_tasks, 3)
    stage.ready_worker("-c", "1", "--long-after", "1h", lease=LEASE_S)  # it finds out nothing by itself
    longs = [first, *stage.add_many("slow", 3, FOR_EVER_S)]
    eventually(lambda: running(stage, longs).total() == 2, 5)
    flow = Flow(stage, 2)
    flow.go_on(1.5)
    assert max(flow.waits()) < 0.5
    assert sorted(running(stage, longs).values()) == [1, 1], "one long place in each"
    assert teacher.running
    cleared(stage, longs)


def test_a_long_job_that_waits_leaves_the_place_to_a_captured_slot(stage: Stage) -> None:
    stage.ready_worker("-c", "2", "--overflow", "1", "--long-after", "1s", lease=LEASE_S)
    first = stage.add("slow", FOR_EVER_S)
    eventually(lambda: stage.status().long_tasks == ["slow", "slow_declared"], 5)  # it has the only long place
    captor = stage.add("slow_too", FOR_EVER_S)
    stage.started(captor)
    eventually(lambda: "slow_too" in stage.status().long_tasks, 5)
    waiting = [*stage.add_many("slow_declared", 2, FOR_EVER_S), stage.add("slow_too", FOR_EVER_S)]
    first.cancel()
    stage.finished(first, timeout=5)
    shorts = stage.add_many("quick", 2, 0.5)
    stage.finished(*shorts, timeout=5)
    first_short, second_short = (stage.started(short) for short in shorts)
    assert first_short.touches(second_short), "both slots are free"
    assert running(stage, waiting).total() == 0
    captor.cancel()
    stage.started(waiting[0], timeout=5)
    cleared(stage, [captor, *waiting])
