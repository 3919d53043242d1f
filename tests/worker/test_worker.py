"""The whole worker on a real server, in this process: no supervisor, a board of its own, waits on events."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from stillhere import App, Backoff, Handle, JobCancelled, Retry, current_job, current_job_sync
from stillhere.domain.job import JobRecord, Verdict
from stillhere.ports.backend import End, Lengthen, Look, Register, Renew
from stillhere.ports.inspector import Audit, Status
from stillhere.stores import open_async, open_sync
from stillhere.worker.board import Board, Phase
from stillhere.worker.child import worker as module
from stillhere.worker.child.fetcher import Room
from stillhere.worker.child.options import Options
from stillhere.worker.child.worker import Worker
from stillhere.worker.timeline import Timeline
from tests.support.servers import RedisServer

LEASE_MS = 1_000
WAIT_S = 15.0


class Bench:
    """An app, its store, and the workers of a test."""

    def __init__(self, server: RedisServer, namespace: str) -> None:
        self.url, self.namespace = server.url, namespace
        self.app = App(server.url, namespace=namespace)
        self.sync = open_sync(server.url, namespace)
        self.workers: list[Worker] = []

    @asynccontextmanager
    async def worker(self, **options: Any) -> AsyncGenerator[Worker]:
        """A worker for the length of the block; drained at the end."""
        known: dict[str, Any] = {"slots": 4, "long_places": 4, "queues": {"default": 1}, "lease_ms": LEASE_MS}
        asked = Options(**known | {"grace_ms": 2_000, "long_after_ms": 60_000} | options)
        store, own = open_async(self.url, self.namespace), open_sync(self.url, self.namespace)
        worker = Worker(store, own, self.app.tasks, Board.create(asked.board_slots), asked)
        self.workers.append(worker)
        task = asyncio.create_task(worker.run())
        worker.ended = task  # type: ignore[attr-defined]  # for tests that wait for it
        try:
            yield worker
        finally:
            worker.drain()
            with contextlib.suppress(Exception):
                await asyncio.wait_for(task, WAIT_S)
            await store.aclose()
            own.close()
            worker.board.close()

    def look(self, handle: Handle[Any]) -> JobRecord:
        record = self.sync.call(Look(queue=handle._queue or "default", job=handle.id))
        assert record is not None
        return record

    def end(self, worker: Worker, default: Verdict = Verdict.BYSTANDER, **options: Any) -> None:
        """Declare it dead, as a supervisor does: what it has answered first."""
        name = worker.identity.worker
        self.sync.call(Renew(queue="default", worker=name, answered=worker.board.answered(0)))
        self.sync.call(
            End(queue="default", worker=name, reason="killed by SIGKILL", force=True, default=default, **options)
        )

    async def until(self, condition: Callable[[], object], within: float = WAIT_S) -> None:
        """Ask now and then until it is so."""
        async with asyncio.timeout(within):
            while not condition():  # noqa: ASYNC110 - what is asked is on a server
                await asyncio.sleep(0.01)


@pytest.fixture
async def bench(valkey_server: RedisServer, namespace: str) -> AsyncIterator[Bench]:
    made = Bench(valkey_server, namespace)
    yield made
    complaints = made.sync.call(Audit(queue="default"))
    await made.app.link.aclose()
    made.sync.close()
    assert complaints == []


def result_of(worker: Worker) -> asyncio.Task[int]:
    task: asyncio.Task[int] = worker.ended  # type: ignore[attr-defined]
    return task


# ------------------------------------------------------------------------------------------------- the way of a job


async def test_g5_jobs_of_both_kinds_run_and_their_results_come_back(bench: Bench) -> None:
    @bench.app.task
    async def add(a: int, b: int) -> int:
        job = current_job()
        job.progress(1, 2, "half")
        await job.checkpoint([a, b])
        return a + b

    @bench.app.task
    def subtract(a: int, b: int) -> int:
        job = current_job_sync()
        job.checkpoint({"a": a})
        job.progress(2, 2)
        return a - b

    async with bench.worker():
        one, two = await add.enqueue(2, 3), await subtract.enqueue(2, 3)
        assert await one.result(timeout=WAIT_S) == 5
        assert await two.result(timeout=WAIT_S) == -1
    assert bench.look(one).checkpoint == "[2,3]"
    assert '"done":2' in (bench.look(two).progress or "").replace(" ", ""), "the last word is there with the end"
    assert bench.look(one).worker is None or bench.look(one).state == "succeeded"


async def test_a_failure_is_retried_with_the_last_checkpoint_and_then_a_dead_letter(bench: Bench) -> None:
    seen = []

    @bench.app.task(max_attempts=3, backoff=Backoff(first="10ms", jitter=False))
    async def breaks() -> None:
        job = current_job()
        seen.append((job.attempt, job.restore(int, default=0)))
        await job.checkpoint(job.attempt)
        raise ValueError("no")

    async with bench.worker():
        info = await (await breaks.enqueue()).wait(timeout=WAIT_S)
    assert seen == [(1, 0), (2, 1), (3, 2)]
    assert info.state == "dead"
    assert info.failures == 3


async def test_many_jobs_over_two_queues(bench: Bench) -> None:
    @bench.app.task
    async def double(n: int) -> int:
        return 2 * n

    jobs = [double.options(queue=["default", "other"][n % 2]).prepare(n) for n in range(400)]
    async with bench.worker(queues={"default": 3, "other": 1}, slots=8):
        handles = await bench.app.enqueue_many(jobs)
        assert [await handle.result(timeout=WAIT_S) for handle in handles] == [2 * n for n in range(400)]


async def test_never_more_than_slots_run_at_once(bench: Bench) -> None:
    running, most = 0, 0
    lock = threading.Lock()

    def count(by: int) -> None:
        nonlocal running, most
        with lock:
            running += by
            most = max(most, running)

    @bench.app.task
    async def on_loop() -> None:
        count(1)
        await asyncio.sleep(0.01)
        count(-1)

    @bench.app.task
    def in_thread() -> None:
        count(1)
        time.sleep(0.01)
        count(-1)

    async with bench.worker(slots=3):
        handles = await bench.app.enqueue_many([task.prepare() for _ in range(20) for task in (on_loop, in_thread)])
        for handle in handles:
            await handle.result(timeout=WAIT_S)
    assert most == 3


# ----------------------------------------------------------------------------------------------- cancels and losses


async def test_g8_a_running_job_is_cancelled_within_a_second(bench: Bench) -> None:
    started = asyncio.Event(), threading.Event()
    ended = []

    @bench.app.task
    async def waits() -> None:
        job = current_job()
        started[0].set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append(job.stopping)
            raise

    @bench.app.task
    def works() -> None:
        job = current_job_sync()
        started[1].set()
        while True:
            time.sleep(0.01)
            job.check()

    async with bench.worker():
        handles = [await waits.enqueue(), await works.enqueue()]
        await bench.until(lambda: all(event.is_set() for event in started))
        before = time.monotonic()
        for handle in handles:
            assert await handle.cancel()
        for handle in handles:
            with pytest.raises(JobCancelled):
                await handle.result(timeout=WAIT_S)
        assert time.monotonic() - before < 1.0
    assert ended == ["cancelled"]


@pytest.mark.parametrize("sync", [False, True])
async def test_g4_a_worker_declared_dead_stops_its_runs_and_goes_on_anew(bench: Bench, sync: bool) -> None:
    runs: list[tuple[int, Any]] = []
    started = threading.Event()

    @bench.app.task(name="job")
    async def on_loop() -> str:
        job = current_job()
        started.set()
        try:
            await asyncio.sleep(60 if not job.restore(bool, default=False) and not runs else 0)
        except asyncio.CancelledError:
            runs.append((job.token, job.stopping))
            raise
        return "second"

    @bench.app.task(name="job_sync")
    def in_thread() -> str:
        job = current_job_sync()
        started.set()
        while not runs:
            time.sleep(0.01)
            try:
                job.check()
            except BaseException:
                runs.append((job.token, job.stopping))
                raise
        return "second"

    async with bench.worker() as worker:
        handle: Handle[str] = await (in_thread if sync else on_loop).enqueue()
        await bench.until(started.is_set)
        old = worker.identity.worker
        token = bench.look(handle).token
        bench.end(worker)
        assert await handle.result(timeout=WAIT_S) == "second"
        assert runs == [(token, "lease_lost")]
        assert worker.identity.worker != old
        assert worker.board.worker == worker.identity.worker
        assert worker.board.phase == Phase.RUN
    record = bench.look(handle)
    assert record.token > token
    assert record.failures == 0


async def test_g6_a_checkpoint_of_a_run_that_was_taken_away_changes_nothing(bench: Bench) -> None:
    go = asyncio.Event()
    told: list[tuple[str, Any]] = []

    @bench.app.task
    async def writes() -> str:
        job = current_job()
        if told:
            return "second"
        await job.checkpoint("mine")
        await go.wait()
        try:
            await job.checkpoint("stale")
        except BaseException as error:
            told.append((type(error).__name__, job.stopping))
            raise
        return "first"

    async with bench.worker() as worker:
        handle = await writes.enqueue()
        await bench.until(lambda: bench.look(handle).checkpoint)
        bench.end(worker)
        go.set()
        assert await handle.result(timeout=WAIT_S) == "second"
    assert told == [("CancelledError", "lease_lost")]
    assert bench.look(handle).checkpoint == '"mine"'


# ---------------------------------------------------------------------------------------------------------- its ends


async def test_a_drain_lets_jobs_end_and_leaves_no_worker_behind(bench: Bench) -> None:
    started = asyncio.Event()

    @bench.app.task
    async def nearly_done() -> str:
        started.set()
        await asyncio.sleep(0.2)
        return "done"

    async with bench.worker(grace_ms=20_000) as worker:
        handle = await nearly_done.enqueue()
        await started.wait()
        worker.drain()
        late = await nearly_done.enqueue()
        assert await asyncio.wait_for(result_of(worker), WAIT_S) == 0
    assert bench.look(handle).state == "succeeded"
    assert bench.look(late).state == "ready", "a draining worker claims nothing"
    assert bench.sync.call(Status(queue="default")).workers == 0


class Slow:
    """A store whose claims are served at once and answered when the test says so."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.answer = asyncio.Event()
        self.answer.set()
        self.served = 0

    async def call(self, verb: Any, *, timeout: float | None = None) -> Any:
        reply = await self._store.call(verb)
        self.served += len(reply.jobs)
        await self.answer.wait()
        return reply


