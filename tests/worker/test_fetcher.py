"""The fetcher: never more than there is room for, numbered until answered, and nothing starts in doubt."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stillhere.domain.job import Grant
from stillhere.ports.backend import Claim, Claimed, Lanes
from stillhere.worker.child import fetcher as module
from stillhere.worker.child.fetcher import Fetcher, Room
from stillhere.worker.child.runs import Run
from stillhere.worker.clock import boottime_ns
from tests.worker.kit import AWAY, AsyncFace, Desk, FakeStore, Gate, grant, soon


class Bench:
    """A fetcher with a book, whose owner writes down what happens, in order."""

    def __init__(self, queues: dict[str, int]) -> None:
        self.store = FakeStore()
        self.desk = Desk(*queues)
        self.slots = 4
        self.lanes: Lanes = "pool"
        self.long = 0
        self.kept: list[int] = []
        self.events: list[Any] = []
        self.started: list[str] = []
        self.rooms = 0
        self.confirmed = True
        self.fetcher = Fetcher(
            AsyncFace(self.store),
            self.desk.identity,
            queues,
            room=self.room,
            keep=self.kept.append,
            take=self.take,
            start=self.start,
            confirm=self.confirm,
            gone=self.gone,
            poll_s=60.0,  # nothing here is found by polling unless a test says so
        )
        self.task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self.task = asyncio.get_running_loop().create_task(self.fetcher.run())

    def room(self) -> Room:
        self.rooms += 1
        return Room(self.slots, self.long, self.lanes)

    def take(self, granted: Grant) -> Run | None:
        self.events.append(("held", granted.id, self.desk.board.answered(0)))
        self.slots -= 1
        return self.desk.take(granted)

    def start(self, run: Run) -> None:
        self.events.append(("started", run.grant.id, self.desk.board.answered(0)))
        self.started.append(run.grant.id)

    async def confirm(self) -> bool:
        self.events.append(("confirmed", self.desk.board.answered(0)))
        return self.confirmed

    async def gone(self, worker: str) -> None:
        self.events.append(("gone", worker))
        self.desk.identity.renew_id()

    @property
    def claims(self) -> list[Claim]:
        return self.store.of(Claim)

    def bring(self, *replies: Claimed) -> None:
        """Answer the next claims so, and all later ones with nothing."""
        left = list(replies)
        self.store.reply[Claim] = lambda _: left.pop(0) if left else Claimed(standing="ok")


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench({"q": 1})
    yield made
    if made.task is not None:
        made.task.cancel()


def brought(*ids: str, more: bool = False, due: int | None = None) -> Claimed:
    return Claimed(standing="ok", jobs=[grant(name) for name in ids], more=more, next_due_ms=due)


async def test_g2_it_asks_for_no_more_than_there_is_room(bench: Bench) -> None:
    bench.bring(brought("a", "b", "c", more=True), brought("d"))
    bench.begin()
    await soon(lambda: bench.started == ["a", "b", "c", "d"])
    assert [claim.slots for claim in bench.claims] == [4, 1]
    bench.fetcher.hint("q")
    await asyncio.sleep(0)
    assert len(bench.claims) == 2, "no slot, no claim"
    bench.slots = 2
    bench.fetcher.freed()
    await soon(lambda: len(bench.claims) == 3)
    assert bench.claims[-1].slots == 2


async def test_g2_claims_are_numbered_by_what_was_answered(bench: Bench) -> None:
    bench.bring(brought("a", more=True), brought("b", more=True))
    bench.begin()
    await soon(lambda: len(bench.claims) == 3 and bench.fetcher.barren)
    assert [claim.n for claim in bench.claims] == [1, 2, 3]
    assert bench.desk.board.answered(0) == 3


async def test_g12_a_claim_without_an_answer_is_repeated_as_it_was(bench: Bench) -> None:
    replies: list[Any] = [AWAY, AWAY, brought("a")]

    def reply(_: Claim) -> Claimed:
        answer = replies.pop(0) if replies else Claimed(standing="ok")
        if isinstance(answer, Exception):
            raise answer
        return answer

    bench.store.reply[Claim] = reply
    bench.begin()
    await soon(lambda: bench.started == ["a"])
    first, second, third = bench.claims[:3]
    assert first == second == third
    assert first.n == 1


async def test_g2_held_first_then_answered_then_started(bench: Bench) -> None:
    bench.bring(brought("a", "b"))
    bench.begin()
    await soon(lambda: bench.started == ["a", "b"])
    assert bench.events == [("held", "a", 0), ("held", "b", 0), ("started", "a", 1), ("started", "b", 1)]


async def test_g13_a_reply_read_late_is_confirmed_before_anything_starts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(module, "boottime", lambda: now)

    def reply(claim: Claim) -> Claimed:
        nonlocal now
        now += module.SILENCE_S + 0.01
        return brought("a") if claim.n == 1 else Claimed(standing="ok")

    bench.store.reply[Claim] = reply
    bench.begin()
    await soon(lambda: bench.started == ["a"])
    assert bench.events == [("held", "a", 0), ("confirmed", 1), ("started", "a", 1)]


async def test_g13_what_the_confirming_beat_calls_lost_does_not_start(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0.0, 9.0])
    monkeypatch.setattr(module, "boottime", lambda: next(times, 9.0))
    bench.bring(brought("a", "b"))

    async def confirm() -> bool:
        (lost, _) = bench.desk.holdings.all()
        lost.ended = True  # as the executor ends a run that has not started
        return True

    bench.fetcher._confirm = confirm
    bench.begin()
    await soon(lambda: bench.started == ["b"])


async def test_g4_in_doubt_nothing_starts_until_a_beat_clears_it(bench: Bench) -> None:
    bench.bring(brought("a"))
    bench.desk.board.write("child_sent_ns", 0)
    beats = 0

    async def confirm() -> bool:
        nonlocal beats
        beats += 1
        if beats == 3:
            bench.desk.identity.confirm(boottime_ns())
        return True

    bench.fetcher._confirm = confirm
    bench.begin()
    await soon(lambda: bench.started == ["a"])
    assert beats == 3


async def test_a_worker_that_is_gone_claims_anew_from_one(bench: Bench) -> None:
    old = bench.desk.identity.worker
    bench.bring(Claimed(standing="gone"), brought("a"))
    bench.begin()
    await soon(lambda: bench.started == ["a"])
    assert ("gone", old) in bench.events
    first, second = bench.claims[:2]
    assert (first.worker, second.worker) == (old, bench.desk.identity.worker)
    assert (first.n, second.n) == (1, 1)


async def test_a_reply_for_an_id_that_is_no_more_starts_nothing(bench: Bench) -> None:
    gate = Gate()
    bench.store.reply[Claim] = gate.holds(lambda _: brought("a"))
    bench.begin()
    await soon(lambda: gate.waiting == 1)
    bench.desk.identity.renew_id()
    bench.bring()
    gate.open()
    await soon(lambda: len(bench.claims) > 1 and bench.fetcher.barren)
    assert bench.events == []
    assert bench.claims[-1].worker == bench.desk.identity.worker


async def test_g3_a_lease_that_is_over_is_renewed_and_the_same_claim_repeated(bench: Bench) -> None:
    bench.bring(Claimed(standing="over"), brought("a"))
    bench.begin()
    await soon(lambda: bench.started == ["a"])
    assert bench.events[0] == ("confirmed", 0)
    assert [claim.n for claim in bench.claims[:2]] == [1, 1]


async def test_grants_of_a_worker_that_dies_at_the_gate_do_not_start(bench: Bench) -> None:
    bench.bring(brought("a"))
    bench.desk.board.write("child_sent_ns", 0)
    bench.confirmed = False
    bench.begin()
    await soon(lambda: ("confirmed", 1) in bench.events)
    await asyncio.sleep(0)
    assert bench.started == []


async def test_g10_an_empty_queue_is_asked_again_at_a_hint(bench: Bench) -> None:
    bench.bring()
    bench.begin()
    await soon(lambda: bench.fetcher.barren)
    assert len(bench.claims) == 1
    bench.fetcher.hint("q")
    await soon(lambda: len(bench.claims) == 2)


async def test_g10_without_any_hint_it_polls(bench: Bench) -> None:
    bench.fetcher._poll_s = 0.01
    bench.bring(Claimed(standing="ok"), Claimed(standing="ok"), brought("a"))
    bench.begin()
    await soon(lambda: bench.started == ["a"])


async def test_g9_it_asks_when_the_next_job_is_due(bench: Bench) -> None:
    bench.bring(brought(due=20), brought("a"))
    bench.begin()
    await soon(lambda: bench.started == ["a"])
    assert not bench.fetcher.expecting


async def test_a_full_worker_waits_also_when_a_job_is_overdue(bench: Bench) -> None:
    bench.bring(brought("a", "b", "c", "d", due=0))
    bench.begin()
    await soon(lambda: len(bench.started) == 4)
    looks = bench.rooms
    for _ in range(200):
        await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.03):
            await asyncio.get_running_loop().create_future()
    assert bench.rooms <= looks + 1, "it must not go round and round"


async def test_a_hint_during_a_claim_is_not_forgotten(bench: Bench) -> None:
    gate = Gate()
    bench.store.reply[Claim] = gate.holds(lambda _: Claimed(standing="ok"))
    bench.begin()
    await soon(lambda: gate.waiting == 1)
    bench.fetcher.hint("q")
    gate.open()
    await soon(lambda: len(bench.claims) == 2)


async def test_g2_told_to_stop_it_sees_its_claim_to_the_end_and_starts_nothing(bench: Bench) -> None:
    gate = Gate()
    bench.store.reply[Claim] = gate.holds(lambda _: brought("a", "b", more=True))
    bench.begin()
    await soon(lambda: gate.waiting == 1)
    bench.fetcher.stop()
    for _ in range(10):
        await asyncio.sleep(0)
    assert bench.task is not None
    assert not bench.task.done()
    gate.open()
    await bench.task
    assert bench.events == [("held", "a", 0), ("held", "b", 0)]
    assert bench.desk.board.answered(0) == 1, "answered and held: its owner hands them back in order"
    assert len(bench.claims) == 1


async def test_told_to_stop_while_it_waits_it_ends_at_once(bench: Bench) -> None:
    bench.begin()
    await soon(lambda: bench.fetcher.barren)
    bench.fetcher.stop()
    assert bench.task is not None
    await bench.task


async def test_the_lanes_are_passed_on(bench: Bench) -> None:
    bench.bring()
    bench.lanes, bench.long = "both", 3
    bench.begin()
    await soon(lambda: bench.fetcher.barren)
    assert (bench.claims[0].lanes, bench.claims[0].long) == ("both", 3)
    assert bench.kept[:2] == [3, 0], "spoken for while the claim is on its way"


async def test_long_places_alone_are_reason_enough_to_ask(bench: Bench) -> None:
    bench.slots, bench.long = 0, 2
    bench.bring(Claimed(standing="ok", jobs=[grant("a", lane="long")]))
    bench.begin()
    await soon(lambda: bench.started == ["a"])
    for _ in range(50):
        await asyncio.sleep(0)
    assert [(claim.slots, claim.long) for claim in bench.claims] == [(0, 2)], "the places are not full, and it waits"
    assert not bench.fetcher.barren, "nobody has asked for a slot"
    bench.slots = bench.long = 0
    bench.fetcher.hint("q")
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(bench.claims) == 1, "no place of any kind, no claim"


async def test_a_claim_says_what_sits_in_slots(bench: Bench) -> None:
    bench.bring()
    bench.fetcher._room = lambda: Room(1, 2, "pool", {"t": 3})
    bench.begin()
    await soon(lambda: len(bench.claims) == 1)
    assert (bench.claims[0].long, bench.claims[0].seated) == (2, {"t": 3})


async def test_long_places_are_kept_until_the_claim_has_its_answer(bench: Bench) -> None:
    gate, order = Gate(), list[str]()
    take = bench.take

    def keep(long: int) -> None:
        bench.kept.append(long)
        order.append(f"kept {long}")

    def held(granted: Grant) -> Run | None:
        order.append("held")
        return take(granted)

    bench.fetcher._keep, bench.fetcher._take = keep, held
    bench.long = 2
    bench.store.reply[Claim] = gate.holds(lambda claim: brought("a") if claim.n == 1 else Claimed(standing="ok"))
    bench.begin()
    await soon(lambda: gate.waiting == 1)
    assert bench.kept == [2]
    bench.long = 0
    gate.open()
    await soon(lambda: bench.started == ["a"])
    assert bench.kept[:2] == [2, 0]
    assert set(bench.kept[2:]) <= {0}
    assert order[:3] == ["kept 2", "held", "kept 0"], "what it brought has its seat first"


async def test_an_answer_about_long_places_says_nothing_of_slots(bench: Bench) -> None:
    """Full slots: it asks for long places alone, finds none, and asks at once when a slot is free."""
    bench.slots, bench.long = 1, 1
    bench.bring(brought("a", more=True), Claimed(standing="ok"), brought("b"))
    bench.begin()
    await soon(lambda: bench.started == ["a"])
    bench.fetcher.hint("q")
    await soon(lambda: len(bench.claims) == 2)
    assert [(claim.slots, claim.long) for claim in bench.claims] == [(1, 1), (0, 1)]
    bench.slots = 1
    bench.fetcher.freed()
    await soon(lambda: bench.started == ["a", "b"])


async def test_slots_that_are_full_do_not_make_it_ask_for_long_places_again(bench: Bench) -> None:
    bench.slots, bench.long = 1, 1
    bench.bring(brought("a", more=True))
    bench.begin()
    await soon(lambda: bench.started == ["a"])
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(bench.claims) == 1
    assert not bench.fetcher.barren, "there is more for a slot"


async def test_long_places_of_a_claim_that_is_given_up_are_free_again(bench: Bench) -> None:
    bench.long = 2
    bench.bring(Claimed(standing="gone"))
    bench.begin()
    await soon(lambda: len(bench.claims) == 2 and bench.fetcher.barren)
    assert bench.kept[:4] == [2, 0, 2, 0]


async def test_weights_share_the_claims_of_busy_queues() -> None:
    bench = Bench({"heavy": 3, "light": 1})
    bench.slots = 1
    count = 0

    def reply(claim: Claim) -> Claimed:
        nonlocal count
        count += 1
        if count > 40:
            bench.slots = 0
            return Claimed(standing="ok")
        return Claimed(standing="ok", jobs=[grant(f"j{count}", queue=claim.queue)], more=True)

    def take(granted: Grant) -> Run | None:
        run = bench.desk.take(granted)
        bench.desk.holdings.drop(run)
        return run

    bench.store.reply[Claim] = reply
    bench.fetcher._take = take
    bench.begin()
    await soon(lambda: count > 40)
    share = Counter(claim.queue for claim in bench.claims[:40])
    assert share == {"heavy": 30, "light": 10}
    assert bench.task is not None
    bench.task.cancel()


async def test_each_queue_has_numbers_of_its_own() -> None:
    bench = Bench({"a": 1, "b": 1})
    bench.begin()
    await soon(lambda: bench.fetcher.barren)
    assert sorted((claim.queue, claim.n) for claim in bench.claims) == [("a", 1), ("b", 1)]
    assert (bench.desk.board.answered(0), bench.desk.board.answered(1)) == (1, 1)
    assert bench.task is not None
    bench.task.cancel()
