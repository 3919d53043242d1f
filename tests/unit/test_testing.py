"""`job_context`: a handler that asks for its job is tested as the plain function it is."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest

from stillhere import App, ArgumentError, JobStopped, NoCurrentJob, WrongDoor, current_job, current_job_sync
from stillhere.testing import Said, job_context, job_context_sync

app = App("redis://localhost")


@dataclass
class Cursor:
    page: int
    day: date


@app.task
async def fetch(pages: int) -> int:
    job = current_job()
    done = job.restore(int, default=0)
    for page in range(done + 1, pages + 1):
        job.check()
        await job.checkpoint(page)
        job.progress(page, pages, "pages")
        done = page
    return done


@app.task
def tidy(folder: str) -> str:
    job = current_job_sync()
    job.log(f"tidy {folder}")
    job.checkpoint(Cursor(1, date(2026, 1, 1)))
    return f"{job.attempt} {job.restore(Cursor)} {dict(job.headers)}"


async def test_a_coroutine_finds_its_job_and_what_it_said_is_there() -> None:
    with job_context() as job:
        assert await fetch(2) == 2
    assert job.said.checkpoints == [1, 2]
    assert job.said.progress == [Said(1, 2, "pages"), Said(2, 2, "pages")]


async def test_it_goes_on_from_the_checkpoint_of_an_earlier_run() -> None:
    with job_context(attempt=3, checkpoint=4) as job:
        assert await fetch(5) == 5
        assert (job.attempt, job.failures, job.token) == (3, 2, 1)
    assert job.said.checkpoints == [5]


async def test_a_job_killed_after_its_last_checkpoint_returns_what_it_had() -> None:
    with job_context(checkpoint=5) as job:
        assert await fetch(5) == 5
    assert job.said.checkpoints == []


async def test_a_run_that_should_end_hears_of_it() -> None:
    with job_context(stopping="shutdown") as job, pytest.raises(JobStopped) as caught:
        await fetch(5)
    assert (caught.value.reason, job.stopping, job.said.checkpoints) == ("shutdown", "shutdown", [])
    with job_context() as job:
        job.stop("cancelled")
        with pytest.raises(JobStopped):
            await fetch(1)


def test_a_function_has_a_door_of_its_own() -> None:
    with job_context_sync(attempt=2, headers={"a": "b"}) as job:
        assert tidy("x") == "2 Cursor(page=1, day=datetime.date(2026, 1, 1)) {'a': 'b'}"
    assert job.said.lines == ["tidy x"]
    with job_context_sync(stopping="cancelled"), pytest.raises(JobStopped):
        tidy("x")


def test_a_checkpoint_that_could_not_be_stored_is_refused_in_the_test() -> None:
    with job_context_sync() as job:
        with pytest.raises(ArgumentError, match="would come back as list, not set"):
            job.checkpoint({"seen": {1, 2}})
        with pytest.raises(ArgumentError, match="which cannot be stored"):
            job.checkpoint(Path("a"))
    with job_context_sync(codecs={Path: (str, Path)}) as job:
        job.checkpoint(Path("a"))
        assert job.restore(Path) == Path("a")


def test_the_wrong_door_is_named() -> None:
    with job_context(), pytest.raises(WrongDoor, match="is an async def task: call current_job"):
        current_job_sync()
    with job_context_sync(), pytest.raises(WrongDoor, match="is a def task: call current_job_sync"):
        current_job()


def test_nothing_is_left_behind() -> None:
    with job_context(), job_context():
        pass
    assert current_job(default=None) is None
    with pytest.raises(NoCurrentJob):
        current_job()


async def test_jobs_of_two_tasks_of_a_loop_do_not_mix() -> None:
    async def one(start: int) -> int:
        with job_context(checkpoint=start):
            await asyncio.sleep(0)
            return await fetch(3)

    assert list(await asyncio.gather(one(0), one(2), one(3))) == [3, 3, 3]
