"""The block itself: jobs run in this process, and when it is left nothing of the worker is."""

from __future__ import annotations

import asyncio
import atexit
import faulthandler
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from stillhere import App, ConfigurationError, current_job
from stillhere.ports.backend import Look
from stillhere.ports.inspector import Workers
from stillhere.worker.child.worker import Worker
from tests.embedding.kit import Belongings
from tests.support.procs import children
from tests.support.servers import RedisServer, free_port

LEASE = "2s"
KEEPERS = ["process", "thread"]


def add_tasks(app: App[Any]) -> Any:
    """A task on the loop and one in a thread, that tell where they ran."""

    @app.task
    async def here(n: int) -> tuple[int, int]:
        return os.getpid(), n + 1

    @app.task
    def in_thread(n: int) -> tuple[str, int]:
        return threading.current_thread().name, n + 1

    return here, in_thread


class TestNothingIsLeftBehind:
    @pytest.mark.parametrize("keeper", KEEPERS)
    def test_two_times_in_one_process(
        self, app: App[None], monkeypatch: pytest.MonkeyPatch, keeper: Any, valkey_server: RedisServer
    ) -> None:
        here, in_thread = add_tasks(app)
        forbidden: list[str] = []
        for module, name in ((faulthandler, "dump_traceback_later"), (atexit, "register"), (os, "_exit")):
            monkeypatch.setattr(module, name, lambda *_, name=name, **__: forbidden.append(name))

        async def once() -> list[Any]:
            async with app.worker(lease=LEASE, keeper=keeper) as worker:
                assert worker.id
                handles = [await here.enqueue(1), await in_thread.enqueue(2)]
                results = [await handle.result("10s") for handle in handles]
                assert worker.running == 0
                assert len(children(os.getpid())) == len(before.children) + (keeper == "process")
            await app.link.aclose()
            return results

        before = Belongings()
        ids = []
        for _ in range(2):
            (pid, two), (thread, three) = asyncio.run(once())
            assert (pid, two, three) == (os.getpid(), 2, 3)
            ids.append(thread)
            assert Belongings() == before
        assert ids == ["stillhere-job-1"] * 2
        assert forbidden == []

    @pytest.mark.parametrize("keeper", KEEPERS)
    def test_in_a_thread_as_a_notebook_does(self, app: App[None], keeper: Any) -> None:
        here, _ = add_tasks(app)
        worker = app.worker(lease=LEASE, keeper=keeper)
        before = Belongings()
        seen = set()
        for _ in range(2):
            worker.start_in_thread()
            seen.add(worker.id)
            with pytest.raises(ConfigurationError, match="runs already"):
                worker.start_in_thread()
            assert here.enqueue_sync(1).result("10s")[1] == 2
            worker.stop()
            app.close()
            assert Belongings() == before
        assert len(seen) == 2
        worker.stop()  # once more is no harm

    def test_a_task_defined_again_in_a_cell_is_the_new_one(self, app: App[None]) -> None:
        def cell(answer: int) -> Any:
            @app.task
            async def tells() -> int:
                return answer

            return tells

        worker, first = app.worker(lease=LEASE, keeper="thread"), cell(1)
        worker.start_in_thread()
        assert first.enqueue_sync().result("10s") == 1
        assert cell(2).enqueue_sync().result("10s") == 2
        worker.stop()

    async def test_the_worker_id_is_closed(self, app: App[None]) -> None:
        add_tasks(app)
        async with app.worker(lease=LEASE) as worker:
            await registered(app, worker.id)
        assert await workers_of(app) == set()

    async def test_a_start_that_fails(self, valkey_server: RedisServer, namespace: str) -> None:
        loops = []

        @asynccontextmanager
        async def lifespan() -> AsyncIterator[None]:
            loops.append(asyncio.get_running_loop())
            if loops:
                raise RuntimeError("no database")
            yield

        app = App(valkey_server.url, namespace=namespace, lifespan=lifespan)
        before = Belongings()
        for _ in range(2):
            with pytest.raises(RuntimeError, match="no database"):
                async with app.worker():
                    pytest.fail("it has not started")
        assert len(loops) == 2
        assert Belongings() == before


