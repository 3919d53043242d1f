"""Reading a queue: pages over all places where jobs are, figures, workers; and an audit that finds what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stillhere.domain.job import JobRecord, OutcomeKind, Verdict
from stillhere.domain.states import State
from stillhere.ports.backend import Cancel, Register
from stillhere.ports.inspector import Jobs, Pause, Queues, WorkerRecord, Workers
from tests.redis.kit import LEASE_MS, START, MakeQueue, Queue


def pages(q: Queue, **filters: Any) -> tuple[list[JobRecord], int]:
    """All pages of a listing, and how many there were."""
    found: list[JobRecord] = []
    after: str | None = None
    for number in range(1, 1_000):
        page = q.call(Jobs(queue="q", after=after, **filters))
        found += page.jobs
        after = page.after
        if after is None:
            return found, number
    raise AssertionError("the listing does not end")


def one_of_each(q: Queue) -> None:
    q.register("w")
    q.enqueue("succeeded", "dead", "cancelled", "running", "suspect")
    grants = {grant.id: grant for grant in q.take("w")}
    q.settle("w", grants["succeeded"], result="1")
    q.settle("w", grants["dead"], OutcomeKind.DEAD, error='{"message":"no such page"}')
    q.settle("w", grants["cancelled"], OutcomeKind.CANCELLED)
    q.register("v")
    q.end("w", Verdict.BYSTANDER, verdicts={"suspect": Verdict.SUSPECT})
    assert [grant.id for grant in q.take("v")] == ["running"]
    q.enqueue("parked", task="other", priority=0)
    q.enqueue("ready", "urgent", priority=0)
    q.enqueue("delayed", delay_ms=1_000)
    q.enqueue("due", due=START + 5_000)
    assert [grant.id for grant in q.take("v", slots=1)] == ["ready"]


class TestJobs:
    @pytest.mark.parametrize("limit", [1, 3, 100])
    def test_every_job_is_on_exactly_one_page(self, q: Queue, limit: int) -> None:
        one_of_each(q)
        found, _ = pages(q, limit=limit)
        assert sorted(job.id for job in found) == sorted(
            ["succeeded", "dead", "cancelled", "running", "suspect", "ready", "urgent", "delayed", "due", "parked"]
        )

    @pytest.mark.parametrize("state", list(State))
    def test_by_state(self, q: Queue, state: State) -> None:
        one_of_each(q)
        found, _ = pages(q, state=state, limit=2)
        assert found
        assert {job.state for job in found} == {state}
        everything, _ = pages(q)
        assert len(found) == sum(job.state == state for job in everything)

    def test_by_task_worker_error_and_age(self, q: Queue) -> None:
        one_of_each(q)
        q.now += 10_000
        q.enqueue("young")
        assert [job.id for job in pages(q, task="other")[0]] == ["parked"]
        assert {job.id for job in pages(q, worker="v")[0]} == {"running", "ready"}
        assert [job.id for job in pages(q, error_text="such page")[0]] == ["dead"]
        assert "young" not in {job.id for job in pages(q, older_than_ms=5_000)[0]}
        assert pages(q, worker="nobody")[0] == []

    def test_by_id_or_its_tail(self, q: Queue) -> None:
        one_of_each(q)
        q.enqueue("0195f3c2d4e57abc8def0123456789ab", "0195f3c2d4e57abc8def0123456789cd")
        assert [job.id for job in pages(q, id_tail="6789cd")[0]] == ["0195f3c2d4e57abc8def0123456789cd"]
        assert [job.id for job in pages(q, id_tail="dead")[0]] == ["dead"], "a whole id is one job"
        assert len(pages(q, id_tail="0123456789")[0]) == 0

    def test_a_page_looks_at_a_bounded_number(self, q: Queue) -> None:
        for start in range(0, 1_200, 100):
            q.enqueue(*(f"{start + i:04}" for i in range(100)))
        q.enqueue("needle", task="other")
        found, number = pages(q, task="other")
        assert [job.id for job in found] == ["needle"]
        assert number >= 3
        everything, _ = pages(q, limit=77)
        assert len({job.id for job in everything}) == len(everything) == 1_201


class TestFigures:
    def test_one_queue(self, q: Queue) -> None:
        one_of_each(q)
        q.now += 700
        q.raw.xadd(q.key("inbox"), {"task": "t"})
        status = q.status()
        assert (status.ready, status.running, status.scheduled, status.dead) == (3, 2, 2, 1)
        assert (status.suspects, status.parked, status.parked_tasks, status.inbox) == (1, 1, ["other"], 1)
        assert (status.workers, status.paused, status.oldest_ready_ms, status.settled) == (1, False, 700, 3)

    def test_what_runs_is_not_the_oldest_that_waits(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a")
        q.now += 500
        q.enqueue("b")
        q.take("w", slots=1)
        q.now += 100
        assert q.status().oldest_ready_ms == 100
        q.take("w")
        assert q.status().oldest_ready_ms is None

    def test_a_paused_queue(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a")
        assert q.call(Pause(queue="q", paused=True)) is True
        assert q.call(Pause(queue="q", paused=True)) is False
        assert q.status().paused
        reply = q.claim("w")
        assert (reply.paused, reply.jobs, reply.more) == (True, [], False)
        q.raw.delete(q.key("wake"))
        assert q.call(Pause(queue="q", paused=False)) is True
        assert q.raw.llen(q.key("wake")) == 16, "whoever sleeps is told"
        assert [job.id for job in q.take("w")] == ["a"]

    def test_workers(self, q: Queue) -> None:
        info = {"host": "mill", "pid": "17"}
        q.call(Register(queue="q", worker="w", lease_ms=LEASE_MS, tasks=["t", "a:b"], info=info))
        q.enqueue("a", "b")
        q.take("w", slots=1)
        q.tick(1_000)
        (worker,) = q.call(Workers(queue="q"))
        assert worker == WorkerRecord(
            id="w",
            queue="q",
            lease_ms=LEASE_MS,
            left_ms=LEASE_MS - 1_000,
            seen=START,
            answered=1,
            holds=1,
            info=info,
            tasks=["a:b", "t"],
        )
        q.end("w", limit=0)
        assert [(w.gone, w.left_ms < 0) for w in q.call(Workers(queue="q"))] == [("SIGKILL", True)]
        assert q.status().workers == 0
        q.end("w")
        assert q.call(Workers(queue="q")) == []

    def test_queues_by_name(self, q: Queue) -> None:
        assert q.call(Queues(queue="")) == []
        q.enqueue("a")
        q.name = "p"
        q.enqueue("b")
        assert q.call(Queues(queue="")) == ["p", "q"]
        q.name = "q"


def break_entry(q: Queue) -> None:
    q.raw.xdel(q.key("s:5:m"), q.job_hash("a")["_entry"])


def break_ttl(q: Queue) -> None:
    q.raw.expire(q.key("j:a"), 100)


def break_unique(q: Queue) -> None:
    q.raw.set(q.key("u:t:k"), " other")


def break_state(q: Queue) -> None:
    q.raw.hset(q.key("j:a"), "state", "scheduled")


def break_set(q: Queue) -> None:
    q.raw.zadd(q.key("soon"), {"a": 1})


def break_orphan(q: Queue) -> None:
    q.raw.xadd(q.key("s:9:r"), {"id": "ghost"})


def break_limbo(q: Queue) -> None:
    q.raw.xgroup_create(q.key("s:5:m"), "stillhere", "0")
    q.raw.xreadgroup("stillhere", "x", {q.key("s:5:m"): ">"})
    q.raw.xgroup_delconsumer(q.key("s:5:m"), "stillhere", "x")


def break_owner(q: Queue) -> None:
    q.register("w")
    q.take("w")
    q.raw.delete(q.key("w:w"))


def break_holding(q: Queue) -> None:
    q.raw.hset(q.key("h:w"), "a", "1 1")


FAULTS: dict[str, tuple[Callable[[Queue], None], set[str]]] = {
    "an entry is gone": (break_entry, {"nowhere"}),
    "a time to live": (break_ttl, {"ttl_on_live"}),
    "a stolen unique key": (break_unique, {"unique"}),
    "a state that is not its place": (break_state, {"orphan_entry", "nowhere"}),
    "in a set besides": (break_set, {"twice"}),
    "an entry of nobody": (break_orphan, {"orphan_entry"}),
    "read, and in no list": (break_limbo, {"limbo_entry"}),
    "held by nobody": (break_owner, {"no_owner"}),
    "held and ready": (break_holding, {"twice"}),
}


class TestAudit:
    @pytest.mark.parametrize(("fault", "kinds"), FAULTS.values(), ids=FAULTS)
    def test_g11_it_finds(self, make_queue: MakeQueue, fault: Callable[[Queue], None], kinds: set[str]) -> None:
        q = make_queue(sound=False)
        q.enqueue("a", unique="k")
        assert q.audit() == []
        fault(q)
        assert {complaint.kind for complaint in q.audit()} == kinds

    def test_g11_a_queue_with_one_job_in_each_place_is_sound(self, q: Queue) -> None:
        one_of_each(q)
        assert q.call(Cancel(queue="q", job="parked")).state == "cancelled"
        assert q.call(Cancel(queue="q", job="due")).state == "cancelled"
        assert q.call(Cancel(queue="q", job="suspect")).state == "cancelled"
        assert q.call(Cancel(queue="q", job="urgent")).state == "cancelled"
        assert q.audit() == []
        assert q.lane("sus") == []

    def test_a_name_with_wildcards_is_no_pattern(self, q: Queue) -> None:
        q.name = "a*[b]?"
        q.enqueue("a")
        assert q.audit() == []
        q.raw.delete(q.key("s:5:m"))
        assert [complaint.kind for complaint in q.audit()] == ["nowhere"]
        q.name = "q"
