"""Checkpoints and progress: numbered, repeated with the same number, throttled, newest word wins."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from stillhere.domain.errors import ArgumentError, JobStopped, StoreUnavailable
from stillhere.ports.backend import BATCH, Checkpoint, Progress
from stillhere.worker.child import records as module
from stillhere.worker.child.crew import Crew
from stillhere.worker.child.records import Records
from tests.worker.kit import AWAY, AsyncFace, Desk, FakeStore, Gate, SyncFace, grant, soon


class Bench:
    def __init__(self, *queues: str) -> None:
        self.store, self.desk, self.crew = FakeStore(), Desk(*queues, lease_ms=500), Crew()
        self.records = Records(AsyncFace(self.store), SyncFace(self.store), self.desk.identity, self.crew)

    def away(self, times: int) -> None:
        """The next calls of `Checkpoint` find no store."""

        def reply(_: Any) -> str:
            nonlocal times
            times -= 1
            if times >= 0:
                raise AWAY
            return "ok"

        self.store.reply[Checkpoint] = reply


# ------------------------------------------------------------------------------------------------------- checkpoints


async def test_g6_checkpoints_of_a_run_are_numbered_and_kept_for_restore() -> None:
    bench = Bench()
    run = bench.desk.take(grant(token=7))
    await bench.records.checkpoint(run, {"page": 1})
    await asyncio.to_thread(bench.records.checkpoint_sync, run, {"page": 2})
    first, second = bench.store.of(Checkpoint)
    assert (first.number, first.value, first.token) == (1, '{"page":1}', 7)
    assert (second.number, second.value) == (2, '{"page":2}')
    assert run.checkpoint == '{"page":2}'


async def test_g12_an_outage_is_waited_out_with_the_same_number() -> None:
    bench = Bench()
    run = bench.desk.take()
    bench.away(2)
    await bench.records.checkpoint(run, 5)
    bench.away(2)
    await asyncio.to_thread(bench.records.checkpoint_sync, run, 6)
    assert [(verb.number, verb.value) for verb in bench.store.of(Checkpoint)] == [(1, "5")] * 3 + [(2, "6")] * 3


async def test_after_a_long_outage_the_handler_hears_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.0)
    monkeypatch.setattr(Records, "_patience", property(lambda _: 0.0))
    bench = Bench()
    run = bench.desk.take()
    bench.away(1_000_000)
    with pytest.raises(StoreUnavailable):
        await bench.records.checkpoint(run, 5)
    with pytest.raises(StoreUnavailable):
        await asyncio.to_thread(bench.records.checkpoint_sync, run, 5)
    assert run.checkpoint is None


async def test_g6_a_stale_run_is_told_that_its_lease_is_lost() -> None:
    bench = Bench()
    bench.store.reply[Checkpoint] = lambda _: "stale"
    run = bench.desk.take()
    run.handle = asyncio.get_running_loop().create_task(bench.records.checkpoint(run, 5))
    with pytest.raises(asyncio.CancelledError):
        await run.handle
    assert run.stopping == "lease_lost"

    in_thread = bench.desk.take(grant("j2"))
    with pytest.raises(JobStopped) as stopped:
        await asyncio.to_thread(bench.records.checkpoint_sync, in_thread, 5)
    assert stopped.value.reason == "lease_lost"
    await soon(lambda: in_thread.stopping == "lease_lost")


async def test_a_thread_that_waits_for_the_store_still_hears_that_it_should_stop() -> None:
    bench = Bench()
    run = bench.desk.take()
    bench.away(1_000_000)
    waiting = asyncio.create_task(asyncio.to_thread(bench.records.checkpoint_sync, run, 5))
    await soon(lambda: len(bench.store.of(Checkpoint)) > 1)
    run.stop("shutdown")
    with pytest.raises(JobStopped):
        await waiting


async def test_a_value_that_cannot_be_kept_is_refused_on_the_spot() -> None:
    bench = Bench()
    run = bench.desk.take()
    with pytest.raises(ArgumentError):
        await bench.records.checkpoint(run, object())
    assert bench.store.asked == []


# ---------------------------------------------------------------------------------------------------------- progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that a test moves."""
    now = [1000.0]
    monkeypatch.setattr(module, "boottime", lambda: now[0])
    return now


