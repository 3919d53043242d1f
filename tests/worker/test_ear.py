"""The ear: hints reach their place, a broken connection is replaced, a new worker id gets a new ear."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from stillhere.ports.backend import Hint
from stillhere.worker.child.ear import Ear
from tests.worker.kit import AWAY, AsyncFace, Desk, FakeStore, soon


class Bench:
    def __init__(self) -> None:
        self.face, self.desk = AsyncFace(FakeStore()), Desk("q", "r", lease_ms=500)
        self.heard: list[Hint] = []
        self.ear = Ear(self.face, self.desk.identity, ["q", "r"], self.heard.append)
        self.task = asyncio.create_task(self.ear.run())


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    await soon(lambda: made.face.ears)
    yield made
    made.task.cancel()
    await asyncio.wait([made.task])
    assert all(hints.closed for hints in made.face.ears)


async def test_hints_are_passed_on(bench: Bench) -> None:
    (hints,) = bench.face.ears
    assert (hints.worker, hints.queues) == (bench.desk.identity.worker, ["q", "r"])
    hint = Hint(kind="wake", queue="r")
    hints.feed.put_nowait(None)
    hints.feed.put_nowait(hint)
    await soon(lambda: bench.heard == [hint])


async def test_g10_a_broken_ear_is_replaced_and_wants_the_same(bench: Bench) -> None:
    bench.ear.want(False)
    bench.face.ears[0].feed.put_nowait(AWAY)
    await soon(lambda: len(bench.face.ears) == 2)
    assert bench.face.ears[0].closed
    assert bench.face.ears[1].wants == [False]
    bench.face.ears[1].feed.put_nowait(Hint(kind="cancel", queue="q", job="a", token=1))
    await soon(lambda: len(bench.heard) == 1)


async def test_a_new_worker_id_gets_an_ear_of_its_own(bench: Bench) -> None:
    new = bench.desk.identity.renew_id()
    bench.face.ears[0].feed.put_nowait(Hint(kind="cancel", queue="q", job="a", token=1))
    await soon(lambda: len(bench.face.ears) == 2)
    assert bench.heard == [], "a hint for the old id is not for the new one"
    assert bench.face.ears[1].worker == new
