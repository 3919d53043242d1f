"""Connections that hang without a word: short, and longer than a lease, on one worker only (G12, G13)."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.faults.kit import LEASE_S, Stage
from tests.support.procs import eventually
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer

MakeProxy = Callable[[RedisServer], Proxy]


def test_g13_blackholed_for_less_than_a_lease_runs_once(
    stage: Stage, redis_server: RedisServer, make_proxy: MakeProxy
) -> None:
    proxy = make_proxy(redis_server)
    stage.ready_worker("-c", "3", url=proxy.url)
    jobs = [stage.add("nap", 4 * LEASE_S), stage.add("nap_sync", 4 * LEASE_S), stage.add("steps", 80)]
    for job in jobs:
        stage.started(job)
    stage.ready_worker("-c", "3")
    proxy.blackhole()
    time.sleep(0.6 * LEASE_S)
    proxy.heal()
    stage.finished(*jobs, timeout=40)
    assert {stage.record(job).state for job in jobs} == {"succeeded"}
    assert [stage.story().starts(job.id) for job in jobs] == [1, 1, 1]


def test_g4_blackholed_for_three_leases_the_cut_off_worker_knows_it(
    stage: Stage, redis_server: RedisServer, make_proxy: MakeProxy
) -> None:
    proxy = make_proxy(redis_server)
    lonely = stage.ready_worker("-c", "2", url=proxy.url)
    job = stage.add("doubting", 8 * LEASE_S)
    stage.started(job)
    stage.ready_worker("-c", "2")
    proxy.blackhole()
    second = stage.started(job, 2, timeout=2 * LEASE_S + 2)
    doubts = eventually(lambda: stage.story().events_of("doubt", job.id), 5)
    assert doubts[0]["at"] < second.start, "the holder doubts its lease before anybody else can have the job"
    time.sleep(LEASE_S)
    proxy.heal()
    eventually(lambda: stage.story().runs(job.id)[0].end, 20, what=lambda: lonely.log)
    assert stage.story().runs(job.id)[0].how == "CancelledError"
    assert job.result(timeout=12 * LEASE_S) == second.token
    assert (stage.record(job).token, stage.record(job).failures) == (second.token, 0)
    assert stage.story().starts(job.id) == 2
    after = [stage.add("quick", 0.2) for _ in range(4)]
    stage.finished(*after)
