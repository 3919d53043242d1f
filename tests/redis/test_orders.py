"""Requests that come late, twice, out of order or not at all, and clocks that step: directed stories.

Many are told twice: once as they must go, and once on scripts that were broken on purpose, where they must go wrong.
"""

from __future__ import annotations

import msgspec
import pytest

from stillhere.backends.redis.scripts import Scripts, compose, stems
from stillhere.domain.job import OutcomeKind, Verdict
from stillhere.ports.backend import Cancel, Checkpoint, Retry
from tests.redis.kit import LEASE_MS, START, MakeQueue, Queue


def broken(make_queue: MakeQueue, old: str, new: str) -> Queue:
    """A queue whose scripts say `new` where they should say `old`."""
    assert any(old in compose(stem)[0] for stem in stems()), f"no script says {old!r}"
    return make_queue(scripts=Scripts(lambda _, text: text.replace(old, new)), sound=False)


class TestClaimAndBeat:
    """F2: a worker's claim and its beat travel at the same time; neither may cost it a job."""

    def test_g4_a_beat_sent_before_the_claims_reply_takes_nothing_back(self, q: Queue) -> None:
        self.claim_runs_first(q)

    def test_g4_it_would_without_the_claims_number(self, make_queue: MakeQueue) -> None:
        with pytest.raises(AssertionError):
            self.claim_runs_first(broken(make_queue, "grant.number <= answered", "true"))

    def claim_runs_first(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a")
        claimed = q.claim("w")
        beat = q.beat("w", answered=0)
        assert (beat.lost, beat.returned) == ([], [])
        assert q.beat("w", *claimed.jobs).lost == []
        assert q.settle("w", claimed.jobs[0]).status == "ok"

    def test_g4_a_beat_that_runs_before_the_claim_says_nothing_of_its_jobs(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a")
        beat = q.beat("w", answered=0)
        (grant,) = q.claim("w").jobs
        assert beat.lost == []
        assert q.settle("w", grant).status == "ok"

    def test_g5_a_settle_on_its_way_is_still_held(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a")
        (grant,) = q.take("w")
        assert q.beat("w", grant).returned == [], "the beat overtakes the settle"
        assert q.settle("w", grant).status == "ok"
        late = q.beat("w", grant)
        assert [pair.job for pair in late.lost] == ["a"], "settled: the store has nothing for it any more"

    def test_g11_what_was_answered_and_is_not_held_is_ready_again(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a", "b")
        first, _ = q.take("w")
        assert q.beat("w", first).returned == ["b"]
        assert (q.look("b").state, q.look("b").losses, q.look("b").deaths) == ("ready", 0, 0)

    def test_g2_a_late_copy_of_an_earlier_claim_gets_nothing(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a", "b")
        q.claim("w", slots=1, n=1)
        q.claim("w", slots=1, n=2)
        q.enqueue("c")
        assert q.claim("w", n=1).standing == "old"
        assert q.lane("5:m") == ["a", "b", "c"]

    def test_g2_the_same_number_gives_the_same_grants(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a", "b")
        first = q.claim("w", slots=1, n=1)
        assert q.claim("w", slots=5, n=1).jobs == first.jobs
        q.settle("w", first.jobs[0])
        assert q.claim("w", slots=5, n=1).jobs == []
        assert [job.id for job in q.claim("w", slots=5, n=2).jobs] == ["b"]

    def test_g4_an_old_renewal_after_a_later_claim_takes_back_nothing_that_runs(self, q: Queue) -> None:
        """Claim 2 proves that claim 1 was answered, whatever a supervisor's late message says."""
        q.register("w")
        q.enqueue("a", "b")
        q.claim("w", slots=1)
        q.claim("w", slots=1)
        assert q.renew("w", answered=0, hand_back=True).returned == ["b"]
        assert q.look("a").state == "running"


class TestALostClaimReply:
    """F3: the reply never arrives, and the supervisor goes on renewing for a worker whose loop is blocked."""

    def test_g7_the_unseen_job_returns_after_a_lease_and_the_known_one_stays(self, q: Queue) -> None:
        self.renewed_for_a_lease(q)

    def test_g7_it_would_stay_for_ever_if_sweeps_did_not_ask(self, make_queue: MakeQueue) -> None:
        with pytest.raises(AssertionError):
            self.renewed_for_a_lease(broken(make_queue, "add(returned, unpack(take_back(me)))", ""))

    def renewed_for_a_lease(self, q: Queue) -> None:
        q.register("w")
        q.register("v")
        q.enqueue("known", "unseen")
        (known,) = q.take("w", slots=1)
        q.claim("w", slots=1)
        for _ in range(3):
            q.tick(LEASE_MS // 4)
            q.renew("w", answered=1)
            assert q.sweep().returned == []
        q.tick(LEASE_MS // 4)
        swept = q.sweep()
        assert (swept.over, swept.returned) == (["v"], ["unseen"])
        record = q.look("unseen")
        assert (record.state, record.losses, record.deaths, record.runs) == ("ready", 0, 0, [])
        assert q.beat("w", known, answered=1).lost == []

    def test_g11_answered_in_time_it_stays(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a")
        q.claim("w")
        q.renew("w", answered=1)
        q.tick(LEASE_MS - 1)
        q.renew("w", answered=1)
        q.tick(LEASE_MS - 1)
        assert q.sweep().returned == []


class TestTokens:
    """F5: rising, whatever happens to clocks, groups and the server's memory."""

    def test_g2_the_clock_goes_back(self, q: Queue) -> None:
        self.granted_again_at(q, START - 3_600_000)

    def test_g2_two_grants_in_one_moment(self, q: Queue) -> None:
        self.granted_again_at(q, START)

    def test_g2_a_token_from_time_alone_would_fall(self, make_queue: MakeQueue) -> None:
        with pytest.raises(AssertionError):
            self.granted_again_at(broken(make_queue, "math.max(int(j.token) + 1, micros)", "micros"), START - 3_600_000)

    def granted_again_at(self, q: Queue, later: int) -> None:
        q.register("w")
        q.enqueue("a")
        (first,) = q.take("w")
        q.settle("w", first, OutcomeKind.INTERRUPTED)
        q.now = later
        (second,) = q.take("w")
        assert second.token > first.token
        assert q.settle("w", first).status == "already"
        assert q.settle("w", second).status == "ok"

    def test_g2_the_server_lost_its_last_writes(self, q: Queue) -> None:
        """An older state comes back, as after a failover: the next grant's token is later all the same."""
        q.register("w")
        q.enqueue("a")
        before = q.job_hash("a")
        (lost,) = q.take("w")
        q.raw.flushall()
        q.raw.hset(q.key("j:a"), mapping=before)
        q.now += 1
        q.raw.xadd(q.key("s:5:m"), {"id": "a"}, id=before["_entry"])
        q.register("v")
        (again,) = q.take("v")
        assert again.token > lost.token
        assert q.settle("w", lost).status == "stale"

    def test_g5_a_token_of_another_job_or_worker_settles_nothing(self, q: Queue) -> None:
        q.register("w")
        q.register("v")
        q.enqueue("a", "b")
        a, b = q.take("w")
        assert q.settle("v", a).status == "stale"
        assert q.settle("w", msgspec.structs.replace(a, token=b.token + 5)).status == "stale"
        assert q.look("a").state == "running"


class TestClosedWorkers:
    """F17: a worker id that was ended never comes back, however late its requests are."""

    def test_g4_late_requests_of_a_closed_worker_are_refused(self, q: Queue) -> None:
        self.late_requests(q)

    def test_g4_they_would_not_be_without_the_mark(self, make_queue: MakeQueue) -> None:
        with pytest.raises(AssertionError):
            self.late_requests(broken(make_queue, "if me.gone or not me.lease_ms then", "if not me.lease_ms then"))

    def late_requests(self, q: Queue) -> None:
        q.register("w")
        q.enqueue(*(f"{i:03}" for i in range(3)))
        (grant,) = q.take("w", slots=1)
        q.take("w", slots=1)
        assert q.end("w", limit=1).status == "more"
        assert q.claim("w").standing == "gone", "closed, not yet empty"
        assert q.renew("w").standing == "gone"
        assert q.beat("w", grant).standing == "gone"
        while q.end("w", limit=1).status == "more":
            pass
        assert q.register("w") == "gone"
        assert q.claim("w", n=9).standing == "gone"
        assert q.renew("w").standing == "gone"
        assert q.settle("w", grant).status == "stale"
        assert q.raw.exists(q.key("w:w"), q.key("h:w"), q.key("can:w"), q.key("ctl:w")) == 0


class TestClocks:
    """F6 and F20: silence and steps of the server's clock cost a lease at most one gap, and a retry nothing."""

    @pytest.mark.parametrize("step", [200_000, 3_600_000, -3_600_000])
    def test_g3_no_live_lease_is_over_after_a_step(self, q: Queue, step: int) -> None:
        self.step_and_sweep(q, step)

    def test_g3_it_would_be_by_the_wall_clock(self, make_queue: MakeQueue) -> None:
        with pytest.raises(AssertionError):
            self.step_and_sweep(broken(make_queue, "lease + math.min(step, gap)", "lease + step"), 200_000)

    def step_and_sweep(self, q: Queue, step: int) -> None:
        q.register("w")
        q.enqueue("a")
        (grant,) = q.take("w")
        q.now += step
        assert q.sweep().over == []
        assert q.end("w", force=False).status == "alive"
        assert q.beat("w", grant).lost == []

    def test_g3_the_gap_follows_the_shortest_lease_until_the_last_worker_left(self, q: Queue) -> None:
        q.tick()
        q.register("w", lease_ms=30_000)
        q.register("v", lease_ms=5_000)
        q.now += 60_000
        assert q.tick() == 500
        for worker in ("w", "v"):
            q.end(worker)
        q.now += 60_000
        assert q.tick() == 2_500

    def test_g9_a_retry_comes_in_its_own_time_after_a_step_back(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a")
        q.settle("w", q.take("w")[0], OutcomeKind.RETRY, delay_ms=3_000)
        q.now -= 3_600_000
        assert q.claim("w").next_due_ms == 3_000
        q.now += 2_999
        assert q.take("w") == []
        q.now += 1
        assert [job.id for job in q.take("w")] == ["a"]

    def test_g9_an_absolute_time_stays_on_the_wall(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a", due=START + 3_000)
        q.now -= 3_600_000
        assert q.claim("w").next_due_ms == 3_603_000


class TestTimeToLive:
    """F21: whatever lives has no time to live."""

    def test_g11_a_revived_job_does_not_vanish(self, q: Queue) -> None:
        self.revive(q)

    def test_g11_it_would_without_persist(self, make_queue: MakeQueue) -> None:
        with pytest.raises(AssertionError):
            self.revive(broken(make_queue, "call('PERSIST', key('j:' .. job))", ""))

    def revive(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a", unique="k")
        q.settle("w", q.take("w")[0], OutcomeKind.DEAD)
        assert q.raw.pttl(q.key("j:a")) > 29 * 86_400_000
        assert q.call(Retry(queue="q", job="a")).changed
        assert q.raw.pttl(q.key("j:a")) == -1
        assert q.raw.pttl(q.key("u:t:k")) == -1
        assert q.audit() == []

    @pytest.mark.parametrize(("retention_ms", "expected"), [(0, 600_000), (5_000, 600_000), (3_600_000, 3_600_000)])
    def test_g5_a_finished_id_stays_known_for_ten_minutes_at_least(
        self, q: Queue, retention_ms: int, expected: int
    ) -> None:
        q.register("w")
        q.enqueue("a")
        q.settle("w", q.take("w")[0], result="1", retention_ms=retention_ms)
        assert expected - 60_000 < q.raw.pttl(q.key("j:a")) <= expected
        assert q.enqueue("a")[0].conflict == "id"

    def test_g1_a_unique_key_kept_past_the_end_goes_with_its_time(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a", unique="k", unique_for_ms=7_200_000)
        q.now += 1_000
        q.settle("w", q.take("w")[0], retention_ms=0)
        assert q.raw.pttl(q.key("u:t:k")) > 7_100_000
        assert q.raw.pttl(q.key("j:a")) > 7_100_000, "the key must name a job that can be looked at"
        assert q.enqueue("b", unique="k")[0].id == "a"
        q.now += 7_200_000
        assert q.enqueue("b", unique="k")[0].created

    def test_g11_the_index_of_ended_jobs_forgets_them_too(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a", "b")
        first, second = q.take("w")
        q.settle("w", first, retention_ms=0)
        assert q.raw.zcard(q.key("done")) == 1
        q.now += 600_001
        q.settle("w", second)
        assert q.raw.zrange(q.key("done"), 0, -1) == ["b"]


class TestLateWrites:
    """F12 and F14: what hangs and runs late changes nothing; a cancel holds on every way out."""

    def test_g6_an_older_checkpoint_does_not_overwrite_its_successor(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a")
        (grant,) = q.take("w")

        def write(number: int, token: int = grant.token) -> str:
            verb = Checkpoint(queue="q", worker="w", job="a", token=token, number=number, value=str(number))
            return q.call(verb)

        assert [write(5), write(7), write(5), write(7), write(6)] == ["ok", "ok", "older", "older", "older"]
        assert write(8, grant.token - 1) == "stale"
        assert q.look("a").checkpoint == "7"
        q.settle("w", grant, OutcomeKind.INTERRUPTED)
        (again,) = q.take("w")
        assert again.checkpoint == "7"
        assert write(1, again.token) == "ok", "each grant counts anew"

    @pytest.mark.parametrize(
        "way", ["retry", "snooze", "dead", "interrupted", "cancelled", "returned", "lost", "unseen"]
    )
    def test_g8_a_cancelled_run_ends_cancelled_on_every_way_out(self, q: Queue, way: str) -> None:
        q.register("w")
        q.enqueue("a")
        (grant,) = q.claim("w").jobs
        assert q.call(Cancel(queue="q", job="a", reason="enough")).changed
        if way == "returned":
            q.beat("w")
        elif way == "lost":
            assert q.end("w", Verdict.CULPRIT).cancelled == ["a"]
        elif way == "unseen":
            q.renew("w", answered=0, hand_back=True)
        else:
            assert q.settle("w", grant, OutcomeKind(way)).state == "cancelled"
        record = q.look("a")
        assert (record.state, record.reason, record.cancelling) == ("cancelled", "enough", False)

    def test_g8_a_success_that_comes_first_wins(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a")
        (grant,) = q.take("w")
        q.call(Cancel(queue="q", job="a"))
        assert q.settle("w", grant, result="1").state == "succeeded"
        assert q.look("a").cancelling is False
