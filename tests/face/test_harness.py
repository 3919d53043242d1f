"""The harness: a user's test enqueues, runs and looks, and the queue behaves as it would in production."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from stillhere import (
    App,
    Backoff,
    Discard,
    JobCancelled,
    JobFailed,
    ResultNotKept,
    Retry,
    Snooze,
    current_job,
    current_job_sync,
)
from stillhere.backends.memory.store import _SPACES
from stillhere.domain.job import DeclaredLane, NewRecord
from stillhere.ports.backend import Enqueue, Lengthen
from stillhere.testing import Harness, harness


@dataclass
class Res:
    opened: int


@asynccontextmanager
async def resources() -> AsyncGenerator[Res]:
    yield Res(1)


app = App("redis://nowhere.invalid:1", lifespan=resources)


@app.task
async def add(a: int, b: int) -> int:
    return a + b + app.state.opened


@app.task(queue="other")
def tell(word: str) -> str:
    job = current_job_sync()
    job.log(word)
    job.progress(1, 2, word)
    return f"{job.task} {job.attempt}"


@app.task(max_attempts=3, backoff=Backoff("1m"))
async def count_up() -> int:
    job = current_job()
    done = job.restore(int, default=0)
    await job.checkpoint(done + 1)
    if done < 2:
        raise ValueError(done)
    return done


@app.task
async def parent(n: int) -> None:
    for number in range(n):
        await add.enqueue(number, 0)


@app.task
def sync_parent() -> None:
    add.enqueue_sync(1, 1)


@app.task
async def says(what: str) -> None:
    words = {"discard": Discard("enough"), "snooze": Snooze("5m"), "retry": Retry("5m"), "exit": SystemExit(3)}
    if current_job().interruptions == current_job().failures == 0:
        raise words[what]


@app.task
async def wrong_result() -> int:
    return "text"  # type: ignore[return-value]


@pytest.fixture(params=["memory", "valkey"])
async def queue(request: pytest.FixtureRequest) -> AsyncIterator[Harness]:
    """In memory, as users have it, and on a real store, which must behave the same."""
    url = request.getfixturevalue("valkey_server").url if request.param == "valkey" else None
    async with harness(app, url) as one:
        yield one


async def test_jobs_run_in_order_and_their_results_come_back(queue: Harness) -> None:
    first, second = await add.enqueue(1, 2), await tell.enqueue("hello")
    assert await queue.run_until_empty() == 2
    assert (await first.result(0), await second.result(0)) == (4, "tell 1")
    assert queue.lines == ["hello"]
    progress = (await second.info()).progress
    assert progress is not None
    assert (progress.done, progress.total, progress.note) == (1, 2, "hello")
    assert await queue.run_until_empty() == 0


async def test_what_a_job_enqueues_runs_too(queue: Harness) -> None:
    await parent.enqueue(3)
    await sync_parent.enqueue()
    assert await queue.run_until_empty() == 6
    queue.assert_enqueued(add, count=4)
    queue.assert_enqueued(add.prepare(2, 0))
    queue.assert_enqueued(add.prepare(9, 9), count=0)
    with pytest.raises(AssertionError, match=r"^tell\(\.\.\.\) was enqueued 0 times, not 1\. Enqueued: .*add\("):
        queue.assert_enqueued(tell)


async def test_a_retry_waits_for_its_time_and_goes_on_from_the_checkpoint(queue: Harness) -> None:
    handle = await count_up.enqueue()
    assert await queue.run_until_empty() == 1
    assert ((await handle.info()).state, (await handle.info()).failures) == ("scheduled", 1)
    queue.advance("59s")
    assert await queue.run_until_empty() == 0
    queue.advance("1s")
    assert await queue.run_until_empty() == 1
    queue.advance("2m")
    assert await queue.run_until_empty() == 1
    assert await handle.result(0) == 2


async def test_a_failure_too_many_is_a_dead_letter(queue: Harness) -> None:
    handle = await count_up.options(max_attempts=1).enqueue()
    await queue.run_until_empty()
    with pytest.raises(JobFailed, match=r"^ValueError: 0$"):
        await handle.result(0)


async def test_the_words_of_a_handler_mean_what_they_mean(queue: Harness) -> None:
    discarded, snoozed, retried, ended = [await says.enqueue(word) for word in ("discard", "snooze", "retry", "exit")]
    assert await queue.run_until_empty() == 4
    with pytest.raises(JobCancelled, match="enough"):
        await discarded.result(0)
    infos = [await handle.info() for handle in (snoozed, retried, ended)]
    assert [(info.state, info.failures) for info in infos] == [("scheduled", 0), ("scheduled", 1), ("scheduled", 1)]
    queue.advance("5m")
    await queue.run_until_empty()
    assert (await retried.info()).state == (await ended.info()).state == "succeeded"


async def test_a_result_that_cannot_be_stored_is_told(queue: Harness) -> None:
    handle = await wrong_result.enqueue()
    await queue.run_until_empty()
    with pytest.raises(ResultNotKept, match="the result is a str, but is annotated int"):
        await handle.result(0)


async def test_delays_unique_keys_and_cancels(queue: Harness) -> None:
    later = await add.options(delay="1h").enqueue(1, 1)
    same = [await add.options(unique="k").enqueue(n, n) for n in (1, 2)]
    dropped = await add.enqueue(5, 5)
    assert same[0].id == same[1].id
    assert await dropped.cancel()
    assert await queue.run_until_empty() == 1
    queue.advance("1h")
    assert await queue.run_until_empty() == 1
    assert await later.result(0) == 3


async def test_a_job_that_is_ready_for_ever_is_found_out(queue: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stillhere.harness._MOST_RUNS", 5)
    local = App("redis://nowhere.invalid:1")

    @local.task
    async def again() -> None:
        raise Snooze(0)

    async with harness(local) as one:
        await again.enqueue()
        with pytest.raises(AssertionError, match=r"^5 runs, and again is ready again"):
            await one.run_until_empty()
    assert await queue.run_until_empty() == 0


async def test_the_app_is_itself_again_afterwards_and_two_tests_share_nothing() -> None:
    before = app.link
    async with harness(app) as one:
        assert app.link is not before
        await add.enqueue(1, 1)
        assert len(one.jobs()) == 1
    async with harness(app) as other:
        assert other.jobs() == []
    assert app.link is before


async def test_the_end_of_the_test_ends_a_job_too(queue: Harness) -> None:
    started = asyncio.Event()

    @app.task(name="forever")
    async def forever() -> None:
        started.set()
        await asyncio.Event().wait()

    await forever.enqueue()
    running = asyncio.create_task(queue.run_until_empty())
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_what_a_harness_held_goes_with_it() -> None:
    before = set(_SPACES)
    async with harness(app):
        await add.enqueue(1, 2)
        assert len(set(_SPACES) - before) == 1
    assert set(_SPACES) == before


@pytest.mark.parametrize("lane", ["long", "solo"])
async def test_jobs_of_every_lane_run(lane: DeclaredLane) -> None:
    async with harness(app) as queue:
        await add.enqueue(1, 2)
        jobs = [
            NewRecord(id=f"apart{number}", task="add", queue="default", args='{"a":1,"b":2}', lane=lane)
            for number in range(2)
        ]
        app.link.sync_store().call(Enqueue(queue="default", jobs=jobs))
        assert await queue.run_until_empty() == 3
        assert {job.state for job in queue.jobs()} == {"succeeded"}


async def test_jobs_of_a_task_that_became_long_run() -> None:
    async with harness(app) as queue:
        await add.enqueue(1, 2)
        app.link.sync_store().call(Lengthen(queue="default", task="add"))
        await add.enqueue(3, 4)
        assert await queue.run_until_empty() == 2
