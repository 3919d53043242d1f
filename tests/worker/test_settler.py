"""The settler: batches, one flush on its way, repeated until answered, and held until then."""

from __future__ import annotations

from typing import Any

from stillhere.domain.job import Outcome, OutcomeKind
from stillhere.ports.backend import BATCH, Progress, Settle, SettledOne
from stillhere.worker.child.crew import Crew
from stillhere.worker.child.runs import Run
from stillhere.worker.child.settler import Settler
from tests.worker.kit import AWAY, AsyncFace, Desk, FakeStore, Gate, grant, soon


class Bench:
    def __init__(self, *queues: str) -> None:
        self.store, self.desk, self.crew = FakeStore(), Desk(*queues), Crew()
        self.answers = 0
        self.settler = Settler(
            AsyncFace(self.store), self.desk.identity, self.desk.holdings, self.crew, on_settled=self.answered
        )

    def answered(self) -> None:
        self.answers += 1

    def end(self, id: str, queue: str = "q", kind: OutcomeKind = OutcomeKind.SUCCEEDED) -> Run:
        run = self.desk.take(grant(id, queue=queue))
        run.ended = True
        self.settler.add(run, Outcome(job=id, token=1, kind=kind))
        return run

    @property
    def sizes(self) -> list[int]:
        return [len(verb.outcomes) for verb in self.store.of(Settle)]


async def test_g5_one_flush_on_its_way_and_the_rest_rides_on_the_next() -> None:
    bench, gate = Bench(), Gate()
    everything_well = bench.store.reply[Settle]
    bench.store.reply[Settle] = gate.holds(everything_well)
    bench.end("first")
    await soon(lambda: gate.waiting == 1)
    for n in range(2 * BATCH + 30):
        bench.end(f"j{n}")
    await soon(lambda: len(bench.desk.holdings) == 2 * BATCH + 31)
    assert bench.sizes == [1], "nothing else is sent while a flush is on its way"
    gate.open()
    await soon(lambda: bench.settler.idle)
    assert bench.sizes == [1, BATCH, BATCH, 30]
    assert bench.answers == 4
    assert len(bench.desk.holdings) == 0
    assert bench.settler.settled == 2 * BATCH + 31


async def test_queues_do_not_wait_for_each_other() -> None:
    bench, gate = Bench("slow", "quick"), Gate()
    well = bench.store.reply[Settle]
    stuck = gate.holds(well)
    bench.store.reply[Settle] = lambda verb: stuck(verb) if verb.queue == "slow" else well(verb)
    bench.end("a", "slow")
    bench.end("b", "quick")
    await soon(lambda: bench.settler.settled == 1)
    assert [run.grant.id for run in bench.desk.holdings.all()] == ["a"]
    gate.open()
    await soon(lambda: bench.settler.idle)


async def test_g5_without_an_answer_the_same_is_sent_again_and_held_until_then() -> None:
    bench = Bench()
    answers: list[Any] = [AWAY, AWAY]

    def reply(verb: Settle) -> list[SettledOne]:
        if answers:
            raise answers.pop()
        return [SettledOne(status="already") for _ in verb.outcomes]

    bench.store.reply[Settle] = reply
    run = bench.end("a")
    await soon(lambda: len(bench.store.of(Settle)) == 2)
    assert bench.desk.holdings.pairs("q"), "a beat must still say that it is held"
    late = bench.end("b")
    await soon(lambda: bench.settler.idle)
    first, second, third, fourth = bench.store.of(Settle)
    assert first == second == third, "a repeated settle has the same content"
    assert [outcome.job for outcome in fourth.outcomes] == [late.grant.id]
    assert bench.settler.settled == 2
    assert bench.desk.holdings.find("q", run.grant.id) is None


async def test_g5_a_stale_end_changes_nothing_and_lets_go() -> None:
    bench = Bench()
    bench.store.reply[Settle] = lambda verb: [SettledOne(status="stale") for _ in verb.outcomes]
    bench.end("a")
    await soon(lambda: bench.settler.idle)
    assert (bench.settler.settled, len(bench.desk.holdings)) == (0, 0)


async def test_after_the_death_of_the_worker_id_nothing_more_is_sent() -> None:
    bench, gate = Bench(), Gate()
    bench.store.reply[Settle] = gate.holds(lambda verb: [SettledOne(status="stale") for _ in verb.outcomes])
    bench.end("a")
    await soon(lambda: gate.waiting == 1)
    bench.end("b")
    bench.settler.forget()
    bench.desk.identity.renew_id()
    gate.open()
    await soon(lambda: bench.settler.idle)
    assert bench.sizes == [1]


async def test_repeating_ends_with_the_worker_id() -> None:
    bench = Bench()

    def reply(verb: Settle) -> list[SettledOne]:
        bench.desk.identity.renew_id()
        raise AWAY

    bench.store.reply[Settle] = reply
    bench.end("a")
    await soon(lambda: bench.settler.idle)
    assert bench.sizes == [1]


async def test_g6_the_last_word_of_progress_goes_in_front_of_the_end() -> None:
    bench = Bench()
    told, silent = bench.desk.take(grant("told")), bench.desk.take(grant("silent"))
    known = bench.desk.take(grant("known"))
    told.progress = (3, '{"done":9}')
    known.progress, known.progress_sent = (2, '{"done":1}'), 2
    for run in (told, silent, known):
        bench.settler.add(run, Outcome(job=run.grant.id, token=1, kind=OutcomeKind.SUCCEEDED))
    await soon(lambda: bench.settler.idle)
    ((progress, settle),) = bench.store.trips
    assert [(item.job, item.number, item.value) for item in progress.items] == [("told", 3, '{"done":9}')]
    assert [outcome.job for outcome in settle.outcomes] == ["told", "silent", "known"]
    assert len(bench.store.of(Progress)) == 1
