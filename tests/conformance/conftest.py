"""The suite's stores, and the world that each test gets: one test on each store, audited when it is over.

A store more is one line in `STORES`. What tests need of a store besides the port stands in `doors`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from stillhere.backends.redis.scripts import SCRIPTS
from tests.conformance import broken
from tests.conformance.doors import Door, RedisDoor
from tests.conformance.kit import World

Open = Callable[[pytest.FixtureRequest, str], Door]
STORES: dict[str, Open] = {
    "valkey": lambda request, namespace: RedisDoor(request.getfixturevalue("valkey_server"), namespace),
    "redis62": lambda request, namespace: RedisDoor(request.getfixturevalue("redis62_server"), namespace),
}


@pytest.fixture(params=STORES)
def door(request: pytest.FixtureRequest, namespace: str) -> Door:
    """Each store in turn."""
    return STORES[request.param](request, namespace)


@pytest.fixture
def world(door: Door, namespace: str) -> Iterator[World]:
    """An empty queue at the start of time; what is wrong with it at the end of the test fails the test."""
    opened = World(door, namespace)
    yield opened
    opened.close()


def pytest_configure() -> None:
    """Break the scripts when asked to: ``STILLHERE_BREAK=no-claim-numbers pytest tests/conformance`` must go red."""
    if name := os.environ.get("STILLHERE_BREAK"):
        SCRIPTS._mutate = broken.mutation(name)
