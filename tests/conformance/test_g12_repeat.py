"""G12: every verb is safe late, twice and out of order, and every call ends within its deadline.

A request may run after its sender gave it up, after it was sent again, and after its worker was ended. For each verb
that changes something the table below says how to send it; the tests then send it in all those ways. What it may not
do: raise, move a job along no row of the table of states, leave the queue unsound, or do twice what was asked once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stillhere.domain.errors import StoreUnavailable
from stillhere.domain.job import Grant, NewRecord, OutcomeKind, Verdict
from stillhere.domain.states import FINAL, TABLE, State
from stillhere.ports.backend import (
    Beat,
    Cancel,
    Checkpoint,
    Claim,
    End,
    Enqueue,
    Lengthen,
    Look,
    Progress,
    ProgressItem,
    Register,
    Renew,
    Retry,
    Settle,
    Sweep,
    Tick,
    Verb,
)
from stillhere.ports.inspector import Answer, Answered, Ask, Audit, Jobs, Pause, Purge, Queues, Status, Workers
from stillhere.stores import open_async, open_sync
from tests.conformance.kit import EVER, LEASE, MINUTE, SECOND, World, ids, outcome, pair
from tests.support.proxy import Proxy

Make = Callable[[Grant], Verb[Any]]
"""How to send a verb about the running job, in the queue `q`."""


def _settle(kind: OutcomeKind) -> Make:
    return lambda grant: Settle(queue="q", worker="w", outcomes=[outcome(grant, kind, delay_ms=MINUTE)])


def _end(verdict: Verdict, *, force: bool = True) -> Make:
    return lambda _: End(queue="q", worker="w", reason="r", default=verdict, force=force)


def _enqueue(job: str, **fields: Any) -> Enqueue:
    return Enqueue(queue="q", jobs=[NewRecord(id=job, task="t", queue="q", args="{}", **fields)])


def _progress(grant: Grant) -> Progress:
    item = ProgressItem(job=grant.id, token=grant.token, number=1, value='{"done":1}')
    return Progress(queue="q", worker="w", items=[item])


VERBS: dict[str, Make] = {
    "enqueue": lambda _: _enqueue("new"),
    "enqueue the running one": lambda grant: _enqueue(grant.id),
    "enqueue in place of": lambda _: _enqueue("new", unique="u", on_conflict="replace"),
    "enqueue later": lambda _: _enqueue("new", delay_ms=SECOND),
    "cancel": lambda grant: Cancel(queue="q", job=grant.id),
    "cancel a waiting one": lambda _: Cancel(queue="q", job="b"),
    "retry": lambda grant: Retry(queue="q", job=grant.id),
    "retry a waiting one": lambda _: Retry(queue="q", job="later"),
    "retry a dead one": lambda _: Retry(queue="q", job="dead"),
    "purge": lambda _: Purge(queue="q", job="dead"),
    "pause": lambda _: Pause(queue="q", paused=True),
    "resume": lambda _: Pause(queue="q", paused=False),
    "register": lambda _: Register(queue="q", worker="w", lease_ms=LEASE, tasks=("t",)),
    "claim": lambda _: Claim(queue="q", worker="w", n=2, slots=1),
    "claim again": lambda _: Claim(queue="q", worker="w", n=1, slots=1),
    "claim a suspect": lambda _: Claim(queue="q", worker="w", n=2, slots=1, lanes="both"),
    "beat": lambda grant: Beat(queue="q", worker="w", answered=1, held=[pair(grant)]),
    "beat with nothing": lambda _: Beat(queue="q", worker="w", answered=1),
    "beat of a drain": lambda grant: Beat(queue="q", worker="w", answered=1, held=[pair(grant)], lease_ms=SECOND),
    "renew": lambda _: Renew(queue="q", worker="w", answered=1),
    "renew and hand back": lambda _: Renew(queue="q", worker="w", answered=1, hand_back=EVER),
    "checkpoint": lambda grant: Checkpoint(
        queue="q", worker="w", job=grant.id, token=grant.token, number=1, value='"here"'
    ),
    "progress": _progress,
    "claim a long one": lambda _: Claim(queue="q", worker="w", n=2, slots=0, long=1),
    "claim a solo one": lambda _: Claim(queue="q", worker="w", n=2, slots=1, lanes="solo"),
    "lengthen": lambda _: Lengthen(queue="q", task="t"),
    "ask": lambda grant: Ask(queue="q", id="where", job=grant.id),
    "answer": lambda _: Answer(queue="q", id="where", text="at line 7"),
    "tick": lambda _: Tick(queue="q"),
    "sweep": lambda _: Sweep(queue="q"),
    **{f"settle {kind}": _settle(kind) for kind in OutcomeKind},
    **{f"end {verdict}": _end(verdict) for verdict in Verdict},
    "end without force": _end(Verdict.VANISHED, force=False),
}
READS: dict[str, Make] = {
    "look": lambda grant: Look(queue="q", job=grant.id),
    "status": lambda _: Status(queue="q"),
    "jobs": lambda _: Jobs(queue="q"),
    "workers": lambda _: Workers(queue="q"),
    "answered": lambda _: Answered(queue="q", id="where"),
    "queues": lambda _: Queues(queue=""),
    "audit": lambda _: Audit(queue="q"),
}
JOBS = ("a", "b", "later", "dead", "suspect", "new")
MOVES = {(before, after) for (before, _), after in TABLE.items()}


class Watch:
    """The states of all jobs; each look asks whether they could come about by rows of the table."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.seen: dict[str, State | None] = {}
        self.look()

    def look(self) -> dict[str, State | None]:
        for job in JOBS:
            record = self.world.find(job)
            now, before = record.state if record else None, self.seen.get(job)
            assert now is before or reachable(before, now), f"{job}: from {before} to {now}"
            self.seen[job] = now
        assert self.world.audit() == []
        return dict(self.seen)


