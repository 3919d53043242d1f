"""The face on real servers: what users do first, on Valkey and on Redis 6.2, from loops, threads and forks.

A job here is run by a worker of four verbs that the test plays itself, so that nothing depends on processes.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from stillhere import (
    App,
    DuplicateJob,
    JobCancelled,
    JobFailed,
    JobNotFound,
    ResultNotKept,
    StoreFull,
    StoreUnavailable,
)
from stillhere.domain.job import Grant, OutcomeKind
from stillhere.domain.policy import after_exception, after_return
from stillhere.ports.backend import Claim, Progress, ProgressItem, Register, Settle
from tests.support.servers import RedisServer


class Program:
    """An app with its tasks on one server, and the hand that runs its jobs."""

    def __init__(self, url: str) -> None:
        self.app = App(url, namespace=f"t{secrets.token_hex(4)}")
        self.worker = secrets.token_hex(8)
        self.claims = 0

        @self.app.task
        async def fetch(domain: str, depth: int = 1) -> tuple[str, int]:
            return domain, depth

        @self.app.task(queue="slow", retention=0)
        def forget(n: int) -> int:
            return n

        self.fetch, self.forget = fetch, forget

    def claim(self, queue: str = "default") -> list[Grant]:
        store = self.app.link.sync_store()
        if self.claims == 0:
            store.call(Register(queue=queue, worker=self.worker, lease_ms=30_000, tasks=self.app.tasks.names()))
        self.claims += 1
        return store.call(Claim(queue=queue, worker=self.worker, n=self.claims, slots=100)).jobs

    def run(self, queue: str = "default", error: Exception | None = None) -> int:
        """Run what is ready, as a worker would; returns how many jobs."""
        grants = self.claim(queue)
        outcomes = []
        for grant in grants:
            task = self.app.tasks.get(grant.task)
            assert task is not None
            args, kwargs = task.codec.decode_call(grant.args)
            if error is not None:
                outcomes.append(after_exception(grant, task.options, error, random=0.0))
                continue
            value = task.fn(*args, **kwargs)
            value = asyncio.run(value) if task.is_async else value
            outcomes.append(after_return(grant, task.options, task.codec.encode_result(value)))
        verb = Settle(
            queue=queue, worker=self.worker, outcomes=[outcome for outcome in outcomes if outcome is not None]
        )
        settled = self.app.link.sync_store().call(verb)
        assert [one.status for one in settled] == ["ok"] * len(grants)
        return len(grants)


@pytest.fixture
def program(redis_server: RedisServer) -> Iterator[Program]:
    one = Program(redis_server.url)
    yield one
    one.app.close()


def test_a_job_goes_there_and_its_result_comes_back(program: Program) -> None:
    handle = program.fetch.enqueue_sync("example.com", depth=2)
    assert (handle.created, handle.info().state, handle.info().attempt) == (True, "ready", 1)
    assert program.run() == 1
    assert handle.result(timeout=5) == ("example.com", 2), "a tuple, as annotated"
    assert handle.wait().is_final
    assert not handle.cancel()


def test_two_runs_of_asyncio_in_a_row_and_blocking_code_between(program: Program) -> None:
    async def send(domain: str) -> str:
        return (await program.fetch.enqueue(domain)).id

    ids = [asyncio.run(send("a")), program.fetch.enqueue_sync("b").id, asyncio.run(send("c"))]
    assert program.run() == 3

    async def results() -> list[tuple[str, int]]:
        async with program.app:
            return [await program.app.handle(one, program.fetch).result(timeout=5) for one in ids]

    assert asyncio.run(results()) == [("a", 1), ("b", 1), ("c", 1)]


def test_a_fork_after_use_leaves_both_sides_working(program: Program) -> None:
    first = program.fetch.enqueue_sync("parent")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            own = [program.fetch.enqueue_sync(f"child {n}").id for n in range(20)]
            os.write(write, json.dumps(own).encode())
        finally:
            os._exit(0)
    os.close(write)
    others = [program.fetch.enqueue_sync(f"parent {n}").id for n in range(20)]
    with os.fdopen(read, "rb") as pipe:
        childs = json.loads(pipe.read() or b"[]")
    os.waitpid(pid, 0)
    assert len({first.id, *others, *childs}) == 41
    assert program.run() == 41


def test_many_jobs_keep_their_order_and_the_same_list_again_makes_none(program: Program) -> None:
    jobs = [program.fetch.prepare(f"d{n}") for n in range(250)] + [program.forget.prepare(1)]
    first, again = program.app.enqueue_many_sync(jobs), program.app.enqueue_many_sync(jobs)
    assert [handle.id for handle in first] == [job.id for job in jobs] == [handle.id for handle in again]
    assert {handle.created for handle in first} == {True}
    assert {handle.created for handle in again} == {False}
    assert [program.run() for _ in range(3)] == [100, 100, 50]


def test_a_unique_key_is_one_live_job(program: Program) -> None:
    unique = program.fetch.options(unique="k")
    first, second = unique.enqueue_sync("a"), unique.enqueue_sync("b")
    assert (second.id, second.created) == (first.id, False)
    with pytest.raises(DuplicateJob, match="with the unique key 'k' is ready already"):
        unique.options(on_conflict="raise").enqueue_sync("c")
    third = unique.options(on_conflict="replace").enqueue_sync("d")
    assert third.created
    with pytest.raises(JobCancelled):
        first.result(timeout=5)
    program.run()
    assert unique.enqueue_sync("e").created, "the key is free once its job has ended"


def test_delays_and_times_wait_in_the_store(program: Program) -> None:
    later = program.fetch.options(delay="1h").enqueue_sync("a")
    at = datetime.now(UTC) + timedelta(hours=1)
    exact = program.fetch.options(at=at).enqueue_sync("b")
    assert later.info().state == exact.info().state == "scheduled"
    due = exact.info().due
    assert due is not None
    assert timedelta(0) <= due - at < timedelta(milliseconds=1)
    assert program.run() == 0
    assert later.retry(), "a job that waits for a time can be told to run now"
    assert program.run() == 1
    assert exact.cancel()
    with pytest.raises(JobCancelled):
        exact.result(timeout=5)


def test_a_failure_waits_for_its_next_try_and_then_is_a_dead_letter(program: Program) -> None:
    handle = program.fetch.options(max_attempts=2).enqueue_sync("a")
    program.run(error=ValueError("bad luck"))
    info = handle.info()
    assert (info.failures, info.attempt) == (1, 2)
    assert info.error is not None
    assert (info.error.type, info.error.message) == ("ValueError", "bad luck")
    if handle.info().state == "scheduled":
        handle.retry()
    program.run(error=ValueError("again"))
    with pytest.raises(JobFailed, match=r"^ValueError: again$") as caught:
        handle.result(timeout=5)
    assert caught.value.info.state == "dead"
    assert handle.retry()
    assert program.run() == 1
    assert handle.result(timeout=5) == ("a", 1)


def test_progress_is_seen(program: Program) -> None:
    handle = program.fetch.enqueue_sync("a")
    (grant,) = program.claim()
    item = ProgressItem(job=grant.id, token=grant.token, number=1, value='{"done":3,"total":10,"note":"pages"}')
    program.app.link.sync_store().call(Progress(queue="default", worker=program.worker, items=[item]))
    info = handle.info()
    assert info.progress is not None
    assert (info.state, info.progress.done, info.progress.total, info.progress.note) == ("running", 3, 10, "pages")
    assert (info.token, info.worker) == (grant.token, program.worker)


def test_a_task_that_keeps_nothing_says_so_at_once(program: Program) -> None:
    handle = program.forget.enqueue_sync(1)
    with pytest.raises(ResultNotKept, match=r"^forget keeps no result \(retention=0\)\.$"):
        handle.result()
    assert program.run("slow") == 1
    with pytest.raises(ResultNotKept):
        handle.result()
    assert handle.wait(timeout=5).state == "succeeded"


def test_a_job_is_found_without_its_queue(program: Program) -> None:
    handle = program.forget.enqueue_sync(1)
    assert program.app.handle_sync(handle.id).info().queue == "slow"
    with pytest.raises(JobNotFound):
        program.app.handle_sync("never-sent").info()


async def test_a_waiter_hears_of_the_end_soon(program: Program) -> None:
    handle = await program.fetch.enqueue("a")
    waiting = asyncio.create_task(handle.result())
    states = asyncio.create_task(collect(handle.watch()))
    await asyncio.to_thread(program.run)
    assert await asyncio.wait_for(waiting, 5) == ("a", 1)
    assert (await asyncio.wait_for(states, 5))[-1] == "succeeded"
    await program.app.__aexit__(None, None, None)


async def collect(infos) -> list[str]:  # type: ignore[no-untyped-def] # noqa: ANN001
    return [info.state async for info in infos]


def test_a_server_that_is_away_is_told_with_where_its_url_comes_from(
    make_server: Callable[..., RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server(tcp=True)
    monkeypatch.setenv("STILLHERE_URL", server.url)
    app = App()

    @app.task
    def ping() -> None: ...

    assert ping.enqueue_sync().created
    server.kill9()
    with pytest.raises(StoreUnavailable) as caught:
        ping.enqueue_sync()
    assert str(caught.value) == (
        f"Cannot reach {server.url} (connection refused), from STILLHERE_URL. Nothing was enqueued."
    )
    server.start()
    assert ping.enqueue_sync().created, "the next call connects anew"
    app.close()


def test_a_full_server_says_no_and_takes_jobs_again_when_it_has_room(make_server: Callable[..., RedisServer]) -> None:
    server = make_server()
    program = Program(server.url)
    first = program.fetch.enqueue_sync("before")
    server.config_set("maxmemory", "1mb")
    with pytest.raises(StoreFull, match=r"takes no new job\. Nothing was enqueued\.$"):
        program.fetch.enqueue_sync("x" * 500_000)
    server.config_set("maxmemory", "0")
    second = program.fetch.enqueue_sync("after")
    assert program.run() == 2
    assert {first.info().state, second.info().state} == {"succeeded"}
    program.app.close()


def test_outcomes_have_the_words_of_the_store() -> None:
    assert {kind.value for kind in OutcomeKind} >= {"succeeded", "retry", "snooze", "dead", "cancelled", "interrupted"}
