"""A worker group that stands still and wakes: its heir's work is not touched (G2, G4, G5, G6)."""

from __future__ import annotations

import redis

from stillhere.ports.inspector import Workers
from tests.faults.kit import LEASE_S, QUEUE, Stage
from tests.support.ledger import boot_ns
from tests.support.procs import eventually


def owner(stage: Stage) -> set[str]:
    """Return who XPENDING says has entries."""
    client = redis.Redis.from_url(stage.url, decode_responses=True)
    found: set[str] = set()
    for key in client.scan_iter(f"{stage.namespace}:{{{QUEUE}}}:s:*"):
        for entry in client.xpending_range(key, "stillhere", "-", "+", 100):
            found.add(str(entry["consumer"]))
    client.close()
    return found


def test_g4_a_frozen_and_thawed_worker_takes_nothing_back(stage: Stage) -> None:
    frozen = stage.ready_worker("-c", "1")
    job = stage.add("steps", 300, 0.05)
    stage.started(job)
    stage.answered(job)
    frozen.freeze()
    frozen_at = boot_ns()
    heir = stage.ready_worker("-c", "1")
    second = stage.started(job, 2, timeout=3 * LEASE_S)
    (heir_id,) = (worker.id for worker in stage.store.call(Workers(queue=QUEUE)) if worker.holds)
    assert owner(stage) == {heir_id}
    eventually(lambda: boot_ns() - frozen_at > 3 * LEASE_S * 1e9, 4 * LEASE_S)  # it stands still for three leases
    thawed_at = boot_ns()
    frozen.thaw()

    def told() -> bool:
        assert owner(stage) <= {heir_id}
        return stage.story().runs(job.id)[0].end is not None

    eventually(told, 10, what=lambda: frozen.log)
    assert stage.story().runs(job.id)[0].how == "CancelledError"
    assert job.result(timeout=40) == 300
    info, story = stage.record(job), stage.story()
    assert story.starts(job.id) == 2
    assert (info.token, info.failures, info.vanished) == (second.token, 0, 0), "a moved checkpoint sets the count back"
    assert info.deaths == 1
    steps_after = [line for line in story.events_of("step", job.id) if line["at"] > thawed_at]
    assert {line["pid"] for line in steps_after if line["token"] == second.token} == {second.pid}
    assert heir.running
    again = stage.add("quick")
    stage.finished(again)


def test_g5_the_late_success_of_a_frozen_worker_changes_nothing(stage: Stage) -> None:
    """The run ends at once when it wakes, before anybody can tell it: a result under a token that is over."""
    frozen = stage.ready_worker("-c", "1")
    job = stage.add("block_loop", 1.5 * LEASE_S)
    stage.started(job)
    frozen.freeze()
    heir = stage.ready_worker("-c", "1")
    second = stage.started(job, 2, timeout=3 * LEASE_S)
    frozen.thaw()
    eventually(lambda: stage.story().runs(job.id)[0].end, 10)
    stage.finished(job, timeout=10)
    info = stage.record(job)
    assert (info.state, info.token, info.losses, info.failures) == ("succeeded", second.token, 0, 0)
    assert stage.story().starts(job.id) == 2
    assert heir.running
    assert frozen.running
    follow = [stage.add("quick", 0.3) for _ in range(2)]
    stage.finished(*follow)