async def test_g14_what_a_drain_finds_on_its_way_is_ready_while_others_still_run(bench: Bench) -> None:
    started, release = asyncio.Event(), asyncio.Event()

    @bench.app.task
    async def runs() -> None:
        started.set()
        await release.wait()

    async with bench.worker(grace_ms=20_000, lease_ms=30_000) as worker:
        slow = Slow(worker.fetcher._store)
        worker.fetcher._store = slow  # type: ignore[assignment]
        running = await runs.enqueue()
        await started.wait()
        slow.answer.clear()
        granted = await runs.enqueue()
        await bench.until(lambda: slow.served == 2)
        worker.drain()
        await asyncio.sleep(0)
        slow.answer.set()
        await bench.until(lambda: bench.look(granted).state == "ready", within=3)
        assert bench.look(running).state == "running"
        release.set()


async def test_a_drain_hands_back_at_once_what_has_not_started(bench: Bench) -> None:
    @bench.app.task
    async def never() -> None:
        raise AssertionError("it must not start")

    async with bench.worker(grace_ms=60_000) as worker:
        await bench.until(lambda: worker.board.phase == Phase.RUN)

        async def in_doubt(sent: float) -> bool:
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

        worker.fetcher._beyond_doubt = in_doubt  # type: ignore[method-assign]
        handle = await never.enqueue()
        await bench.until(lambda: len(worker.holdings) == 1)
        worker.drain()
        assert await asyncio.wait_for(result_of(worker), 5) == 0
    record = bench.look(handle)
    assert (record.state, record.failures, record.losses) == ("ready", 0, 0)


