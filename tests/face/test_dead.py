"""Dead letters from a program: found, read, tried again, removed."""

from __future__ import annotations

import secrets

import pytest

from stillhere import App, JobNotFound
from stillhere.domain.job import Outcome, OutcomeKind
from stillhere.ports.backend import Claim, Register, Settle
from tests.support.servers import RedisServer


def app_with_dead(url: str, count: int) -> App[None]:
    """An app whose task `fails` has died so often."""
    app = App(url, namespace=f"t{secrets.token_hex(4)}")

    @app.task
    def fails(n: int) -> None:
        """Never called: the test plays the worker."""

    @app.task
    def waits() -> None:
        """Stays where it is."""

    app.enqueue_many_sync(fails.prepare(n) for n in range(count))
    store = app.link.sync_store()
    store.call(Register(queue="default", worker="w", lease_ms=30_000, tasks=["fails"]))
    jobs = store.call(Claim(queue="default", worker="w", n=1, slots=1000)).jobs
    outcomes = [Outcome(job=job.id, token=job.token, kind=OutcomeKind.DEAD, reason="failed") for job in jobs]
    for start in range(0, count, 100):
        store.call(Settle(queue="default", worker="w", outcomes=outcomes[start : start + 100]))
    waits.enqueue_sync()
    return app


@pytest.fixture(params=["memory", "valkey"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return f"memory://{secrets.token_hex(4)}"
    server = request.getfixturevalue("valkey_server")
    assert isinstance(server, RedisServer)
    return server.url


def test_they_are_found_over_pages_and_only_they(url: str) -> None:
    app = app_with_dead(url, 130)
    assert len(app.dead_sync(limit=1000)) == 130
    assert len(app.dead_sync(limit=7)) == 7
    assert app.dead_sync(task="waits") == []
    assert app.dead_sync(queue="other") == []
    assert {handle.info().state for handle in app.dead_sync(task="fails", limit=3)} == {"dead"}
    app.close()


def test_retry_and_purge(url: str) -> None:
    app = app_with_dead(url, 2)
    first, second = app.dead_sync()
    assert first.retry()
    assert first.info().state == "ready"
    assert not first.purge(), "it is no dead letter any more"
    assert second.purge()
    assert app.dead_sync() == []
    with pytest.raises(JobNotFound):
        second.info()
    app.close()


async def test_the_same_from_a_loop(valkey_server: RedisServer) -> None:
    app = App(valkey_server.url, namespace=f"t{secrets.token_hex(4)}")
    async with app:
        assert await app.dead() == []