class TestItsOptions:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"lease": "100ms"}, "a lease is from 500ms to 1d long"),
            ({"lease": "soon"}, "lease='soon'"),
            ({"grace": -1}, "grace=-1"),
            ({"slots": 0}, "slots=0: a number from 1 to 1000"),
            ({"slots": True}, "slots=True"),
            ({"overflow": -1}, "overflow=-1"),
            ({"queues": "default"}, r"write a list of names: \['default'\]"),
            ({"queues": []}, "name at least one"),
            ({"queues": {"default": 0}}, "the weight of 'default'=0"),
            ({"queues": ["a b"]}, "without spaces"),
            ({"keeper": "fork"}, 'write "process" or "thread"'),
            ({"name": "a b"}, "letters, digits"),
        ],
    )
    def test_one_that_cannot_be(self, options: Any, words: str) -> None:
        with pytest.raises(ConfigurationError, match=words):
            App("memory://x").worker(**options)

    async def test_too_many_queues(self, namespace: str) -> None:
        worker = App(f"memory://{namespace}").worker(queues=[f"q{n}" for n in range(257)], keeper="thread")
        with pytest.raises(ConfigurationError, match="257 queues are too many"):
            async with worker:
                pytest.fail("it has not started")

    async def test_one_that_was_not_started(self) -> None:
        worker = App("memory://x").worker()
        assert (worker.id, worker.running) == ("", 0)
        with pytest.raises(ConfigurationError, match="has not been started"):
            await worker.drain()


class TestItsCourse:
    async def test_a_burst_ends_by_itself(self, app: App[None]) -> None:
        here, _ = add_tasks(app)
        handles = [await here.enqueue(n) for n in range(5)]
        async with app.worker(lease=LEASE, keeper="thread", burst=True) as worker, asyncio.timeout(20):
            await worker.wait()
        assert [(await handle.info()).state for handle in handles] == ["succeeded"] * 5

    async def test_drain_lets_what_runs_end_and_takes_nothing_more(self, app: App[None]) -> None:
        going, end = asyncio.Event(), asyncio.Event()

        @app.task
        async def waits() -> str:
            going.set()
            await end.wait()
            return "ended"

        first = await waits.enqueue()
        async with app.worker(lease=LEASE, keeper="thread") as worker:
            await going.wait()
            assert worker.running == 1
            draining = asyncio.create_task(worker.drain())
            await asyncio.sleep(0)
            second = await waits.enqueue()
            end.set()
            await draining
            assert worker.running == 0
            await worker.drain()
        assert await first.result() == "ended"
        assert (await second.info()).state == "ready"

    async def test_its_app_has_its_state_while_it_runs(self, valkey_server: RedisServer, namespace: str) -> None:
        story: list[str] = []

        @asynccontextmanager
        async def lifespan() -> AsyncIterator[dict[str, str]]:
            story.append("in")
            yield {"model": "loaded"}
            story.append("out")

        app = App(valkey_server.url, namespace=namespace, lifespan=lifespan)

        @app.task
        async def uses() -> str:
            story.append("job")
            return app.state["model"]

        async with app.worker(lease=LEASE, keeper="thread"):
            assert await (await uses.enqueue()).result("10s") == "loaded"
        assert story == ["in", "job", "out"]

    async def test_only_the_queues_that_are_named(self, app: App[None]) -> None:
        @app.task(queue="first")
        async def one() -> int:
            return 1

        @app.task(queue="second")
        async def two() -> int:
            return 2

        left = await two.enqueue()
        async with app.worker(queues={"first": 3}, lease=LEASE, keeper="thread"):
            assert await (await one.enqueue()).result("10s") == 1
        assert (await left.info()).state == "ready"

    async def test_the_memory_store_with_a_thread(self, namespace: str) -> None:
        app = App(f"memory://{namespace}", namespace=namespace)
        here, _ = add_tasks(app)
        with pytest.raises(ConfigurationError, match='keeper="thread"'):
            async with app.worker():
                pytest.fail("it has not started")
        async with app.worker(keeper="thread"):
            assert (await (await here.enqueue(4)).result("10s"))[1] == 5

    async def test_one_worker_of_an_app_at_a_time(self, app: App[None]) -> None:
        async with app.worker(lease=LEASE, keeper="thread"):
            with pytest.raises(ConfigurationError, match="already"):
                async with app.worker():
                    pytest.fail("it has not started")
        async with app.worker(lease=LEASE, keeper="thread"):
            pass