async def test_g5_at_the_end_of_the_grace_runs_are_interrupted_and_charged_nothing(bench: Bench) -> None:
    started = asyncio.Event(), threading.Event()

    @bench.app.task
    async def long_run() -> None:
        started[0].set()
        await asyncio.sleep(60)

    @bench.app.task
    def long_sync() -> None:
        job = current_job_sync()
        started[1].set()
        while True:
            time.sleep(0.01)
            job.check()

    async with bench.worker(grace_ms=500) as worker:
        handles = [await long_run.enqueue(), await long_sync.enqueue()]
        await bench.until(lambda: all(event.is_set() for event in started))
        worker.drain()
        assert await asyncio.wait_for(result_of(worker), WAIT_S) == 0
    for handle in handles:
        record = bench.look(handle)
        assert (record.state, record.interruptions, record.failures, record.losses) == ("ready", 1, 0, 0)


async def test_a_second_order_only_brings_the_end_nearer(bench: Bench) -> None:
    over = asyncio.Event()

    @bench.app.task
    async def stubborn() -> None:
        while not over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await over.wait()

    async with bench.worker(grace_ms=500) as worker:
        handle = await stubborn.enqueue()
        await bench.until(lambda: worker.executor._places.running)
        worker.drain()
        worker.drain(Timeline.of(60.0))
        assert await asyncio.wait_for(result_of(worker), 5) == 1
        over.set()
        await bench.until(lambda: bench.look(handle).state == "succeeded")
    bench.end(worker)


