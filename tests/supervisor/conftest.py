"""Fixtures of the supervisor's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.supervisor.kit import Worker


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    """Start a worker whose children play a story; always cleaned up."""
    workers: list[Worker] = []

    def start(story: str, **options: object) -> Worker:
        workers.append(Worker(tmp_path, story, **options))  # type: ignore[arg-type]  # passed on as given
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()
