"""The suite's stores, and the world that each test gets: one test on each store, audited when it is over.

A store more is one line in `STORES`. What tests need of a store besides the port stands in `doors`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from stillhere.backends.redis.scripts import SCRIPTS
from stillhere.ports.backend import Hints
from tests.conformance import broken
from tests.conformance.doors import Door, MemoryDoor, RedisDoor
from tests.conformance.kit import Listen, World

Open = Callable[[pytest.FixtureRequest, str], Door]
STORES: dict[str, Open] = {
    "memory": lambda _, namespace: MemoryDoor(namespace),
    "valkey": lambda request, namespace: RedisDoor(request.getfixturevalue("valkey_server"), namespace),
    "redis62": lambda request, namespace: RedisDoor(request.getfixturevalue("redis62_server"), namespace),
}


@pytest.fixture(params=STORES)
def door(request: pytest.FixtureRequest, namespace: str) -> Iterator[Door]:
    """Each store in turn."""
    opened = STORES[request.param](request, namespace)
    yield opened
    opened.close()


@pytest.fixture
def world(door: Door, namespace: str) -> Iterator[World]:
    """An empty queue at the start of time; what is wrong with it at the end of the test fails the test."""
    opened = World(door, namespace)
    yield opened
    opened.close()


@pytest.fixture
async def listen(world: World) -> AsyncIterator[Listen]:
    """Open ears; they close with the test."""
    store = world.open_async()
    opened: list[Hints] = []

    def open_one(worker: str) -> Hints:
        opened.append(store.hints(worker, [world.queue]))
        return opened[-1]

    yield open_one
    for ear in opened:
        await ear.aclose()
    await store.aclose()


def pytest_configure() -> None:
    """Break the scripts when asked to: ``STILLHERE_BREAK=no-claim-numbers pytest tests/conformance`` must go red."""
    if name := os.environ.get("STILLHERE_BREAK"):
        SCRIPTS._mutate = broken.mutation(name)