async def flushed(bench: Bench) -> None:
    bench.records.flush_due()
    await soon(lambda: not bench.records._flushing)


def words(bench: Bench) -> list[tuple[str, float]]:
    return [(item.job, json.loads(item.value)["done"]) for verb in bench.store.of(Progress) for item in verb.items]


async def test_g6_once_a_second_and_the_newest_word(clock: list[float]) -> None:
    bench = Bench()
    run = bench.desk.take()
    bench.records.note(run, 1, 10, "")
    await flushed(bench)
    for done in range(2, 9):
        bench.records.note(run, done, 10, "")
        await flushed(bench)
    assert words(bench) == [("j1", 1)]
    clock[0] += module.PROGRESS_EVERY_S
    await flushed(bench)
    assert words(bench) == [("j1", 1), ("j1", 8)]
    clock[0] += module.PROGRESS_EVERY_S
    await flushed(bench)
    assert words(bench) == [("j1", 1), ("j1", 8)], "nothing new, nothing sent"
    numbers = [item.number for verb in bench.store.of(Progress) for item in verb.items]
    assert numbers == sorted(set(numbers))


async def test_many_jobs_travel_together(clock: list[float]) -> None:
    bench = Bench("q", "r")
    for n in range(BATCH + 20):
        bench.records.note(bench.desk.take(grant(f"q{n}")), n, None, "")
    bench.records.note(bench.desk.take(grant("r0", queue="r")), 0, None, "")
    await flushed(bench)
    assert sorted(len(verb.items) for verb in bench.store.of(Progress)) == [1, 20, BATCH]


async def test_one_flush_at_a_time(clock: list[float]) -> None:
    bench, gate = Bench(), Gate()
    bench.store.reply[Progress] = gate.holds(lambda verb: ["ok" for _ in verb.items])
    bench.records.note(bench.desk.take(grant("a")), 1, None, "")
    bench.records.flush_due()
    await soon(lambda: gate.waiting == 1)
    bench.records.note(bench.desk.take(grant("b")), 1, None, "")
    bench.records.flush_due()
    await asyncio.sleep(0)
    assert words(bench) == [("a", 1)]
    gate.open()
    await soon(lambda: not bench.records._flushing)
    await flushed(bench)
    assert words(bench) == [("a", 1), ("b", 1)]


async def test_a_word_that_did_not_arrive_is_sent_again(clock: list[float]) -> None:
    bench = Bench()
    run = bench.desk.take()

    def away(_: Progress) -> list[str]:
        raise AWAY

    well, bench.store.reply[Progress] = bench.store.reply[Progress], away
    bench.records.note(run, 1, None, "")
    await flushed(bench)
    bench.store.reply[Progress] = well
    clock[0] += module.PROGRESS_EVERY_S
    await flushed(bench)
    assert words(bench) == [("j1", 1), ("j1", 1)]
    assert run.progress_sent == 1


async def test_what_has_ended_leaves_its_last_word_to_the_settle(clock: list[float]) -> None:
    bench = Bench()
    run = bench.desk.take()
    bench.records.note(run, 1, None, "")
    run.ended = True
    await flushed(bench)
    assert words(bench) == []
    assert run.progress[0] > run.progress_sent


async def test_a_note_that_no_reader_can_take_fails_no_job(clock: list[float]) -> None:
    bench = Bench()
    run = bench.desk.take()
    bench.records.note(run, 1, 2, "half a pair: \ud800" + "x" * 1000)
    value = json.loads(run.progress[1])
    assert value["note"].startswith("half a pair: ?")
    assert len(value["note"]) == 500