async def test_g5_a_run_that_has_not_ended_is_not_handed_back(bench: Bench) -> None:
    started, over = threading.Event(), threading.Event()

    @bench.app.task
    def wedged() -> None:
        started.set()
        over.wait(30)

    async with bench.worker(grace_ms=300) as worker:
        handle = await wedged.enqueue()
        await bench.until(started.is_set)
        worker.drain()
        assert await asyncio.wait_for(result_of(worker), WAIT_S) == 1
        assert bench.look(handle).state == "running", "dead first, handed back then: that is the supervisor's"
        over.set()
    bench.end(worker)


async def test_a_burst_ends_when_nothing_is_left_also_what_comes_later(bench: Bench) -> None:
    seen: list[str] = []

    @bench.app.task
    async def first() -> None:
        seen.append("first")
        await second.enqueue()
        await third.options(delay=0.3).enqueue()

    @bench.app.task
    async def second() -> None:
        seen.append("second")

    @bench.app.task
    async def third() -> None:
        seen.append("third")
        if seen.count("third") == 1:
            raise Retry(after=0.1)

    await first.enqueue()
    async with bench.worker(burst=True, slots=1) as worker:
        assert await asyncio.wait_for(result_of(worker), WAIT_S) == 0
    assert seen == ["first", "second", "third", "third"]


async def test_g10_a_burst_looks_once_more_after_the_last_job(bench: Bench) -> None:
    seen: list[int] = []

    @bench.app.task
    async def chain(left: int) -> None:
        seen.append(left)
        if left:
            await chain.enqueue(left - 1)

    await chain.enqueue(3)
    async with bench.worker(burst=True, slots=4) as worker:
        worker.ear._on_hint = lambda _: None  # every hint is lost
        worker.fetcher._poll_s = 60.0
        assert await asyncio.wait_for(result_of(worker), WAIT_S) == 0
    assert seen == [3, 2, 1, 0]


async def test_a_burst_on_empty_queues_ends_at_once(bench: Bench) -> None:
    async with bench.worker(burst=True) as worker:
        assert await asyncio.wait_for(result_of(worker), WAIT_S) == 0