def reachable(before: State | None, after: State | None) -> bool:
    """Whether moves lead there; one call may make several (due, then granted). A dead letter may be purged."""
    if after is None:
        return before is State.DEAD
    reached: set[State | None] = {before}
    while True:
        more = {b for (a, b) in MOVES if a in reached and a not in FINAL - {before}} - reached
        if not more:
            return after in reached
        reached |= more


def prepare(world: World) -> Grant:
    """A queue with a job in every state, and the worker `w`, which has claimed once and holds `a`."""
    other = world.worker("other")
    world.enqueue("dead")
    other.settle(other.take_one(), OutcomeKind.DEAD)
    world.enqueue("suspect")
    other.take_one()
    other.die(Verdict.SUSPECT)
    world.enqueue("later", delay_ms=10 * MINUTE)
    worker = world.worker("w")
    world.enqueue("a")
    grant = worker.take_one()
    world.enqueue("b", unique="u")
    return grant


@pytest.mark.parametrize("name", VERBS)
def test_g12_twice_is_once(world: World, name: str) -> None:
    grant = prepare(world)
    watch = Watch(world)
    verb = VERBS[name](grant)
    world.call(verb)
    after_one = watch.look()
    records = [world.find(job) for job in JOBS]
    for _ in range(2):
        world.call(verb)
        assert watch.look() == after_one
    assert [world.find(job) for job in JOBS] == records, "not a figure has changed"


@pytest.mark.parametrize("name", [name for name in VERBS if not name.startswith("end")])
def test_g12_after_the_workers_end_it_changes_nothing_of_its_next_holder(world: World, name: str) -> None:
    grant = prepare(world)
    verb = VERBS[name](grant)
    ended = world.call(End(queue="q", worker="w", reason="r", default=Verdict.BYSTANDER, force=True))
    assert ended.status == "ended"
    holder = world.worker("holder")
    new = holder.take_one()
    assert new.id == "a"
    watch = Watch(world)
    for _ in range(2):
        world.call(verb)
        watch.look()
    assert "w" not in world.workers(), "a closed id stays closed"
    told = holder.beat(new)
    assert told.lost == []
    cancelled_by_hand = name == "cancel"
    assert bool(told.cancelled) == cancelled_by_hand
    assert holder.settle(new).status == "ok"


@pytest.mark.parametrize("name", VERBS)
def test_g12_any_two_in_any_order_and_both_again(world: World, name: str) -> None:
    for number, then in enumerate(VERBS):
        queue = world.beside(f"beside {then}")
        grant = prepare(queue)
        watch = Watch(queue)
        one, two = (to(queue, VERBS[verb](grant)) for verb in (name, then))
        for verb in (one, two, one, two, two, one)[number % 2 :]:
            queue.call(verb)
        watch.look()


def to(world: World, verb: Verb[Any]) -> Verb[Any]:
    """The same request to this queue."""
    return msgspec.structs.replace(verb, queue=world.queue)


