"""Lines that must be green under mypy and pyright, both strict: what users write, with the types they get."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, Unpack, assert_type

from stillhere import (
    App,
    AsyncTask,
    Backoff,
    Blueprint,
    CallOptions,
    EmbeddedWorker,
    Handle,
    Job,
    JobInfo,
    NewJob,
    Sender,
    SyncHandle,
    SyncJob,
    SyncTask,
    TaskOptions,
    current_job,
    current_job_sync,
)

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class Res:
    pool: list[int]


@asynccontextmanager
async def resources() -> AsyncGenerator[Res]:
    yield Res([1])


plain = App()
assert_type(plain, App[None])
app = App("redis://localhost", lifespan=resources, include=["proj.tasks"], codecs={Path: (str, Path)})
assert_type(app, App[Res])
assert_type(app.state.pool, list[int])
billing = Blueprint("billing", queue="billing", max_attempts=3)
app.include(billing)


def takes_any_app(some: App) -> None:
    some.close()


takes_any_app(plain)
takes_any_app(app)


@app.task
async def fetch(domain: str, depth: int = 1) -> int:
    return len(domain) * depth


@app.task(
    max_attempts=5, priority="high", backoff={OSError: Backoff("2s")}, long_after=None, retention=timedelta(days=1)
)
def render(page: str, *, scale: float = 1.0) -> bytes:
    return page.encode() * int(scale)


def by_customer(customer: int) -> str:
    return str(customer)


@billing.task(name="invoice", aliases=("bill",), unique=by_customer)
async def send_invoice(customer: int) -> None: ...


@app.task
async def first_of(items: list[T]) -> T:
    return items[0]


@app.task
def anything(*parts: int, **extra: str) -> tuple[int, ...]:
    return parts


@app.task
async def positional(a: int, /, b: str) -> datetime:
    return datetime.now(UTC)


def logged(fn: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    return fn


@app.task
@logged
async def stacked(n: int) -> str:
    return str(n)


class Service:
    @staticmethod
    @app.task
    def run(n: int) -> int:
        return n


task_of_async: AsyncTask[..., int] = fetch
task_of_sync: SyncTask[..., bytes] = render
as_function: Callable[[str], Coroutine[Any, Any, int]] = fetch


async def use_async() -> None:
    handle = await fetch.enqueue("example.com", depth=2)
    assert_type(handle, Handle[int])
    assert_type(await handle.result(timeout="1m"), int)
    assert_type(await handle.wait(5), JobInfo)
    assert_type(await handle.info(), JobInfo)
    assert_type(await handle.cancel(), bool)
    assert_type(await handle.retry(), bool)
    assert_type(handle.created, bool)
    async for info in handle.watch():
        assert_type(info.attempt, int)
    assert_type(await fetch("example.com"), int)
    assert_type(await render.enqueue("page", scale=2.0), Handle[bytes])
    assert_type(render("page"), bytes)
    options: CallOptions = {"delay": "10m", "unique": "example.com", "headers": {"a": "b"}}
    assert_type(await fetch.options(**options).enqueue("x"), Handle[int])
    assert_type(
        await fetch.options(at=datetime.now(UTC)).options(priority="low", unique=None).enqueue("x"), Handle[int]
    )
    assert_type(await first_of.enqueue([1, 2]), Handle[int])
    assert_type(await anything.enqueue(1, 2, name="x"), Handle[tuple[int, ...]])
    assert_type(await positional.enqueue(1, b="x"), Handle[datetime])
    assert_type(await stacked.enqueue(1), Handle[str])
    assert_type(await Service.run.enqueue(1), Handle[int])
    assert_type(fetch.prepare("x"), NewJob[int])
    assert_type(await app.enqueue_many(fetch.prepare(d) for d in ["a", "b"]), list[Handle[int]])
    mixed: list[Handle[Any]] = await app.enqueue_many([fetch.prepare("a"), render.prepare("b")])
    assert_type(await app.gather(handle, await render.enqueue("x")), tuple[int, bytes])
    assert_type(await app.gather(handle, handle, handle, handle, handle), list[int])
    assert_type(app.handle("some-id", fetch), Handle[int])
    unknown: Handle[Any] = app.handle("some-id")
    sender: Sender[..., Any] = app.sender("elsewhere")
    await sender.enqueue(domain="x", depth=3)
    async with app as same:
        assert_type(same, App[Res])
    del mixed, unknown


def use_sync() -> None:
    handle = fetch.enqueue_sync("example.com")
    assert_type(handle, SyncHandle[int])
    assert_type(handle.result(timeout=timedelta(seconds=5)), int)
    assert_type(handle.info(), JobInfo)
    for info in handle.watch():
        assert_type(info, JobInfo)
    assert_type(app.enqueue_many_sync([fetch.prepare("a")]), list[SyncHandle[int]])
    assert_type(app.handle_sync("some-id", render), SyncHandle[bytes])


@dataclass
class Cursor:
    page: int = 0


async def in_a_program() -> None:
    worker = app.worker(queues={"default": 2}, slots=4, grace=timedelta(seconds=5), keeper="thread")
    assert_type(worker, EmbeddedWorker)
    async with worker as same:
        assert_type(same.id, str)
        assert_type(same.running, int)
        await same.drain()
    worker.start_in_thread()
    worker.stop()


async def in_a_handler() -> None:
    job = current_job()
    assert_type(job, Job)
    assert_type(job.attempt, int)
    assert_type(job.token, int)
    assert_type(job.restore(int, default=0), int)
    assert_type(job.restore(Cursor), Cursor | None)
    assert_type(job.restore(Cursor, default=Cursor()), Cursor)
    assert_type(job.restore(list[int]), list[int] | None)
    await job.checkpoint(Cursor(3))
    job.progress(1, 10, "pages")
    job.check()
    maybe = current_job(default=None)
    assert_type(maybe, Job | None)


def in_a_sync_handler() -> None:
    job = current_job_sync()
    assert_type(job, SyncJob)
    job.checkpoint({"page": 3})
    assert_type(job.restore(int, default=0), int)
    assert_type(current_job_sync(default=None), SyncJob | None)


def wrapper_library(fn: Callable[P, T], **options: Unpack[TaskOptions]) -> SyncTask[P, T]:
    decorate = app.task(**options)
    return decorate(fn)
