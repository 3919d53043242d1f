"""What an administrator's accident leaves: data gone, streams or groups deleted, records deleted under their owners."""

from __future__ import annotations

from stillhere.domain.job import OutcomeKind, Verdict
from tests.redis.kit import LEASE_MS, MakeQueue, Queue


class TestFlushAll:
    def test_the_worker_is_told_and_a_new_one_runs_what_comes_next(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("old")
        (grant,) = q.take("w")
        q.raw.flushall()
        assert q.beat("w", grant).standing == "gone"
        assert q.renew("w").standing == "unknown"
        assert q.claim("w").standing == "gone"
        assert q.settle("w", grant).status == "unknown"
        assert q.sweep().over == []
        assert q.register("w2") == "ok"
        q.enqueue("new")
        assert [job.id for job in q.take("w2")] == ["new"]

    def test_nothing_finished_runs_again(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a")
        (grant,) = q.take("w")
        q.settle("w", grant)
        q.raw.delete(*[name for lane in ("r", "m") for name in [q.key(f"s:5:{lane}")]])
        q.raw.xgroup_create(q.key("s:5:m"), "stillhere", "0", mkstream=True)
        q.enqueue("b")
        assert [job.id for job in q.take("w")] == ["b"]


class TestADeletedStream:
    def test_what_is_enqueued_afterwards_runs(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a")
        q.settle("w", q.take("w")[0])
        q.raw.delete(q.key("s:5:m"))
        q.enqueue("b", "c")
        assert [job.id for job in q.take("w")] == ["b", "c"]

    def test_the_audit_names_the_jobs_that_stood_in_it(self, make_queue: MakeQueue) -> None:
        q = make_queue(sound=False)
        q.enqueue("a")
        q.raw.delete(q.key("s:5:m"))
        assert [(c.job, c.kind) for c in q.audit()] == [("a", "nowhere")]

    def test_a_running_job_ends_as_if_nothing_were(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a", "b")
        first, second = q.take("w")
        q.raw.delete(q.key("s:5:m"))
        assert q.beat("w", first, second).lost == []
        assert q.settle("w", first).status == "ok"
        assert q.settle("w", second, OutcomeKind.INTERRUPTED).state == "ready"
        assert [job.id for job in q.take("w")] == ["b"]

    def test_a_dead_workers_jobs_come_back_all_the_same(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a")
        q.take("w")
        q.raw.delete(q.key("s:5:m"))
        assert q.end("w", Verdict.INTERRUPTED).returned == ["a"]
        q.register("v")
        assert [job.id for job in q.take("v")] == ["a"]


class TestADestroyedGroup:
    def test_idle_workers_make_it_again(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a")
        q.settle("w", q.take("w")[0])
        q.raw.xgroup_destroy(q.key("s:5:m"), "stillhere")
        q.enqueue("b")
        assert [job.id for job in q.take("w")] == ["b"]

    def test_what_waits_is_granted_once_and_what_runs_is_not_granted_again(self, q: Queue) -> None:
        """F5: the new group reads from the start, the same entries under the same ids."""
        q.register("w")
        q.register("v")
        q.enqueue("running", "waiting")
        (grant,) = q.take("w", slots=1)
        q.raw.xgroup_destroy(q.key("s:5:m"), "stillhere")
        assert [job.id for job in q.take("v")] == ["waiting"]
        assert q.take("v") == []
        assert sorted(q.pending("5:m").values()) == ["v", "w"], "the running job's entry is back with its holder"
        assert q.settle("w", grant).status == "ok"

    def test_a_dead_workers_jobs_come_back_all_the_same(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a")
        q.take("w")
        q.raw.xgroup_destroy(q.key("s:5:m"), "stillhere")
        assert q.end("w", Verdict.CULPRIT).status == "ended"
        assert q.look("a").losses == 1
        q.register("v")
        assert [job.id for job in q.take("v", lanes="both")] == ["a"]


class TestADeletedWorkerRecord:
    def test_the_worker_is_told(self, make_queue: MakeQueue) -> None:
        q = make_queue(sound=False)
        q.register("w")
        q.raw.delete(q.key("w:w"))
        assert q.claim("w").standing == "gone"
        assert q.beat("w").standing == "gone"
        assert q.renew("w").standing == "unknown"

    def test_its_job_is_ready_again_once_its_entry_is_met(self, q: Queue) -> None:
        q.register("w")
        q.register("v")
        q.enqueue("a")
        q.take("w")
        q.raw.delete(q.key("w:w"), q.key("h:w"))
        q.raw.zrem(q.key("w"), "w")
        assert [c.kind for c in q.audit()] == ["nowhere"]
        q.raw.xgroup_destroy(q.key("s:5:m"), "stillhere")
        assert q.take("v") == []
        assert [job.id for job in q.take("v")] == ["a"]


class TestForeignConsumers:
    """Somebody reads our streams with a tool of their own, in our group."""

    def test_an_entry_read_by_a_stranger_comes_back(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a", "b")
        q.take("w", slots=1)
        q.raw.xreadgroup("stillhere", "stranger", {q.key("s:5:m"): ">"})
        assert [c.kind for c in q.audit()] == ["wrong_place"]
        for _ in range(10):
            q.sweep()
        assert [job.id for job in q.take("w")] == ["b"]

    def test_a_running_jobs_entry_goes_back_to_its_holder(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a")
        (grant,) = q.take("w")
        (entry,) = q.pending("5:m")
        q.raw.xclaim(q.key("s:5:m"), "stillhere", "stranger", 0, [entry])
        for _ in range(10):
            q.sweep()
        assert q.pending("5:m") == {entry: "w"}
        assert q.beat("w", grant).lost == []

    def test_an_empty_stranger_is_removed(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a", "b")
        q.take("w", slots=1)
        q.raw.execute_command("XGROUP", "CREATECONSUMER", q.key("s:5:m"), "stillhere", "stranger")
        for _ in range(10):
            q.sweep()
        assert [row["name"] for row in q.raw.xinfo_consumers(q.key("s:5:m"), "stillhere")] == ["w"]

    def test_a_worker_is_not_removed_over_entries_that_are_no_holdings(self, q: Queue) -> None:
        """F15: removing a consumer that has pending entries would leave them in nobody's list, unread for ever."""
        q.register("w")
        q.enqueue("a")
        q.raw.xgroup_create(q.key("s:5:m"), "stillhere", "0")
        q.raw.xreadgroup("stillhere", "w", {q.key("s:5:m"): ">"})
        while (reply := q.end("w")).status == "more":
            pass
        assert reply.status == "ended"
        q.register("v")
        assert [job.id for job in q.take("v")] == ["a"]


class TestForeignEyes:
    """What people and other tools see of the group is kept true, although nothing of ours depends on it."""

    def idle(self, q: Queue) -> list[tuple[str, bool, int]]:
        rows = q.raw.xpending_range(q.key("s:5:m"), "stillhere", "-", "+", 1000)
        return [(row["consumer"], row["time_since_delivered"] > 50_000, row["times_delivered"]) for row in rows]

    def test_a_running_jobs_entry_is_young_as_long_as_its_worker_speaks(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a")
        (grant,) = q.take("w")
        (entry,) = q.pending("5:m")
        q.raw.execute_command("XCLAIM", q.key("s:5:m"), "stillhere", "w", 0, entry, "IDLE", 100_000, "JUSTID")
        assert self.idle(q) == [("w", True, 1)]
        q.beat("w", grant)
        assert self.idle(q) == [("w", True, 1)], "not at each beat"
        q.tick(LEASE_MS // 2 + 50)
        q.renew("w")
        assert self.idle(q) == [("w", True, 1)], "only in its own voice"
        q.beat("w", grant)
        assert self.idle(q) == [("w", False, 1)]

    def test_the_heir_is_the_owner_whatever_the_old_worker_says(self, q: Queue) -> None:
        q.register("w")
        q.register("v")
        q.enqueue("a")
        (lost,) = q.take("w")
        q.end("w")
        (heir,) = q.take("v")
        for _ in range(3):
            q.tick(LEASE_MS // 2 + 50)
            q.renew("v")
            assert q.beat("w", lost).standing == "gone"
            assert q.settle("w", lost).status == "stale"
            assert list(q.pending("5:r").values()) == ["v"]
        assert q.settle("v", heir).status == "ok"

    def test_a_stream_is_as_long_as_what_waits_and_runs(self, q: Queue) -> None:
        q.register("w")
        for turn in range(20):
            q.enqueue(f"a{turn}", f"b{turn}")
            for grant in q.take("w"):
                q.settle("w", grant)
        assert q.raw.xlen(q.key("s:5:m")) == 0


def test_a_client_killed_by_an_administrator_is_replaced(q: Queue) -> None:
    q.tick()
    for _ in range(3):
        q.raw.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        q.tick()
