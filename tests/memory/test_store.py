"""The memory store's faces: who shares what, threads at once, and hints that cross from a thread to a loop."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Iterator

import pytest

from stillhere.backends.memory.store import forget
from stillhere.domain.errors import StoreUnavailable
from stillhere.domain.job import NewRecord
from stillhere.ports.backend import Cancel, Claim, Enqueue, Hint, Look, Register, SyncStore, Tick
from stillhere.ports.inspector import Audit, Queues, Status
from stillhere.stores import open_async, open_sync

URL = "memory://here"


@pytest.fixture
def space() -> Iterator[str]:
    name = secrets.token_hex(6)
    yield name
    forget(URL, name)


def new(name: str) -> NewRecord:
    return NewRecord(id=name, task="t", queue="q", args="{}", headers={"k": "v"})


def enqueue(store: SyncStore, *names: str) -> None:
    store.call(Enqueue(queue="q", jobs=[new(name) for name in names]))


# -------------------------------------------------------------------------------------------------- who shares what


def test_all_who_open_the_same_url_and_namespace_share_a_store(space: str) -> None:
    enqueue(open_sync(URL, space), "a")
    assert open_sync(URL, space).call(Look(queue="q", job="a")) is not None
    assert open_sync("memory://there", space).call(Look(queue="q", job="a")) is None
    assert open_sync(URL, space + "x").call(Look(queue="q", job="a")) is None
    forget("memory://there", space)
    forget(URL, space + "x")


def test_what_is_stored_outlives_its_stores_until_it_is_forgotten(space: str) -> None:
    store = open_sync(URL, space)
    enqueue(store, "a")
    store.close()
    again = open_sync(URL, space)
    assert again.call(Status(queue="q")).ready == 1
    forget(URL, space)
    assert open_sync(URL, space).call(Status(queue="q")).ready == 0


async def test_a_closed_store_says_so_and_that_nothing_was_sent(space: str) -> None:
    store, other = open_sync(URL, space), open_async(URL, space)
    store.close()
    await other.aclose()
    with pytest.raises(StoreUnavailable, match="was closed") as told:
        store.call(Tick(queue="q"))
    assert not told.value.sent
    with pytest.raises(StoreUnavailable, match="was closed"):
        await other.call_many([Tick(queue="q")])


def test_without_a_clock_of_its_own_time_is_the_real_one(space: str) -> None:
    store = open_sync(URL, space)
    before = time.time_ns() // 1_000_000
    enqueue(store, "a")
    record = store.call(Look(queue="q", job="a"))
    assert record is not None
    assert before <= record.created <= time.time_ns() // 1_000_000


def test_what_is_handed_out_is_a_copy(space: str) -> None:
    store = open_sync(URL, space)
    enqueue(store, "a")
    store.call(Register(queue="q", worker="w", lease_ms=30_000, tasks=("t",)))
    (grant,) = store.call(Claim(queue="q", worker="w", n=1, slots=1)).jobs
    grant.headers["k"] = "changed"
    record = store.call(Look(queue="q", job="a"))
    assert record is not None
    record.runs.append("changed")
    record.headers["k"] = "changed"
    kept = store.call(Look(queue="q", job="a"))
    assert kept is not None
    assert (kept.headers, kept.runs) == ({"k": "v"}, [])


def test_a_look_at_a_queue_does_not_put_it_on_the_list(space: str) -> None:
    store = open_sync(URL, space)
    store.call(Status(queue="seen"))
    store.call(Tick(queue="ticked"))
    assert store.call(Queues(queue="")) == []
    enqueue(store)
    assert store.call(Queues(queue="")) == ["q"]


# -------------------------------------------------------------------------------------------------- threads at once


def test_g2_threads_that_claim_at_once_get_each_job_once(space: str) -> None:
    store = open_sync(URL, space)
    names = [f"j{number:03}" for number in range(400)]
    for first in range(0, 400, 100):
        enqueue(store, *names[first : first + 100])
    taken: list[list[str]] = [[] for _ in range(8)]
    start = threading.Barrier(8)

    def work(number: int) -> None:
        own = open_sync(URL, space)
        own.call(Register(queue="q", worker=f"w{number}", lease_ms=30_000, tasks=("t",)))
        start.wait()
        n = 0
        while True:
            n += 1
            jobs = own.call(Claim(queue="q", worker=f"w{number}", n=n, slots=3)).jobs
            if not jobs:
                return
            taken[number] += [grant.id for grant in jobs]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(name for some in taken for name in some) == names
    assert store.call(Audit(queue="q")) == []


# ------------------------------------------------------------------------------------------------------------ hints


async def test_g10_a_verb_in_a_thread_is_heard_on_the_loop(space: str) -> None:
    store, ear = open_sync(URL, space), open_async(URL, space).hints("w", ["q"])
    waiting = asyncio.create_task(ear.next(10))
    await asyncio.sleep(0)
    await asyncio.to_thread(enqueue, store, "a")
    assert await waiting == Hint(kind="wake", queue="q")
    store.call(Register(queue="q", worker="w", lease_ms=30_000, tasks=("t",)))
    (grant,) = store.call(Claim(queue="q", worker="w", n=1, slots=1)).jobs
    waiting = asyncio.create_task(ear.next(10))
    await asyncio.sleep(0)
    await asyncio.to_thread(store.call, Cancel(queue="q", job="a"))
    assert await waiting == Hint(kind="cancel", queue="q", job="a", token=grant.token)
    await ear.aclose()


async def test_g10_one_hint_wakes_one_of_many(space: str) -> None:
    other = open_async(URL, space)
    ears = [other.hints(f"w{number}", ["q"]) for number in range(5)]
    waiting = [asyncio.create_task(ear.next(0.2)) for ear in ears]
    await asyncio.sleep(0)
    enqueue(open_sync(URL, space), "a", "b")
    heard = await asyncio.gather(*waiting)
    assert sum(hint is not None for hint in heard) == 2
    for ear in ears:
        await ear.aclose()


async def test_g10_a_wait_that_is_cancelled_eats_no_hint(space: str) -> None:
    ear = open_async(URL, space).hints("w", ["q"])
    waiting = asyncio.create_task(ear.next(10))
    await asyncio.sleep(0)
    enqueue(open_sync(URL, space), "a")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await ear.next(0) == Hint(kind="wake", queue="q")
    await ear.aclose()


def test_an_ear_whose_loop_is_gone_stops_nobody(space: str) -> None:
    async def listen() -> None:
        ear = open_async(URL, space).hints("w", ["q"])
        assert await ear.next(0) is None

    asyncio.run(listen())
    store = open_sync(URL, space)
    enqueue(store, "a")
    assert store.call(Status(queue="q")).ready == 1


async def test_a_loop_of_calls_lets_others_run(space: str) -> None:
    """As over a wire: a worker that polls without pause must not starve the loop it runs on."""
    store = open_async(URL, space)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(count())
    for _ in range(50):
        await store.call(Tick(queue="q"))
    beside.cancel()
    assert turns >= 25
