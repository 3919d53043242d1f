"""The crew: no part of the worker fails in silence."""

from __future__ import annotations

import asyncio

import pytest

from stillhere.worker.child.crew import Crew
from tests.worker.kit import soon


async def breaks() -> None:
    """Fail as a mistake of ours would."""
    raise ZeroDivisionError


async def lasts() -> None:
    """Never end by itself."""
    await asyncio.get_running_loop().create_future()


async def test_a_failure_reaches_whoever_waits() -> None:
    crew = Crew()
    crew.spawn(breaks())
    with pytest.raises(ZeroDivisionError):
        await crew.first(timeout=5)
    with pytest.raises(ZeroDivisionError):
        await crew.first(timeout=5)


async def test_the_first_failure_stays() -> None:
    crew = Crew()
    crew.fail(ZeroDivisionError())
    crew.fail(KeyError())
    with pytest.raises(ZeroDivisionError):
        await crew.first()


async def test_first_waits_for_what_it_is_given() -> None:
    crew = Crew()
    told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(crew.first(told))
    await asyncio.sleep(0)
    assert not waiting.done()
    told.set_result(None)
    await waiting
    await crew.first(timeout=0.001)


async def test_disbanding_ends_all() -> None:
    crew = Crew()
    tasks = [crew.spawn(lasts()) for _ in range(3)]
    await asyncio.sleep(0)
    await crew.disband()
    assert all(task.cancelled() for task in tasks)
    await crew.disband()


async def test_one_that_disbands_is_not_waiting_for_itself() -> None:
    crew = Crew()
    task = crew.spawn(crew.disband())
    await soon(task.done)
    assert task.exception() is None
