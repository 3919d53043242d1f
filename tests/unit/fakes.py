"""A store for tests of the face: it answers verbs from a script of replies and remembers what it was asked.

It takes the place of `stillhere.stores`, so that a `Link` opens it like any other. `FakeStore.reply` maps a class of
verbs to a reply, to a list of replies (one per call, the last one stays) or to a function of the verb.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import pytest

from stillhere.domain.job import JobRecord, NewRecord
from stillhere.domain.states import State
from stillhere.ports.backend import Enqueue, Enqueued
from stillhere.ports.inspector import Queues


class FakeStore:
    """Both a sync and an async store are made of this; they share what was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.reply: dict[type, Any] = {Enqueue: stored, Queues: ["slow"]}
        self.opened: list[FakeSync | FakeAsync] = []

    def answer(self, verb: Any) -> Any:
        """Give the reply that was written down for this verb."""
        self.asked.append(verb)
        reply = self.reply[type(verb)]
        if isinstance(reply, list) and reply and reply[0] is MANY:
            reply = reply[1] if len(reply) == 2 else reply.pop(1)
        if isinstance(reply, Exception):
            raise reply
        return reply(verb) if callable(reply) else reply

    def asked_for(self, kind: type) -> list[Any]:
        """Return the verbs of one class that were asked."""
        return [verb for verb in self.asked if type(verb) is kind]


MANY = object()
"""At the head of a list: the rest are replies, one per call."""


class FakeSync:
    def __init__(self, store: FakeStore) -> None:
        self.store = store
        self.closed = False
        store.opened.append(self)

    def call(self, verb: Any, *, timeout: float | None = None) -> Any:
        assert timeout is None
        assert not self.closed
        return self.store.answer(verb)

    def call_many(self, verbs: Sequence[Any], *, timeout: float | None = None) -> list[Any]:
        return [self.call(verb, timeout=timeout) for verb in verbs]

    def close(self) -> None:
        self.closed = True


class FakeAsync:
    def __init__(self, store: FakeStore) -> None:
        self.store = store
        self.closed = False
        store.opened.append(self)

    async def call(self, verb: Any, *, timeout: float | None = None) -> Any:
        assert timeout is None
        assert not self.closed
        return self.store.answer(verb)

    async def call_many(self, verbs: Sequence[Any], *, timeout: float | None = None) -> list[Any]:
        return [await self.call(verb, timeout=timeout) for verb in verbs]

    async def aclose(self) -> None:
        self.closed = True


def stored(verb: Enqueue) -> list[Enqueued]:
    """Say that every job was new."""
    return [Enqueued(id=job.id, created=True, state=State.READY) for job in verb.jobs]


def record(job: NewRecord | str = "some-id", state: State = State.READY, **fields: Any) -> JobRecord:
    """Make the store's record of a job."""
    if isinstance(job, NewRecord):
        known: dict[str, Any] = {"id": job.id, "task": job.task, "queue": job.queue, "retention_ms": job.retention_ms}
    else:
        known = {"id": job, "task": "fetch", "queue": "default"}
    return JobRecord(**known | {"state": state} | fields)


def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeStore]:
    """Put a fake store behind every URL."""
    store = FakeStore()
    module: Any = ModuleType("stillhere.stores")
    module.open_sync = lambda url, namespace, clock=None: FakeSync(store)  # noqa: ARG005
    module.open_async = lambda url, namespace, clock=None: FakeAsync(store)  # noqa: ARG005
    monkeypatch.setitem(sys.modules, "stillhere.stores", module)
    yield store
