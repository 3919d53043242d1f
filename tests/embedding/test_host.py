"""Programs with a worker in them that are killed, stopped, silenced, robbed of their keeper, left with a thread."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.embedding.kit import HostProcess
from tests.faults.kit import LEASE_S, Stage
from tests.support.ledger import boot_ns
from tests.support.procs import alive, children, eventually, kill, state

pytestmark = pytest.mark.faults

BOUND_S = 1.3 * LEASE_S + 1.0
MakeHost = Callable[..., HostProcess]


def test_g13_a_host_whose_gil_is_held_for_three_leases_keeps_its_jobs(stage: Stage, make_host: MakeHost) -> None:
    host = make_host(slots=4)
    neighbour = stage.add("nap_sync", 0.5)
    stage.started(neighbour)
    job = stage.add("hold_gil", 3 * LEASE_S)
    stage.started(job)
    stage.ready_worker("-c", "8")
    stage.finished(job, neighbour)
    story = stage.story()
    for handle in (job, neighbour):
        assert [(run.pid, run.how) for run in story.runs(handle.id)] == [(host.host, "ok")]
        assert (stage.record(handle).state, stage.record(handle).losses) == ("succeeded", 0)


def test_g13_a_blocked_loop_is_enough_for_a_keeper_thread(stage: Stage, make_host: MakeHost) -> None:
    host = make_host(slots=4, keeper="thread")
    job = stage.add("block_loop", 3 * LEASE_S)
    stage.started(job)
    assert children(host.host) == []
    stage.ready_worker("-c", "8")
    stage.finished(job)
    assert [run.pid for run in stage.story().runs(job.id)] == [host.host]


@pytest.mark.parametrize("keeper", ["process", "thread"])
def test_g14_a_host_recovers_what_another_machine_has_lost(stage: Stage, make_host: MakeHost, keeper: str) -> None:
    doomed = stage.ready_worker("-c", "4")
    job = stage.add("steps", 1000)
    stage.started(job)
    stage.answered(job)
    host = make_host(slots=4, keeper=keeper)
    doomed.kill9_all()
    killed = boot_ns()
    again = stage.started(job, 2)
    assert (again.start - killed) / 1e9 < BOUND_S
    assert again.pid == host.host
    job.cancel()
    stage.finished(job)


def test_g14_the_jobs_of_a_killed_host_start_elsewhere_within_a_second(stage: Stage, make_host: MakeHost) -> None:
    host = make_host(slots=4)
    keeper = host.keeper()
    job = stage.add("steps", 1000)
    stage.started(job)
    stage.ready_worker("-c", "4")
    killed = boot_ns()
    kill([host.host])
    again = stage.started(job, 2)
    assert (again.start - killed) / 1e9 < 1.0
    assert (stage.record(job).deaths, stage.record(job).vanished) == (1, 0)
    assert stage.story().overlaps() == []
    eventually(lambda: not alive(keeper), what="the keeper has ended")
    job.cancel()
    stage.finished(job)


def test_g7_of_several_jobs_of_a_killed_host_another_host_runs_each_by_itself(
    stage: Stage, make_host: MakeHost
) -> None:
    host = make_host(slots=4)
    jobs = stage.add_many("nap", 3, 1.0)
    for job in jobs:
        stage.started(job)
    other = make_host(slots=4)
    kill([host.host])
    stage.finished(*jobs)
    runs = [stage.story().runs(job.id)[-1] for job in jobs]
    assert {run.pid for run in runs} == {other.host}
    spans = sorted((run.start, run.last) for run in runs)
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(spans)), "one at a time"
    assert [stage.record(job).losses for job in jobs] == [0, 0, 0], "nobody knows which it was"


def test_a_host_that_is_stopped_is_not_vouched_for(stage: Stage, make_host: MakeHost) -> None:
    host = make_host(slots=4)
    keeper = host.keeper()
    job = stage.add("steps", 1000)
    stage.started(job)
    stage.answered(job)
    stage.ready_worker("-c", "4")
    kill([host.host], signal.SIGSTOP)
    stopped = boot_ns()
    again = stage.started(job, 2)
    assert (again.start - stopped) / 1e9 < BOUND_S
    assert alive(keeper)
    assert state(host.host) == "T", "nothing was done to the host"
    kill([host.host], signal.SIGCONT)
    eventually(lambda: stage.story().runs(job.id)[0].how == "CancelledError", what=lambda: host.log)
    job.cancel()
    stage.finished(job)
    late = stage.add_many("quick", 20)
    stage.finished(*late)


def test_a_keeper_that_is_killed_is_replaced(stage: Stage, make_host: MakeHost) -> None:
    host = make_host(slots=4)
    first = host.keeper()
    job = stage.add("steps", 1000)
    stage.started(job)
    other = stage.ready_worker("-c", "4")
    kill([first])
    second = eventually(lambda: [pid for pid in children(host.host) if pid != first])[0]
    eventually(lambda: host.log.count("keeper process") >= 1)
    time.sleep(1.5 * LEASE_S)  # longer than a lease that nobody renews
    assert stage.story().starts(job.id) == 1
    assert other.running
    kill([host.host])
    killed = boot_ns()
    assert (stage.started(job, 2).start - killed) / 1e9 < 1.0, "the second keeper does what the first was there for"
    eventually(lambda: not alive(second))
    job.cancel()
    stage.finished(job)


def test_a_terminated_group_does_not_take_the_keeper_along(stage: Stage, make_host: MakeHost) -> None:
    host = make_host(slots=4)
    keeper = host.keeper()
    job = stage.add("steps", 1000)
    stage.started(job)
    stage.ready_worker("-c", "4")
    kill([keeper], signal.SIGTERM)
    kill([keeper], signal.SIGINT)
    kill([host.host])
    killed = boot_ns()
    assert (stage.started(job, 2).start - killed) / 1e9 < 1.0
    job.cancel()
    stage.finished(job)


class TestALeftThread:
    """A call that nobody can cut short outlives the grace period of its worker."""

    @pytest.mark.parametrize("keeper", ["process", "thread"])
    def test_it_runs_once_and_its_result_counts_while_the_loop_turns(
        self, stage: Stage, make_host: MakeHost, keeper: str
    ) -> None:
        host = make_host(slots=4, grace=1, lingers=10, keeper=keeper)
        job = stage.add("wedge", 6)
        stage.started(job)
        stage.ready_worker("-c", "4")
        host.terminate()
        host.wait_for("left")
        host.wait_for("run on in this process")
        assert stage.record(job).state == "running"
        stage.finished(job)
        assert stage.record(job).state == "succeeded"
        assert [(run.pid, run.how) for run in stage.story().runs(job.id)] == [(host.host, "ok")]
        eventually(lambda: not children(host.host), what="the keeper has ended, before its host")
        assert alive(host.host)
        assert host.wait() == 0
        assert "threads 1" in host.log

    def test_it_is_handed_over_when_its_process_ends(self, stage: Stage, make_host: MakeHost) -> None:
        host = make_host(slots=4, grace=1, lingers=3 * LEASE_S)
        keeper = host.keeper()
        job = stage.add("wedge", 60)
        stage.started(job)
        stage.ready_worker("-c", "4")
        host.terminate()
        host.wait_for("left")
        assert stage.story().starts(job.id) == 1
        eventually(lambda: not alive(host.host), 15)
        ended = boot_ns()
        again = stage.started(job, 2)
        assert (again.start - ended) / 1e9 < 1.0
        assert stage.story().runs(job.id)[0].last <= again.start
        record = stage.record(job)
        assert (record.interruptions, record.losses) == (1, 0), "nobody is to blame"
        eventually(lambda: not alive(keeper), what="the keeper has ended")
        job.cancel()
