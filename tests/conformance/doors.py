"""What a test needs of a store besides the port: its URL, and a way in from behind.

A store forgets what has ended by a clock of its own, out of the test's reach, so `age` lets that clock's time pass. And
only somebody who goes round the port can break a record, to see whether the audit finds it: `damage`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from stillhere.backends.memory.model import Job, Queue
from stillhere.backends.memory.store import forget, space_of
from stillhere.domain.states import State
from tests.support.servers import RedisServer


class Door(Protocol):
    """The back door of one store."""

    url: str
    damages: dict[str, Callable[[], object]]
    """By the kind of complaint it must raise: break the queue `q`, in which `ready`, `running`, `scheduled` and `ended`
    are jobs in these states; `running` is held by the worker `w` and has the unique key `u`."""

    def age(self, ms: int) -> None:
        """Let so much of the store's own time pass for what it keeps only for a while."""

    def close(self) -> None:
        """Leave nothing behind."""

    def lose_index(self) -> bool:
        """An administrator destroys what orders the ready jobs, not the jobs. False: there is no such thing."""


class RedisDoor:
    """Redis and Valkey: keys expire by the server's clock."""

    def __init__(self, server: RedisServer, namespace: str) -> None:
        self.server, self.url, self.namespace = server, server.url, namespace
        self.raw: Any = server.client()
        self.damages: dict[str, Callable[[], object]] = {
            "nowhere": lambda: self.raw.hset(self.job("ready"), "_entry", "1-1"),
            "twice": lambda: self.raw.zadd(self.key("soon"), {"ready": 1}),
            "wrong_place": lambda: self.raw.hset(self.job("scheduled"), "state", "ready"),
            "orphan_entry": lambda: self.raw.xadd(self.key("s:5:m"), {"id": "nobody"}),
            "limbo_entry": self._read_and_forget,
            "no_owner": lambda: self.raw.delete(self.key("w:w")),
            "ttl_on_live": lambda: self.raw.pexpire(self.job("ready"), 1_000_000),
            "unique": lambda: self.raw.delete(self.key("u:t:u")),
        }

    def key(self, name: str) -> str:
        return f"{self.namespace}:{{q}}:{name}"

    def job(self, id: str) -> str:
        return self.key(f"j:{id}")

    def age(self, ms: int) -> None:
        for key in self._keys():
            left = self.raw.pttl(key)
            if left >= 0:
                self.raw.pexpire(key, left - ms)  # at or below 0: gone at once

    def close(self) -> None:
        keys = self._keys()  # the audits of later tests scan the whole server
        if keys:
            self.raw.delete(*keys)

    def lose_index(self) -> bool:
        for key in self.raw.scan_iter(f"{self.namespace}:{{q}}:s:*"):
            for group in self.raw.xinfo_groups(key):
                self.raw.xgroup_destroy(key, group["name"])
        return True

    def _keys(self) -> list[str]:
        return list(self.raw.scan_iter(f"{self.namespace}:*", count=1000))

    def _read_and_forget(self) -> None:
        """A foreign tool reads the entry, and its consumer is deleted with it."""
        lane = self.key("s:5:m")
        self.raw.xreadgroup("stillhere", "stranger", {lane: ">"})
        self.raw.xgroup_delconsumer(lane, "stillhere", "stranger")


class MemoryDoor:
    """The store in memory, which has no indexes apart from its jobs: what cannot be broken so is not in `damages`."""

    def __init__(self, namespace: str) -> None:
        self.url, self.namespace = f"memory://{namespace}", namespace
        self.space = space_of(self.url, namespace)
        self.damages: dict[str, Callable[[], object]] = {
            "nowhere": lambda: self.queue.places["5:m"].remove("ready"),
            "twice": lambda: self.queue.places["soon"].add("ready", 1),
            "wrong_place": lambda: setattr(self._job("scheduled"), "state", State.READY),
            "orphan_entry": lambda: self.queue.places["5:m"].add("nobody", 1),
            "no_owner": lambda: self.queue.workers.pop("w"),
            "ttl_on_live": lambda: self.queue.jobs.expire("ready", 1 << 62),
            "unique": lambda: self.queue.unique.pop(("t", "u")),
        }

    @property
    def queue(self) -> Queue:
        return self.space.queue("q")

    def age(self, ms: int) -> None:
        self.space.aged_ms += ms

    def close(self) -> None:
        forget(self.url, self.namespace)

    def lose_index(self) -> bool:
        return False

    def _job(self, id: str) -> Job:
        job = self.queue.jobs.get(id)
        assert job is not None
        return job
