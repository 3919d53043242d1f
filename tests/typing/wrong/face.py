"""Mistakes that both checkers must see: exactly the lines that end in `# wrong` are red, each in mypy and in pyright."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from stillhere import App, Backoff, Blueprint, current_job, current_job_sync


@dataclass
class Res:
    pool: list[int]


@asynccontextmanager
async def resources() -> AsyncGenerator[Res]:
    yield Res([1])


app = App(lifespan=resources)
other = App(middleware=[])  # wrong
third = App(lifespan=5)  # wrong
print(app.state.cache)  # wrong


@app.task
async def fetch(domain: str, depth: int = 1) -> int:
    return depth


@app.task
def render(page: str) -> bytes:
    return page.encode()


@app.task(max_attempt=3)  # wrong
async def misspelt() -> None: ...


@app.task(max_attempts="3")  # wrong
async def ill_typed() -> None: ...


@app.task(priority="urgent")  # wrong
async def no_such_priority() -> None: ...


@app.task(delay="10m")  # wrong
async def an_option_of_calls() -> None: ...


@app.task(backoff=Backoff(factor="2"))  # wrong
async def bad_backoff() -> None: ...


blueprint = Blueprint("x", ques="y")  # wrong


async def use() -> None:
    await fetch.enqueue()  # wrong
    await fetch.enqueue(5)  # wrong
    await fetch.enqueue("x", 1, 2)  # wrong
    await fetch.enqueue("x", dept=1)  # wrong
    await fetch.enqueue("x", via=None)  # wrong
    fetch.enqueue("x")  # wrong
    fetch.prepare(domain=5)  # wrong
    await fetch.options(dely="1m").enqueue("x")  # wrong
    await fetch.options(delay=[]).enqueue("x")  # wrong
    await fetch.options(max_losses=1).enqueue("x")  # wrong
    await fetch.options(on_conflict="ignore").enqueue("x")  # wrong
    await fetch.options(delay="1m")("x")  # wrong
    await fetch.delay("x")  # wrong
    handle = await fetch.enqueue("x")
    handle.result()  # wrong
    text: str = await handle.result()  # wrong
    await render("x")  # wrong
    await app.enqueue_many([fetch])  # wrong
    await app.enqueue_many(["x"])  # wrong
    app.enqueue_many([fetch.prepare("x")])  # wrong
    handle.created()  # wrong
    app.handle("id", render).result()  # wrong
    print(text)


def use_sync() -> None:
    fetch.enqueue_sync(5)  # wrong
    number: str = fetch.enqueue_sync("x").result()  # wrong
    print(number)


def in_a_program() -> None:
    app.worker(4)  # wrong
    app.worker(keeper="fork")  # wrong
    app.worker(slots="4")  # wrong


async def in_a_handler() -> None:
    job = current_job()
    job.checkpoint(5)  # wrong
    number: str = job.restore(int, default=0)  # wrong
    job.attempt = 3  # wrong
    job.progress("a")  # wrong
    await current_job_sync().checkpoint(5)  # wrong
    print(number)


class Service:
    @app.task
    def run(self, n: int) -> int:
        return n


Service().run.enqueue_sync(1)  # wrong