class TestItsEnd:
    async def test_what_the_block_raises_passes(self, app: App[None]) -> None:
        before = Belongings()
        with pytest.raises(ZeroDivisionError):
            async with app.worker(lease=LEASE, keeper="thread"):
                raise ZeroDivisionError
        assert Belongings() == before

    async def test_what_does_not_end_in_time_is_told_to_stop_and_handed_over(self, app: App[None]) -> None:
        going = asyncio.Event()
        reasons: list[str | None] = []

        @app.task
        async def forever() -> None:
            going.set()
            try:
                await asyncio.sleep(3600)
            finally:
                reasons.append(current_job().stopping)

        handle = await forever.enqueue()
        async with app.worker(lease=LEASE, grace="1s"):
            await going.wait()
        record = await look(app, handle.id)
        assert (record.state, record.interruptions, record.losses, reasons) == ("ready", 1, 0, ["shutdown"])

    async def test_a_block_that_is_cancelled_while_it_ends_hurries(self, app: App[None]) -> None:
        going = asyncio.Event()

        @app.task
        async def forever() -> None:
            going.set()
            await asyncio.sleep(3600)

        async def block() -> None:
            async with app.worker(lease=LEASE, grace="60s"):
                await going.wait()

        handle = await forever.enqueue()
        before = Belongings()
        running = asyncio.create_task(block())
        await going.wait()
        await asyncio.sleep(0)
        start = time.monotonic()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert time.monotonic() - start < 2.5
        assert (await look(app, handle.id)).state == "ready"
        assert (Belongings().threads, Belongings().children) == (before.threads, before.children)

    async def test_a_fault_of_the_worker_is_told_at_the_end(
        self, app: App[None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        going = asyncio.Event()

        @app.task
        async def forever() -> None:
            going.set()
            try:
                await asyncio.sleep(3600)
            finally:
                reasons.append(current_job().stopping)

        reasons: list[str | None] = []
        broken = threading.Event()
        judge = Worker._judge

        def breaks(worker: Worker) -> None:
            if broken.is_set():
                raise LookupError("a mistake of ours")
            judge(worker)

        monkeypatch.setattr(Worker, "_judge", breaks)
        before = Belongings()
        handle = await forever.enqueue()
        with pytest.raises(LookupError):  # noqa: PT012 - the whole block is what is looked at
            async with app.worker(lease=LEASE) as worker:
                await going.wait()
                broken.set()
                await worker.wait()
                assert reasons == ["shutdown"], "what it ran was told to stop at once"
                assert (await look(app, handle.id)).state == "ready", "and is ready elsewhere, the block still open"
        assert "has ended: LookupError" in caplog.text
        assert Belongings().children == before.children


class TestTheStore:
    async def test_one_that_refuses_is_told_at_once(self, make_server: Callable[..., RedisServer]) -> None:
        server = make_server()
        server.config_set("requirepass", "secret")
        app, before = App(server.url), Belongings()
        with pytest.raises(ConfigurationError, match="Authentication required"):
            async with app.worker():
                pytest.fail("it has not started")
        assert Belongings() == before

    async def test_one_that_is_away_is_waited_for(self, namespace: str, caplog: pytest.LogCaptureFixture) -> None:
        app = App(f"redis://127.0.0.1:{free_port()}/0", namespace=namespace)
        add_tasks(app)
        async with app.worker(lease=LEASE, keeper="thread") as worker:
            assert worker.running == 0
        assert "does not answer yet" in caplog.text


async def look(app: App[Any], job: str) -> Any:
    """The record of a job."""
    store = await app.link.async_store()
    return await store.call(Look(queue="default", job=job))


async def workers_of(app: App[Any]) -> set[str]:
    """Who is registered."""
    store = await app.link.async_store()
    return {worker.id for worker in await store.call(Workers(queue="default"))}


async def registered(app: App[Any], worker: str) -> None:
    """Wait until it is."""
    async with asyncio.timeout(10):
        while worker not in await workers_of(app):  # noqa: ASYNC110 - asked of the store
            await asyncio.sleep(0.01)
