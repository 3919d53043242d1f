"""The ends of workers: in chunks, by several hands, with verdicts; and sweeps that find the few among the many."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stillhere.backends.redis.scripts import Scripts
from stillhere.domain.job import Grant, OutcomeKind, Verdict
from stillhere.ports.backend import Cancel, Checkpoint, Retry
from tests.redis.kit import LEASE_MS, MakeQueue, Queue


class TestChunks:
    """F15: a worker with many jobs is ended in bounded steps, and a crash between two of them loses nothing."""

    def test_g7_another_hand_goes_on_where_the_first_one_died(self, q: Queue) -> None:
        q.register("w")
        names = [f"{i:03}" for i in range(250)]
        for start in range(0, 250, 100):
            q.enqueue(*names[start : start + 100])
        q.take("w", slots=250)
        first = q.end("w", Verdict.SUSPECT, reason="SIGSEGV")
        assert (first.status, len(first.suspects)) == ("more", 100)
        assert q.audit() == [], "between two chunks every job is in one place"
        assert q.sweep().over == ["w"], "whoever sweeps finds it"
        replies = [q.end("w", Verdict.VANISHED, reason="lease over", force=False) for _ in range(2)]
        assert [reply.status for reply in replies] == ["more", "ended"]
        assert sorted(first.suspects + replies[0].suspects + replies[1].suspects) == names
        record = q.look(replies[0].suspects[0])
        assert (record.shared, record.vanished) == (1, 0), "the first caller's verdict stays"
        assert json.loads(record.error or "")["exit"] == "SIGSEGV", "and so does its reason"
        assert q.end("w").status == "unknown"

    def test_g12_the_same_end_twice_counts_once(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a", "b", "c")
        q.take("w")
        q.end("w", Verdict.CULPRIT, limit=2)
        q.end("w", Verdict.CULPRIT, limit=2)
        q.end("w", Verdict.CULPRIT, limit=2)
        assert [q.look(job).losses for job in "abc"] == [1, 1, 1]

    def test_g11_no_consumer_and_no_key_of_it_is_left(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a")
        q.take("w")
        q.end("w")
        assert q.raw.xinfo_consumers(q.key("s:5:m"), "stillhere") == []
        names = [name.removeprefix(q.key("")) for name in q.raw.keys(q.key("*"))]
        assert [name for name in names if name.endswith(":w")] == ["gone:w"]


class TestSweep:
    def test_g7_five_dead_among_five_hundred_live_are_found_at_once(self, q: Queue) -> None:
        live, dead = [f"live{i:03}" for i in range(500)], [f"dead{i}" for i in range(5)]
        for worker in dead + live:
            q.register(worker)
        for start in range(0, 505, 101):
            q.enqueue(*(f"{start + i:03}" for i in range(101)))
        for worker in live + dead:
            assert len(q.take(worker, slots=1)) == 1
        q.tick(LEASE_MS // 2)
        for worker in live:
            q.renew(worker)
        q.tick(LEASE_MS // 2)
        assert sorted(q.sweep(limit=20).over) == dead
        returned = [job for worker in dead for job in q.end(worker, force=False).returned]
        assert len(returned) == 5
        assert q.sweep().over == []
        assert q.status().running == 500

    def test_g7_a_limit_bounds_a_call_and_the_rest_comes_next(self, q: Queue) -> None:
        for number in range(5):
            q.register(f"w{number}")
        q.tick(LEASE_MS)
        assert len(q.sweep(limit=2).over) == 2

    def test_g4_a_lease_over_but_not_ended_is_renewed(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a")
        (grant,) = q.take("w")
        q.tick(LEASE_MS)
        assert q.claim("w").standing == "over"
        assert q.beat("w", grant).lost == []
        assert q.end("w", force=False).status == "alive"
        assert q.claim("w").standing == "ok"

    def test_g4_only_the_holders_own_word_shortens_its_lease(self, q: Queue) -> None:
        q.register("w")
        q.beat("w", lease_ms=5_000)
        q.renew("w")
        q.tick(5_000)
        assert q.sweep().over == ["w"]
        assert q.beat("w", lease_ms=60_000).standing == "ok"
        q.tick(5_000)
        assert q.sweep().over == ["w"], "it cannot make it longer"


class TestVerdicts:
    def test_g7_what_each_verdict_does(self, q: Queue) -> None:
        q.register("w")
        q.enqueue(*Verdict)
        q.take("w")
        ended = q.end("w", Verdict.BYSTANDER, verdicts={verdict.value: verdict for verdict in Verdict})
        assert sorted(ended.suspects) == ["culprit", "suspect"]
        assert sorted(ended.returned) == ["beside", "bystander", "interrupted", "vanished"]
        assert q.lane("sus:r") == ["culprit"]
        assert q.lane("sus") == ["suspect"]
        assert sorted(q.lane("5:r")) == ["beside", "bystander", "interrupted", "vanished"]
        counted = {
            job: (r.losses, r.shared, r.beside, r.vanished, r.interruptions, r.deaths)
            for job in Verdict
            for r in [q.look(job)]
        }
        assert counted == {
            Verdict.CULPRIT: (1, 0, 0, 0, 0, 1),
            Verdict.SUSPECT: (0, 1, 0, 0, 0, 1),
            Verdict.BESIDE: (0, 0, 1, 0, 0, 1),
            Verdict.BYSTANDER: (0, 0, 0, 0, 0, 0),
            Verdict.INTERRUPTED: (0, 0, 0, 0, 1, 0),
            Verdict.VANISHED: (0, 0, 0, 1, 0, 1),
        }
        assert json.loads(q.look("culprit").error or "")["exit"] == "SIGKILL"

    def test_g7_a_grant_that_nobody_answered_is_a_bystander_whatever_is_said(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a")
        q.claim("w")
        assert q.end("w", Verdict.CULPRIT, verdicts={"a": Verdict.CULPRIT}).returned == ["a"]
        assert q.look("a").deaths == 0

    @pytest.mark.parametrize(
        ("verdict", "times", "options"),
        [
            (Verdict.CULPRIT, 4, {}),
            (Verdict.CULPRIT, 2, {"max_losses": 1}),
            (Verdict.CULPRIT, 1, {"max_losses": 0}),
            (Verdict.SUSPECT, 13, {}),
            (Verdict.SUSPECT, 5, {"max_losses": 1}),
            (Verdict.VANISHED, 11, {}),
        ],
    )
    def test_g7_a_budget_that_is_used_up_makes_a_dead_letter(
        self, q: Queue, verdict: Verdict, times: int, options: dict[str, Any]
    ) -> None:
        q.enqueue("a", **options)
        for number in range(times):
            assert q.look("a").state == "ready"
            q.register(f"w{number}")
            assert len(q.take(f"w{number}", lanes="both")) == 1
            ended = q.end(f"w{number}", verdict, reason="SIGSEGV")
        assert ended.dead == ["a"]
        record = q.look("a")
        assert (record.state, record.reason) == ("dead", "lost")
        assert json.loads(record.error or "")["exit"] == "SIGSEGV"
        assert len(record.runs) == times - 1
        assert record.worker == f"w{times - 1}", "the last run is the record itself"

    def test_g7_a_hundred_deaths_are_the_end_whatever_was_forgiven(self, q: Queue) -> None:
        q.enqueue("a")
        q.raw.hset(q.key("j:a"), "deaths", "100")
        q.register("w")
        q.take("w")
        assert q.end("w", Verdict.VANISHED).dead == ["a"]

    def test_g6_a_checkpoint_that_moved_wipes_the_account_and_the_job_leaves_the_lane(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a")
        q.take("w")
        q.end("w", Verdict.CULPRIT)
        for name, value, lane, losses in (("v", "1", "5:r", 0), ("u", "1", "sus:r", 1)):
            q.register(name)
            (grant,) = q.take(name, lanes="both")
            q.call(Checkpoint(queue="q", worker=name, job="a", token=grant.token, number=1, value=value))
            if losses:
                q.end(name, Verdict.CULPRIT)
            else:
                q.settle(name, grant, OutcomeKind.INTERRUPTED)
            assert q.lane(lane) == ["a"]
            assert q.look("a").losses == losses
        assert q.look("a").deaths == 2
        q.register("x")
        (grant,) = q.take("x", lanes="solo")
        assert grant.checkpoint == "1"
        q.call(Checkpoint(queue="q", worker="x", job="a", token=grant.token, number=1, value="1"))
        assert q.look("a").losses == 1, "the same value again is no progress"

    def test_a_record_keeps_the_newest_fifty_runs(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a")
        for _ in range(55):
            q.settle("w", q.take("w")[0], OutcomeKind.INTERRUPTED)
        q.settle("w", q.take("w")[0], OutcomeKind.DEAD)
        assert len(q.look("a").runs) == 50
        assert json.loads(q.look("a").runs[-1])["how"] == "interrupted", "the last run is the record itself"
        assert q.call(Retry(queue="q", job="a")).changed
        assert q.look("a").worker is None
        runs = [json.loads(line) for line in q.look("a").runs]
        assert len(runs) == 50
        assert runs[-1]["how"] == "dead"
        assert [run["token"] for run in runs] == sorted(run["token"] for run in runs)
        assert runs[-1]["token"] == q.look("a").token
        assert set(runs[0]) == {"worker", "token", "start", "end", "how"}


class TestPoison:
    """F8: one job that kills its worker, nineteen innocent ones beside it."""

    def test_g7_the_culprit_dies_alone_and_nobody_else_is_charged(self, q: Queue) -> None:
        self.run_until_quiet(q)
        record = q.look("poison")
        assert (record.state, record.reason, record.losses) == ("dead", "lost", 4)
        for job in (f"good{i:02}" for i in range(19)):
            record = q.look(job)
            assert (record.state, record.losses) == ("succeeded", 0)
            assert record.shared <= 1

    def test_g7_charged_like_the_culprit_and_not_set_apart_all_would_die(self, make_queue: MakeQueue) -> None:
        def mutate(_: str, text: str) -> str:
            text = text.replace("if is_suspect(j) then return", "if false then return")
            return text.replace("suspect = {'shared', 'm'}", "suspect = {'losses', 'm'}")

        q = make_queue(scripts=Scripts(mutate))
        self.run_until_quiet(q)
        assert {q.look(f"good{i:02}").state for i in range(19)} == {"dead"}

    def run_until_quiet(self, q: Queue) -> None:
        """Workers of twenty slots, and one-slot ones while there are suspects; one that runs the poison job dies."""
        q.enqueue("poison", *(f"good{i:02}" for i in range(19)))
        for number in range(100):
            lanes: Any = "both" if q.status().suspects else "pool"
            worker = f"w{number}"
            q.register(worker)
            grants = q.take(worker, slots=20 if lanes == "pool" else 1, lanes=lanes)
            self.run(q, worker, grants)
            if q.status().ready == 0:
                return
        raise AssertionError("it does not end")

    def run(self, q: Queue, worker: str, grants: list[Grant]) -> None:
        if any(grant.id == "poison" for grant in grants):
            q.end(worker, Verdict.CULPRIT if len(grants) == 1 else Verdict.SUSPECT, reason="SIGSEGV")
            return
        for grant in grants:
            assert q.settle(worker, grant).status == "ok"
        q.end(worker, Verdict.INTERRUPTED)


class TestLanes:
    def test_g7_what_was_running_stands_in_front_of_what_is_new(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("old", "new1", "new2")
        q.settle("w", q.take("w", slots=1)[0], OutcomeKind.INTERRUPTED)
        assert [job.id for job in q.take("w")] == ["old", "new1", "new2"]

    def test_g2_priorities_in_order_and_one_claim_in_eight_from_below(self, q: Queue) -> None:
        q.register("w")
        q.enqueue(*(f"low{i}" for i in range(20)), priority=9)
        q.enqueue(*(f"high{i}" for i in range(20)), priority=0)
        q.enqueue(*(f"mid{i}" for i in range(20)), priority=3)
        first = [q.take("w", slots=1)[0].id for _ in range(16)]
        assert [i for i, job in enumerate(first, 1) if job.startswith("low")] == [8, 16]
        assert [job[:4] for job in first if not job.startswith("low")] == ["high"] * 14
        assert q.lane("5:m")[0] == "mid0", "other numbers go with the next lane down"

    def test_g7_a_suspect_runs_alone(self, q: Queue) -> None:
        q.enqueue("s1", "s2")
        q.register("w")
        q.take("w")
        q.end("w", Verdict.SUSPECT)
        q.enqueue("plain")
        q.register("pool")
        assert [job.id for job in q.take("pool", slots=5)] == ["plain"]
        q.enqueue("plain2")
        q.register("solo")
        taken = q.take("solo", slots=5, lanes="solo")
        assert [(job.id, job.suspect) for job in taken] == [("s1", True)]
        q.register("both")
        assert [job.id for job in q.take("both", slots=5, lanes="both")] == ["s2"]
        assert [job.id for job in q.take("both", slots=5, lanes="both")] == ["plain2"]

    def test_g10_a_claim_that_leaves_work_passes_the_wake_on(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a", "b", "c")
        assert q.raw.llen(q.key("wake")) == 3
        q.raw.delete(q.key("wake"))
        assert q.claim("w", slots=2).more is True
        assert q.raw.llen(q.key("wake")) == 1
        q.raw.delete(q.key("wake"))
        assert q.claim("w", slots=2).more is False
        assert q.raw.llen(q.key("wake")) == 0

    def test_g10_the_wake_list_stays_short(self, q: Queue) -> None:
        for start in range(0, 300, 100):
            q.enqueue(*(f"{start + i}" for i in range(100)))
        assert q.raw.llen(q.key("wake")) == 16


class TestParked:
    def test_an_unknown_task_waits_for_a_worker_that_knows_it(self, q: Queue) -> None:
        q.register("w", tasks=["other"])
        q.enqueue("a", "b")
        q.enqueue("c", task="other")
        assert [job.id for job in q.take("w")] == ["c"]
        assert [(q.look(job).state, q.look(job).reason) for job in "ab"] == [("ready", "unknown_task")] * 2
        status = q.status()
        assert (status.ready, status.parked, status.parked_tasks) == (2, 2, ["t"])
        assert q.take("w") == [], "it is not read again and again"
        q.register("v", tasks=["t", "other"])
        jobs = q.take("v")
        assert [job.id for job in jobs] == ["a", "b"]
        assert q.look("a").reason is None
        assert q.raw.exists(q.key("parks")) == 0

    def test_a_cancelled_one_is_not_waited_for_any_more(self, q: Queue) -> None:
        q.register("w", tasks=["other"])
        q.enqueue("a")
        q.take("w")
        assert q.call(Cancel(queue="q", job="a")).changed
        assert (q.status().parked, q.status().parked_tasks) == (0, [])
        q.register("v")
        assert q.take("v") == []
        assert q.raw.exists(q.key("parks")) == 0

    def test_a_newer_record_waits_for_a_newer_worker(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a")
        q.raw.hset(q.key("j:a"), "v", "2")
        assert q.take("w") == []
        assert q.look("a").reason == "newer_record"
        q.register("newer", version=2)
        assert [(job.id, job.v) for job in q.take("newer")] == [("a", 2)]

    def test_the_producer_hears_that_no_live_worker_knows_the_task(self, q: Queue) -> None:
        assert q.enqueue("a")[0].known, "no worker at all: nothing to warn of"
        q.register("w", tasks=["other"])
        assert q.enqueue("b")[0].known is False
        q.register("v", tasks=["t"])
        assert q.enqueue("c")[0].known
        q.end("v")
        assert q.enqueue("d")[0].known is False

    def test_many_come_back_in_steps(self, q: Queue) -> None:
        q.register("w", tasks=[])
        for start in range(0, 250, 50):
            q.enqueue(*(f"{start + i:03}" for i in range(50)))
        while q.claim("w", slots=50).dropped or q.status().parked < 250:
            pass
        q.register("v")
        seen: list[str] = []
        while jobs := q.take("v", slots=1_000):
            seen += [job.id for job in jobs]
        assert len(set(seen)) == 250
