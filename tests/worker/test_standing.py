"""How a worker stands with its store: registered, confirmed, told of losses, declared dead and born again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stillhere.domain.errors import ConfigurationError, StopReason
from stillhere.ports.backend import Beat, BeatReply, End, Held, Register
from stillhere.worker.child.runs import Run
from stillhere.worker.child.standing import Standing
from stillhere.worker.clock import boottime_ns
from tests.worker.kit import AWAY, AsyncFace, Desk, FakeStore, Gate, grant, soon, tasks_named


class Bench:
    def __init__(self, *queues: str) -> None:
        self.store, self.desk = FakeStore(), Desk(*(queues or ("q",)), lease_ms=500)
        self.events: list[Any] = []
        self.standing = Standing(
            AsyncFace(self.store),
            self.desk.identity,
            self.desk.holdings,
            tasks=tasks_named("t", "old_t"),
            slots=4,
            stop=self.stop,
            on_death=lambda: self.events.append("death"),
            on_birth=lambda: self.events.append("birth"),
        )

    def stop(self, run: Run, reason: StopReason) -> None:
        self.events.append((run.grant.id, reason))
        run.stop(reason)


async def test_it_registers_in_every_queue_and_says_what_it_can() -> None:
    bench = Bench("q", "r")
    bench.desk.board.write("child_sent_ns", 0)
    before = boottime_ns()
    await bench.standing.register()
    first, second = bench.store.of(Register)
    assert [verb.queue for verb in (first, second)] == ["q", "r"]
    assert (first.worker, first.lease_ms, first.tasks) == (bench.desk.identity.worker, 500, ["old_t", "t"])
    assert {"host", "pid", "slots"} <= set(first.info)
    assert bench.desk.board.last_sent_ns() >= before, "registering counts as the first renewal, from its send"


async def test_g12_registering_is_repeated_until_it_is_answered() -> None:
    bench, answers = Bench(), [AWAY, AWAY]

    def reply(_: Register) -> str:
        if answers:
            raise answers.pop()
        return "exists"

    bench.store.reply[Register] = reply
    await bench.standing.register()
    assert len({verb.worker for verb in bench.store.of(Register)}) == 1


async def test_an_id_that_is_closed_already_is_not_used() -> None:
    bench, answers = Bench(), ["gone", "ok"]
    first = bench.desk.identity.worker
    bench.store.reply[Register] = lambda _: answers.pop(0)
    await bench.standing.register()
    assert [verb.worker == first for verb in bench.store.of(Register)] == [True, False]
    assert bench.desk.board.worker == bench.desk.identity.worker


async def test_a_store_that_refuses_this_worker_is_no_outage() -> None:
    bench = Bench()

    def reply(_: Register) -> str:
        raise ConfigurationError("not allowed")

    bench.store.reply[Register] = reply
    with pytest.raises(ConfigurationError):
        await bench.standing.register()


async def test_g4_lost_and_cancelled_runs_are_stopped() -> None:
    bench = Bench()
    names = ["lost", "cancelled", "well", "over"]
    runs = {name: bench.desk.take(grant(name, token=n)) for n, name in enumerate(names, 1)}
    runs["over"].ended = True
    said = Beat(queue="q", worker=bench.desk.identity.worker, answered=1)
    pairs = [Held("lost", 1), Held("lost", 9), Held("stranger", 1), Held("over", 4)]
    bench.standing.take(said, BeatReply(standing="ok", lost=pairs, cancelled=[Held("cancelled", 2)]))
    assert bench.events == [("lost", "lease_lost"), ("cancelled", "cancelled")]
    assert runs["well"].stopping is None
    bench.standing.take(said, BeatReply(standing="ok", lost=pairs))
    assert len(bench.events) == 2, "told once"


async def test_a_lost_lease_outdoes_a_cancel() -> None:
    bench = Bench()
    run = bench.desk.take()
    said = Beat(queue="q", worker=bench.desk.identity.worker, answered=1)
    bench.standing.take(said, BeatReply(standing="ok", cancelled=[Held("j1", 1)]))
    bench.standing.take(said, BeatReply(standing="ok", lost=[Held("j1", 1)]))
    assert run.stopping == "lease_lost"


async def test_two_that_hear_of_one_death_make_one_rebirth() -> None:
    bench, gate = Bench(), Gate()
    old = bench.desk.identity.worker
    running, over = bench.desk.take(grant("a")), bench.desk.take(grant("b"))
    over.ended = True
    bench.store.reply[Register] = gate.holds(lambda _: "ok")
    said = [Beat(queue="q", worker=old, answered=1)]
    gone = [BeatReply(standing="gone")]
    rebirths = [
        asyncio.create_task(bench.standing.heard(old, said, gone)),
        asyncio.create_task(bench.standing.reborn(old)),
        asyncio.create_task(bench.standing.heard(old, said, gone)),
    ]
    await soon(lambda: gate.waiting == 1)
    gate.open()
    await asyncio.gather(*rebirths)
    assert bench.events == ["death", ("a", "lease_lost"), ("b", "lease_lost"), "birth"]
    assert len(bench.store.of(Register)) == 1
    assert bench.desk.identity.worker != old
    assert bench.desk.board.worker == bench.desk.identity.worker
    assert bench.desk.board.answered(0) == 0
    assert bench.desk.holdings.all() == [running], "what had ended is dropped, what runs is held until it ends"


async def test_words_for_an_older_id_count_for_nothing() -> None:
    bench = Bench()
    run = bench.desk.take()
    old = bench.desk.identity.worker
    bench.desk.identity.renew_id()
    said = [Beat(queue="q", worker=old, answered=1)]
    await bench.standing.heard(old, said, [BeatReply(standing="gone")])
    await bench.standing.heard(old, said, [BeatReply(standing="ok", lost=[Held("j1", 1)])])
    assert bench.events == []
    assert run.stopping is None


async def test_confirm_beats_until_it_is_answered_and_takes_in_what_it_hears() -> None:
    bench, away = Bench("p", "q"), [AWAY, AWAY]
    bench.desk.take(grant("a"))
    bench.desk.board.answer(1, 5)
    bench.desk.board.write("child_sent_ns", 0)

    def reply(beat: Beat) -> BeatReply:
        if away:
            raise away.pop()
        return BeatReply(standing="ok", lost=[Held("a", 1)] if beat.queue == "q" else [])

    bench.store.reply[Beat] = reply
    assert await bench.standing.confirm() is True
    assert {(beat.queue, beat.answered, tuple(beat.held)) for beat in bench.store.of(Beat)} == {
        ("p", 0, ()),
        ("q", 5, (Held("a", 1),)),
    }, "all queues: trust is one for the whole process"
    assert bench.desk.identity.trusted
    assert bench.events == [("a", "lease_lost")]


async def test_confirm_tells_when_the_id_is_gone() -> None:
    bench = Bench()
    bench.store.reply[Beat] = lambda _: BeatReply(standing="gone")
    assert await bench.standing.confirm() is False
    assert bench.events == ["death", "birth"]


async def test_g4_a_registration_that_came_through_earlier_counts_from_its_first_try() -> None:
    bench = Bench()
    answers: list[Any] = [AWAY, "exists"]

    def reply(_: Register) -> str:
        answer = answers.pop(0)
        if isinstance(answer, str):
            return answer
        raise answer

    bench.store.reply[Register] = reply
    before = boottime_ns()
    await bench.standing.register()
    age_of_first = bench.desk.board.read("child_sent_ns") - before
    assert 0 <= age_of_first < bench.desk.identity.plan.retry_after * 1e9, "not the time of the try that was answered"


async def test_g7_a_rebirth_closes_the_old_id_in_the_queues_that_held_it_open() -> None:
    bench = Bench("p", "q")
    bench.store.reply[Beat] = lambda beat: BeatReply(standing="gone" if beat.queue == "p" else "ok")
    old = bench.desk.identity.worker
    assert await bench.standing.confirm() is False
    await soon(lambda: len(bench.store.of(End)) == 2)
    assert {(end.queue, end.worker, end.force) for end in bench.store.of(End)} == {("p", old, True), ("q", old, True)}
