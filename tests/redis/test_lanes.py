"""What lanes cost and how they are kept: streams of their own, looked at only where something was ever long or solo."""

from __future__ import annotations

import pytest

from stillhere.domain.job import KNOWN_LONG_MS, DeclaredLane, Grant
from stillhere.ports.backend import Claim, Lengthen, Register, Tick
from stillhere.ports.inspector import Ask
from tests.redis.kit import Queue


def commands(q: Queue) -> dict[str, int]:
    """How often each command ran since the last look, also inside scripts."""
    found = {name.removeprefix("cmdstat_"): row["calls"] for name, row in q.raw.info("commandstats").items()}
    q.raw.config_resetstat()
    ours = ("info", "config|resetstat", "evalsha", "script|load")
    return {name: calls for name, calls in found.items() if name not in ours}


def claim(q: Queue, long: int) -> list[Grant]:
    """The next claim of the worker `w`."""
    q.claims["w"] = q.claims.get("w", 0) + 1
    return q.call(Claim(queue="q", worker="w", n=q.claims["w"], slots=2, long=long)).jobs


class TestCost:
    """The way of a plain job is walked thousands of times a second."""

    def cost(self, q: Queue, prefix: str) -> dict[str, int]:
        commands(q)
        q.enqueue(f"{prefix}1", f"{prefix}2")
        assert len(claim(q, long=2)) == 2
        claim(q, long=2)
        return commands(q)

    def test_g2_a_queue_without_long_jobs_looks_for_none(self, q: Queue) -> None:
        q.register("w")
        q.call(Register(queue="q", worker="other", lease_ms=30_000, tasks=["u"], lanes={}))
        self.cost(q, "warm")
        plain = self.cost(q, "plain")
        assert plain["xlen"] == 12 + 7, "one claim that is filled and one that finds nothing"
        assert plain["zrangebyscore"] == 4, "what is due, twice a claim"
        assert plain["hgetall"] == 2, "the two jobs"
        q.call(Lengthen(queue="q", task="long"))
        apart = self.cost(q, "apart")
        assert apart["xlen"] > plain["xlen"]

    def test_g2_the_map_of_tasks_is_read_once_a_call(self, q: Queue) -> None:
        q.register("w")
        q.call(Lengthen(queue="q", task="t"))
        commands(q)
        q.enqueue(*(f"j{number}" for number in range(50)))
        used = commands(q)
        assert (used["hgetall"], used["zrangebyscore"]) == (1, 1)


class TestStreams:
    @pytest.mark.parametrize("lane", ["long", "solo"])
    def test_g2_each_lane_has_two_streams_a_priority(self, q: Queue, lane: DeclaredLane) -> None:
        for priority in (0, 5, 9):
            q.enqueue(f"j{priority}", lane=lane, priority=priority)
            assert q.lane(f"{lane}:{priority}:m") == [f"j{priority}"]
        q.register("w")
        claimed = q.call(Claim(queue="q", worker="w", n=1, slots=1, long=3, lanes="pool" if lane == "long" else "solo"))
        for grant in claimed.jobs:
            assert q.pending(f"{lane}:{grant.priority}:m"), "the group's own list says who has it"
        q.end("w")
        assert [q.lane(f"{lane}:{grant.priority}:r") for grant in claimed.jobs] == [[g.id] for g in claimed.jobs]
        for stream in q.raw.scan_iter(q.key("s:*")):
            assert all(one["consumers"] == 0 for one in q.raw.xinfo_groups(stream)), "no consumer outlives its worker"

    def test_g2_what_was_learnt_does_not_gather(self, q: Queue) -> None:
        q.call(Lengthen(queue="q", task="old"))
        q.now += KNOWN_LONG_MS
        q.call(Lengthen(queue="q", task="new"))
        assert q.raw.zrange(q.key("long"), 0, -1) == ["new"]

    @pytest.mark.parametrize("lane", ["pool", "express", ""])
    def test_g11_a_lane_that_this_version_does_not_know_is_none(self, q: Queue, lane: str) -> None:
        q.enqueue("a", delay_ms=10)
        q.raw.hset(q.key("j:a"), "lane", lane)
        q.now += 10
        q.register("w")
        assert q.look("a").lane is None
        assert [grant.lane for grant in q.take("w")] == ["pool"]
        assert q.job_hash("a")["lane"] == lane, "kept, as every field of others"


class TestOrphans:
    """A foreign tool may read from any stream."""

    @pytest.mark.parametrize("lane", ["long", "solo"])
    def test_g11_an_entry_that_a_stranger_read_comes_back(self, q: Queue, lane: DeclaredLane) -> None:
        q.enqueue("a", "b", lane=lane)
        q.register("w")
        q.claim("w", 0)
        stream = q.key(f"s:{lane}:5:m")
        q.raw.xgroup_create(stream, "stillhere", "0")
        q.raw.xreadgroup("stillhere", "stranger", {stream: ">"}, count=1)
        for _ in range(10):
            q.sweep()
        assert q.audit() == []
        claimed = q.call(Claim(queue="q", worker="w", n=9, slots=1, long=2, lanes="pool" if lane == "long" else "solo"))
        assert claimed.jobs[0].id == "a", "in front, though its group had it read"


@pytest.mark.parametrize("why", ["a job", "a task"])
def test_g11_a_queue_whose_lease_clock_was_deleted_finds_its_long_jobs_again(q: Queue, why: str) -> None:
    q.register("w")
    q.enqueue("x", lane="long" if why == "a job" else None)
    if why == "a task":
        q.call(Lengthen(queue="q", task="t"))
    q.raw.delete(q.key("clk"))
    for _ in range(10):
        q.sweep()
    assert [(grant.id, grant.lane) for grant in claim(q, long=1)] == [("x", "long")]


def test_g12_questions_expire_with_the_server(q: Queue) -> None:
    """Nobody ticks, nobody asks again: the hash goes by itself."""
    q.enqueue("a")
    q.register("w")
    q.take("w")
    q.call(Ask(queue="q", id="one", job="a"))
    assert 0 < q.raw.pttl(q.key("asks")) <= 60_000
    assert q.call(Tick(queue="q")).asks[0].worker == "w"