async def test_a_solo_worker_leaves_when_no_suspect_is_left(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SOLO_IDLE_S", 0.2)

    @bench.app.task
    async def plain() -> None:
        raise AssertionError("a solo worker takes suspects only")

    handle = await plain.enqueue()
    async with bench.worker(slots=1, long_places=0, lanes="solo") as worker:
        assert await asyncio.wait_for(result_of(worker), WAIT_S) == 0
    assert bench.look(handle).state == "ready"


async def test_g10_who_claims_nothing_does_not_listen_for_work(bench: Bench) -> None:
    release = asyncio.Event()

    @bench.app.task
    async def waits() -> None:
        await release.wait()

    async with bench.worker(slots=1, long_places=0, grace_ms=20_000) as worker:
        await bench.until(lambda: worker.board.phase == Phase.RUN and worker.ear._wants_work)
        first = await waits.enqueue()
        await bench.until(lambda: not worker.ear._wants_work)
        release.set()
        await first.result(timeout=WAIT_S)
        await bench.until(lambda: worker.ear._wants_work)
        release.clear()
        await waits.enqueue()
        await bench.until(lambda: worker.places.free == 0)
        worker.drain()
        await bench.until(lambda: not worker.ear._wants_work)
        release.set()
    async with bench.worker(slots=1, long_places=0, lanes="solo") as solo:
        await bench.until(lambda: solo.fetcher.barren)
        await bench.until(lambda: not solo.ear._wants_work)


# ------------------------------------------------------------------------------------------------- long and suspect


async def test_one_long_job_does_not_take_a_one_slot_worker(bench: Bench) -> None:
    release = asyncio.Event()

    @bench.app.task
    async def long_one() -> str:
        await release.wait()
        return "long"

    @bench.app.task
    async def quick(n: int) -> int:
        return n

    async with bench.worker(slots=1, long_places=1, long_after_ms=100):
        long_handle = await long_one.enqueue()
        shorts = [await quick.enqueue(n) for n in range(5)]
        assert [await short.result(timeout=WAIT_S) for short in shorts] == list(range(5))
        assert bench.look(long_handle).state == "running"
        release.set()
        assert await long_handle.result(timeout=WAIT_S) == "long"


async def test_nothing_is_claimed_for_a_slot_before_the_store_knows_that_a_task_is_long(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next job of the task would take the slot that the first one left, and find no long place."""
    release, told = asyncio.Event(), asyncio.Event()

    @bench.app.task
    async def long_one() -> None:
        await release.wait()

    @bench.app.task
    async def quick() -> None:
        """Be done."""

    async with bench.worker(slots=1, long_places=1, long_after_ms=100) as worker:
        call = worker._store.call

        async def late(verb: Any, **options: Any) -> Any:
            if isinstance(verb, Lengthen):
                await told.wait()
            return await call(verb, **options)

        monkeypatch.setattr(worker._store, "call", late)
        longs = [await long_one.enqueue() for _ in range(2)]
        short = await quick.enqueue()
        await bench.until(lambda: worker.lessons.pending)
        assert worker.places.free == 1
        worker.fetcher.ask_all()
        await asyncio.sleep(0.1)  # nothing is to happen, and there is nothing to wait for
        assert [bench.look(handle).state for handle in (*longs, short)] == ["running", "ready", "ready"]
        told.set()
        await short.result(timeout=WAIT_S)
        assert [bench.look(handle).state for handle in longs] == ["running", "ready"]
        release.set()
        for handle in longs:
            await handle.result(timeout=WAIT_S)


async def test_one_start_in_eight_is_of_the_least_priority_whatever_else_is_claimed(bench: Bench) -> None:
    """Each job brings another one while the only slot is taken: the hint makes the worker ask for its long place."""
    order: list[str] = []

    @bench.app.task(priority="high")
    async def urgent(left: int) -> None:
        order.append("urgent")
        if left:
            await urgent.enqueue(left - 1)
            await asyncio.sleep(0.02)

    @bench.app.task(priority="low")
    async def idle() -> None:
        order.append("idle")

    for _ in range(2):
        await urgent.enqueue(40)
    lows = [await idle.enqueue() for _ in range(3)]
    async with bench.worker(slots=1, long_places=1):
        for low in lows:
            await low.result(timeout=WAIT_S)
    places = [place for place, name in enumerate(order) if name == "idle"]
    assert all(later - earlier <= 8 for earlier, later in pairwise([-1, *places])), places


async def make_suspects(bench: Bench, *handles: Handle[Any]) -> None:
    """Let another worker take these and die beside them."""
    async with bench.worker(slots=len(handles)) as doomed:
        await bench.until(lambda: len(doomed.holdings.active()) == len(handles))
        bench.end(doomed, verdicts={handle.id: Verdict.SUSPECT for handle in handles})
        doomed.fetcher._room = lambda: Room(0, 0, "pool")  # its next life shall not take them again


async def test_g7_suspects_run_with_nothing_beside_them(bench: Bench) -> None:
    together: list[int] = []
    running = 0
    dying = True

    @bench.app.task
    async def suspect() -> str:
        nonlocal running
        if dying:
            await asyncio.sleep(60)
        running += 1
        together.append(running)
        await asyncio.sleep(0.3)
        running -= 1
        return "innocent"

    @bench.app.task
    async def plain() -> None:
        nonlocal running
        running += 1
        together.append(running)
        await asyncio.sleep(0)
        running -= 1

    handles = [await suspect.enqueue() for _ in range(2)]
    await make_suspects(bench, *handles)
    dying = False
    others = [await plain.enqueue() for _ in range(5)]
    async with bench.worker(slots=1, long_places=1, long_after_ms=100, lanes="both"):
        for handle in handles:
            assert await handle.result(timeout=WAIT_S) == "innocent"
        for other in others:
            await other.result(timeout=WAIT_S)
    assert set(together) == {1}, "also past long_after"
    assert [bench.look(handle).losses for handle in handles] == [0, 0]


async def test_a_pool_worker_takes_no_suspects(bench: Bench) -> None:
    dying = True

    @bench.app.task
    async def suspect() -> None:
        if dying:
            await asyncio.sleep(60)

    @bench.app.task
    async def plain() -> str:
        return "ran"

    handle = await suspect.enqueue()
    await make_suspects(bench, handle)
    dying = False
    async with bench.worker(slots=2):
        assert await (await plain.enqueue()).result(timeout=WAIT_S) == "ran"
        assert bench.look(handle).state == "ready"
    async with bench.worker(slots=1, long_places=0, lanes="solo"):
        await handle.result(timeout=WAIT_S)


# -------------------------------------------------------------------------------------------------- what goes wrong


async def test_an_unknown_task_waits_for_a_worker_that_knows_it(bench: Bench) -> None:
    @bench.app.task
    async def known() -> str:
        return "ran"

    stranger: Handle[Any] = await bench.app.sender("unheard_of").enqueue(a=1)
    async with bench.worker() as worker:
        assert await (await known.enqueue()).result(timeout=WAIT_S) == "ran"
        await bench.until(lambda: bench.look(stranger).reason == "unknown_task")
        await bench.until(lambda: len(worker.holdings) == 0)


async def test_a_mistake_of_the_worker_s_own_ends_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    @bench.app.task
    async def nothing() -> None:
        """Do it."""

    def breaks() -> None:
        raise ZeroDivisionError

    async with bench.worker() as worker:
        await bench.until(lambda: worker.board.phase == Phase.RUN)
        monkeypatch.setattr(worker.records, "flush_due", breaks)
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(asyncio.shield(result_of(worker)), WAIT_S)


async def test_a_worker_that_is_not_heard_claims_nothing_until_it_is(bench: Bench) -> None:
    @bench.app.task
    async def plain() -> str:
        return "ran"

    async with bench.worker() as worker:
        await bench.until(lambda: worker.board.phase == Phase.RUN)
        own = worker.keeper._store
        worker.keeper._store = Deaf(own)  # type: ignore[assignment]  # only its voice is broken
        await bench.until(lambda: worker.board.phase == Phase.MUTE)
        handle = await plain.enqueue()
        bench.sync.call(Register(queue="default", worker="watcher", lease_ms=60_000))
        assert bench.look(handle).state == "ready"
        worker.keeper._store = own
        assert await handle.result(timeout=WAIT_S) == "ran"
        assert worker.board.phase == Phase.RUN
    bench.sync.call(End(queue="default", worker="watcher", reason="left", force=True))


class Deaf:
    """A voice that nobody hears."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def call_many(self, verbs: Any, *, timeout: float | None = None) -> Any:
        from tests.worker.kit import AWAY

        raise AWAY


async def test_the_handler_can_see_that_the_lease_is_in_doubt(bench: Bench) -> None:
    seen: list[bool] = []
    started, ask = asyncio.Event(), asyncio.Event()

    @bench.app.task
    async def looks() -> None:
        job = current_job()
        seen.append(job.lease_in_doubt)
        started.set()
        await ask.wait()
        seen.append(job.lease_in_doubt)

    async with bench.worker() as worker:
        handle = await looks.enqueue()
        await started.wait()
        own = worker.keeper._store
        worker.keeper._store = Deaf(own)  # type: ignore[assignment]
        await bench.until(lambda: not worker.identity.trusted)
        ask.set()
        await bench.until(lambda: len(seen) == 2)
        worker.keeper._store = own
        await handle.result(timeout=WAIT_S)
    assert seen == [False, True]


class SlowSweep:
    """Stands in for what ends a solo job's processes: it takes as long as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()
        monkeypatch.setattr("stillhere.worker.processes.end_own_offspring", self._sweep)

    def _sweep(self, mark: str) -> bool:
        assert mark == "m"
        self.began.set()
        return not self.may_end.wait(WAIT_S)


@pytest.fixture
def broom(monkeypatch: pytest.MonkeyPatch) -> SlowSweep:
    return SlowSweep(monkeypatch)


SOLO: dict[str, Any] = {"slots": 1, "long_places": 0, "lanes": "solo", "mark": "m"}


@asynccontextmanager
async def solo(bench: Bench) -> AsyncGenerator[Worker]:
    """A solo worker that has told the store which tasks need one."""
    async with bench.worker(**SOLO) as worker:
        await bench.until(lambda: worker.fetcher.barren)
        yield worker


async def test_a_solo_worker_takes_no_job_while_it_cleans_up_after_the_last(bench: Bench, broom: SlowSweep) -> None:
    """The processes of the next one would be taken for those of the last, and killed."""

    @bench.app.task(process=True)
    async def alone(number: int) -> int:
        return number

    async with solo(bench) as worker:
        first, second = await alone.enqueue(1), await alone.enqueue(2)
        await bench.until(broom.began.is_set)
        assert bench.look(first).state == "running", "its end is told when its processes are gone"
        assert not worker._wanted().any
        worker.fetcher.ask_all()
        turns = len(worker.holdings.all())
        await asyncio.sleep(0.05)
        assert (turns, len(worker.holdings.all()), worker.executor.started) == (1, 1, 1)
        broom.may_end.set()
        assert [await first.result(timeout=5), await second.result(timeout=5)] == [1, 2]


async def test_a_drain_waits_for_the_clean_up_after_a_solo_job(bench: Bench, broom: SlowSweep) -> None:
    """Its work is done: to leave now would hand it back, and beside its processes."""

    @bench.app.task(process=True)
    async def alone() -> int:
        return 7

    async with solo(bench) as worker:
        job = await alone.enqueue()
        await bench.until(broom.began.is_set)
        worker.drain()
        await bench.until(worker._told.done)
        await asyncio.sleep(3 * module.DRAIN_LOOK_S)
        assert not result_of(worker).done()
        broom.may_end.set()
        assert await result_of(worker) == 0
    assert bench.look(job).state == "succeeded"


async def test_a_clean_up_that_outlasts_the_drain_leaves_its_job_to_the_supervisor(
    bench: Bench, broom: SlowSweep
) -> None:
    @bench.app.task(process=True)
    async def alone() -> int:
        return 7

    async with solo(bench) as worker:
        job = await alone.enqueue()
        await bench.until(broom.began.is_set)
        worker.drain(Timeline.at_once())
        assert await result_of(worker) == 1
        assert bench.look(job).state == "running"
        bench.end(worker)
        broom.may_end.set()


async def test_a_solo_job_that_has_blocked_all_threads_of_the_loop_still_ends(bench: Bench, broom: SlowSweep) -> None:
    blocked = threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))

    @bench.app.task(process=True)
    async def blocks() -> int:
        loop.run_in_executor(None, blocked.wait, WAIT_S)
        return 7

    broom.may_end.set()
    async with solo(bench):
        try:
            assert await (await blocks.enqueue()).result(timeout=5) == 7
        finally:
            blocked.set()
