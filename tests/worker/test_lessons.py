"""Lessons: one word for many runs, on its way until it is answered, and given up rather than kept for ever."""

from __future__ import annotations

from stillhere.ports.backend import Lengthen
from stillhere.worker.child.crew import Crew
from stillhere.worker.child.lessons import TRIES, Lessons
from tests.worker.kit import AWAY, AsyncFace, Desk, FakeStore, Gate, soon


class Bench:
    def __init__(self) -> None:
        self.store, self.crew, self.told = FakeStore(), Crew(), 0
        self.store.reply[Lengthen] = lambda _: None
        self.lessons = Lessons(AsyncFace(self.store), Desk(lease_ms=500).identity, self.crew, self.note)

    def note(self) -> None:
        self.told += 1

    @property
    def words(self) -> list[tuple[str, str]]:
        return [(word.queue, word.task) for word in self.store.of(Lengthen)]


async def test_it_is_pending_until_the_store_has_answered() -> None:
    bench, gate = Bench(), Gate()
    bench.store.reply[Lengthen] = gate.holds(lambda _: None)
    seen = [bench.lessons.pending]
    bench.lessons.tell("q", "t")
    seen.append(bench.lessons.pending)  # at once: a claim may be the next thing that is sent
    await soon(lambda: gate.waiting == 1)
    seen.append(bench.lessons.pending)
    assert bench.told == 0
    gate.open()
    await soon(lambda: bench.told == 1)
    assert [*seen, bench.lessons.pending] == [False, True, True, False]


async def test_many_runs_of_a_task_are_one_word_and_the_last_answer_counts() -> None:
    bench, gate = Bench(), Gate()
    bench.store.reply[Lengthen] = gate.holds(lambda _: None)
    for _ in range(10):
        bench.lessons.tell("q", "t")
    bench.lessons.tell("q", "other")
    await soon(lambda: gate.waiting == 2)
    gate.open()
    await soon(lambda: bench.told == 1)
    assert bench.words == [("q", "t"), ("q", "other")]
    bench.lessons.tell("q", "t")
    await soon(lambda: bench.told == 2)
    assert bench.words[2:] == [("q", "t")], "told anew: it keeps what is known from fading"


async def test_a_lost_word_is_repeated_and_a_store_that_is_away_stops_nothing_for_ever() -> None:
    bench = Bench()
    away = True

    def reply(_: Lengthen) -> None:
        if away:
            raise AWAY

    bench.store.reply[Lengthen] = reply
    bench.lessons.tell("q", "t")
    await soon(lambda: len(bench.words) == 1)
    assert bench.lessons.pending
    away = False
    await soon(lambda: bench.told == 1)
    assert len(bench.words) == 2
    away = True
    bench.lessons.tell("q", "t")
    await soon(lambda: bench.told == 2)
    assert len(bench.words) == 2 + TRIES
    assert not bench.lessons.pending
