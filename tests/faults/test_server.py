"""What happens to the server: killed, stopped, its clock set, its memory full, its keys deleted."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from stillhere.domain.errors import StoreFull
from tests.faults.kit import LEASE_S, QUEUE, Stage, log_of
from tests.support.procs import eventually
from tests.support.servers import RedisServer


def test_g13_a_server_killed_and_restarted_in_mid_job(own_stage: Stage, own_server: RedisServer) -> None:
    stage = own_stage
    stage.ready_worker("-c", "2")
    stage.ready_worker("-c", "2")
    jobs = [stage.add("steps", 200, 0.05), stage.add("nap_sync", 5 * LEASE_S), stage.add("nap", 5 * LEASE_S)]
    for job in jobs:
        stage.started(job)
    own_server.kill9()
    time.sleep(1.5 * LEASE_S)
    own_server.start()
    stage.finished(*jobs, timeout=30)
    assert {stage.record(job).state for job in jobs} == {"succeeded"}
    assert [stage.story().starts(job.id) for job in jobs] == [1, 1, 1]
    assert [stage.record(job).deaths for job in jobs] == [0, 0, 0]


def test_g3_a_server_suspended_for_three_leases_costs_nobody_a_job(own_stage: Stage, own_server: RedisServer) -> None:
    stage = own_stage
    stage.ready_worker("-c", "2")
    stage.ready_worker("-c", "2")
    jobs = [stage.add("nap", 6 * LEASE_S), stage.add("nap_sync", 6 * LEASE_S)]
    for job in jobs:
        stage.started(job)
    own_server.sigstop()
    time.sleep(3 * LEASE_S)
    own_server.sigcont()
    stage.finished(*jobs, timeout=30)
    assert {stage.record(job).state for job in jobs} == {"succeeded"}
    assert [stage.story().starts(job.id) for job in jobs] == [1, 1]


@pytest.mark.parametrize("step_s", [3600, -3600])
def test_g3_g9_a_clock_that_steps_an_hour_takes_nothing_and_delays_nothing(
    stage: Stage, tmp_path: Path, step_s: int
) -> None:
    """The store's clock is what its scripts are told: `clockstep` tells them the real time plus what a file says."""
    offset = tmp_path / "offset"
    offset.write_text("0")
    root = Path(__file__).parents[2]
    paths = [Path(__file__).parent / "clockstep", root / "src", root]
    stepped = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "TEST_CLOCK_OFFSET": str(offset)}
    for _ in range(2):
        stage.ready_worker("-c", "3", **stepped)
    long = stage.add("nap", 5 * LEASE_S)
    retrying = stage.add("retry_in", 3.0)
    stage.started(long)
    eventually(lambda: stage.story().events_of("ran", retrying.id), 5)
    new = tmp_path / "new"
    new.write_text(str(step_s * 1000))
    new.rename(offset)
    stage.finished(retrying, timeout=8)
    first, second = (line["at"] for line in stage.story().events_of("ran", retrying.id))
    # A step forward looks like an hour of silence, in which a wait of three seconds is over.
    assert (2.9 if step_s < 0 else 0.0) < (second - first) / 1e9 < 5.5
    stage.finished(long, timeout=6 * LEASE_S)
    assert stage.story().starts(long.id) == 1
    assert stage.record(long).deaths == 0


def test_g4_g5_a_full_memory_stops_only_what_comes_in(own_stage: Stage, own_server: RedisServer) -> None:
    stage = own_stage
    stage.ready_worker("-c", "8", "--grace", "1s")
    jobs = [stage.add("nap", 4 * LEASE_S), stage.add("steps", 100), stage.add("nap", 60.0), stage.add("fail", 9)]
    waiting = [stage.add("quick", delay="1h") for _ in range(3)]
    for job in jobs:
        stage.started(job)
    client = redis.Redis.from_url(stage.url)
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", "1")
    with pytest.raises(StoreFull, match="No memory is left"):
        stage.add("quick")
    assert jobs[2].cancel()
    assert waiting[0].cancel()
    stage.finished(*jobs[:3], timeout=10 * LEASE_S)
    assert [stage.record(job).state for job in jobs[:3]] == ["succeeded", "succeeded", "cancelled"]
    assert [stage.story().starts(job.id) for job in jobs[:3]] == [1, 1, 1]
    assert stage.record(jobs[3]).failures > 0
    client.config_set("maxmemory", "0")
    client.close()
    after = stage.add("quick")
    stage.finished(after)
    assert [stage.record(job).state for job in waiting] == ["cancelled", "scheduled", "scheduled"]
    jobs[3].cancel()
    stage.finished(jobs[3])


Harm = Callable[[redis.Redis, str], object]


def _delete_streams(client: redis.Redis, base: str) -> None:
    for key in client.scan_iter(f"{base}:s:*"):
        client.delete(key)


def _destroy_groups(client: redis.Redis, base: str) -> None:
    for key in client.scan_iter(f"{base}:s:*"):
        client.xgroup_destroy(key, "stillhere")


@pytest.mark.parametrize(
    "harm", [lambda client, _: client.flushall(), _delete_streams, _destroy_groups], ids=["flushall", "del", "destroy"]
)
def test_g12_idle_workers_mend_what_an_admin_broke(own_stage: Stage, tmp_path: Path, harm: Harm) -> None:
    stage = own_stage
    stage.ready_worker("-c", "2")
    stage.ready_worker("-c", "2")
    before = stage.add_many("quick", 5)
    stage.finished(*before)
    client = redis.Redis.from_url(stage.url)
    harm(client, f"{stage.namespace}:{{{QUEUE}}}")
    client.close()
    quiet_from = len(log_of(tmp_path).splitlines())
    broken = time.monotonic()
    jobs = stage.add_many("quick", 10)
    stage.finished(*jobs, timeout=10)
    time.sleep(2 * LEASE_S)
    assert all(stage.story().starts(job.id) == 1 for job in [*before, *jobs]), "nothing finished is replayed"
    lines = len(log_of(tmp_path).splitlines()) - quiet_from
    assert lines < 2 * (time.monotonic() - broken), log_of(tmp_path)
