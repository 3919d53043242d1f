"""The embedded server behind `open_sync` and `open_async`: found, shared, brought back, let go."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from stillhere.domain.errors import StoreUnavailable
from stillhere.domain.job import NewRecord
from stillhere.ports.backend import Enqueue, Look
from stillhere.stores import open_async, open_sync
from tests.embedded.conftest import Project
from tests.support.procs import alive, eventually


def enqueue(job: str) -> Enqueue:
    return Enqueue(queue="q", jobs=[NewRecord(id=job, task="t", queue="q", args="{}")])


def test_two_stores_of_one_project_share_it_and_the_last_one_lets_it_go(project: Project) -> None:
    url = f"embedded://{project.directory}"
    one, other = open_sync(url, "n"), open_sync(url, "n")
    one.call(enqueue("a"))
    one.close()
    assert other.call(Look(queue="q", job="a")) is not None
    assert project.processes()
    other.close()
    project.gone()


async def test_from_asyncio(project: Project) -> None:
    store = open_async(f"embedded://{project.directory}", "n")
    added = await asyncio.gather(store.call(enqueue("a")), store.call(enqueue("b")))
    assert [job.created for jobs in added for job in jobs] == [True, True]
    await store.aclose()


def test_a_killed_server_is_there_again_at_the_next_call_and_so_is_the_data(project: Project) -> None:
    store = open_sync(f"embedded://{project.directory}", "n")
    store.call(enqueue("a"))
    guard, server = project.guard, project.server
    os.kill(guard, signal.SIGKILL)
    eventually(lambda: not alive(guard) and not alive(server), 5)
    assert store.call(enqueue("a"))[0].conflict == "id"
    store.close()


def test_errors_name_the_directory_and_not_the_socket(project: Project) -> None:
    store = open_sync(f"embedded://{project.directory}", "n")
    store.call(enqueue("a"))
    os.kill(project.server, signal.SIGSTOP)
    with pytest.raises(StoreUnavailable) as caught:
        store.call(enqueue("b"), timeout=0.2)
    assert str(caught.value) == f"No answer from the embedded store in {project.store} within 0.2 s."
    os.kill(project.server, signal.SIGCONT)
    store.close()