@pytest.mark.parametrize("name", VERBS)
def test_g12_in_a_queue_that_knows_nothing_of_it(world: World, name: str) -> None:
    """The store has lost all data, or the request went to a new one: no verb stumbles over what is not there."""
    grant = Grant(id="a", queue="q", token=7, task="t", args="{}")
    for _ in range(2):
        world.call(VERBS[name](grant))
        assert world.audit() == []
    assert world.status().running == 0


@pytest.mark.parametrize("name", READS)
def test_g12_reading_changes_nothing(world: World, name: str) -> None:
    grant = prepare(world)
    before = ([world.find(job) for job in JOBS], world.status(), world.workers())
    first = world.call(READS[name](grant))
    assert world.call(READS[name](grant)) == first
    assert ([world.find(job) for job in JOBS], world.status(), world.workers()) == before


# ------------------------------------------------------------------------------------------------------------ batches


def test_g12_many_verbs_in_one_trip_are_each_answered(world: World) -> None:
    grant = prepare(world)
    verbs: list[Verb[Any]] = [make(grant) for make in [*READS.values(), VERBS["renew"], VERBS["tick"]]]
    together = world.store.call_many(verbs)
    assert len(together) == len(verbs)
    assert together[0] == world.look("a")
    assert world.store.call_many([]) == []


async def test_g12_the_same_behind_asyncio(world: World) -> None:
    store = world.open_async()
    worker = world.worker()
    sent = await store.call(Enqueue(queue="q", jobs=[world.record("a")]))
    assert sent[0].created
    assert ids(worker.take()) == ["a"]
    both: list[Verb[Any]] = [Look(queue="q", job="a"), Status(queue="q")]
    assert await store.call_many(both) == [world.look("a"), world.status()]
    await store.aclose()


# ----------------------------------------------------------------------------------------------------------- deadline


@pytest.fixture
def proxy(world: World, make_proxy: Callable[[Any], Proxy]) -> Proxy:
    server = getattr(world.door, "server", None)
    if server is None:
        pytest.skip("this store is in the process itself: nothing is between it and its caller")
    return make_proxy(server)


def test_g12_a_store_that_does_not_answer_is_unavailable_within_the_deadline(world: World, proxy: Proxy) -> None:
    store = open_sync(proxy.url, world.namespace)
    assert store.call(Enqueue(queue="q", jobs=[world.record("a")]))[0].created
    proxy.blackhole()
    verbs: list[Verb[Any]] = [Look(queue="q", job="a"), Enqueue(queue="q", jobs=[world.record("b")])]
    for verb in verbs:
        start = time.monotonic()
        with pytest.raises(StoreUnavailable):
            store.call(verb, timeout=0.3)
        assert 0.2 < time.monotonic() - start < 1.5
    proxy.heal()
    assert store.call(Enqueue(queue="q", jobs=[world.record("b")]), timeout=5)[0].id == "b", "and then it goes on"
    store.close()


async def test_g12_so_behind_asyncio(world: World, proxy: Proxy) -> None:
    store = open_async(proxy.url, world.namespace)
    assert (await store.call(Enqueue(queue="q", jobs=[world.record("a")])))[0].created
    proxy.blackhole()
    start = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await store.call(Look(queue="q", job="a"), timeout=0.3)
    assert 0.2 < time.monotonic() - start < 1.5
    proxy.heal()
    assert (await store.call(Look(queue="q", job="a"), timeout=5)) is not None
    await store.aclose()


def test_g12_a_lost_reply_and_the_repeat_are_one_job(world: World, proxy: Proxy) -> None:
    store = open_sync(proxy.url, world.namespace, clock=world.time)
    store.call(Tick(queue="q"))
    verb = Enqueue(queue="q", jobs=[world.record("lost-reply")])
    trap = proxy.lose_reply(b"lost-reply")
    with pytest.raises(StoreUnavailable) as told:
        store.call(verb, timeout=0.3)
    assert trap.sprung.is_set()
    assert told.value.sent, "it may have been done"
    again = store.call(verb, timeout=5)[0]
    assert (again.created, again.conflict) == (False, "id")
    store.close()


def test_g12_no_connection_at_all_says_that_nothing_was_sent(world: World, proxy: Proxy) -> None:
    store = open_sync(proxy.url, world.namespace)
    proxy.refuse()
    with pytest.raises(StoreUnavailable):
        store.call(Tick(queue="q"), timeout=1)
    proxy.heal()
    assert store.call(Tick(queue="q"), timeout=5).gap_ms == 2_000
    store.close()
