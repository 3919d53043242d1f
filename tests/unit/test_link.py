"""An app's way to its store: one client per loop and per process, found late, closed when asked."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator

import pytest

from stillhere import App, ConfigurationError
from stillhere.link import find_address, find_namespace
from tests.unit.fakes import FakeAsync, FakeStore, FakeSync, install


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeStore]:
    yield from install(monkeypatch)


@pytest.fixture
def app() -> App[None]:
    app = App("redis://localhost")

    @app.task(name="ping")
    def ping() -> None: ...

    return app


async def send(app: App[None]) -> None:
    await app.sender("ping").enqueue()


def send_sync(app: App[None]) -> None:
    app.sender("ping").enqueue_sync()


def test_two_loops_in_a_row_have_a_client_each(store: FakeStore, app: App[None]) -> None:
    for _ in range(2):
        asyncio.run(send(app))
    assert [type(one) for one in store.opened] == [FakeAsync, FakeAsync]


def test_one_loop_has_one_client(store: FakeStore, app: App[None]) -> None:
    async def twice() -> None:
        await send(app)
        await asyncio.gather(send(app), send(app))

    asyncio.run(twice())
    assert len(store.opened) == 1


def test_a_loop_s_client_is_closed_in_its_last_moments(store: FakeStore, app: App[None]) -> None:
    for _ in range(3):
        asyncio.run(send(app))
    assert [one.closed for one in store.opened] == [True] * 3
    assert app.link._async == {os.getpid(): {}}


def test_a_loop_that_was_closed_in_the_old_way_is_forgotten(store: FakeStore, app: App[None]) -> None:
    for _ in range(3):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(send(app))
        loop.close()
    assert len(store.opened) == 3
    assert len(app.link._async[os.getpid()]) == 1


def test_threads_with_loops_have_a_client_each_and_blocking_threads_share_one(store: FakeStore, app: App[None]) -> None:
    for target in (lambda: asyncio.run(send(app)), lambda: send_sync(app)):
        threads = [threading.Thread(target=target) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    kinds = [type(one) for one in store.opened]
    assert (kinds.count(FakeAsync), kinds.count(FakeSync)) == (3, 1)


def test_a_child_of_a_fork_opens_its_own_and_leaves_the_parent_s_alone(store: FakeStore, app: App[None]) -> None:
    send_sync(app)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:  # the child: no pytest here, whatever happens
        try:
            send_sync(app)
            own = app.link.sync_store()
            app.close()
            verdict = len(store.opened) == 2 and own is store.opened[1] and not store.opened[0].closed
            os.write(write, b"yes" if verdict else b"no")
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        assert answer.read() == b"yes"
    assert [one.closed for one in store.opened] == [False]


def test_closing_closes_this_process_s_client_and_the_next_use_opens_a_new_one(
    store: FakeStore, app: App[None]
) -> None:
    send_sync(app)
    app.close()
    app.close()
    send_sync(app)
    assert [one.closed for one in store.opened] == [True, False]


def test_the_context_manager_closes_the_loop_s_client_and_the_blocking_one(store: FakeStore, app: App[None]) -> None:
    send_sync(app)

    async def use() -> None:
        async with app as same:
            assert same is app
            await send(app)

    asyncio.run(use())
    assert [one.closed for one in store.opened] == [True, True]


def test_making_an_app_opens_nothing_and_reads_the_environment_late(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App()
    monkeypatch.setenv("STILLHERE_URL", "redis://later:6379/3")
    monkeypatch.setenv("STILLHERE_NAMESPACE", "mine")
    assert (app.url, app.namespace) == ("redis://later:6379/3", "mine")
    assert (App("unix:///s", namespace="given").url, App(namespace="given").namespace) == ("unix:///s", "given")


def test_the_argument_wins_over_the_environment_and_nothing_means_embedded() -> None:
    environ = {"STILLHERE_URL": " redis://env "}
    assert App("redis://given").link.address == ("redis://given", "App(url=...)")
    assert find_address(environ) == ("redis://env", "STILLHERE_URL")
    assert find_address({"STILLHERE_URL": " "}).url == "embedded://"
    assert find_namespace(None, {}) == "stillhere"


def test_a_worker_s_command_line_wins_over_the_app() -> None:
    app = App("redis://given", namespace="given")
    app.link.redirect("redis://other", "other")
    assert (app.link.address, app.namespace) == (("redis://other", "--url"), "other")
    app.link.redirect(None, None)
    assert (app.url, app.namespace) == ("redis://other", "other")


@pytest.mark.parametrize("name", ["", "a b", "a{b}", "x" * 101])
def test_a_namespace_becomes_part_of_keys(name: str) -> None:
    with pytest.raises(ConfigurationError, match="text without spaces and braces"):
        find_namespace(name, {})
