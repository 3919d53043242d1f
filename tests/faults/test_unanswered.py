"""Grants that nobody has read: they come back, and nobody is charged (G7, G12, G14)."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from stillhere.domain.job import Verdict
from stillhere.ports.backend import Cancel, Claim, End, Register
from stillhere.stores import open_sync
from tests.faults.kit import LEASE_S, QUEUE, Stage
from tests.support.ledger import boot_ns
from tests.support.procs import eventually
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer


def test_g14_a_blocked_loop_with_a_free_slot_keeps_no_job_from_others(stage: Stage) -> None:
    for _round in range(3):
        stage.ready_worker("-c", "2")
        blocked = stage.add("block_loop", 2 * LEASE_S)
        stage.started(blocked)
        other = stage.ready_worker("-c", "2")
        jobs = [stage.add("quick") for _ in range(3)]
        sent = boot_ns()
        stage.finished(*jobs, timeout=5)
        runs = [stage.story().runs(job.id) for job in jobs]
        assert max(run[0].start - sent for run in runs) / 1e9 < 1.5
        assert [len(run) for run in runs] == [1, 1, 1]
        stage.finished(blocked, timeout=3 * LEASE_S)
        assert stage.story().starts(blocked.id) == 1
        other.terminate()
        other.wait()


def test_g12_a_claim_whose_reply_is_lost_runs_once_within_the_bound(
    stage: Stage, redis_server: RedisServer, make_proxy: Callable[[RedisServer], Proxy]
) -> None:
    proxy = make_proxy(redis_server)
    stage.ready_worker("-c", "4", url=proxy.url)
    for how in ("hang", "cut"):
        probe = stage.add("quick")
        stage.finished(probe)
        trap = proxy.lose_reply(is_claim(stage), how=how)
        job = stage.add("quick")
        eventually(trap.sprung.is_set, 5)
        stage.finished(job, timeout=1.3 * LEASE_S + 2)
        assert stage.story().starts(job.id) == 1
        assert (stage.record(job).losses, stage.record(job).failures, stage.record(job).deaths) == (0, 0, 0)


def is_claim(stage: Stage) -> Callable[[bytes], bool]:
    """Return a test for a request that runs the claim script, by its digest as the store names it."""
    from stillhere.backends.redis.scripts import Scripts

    digest = Scripts()["claim"].sha
    return lambda request: digest in request


def test_g14_a_main_loop_that_crashed_is_not_vouched_for(stage: Stage) -> None:
    stage.ready_worker("-c", "4")
    neighbour = stage.add("steps", 200)
    stage.started(neighbour)
    crash = stage.add("crash_main_loop", 60.0, max_attempts=1)
    eventually(lambda: stage.story().events_of("crashing", crash.id), 5)
    crashed = boot_ns()
    stage.ready_worker("-c", "4")
    run = stage.started(neighbour, 2, timeout=10)
    assert (run.start - crashed) / 1e9 < 2.5
    assert stage.story().overlaps(neighbour.id) == []
    crash.cancel()
    neighbour.cancel()
    stage.finished(neighbour, crash)


def test_g14_a_claim_on_a_slower_path_brings_nothing_to_a_worker_that_was_closed_meanwhile(
    stage: Stage, redis_server: RedisServer, make_proxy: Callable[[RedisServer], Proxy]
) -> None:
    """A dead child's last claim may still be on its way when its supervisor has released it: it must find nothing."""
    proxy = make_proxy(redis_server)
    proxy.delay(0.03)
    slow = open_sync(proxy.url, stage.namespace)
    came_late = 0
    for turn in range(100):
        worker = f"dead-{turn}"
        stage.store.call(Register(queue=QUEUE, worker=worker, lease_ms=2_000, tasks=["quick"]))
        job = stage.add("quick")
        with ThreadPoolExecutor(1) as thread:
            claim = thread.submit(slow.call, Claim(queue=QUEUE, worker=worker, n=1, slots=4))
            time.sleep(0.0005 * (turn % 90))  # from long before the claim arrives to after its reply
            end = End(queue=QUEUE, worker=worker, reason="killed", force=True, default=Verdict.BYSTANDER)
            eventually(lambda: stage.store.call(end).status != "more", 5)  # noqa: B023 - at once
            came_late += claim.result().standing == "gone"
        assert stage.record(job).state == "ready", "whichever came first"
        stage.store.call(Cancel(queue=QUEUE, job=job.id))
    slow.close()
    assert 10 < came_late < 100, "both orders were played"
    assert stage.audit() == []
