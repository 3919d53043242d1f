"""Fixtures of the Redis store's tests: a queue with a clock of its own on each server flavour."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.redis.kit import MakeQueue, Queue, queues
from tests.support.servers import RedisServer


@pytest.fixture
def make_queue(redis_server: RedisServer, namespace: str) -> Iterator[MakeQueue]:
    """Make queues on this server in one namespace."""
    yield from queues(redis_server, namespace)


@pytest.fixture
def q(make_queue: MakeQueue) -> Queue:
    """A queue that must be sound when the test ends."""
    return make_queue()
