"""The rights that the documentation asks for are enough, and they reach no other key."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stillhere.backends.redis.backend import AsyncRedisStore, SyncRedisStore
from stillhere.backends.redis.connection import Endpoint
from stillhere.domain.errors import ConfigurationError
from stillhere.domain.job import NewRecord, Outcome, OutcomeKind
from stillhere.ports.backend import Cancel, Claim, End, Enqueue, Hint, Register, Settle, Sweep, Tick, Verb
from stillhere.ports.inspector import Audit, Jobs, Status, Workers
from tests.support.servers import FLAVOURS, Flavour, RedisServer

PAGE = Path(__file__).parents[2] / "docs" / "wire" / "README.md"


def documented_rights() -> list[str]:
    found = re.search(r"^ACL SETUSER \S+ on >\S+ (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert found, "the page shows the line to copy"
    return found[1].split()


@pytest.fixture(params=FLAVOURS)
def server(request: pytest.FixtureRequest, make_server: Callable[..., RedisServer]) -> RedisServer:
    flavour: Flavour = request.param
    return make_server(flavour, tcp=True)


def url_with(server: RedisServer, rights: list[str]) -> str:
    client: Any = server.client()
    client.execute_command("ACL", "SETUSER", "app", "on", ">secret", *rights)
    return f"redis://app:secret@127.0.0.1:{server.port}/0"


async def life_of_a_job(url: str) -> None:
    store = AsyncRedisStore(Endpoint(url), "stillhere")
    await store.call(Register(queue="q", worker="w", lease_ms=30_000, tasks=["t"]))
    ear = store.hints("w", ["q"])
    waiting = asyncio.create_task(ear.next(10))
    await asyncio.sleep(0.05)
    ear.want(wake=False)
    await asyncio.sleep(0.05)
    jobs = [NewRecord(id=name, task="t", queue="q", args="{}", unique=name) for name in "ab"]
    await store.call(Enqueue(queue="q", jobs=jobs))
    first, _ = (await store.call(Claim(queue="q", worker="w", n=1, slots=2))).jobs
    await store.call(Cancel(queue="q", job="b"))
    hint = await waiting
    assert isinstance(hint, Hint)
    assert hint.kind == "cancel"
    outcome = Outcome(job=first.id, token=first.token, kind=OutcomeKind.SUCCEEDED)
    assert (await store.call(Settle(queue="q", worker="w", outcomes=[outcome])))[0].status == "ok"
    looks: list[Verb[Any]] = [Tick(queue="q"), Sweep(queue="q"), Status(queue="q"), Workers(queue="q"), Jobs(queue="q")]
    await store.call_many(looks)
    assert (await store.call(End(queue="q", worker="w", reason="left", force=True))).cancelled == ["b"]
    assert await store.call(Audit(queue="q")) == []
    await ear.aclose()
    await store.aclose()


async def test_the_documented_rights_are_enough(server: RedisServer) -> None:
    await life_of_a_job(url_with(server, documented_rights()))


async def test_a_user_who_may_not_end_a_wait_is_served_all_the_same(server: RedisServer) -> None:
    without = [right for right in documented_rights() if right not in ("+client", "+info")]
    await life_of_a_job(url_with(server, without))


def test_other_keys_are_out_of_reach(server: RedisServer) -> None:
    store = SyncRedisStore(Endpoint(url_with(server, documented_rights())), "elsewhere")
    with pytest.raises(ConfigurationError, match=r"^Not allowed by .*: tick \(NOPERM"):
        store.call(Tick(queue="q"))
    store.close()
