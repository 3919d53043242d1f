"""A server at its memory limit that evicts nothing: new jobs are refused, and what is there goes on (F7)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis.exceptions import OutOfMemoryError

from stillhere.backends.redis.scripts import Scripts
from stillhere.domain.errors import StoreFull, StoreUnavailable
from stillhere.domain.job import OutcomeKind, Verdict
from stillhere.ports.backend import Cancel, Checkpoint, Progress, ProgressItem, Retry
from stillhere.ports.inspector import Pause, Purge, Workers
from tests.redis.kit import MakeQueue, Queue
from tests.support.servers import RedisServer


@pytest.fixture(params=["valkey", "redis62"])
def redis_server(request: pytest.FixtureRequest, make_server: Callable[..., RedisServer]) -> RedisServer:
    """A server for one test alone, instead of the shared ones."""
    return make_server(request.param)


def fill(q: Queue) -> None:
    """From here on the server has no memory left."""
    q.raw.config_set("maxmemory", "1")
    with pytest.raises(OutOfMemoryError):
        q.raw.set("ballast", "x" * 1000)


def test_g1_a_new_job_is_refused_and_nothing_of_it_is_there(q: Queue) -> None:
    q.enqueue("old")
    fill(q)
    with pytest.raises(StoreFull, match=r"^No memory is left in .*: it takes no new job\.$"):
        q.enqueue("a", "b", unique="k")
    q.raw.config_set("maxmemory", "0")
    assert q.raw.keys("*{q}:j:*") == [q.key("j:old")]
    assert [one.created for one in q.enqueue("a", unique="k")] == [True]


def test_g12_every_other_verb_goes_on(q: Queue) -> None:
    for worker in ("w", "crashed", "silent"):
        q.register(worker, lease_ms=60_000)
    kinds = list(OutcomeKind)
    q.enqueue("poison", *kinds, "kept", "at-crashed", "unseen", "waiting")
    q.settle("w", q.take("w", slots=1)[0], OutcomeKind.DEAD)
    held = {grant.id: grant for grant in q.take("w", slots=7)}
    (at_crashed,) = q.take("crashed", slots=1)
    unseen = q.claim("silent", slots=1)
    assert len(unseen.jobs) == 1
    fill(q)

    q.tick(500)
    assert q.register("late") == "ok"
    assert q.beat("w", *held.values()).lost == []
    assert q.renew("crashed").standing == "ok"
    assert q.renew("silent", answered=0, hand_back=True).returned == [unseen.jobs[0].id]
    token = held["kept"].token
    assert q.call(Checkpoint(queue="q", worker="w", job="kept", token=token, number=1, value="1")) == "ok"
    item = ProgressItem(job="kept", token=token, number=1, value='{"done":1}')
    assert q.call(Progress(queue="q", worker="w", items=[item])) == ["ok"]
    assert q.call(Cancel(queue="q", job="kept")).changed
    assert q.settle("w", held["kept"], OutcomeKind.RETRY).state == "cancelled"
    for kind in kinds:
        assert q.settle("w", held[kind], kind, delay_ms=5, result="1").status == "ok", kind
    assert q.end("crashed", Verdict.CULPRIT).suspects == [at_crashed.id]
    assert q.call(Retry(queue="q", job="dead")).changed
    assert q.call(Purge(queue="q", job="poison"))
    assert q.call(Purge(queue="q", job="waiting")) is False
    assert q.call(Pause(queue="q", paused=True))
    assert q.call(Pause(queue="q", paused=False))
    q.sweep()
    assert {worker.id for worker in q.call(Workers(queue="q"))} == {"w", "silent", "late"}
    q.now += 10
    again = q.take("late", slots=100)
    assert {"dead", "retry", "snooze", "interrupted"} <= {grant.id for grant in again}
    assert q.end("late", Verdict.INTERRUPTED).status == "ended"
    assert q.audit() == []


def test_without_the_first_harmless_write_renewals_would_fail(make_queue: MakeQueue) -> None:
    def mutate(_: str, text: str) -> str:
        return text.replace("if MODE == 'write' then call('DEL', key('-')) end", "")

    q = make_queue(scripts=Scripts(mutate))
    q.register("w")
    fill(q)
    with pytest.raises(StoreUnavailable, match=r"^Refused by .*: renew "):
        q.renew("w")
    q.raw.config_set("maxmemory", "0")


def test_the_queue_drains_below_the_limit_again(q: Queue) -> None:
    q.register("w")
    for start in range(0, 2_000, 100):
        q.enqueue(*(f"{start + i}" for i in range(100)), args='{"text":"' + "x" * 1_000 + '"}')
    used = q.raw.info("memory")["used_memory"]
    q.raw.config_set("maxmemory", str(used))
    with pytest.raises(StoreFull):
        q.enqueue("more")
    done = 0
    while grants := q.take("w", slots=100):
        for grant in grants:
            assert q.settle("w", grant, retention_ms=0).status == "ok"
        done += len(grants)
    assert done == 2_000
    assert q.enqueue("more")[0].created
