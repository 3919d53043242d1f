"""Two stores side by side: the reference in memory and a real server get the same verbs at the same virtual time.

Every reply must be the same, and after every step so must be all that can be read of the queue: each record, the
figures, the workers, the listing; and the audit of both must find nothing. The first difference is the failure.
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import Any, TypeVar

import msgspec

from stillhere.backends.memory.store import forget
from stillhere.backends.redis.backend import SyncRedisStore
from stillhere.backends.redis.connection import Endpoint
from stillhere.backends.redis.scripts import SCRIPTS, Mutate, Scripts
from stillhere.domain.job import JobRecord
from stillhere.domain.states import LIVE, State
from stillhere.ports.backend import Look, SyncStore, Verb
from stillhere.ports.inspector import Audit, Jobs, Queues, Status, Workers
from stillhere.stores import open_sync

R = TypeVar("R")

QUEUE = "q"
START = 1_800_000_000_000


class Pair:
    """One queue in both stores. `now` is the time of both, in ms."""

    def __init__(self, url: str, mutate: Mutate | None = None) -> None:
        """`mutate` breaks the server's scripts, to see that it is noticed."""
        self.now = START
        namespace = f"t{secrets.token_hex(6)}"
        self.model: SyncStore = open_sync("memory://stateful", namespace, clock=lambda: self.now)
        self.real: SyncStore = SyncRedisStore(
            Endpoint(url), namespace, clock=lambda: self.now, scripts=Scripts(mutate) if mutate else SCRIPTS
        )
        self._forget = partial(forget, "memory://stateful", namespace)
        self.sent: list[Verb[Any]] = []
        """What can come again, late."""
        self.said: Verb[Any] | None = None
        """The last verb."""

    def call(self, verb: Verb[R], *, keep: bool = True) -> R:
        """Run it in both; they must answer the same."""
        expected, found = self.model.call(verb), self.real.call(verb)
        assert found == expected, f"\nto        {verb}\nserver    {found}\nreference {expected}"
        self.said = verb
        if keep:
            self.sent.append(verb)
        return found

    def listing(self, verb: Jobs) -> None:
        """Run it in both: the same jobs on all pages, the waiting ones in the same order.

        What has ended is left out: a server drops it from its list by the virtual time, from its records by its own.
        """
        model, real = (_listing(store, verb) for store in (self.model, self.real))
        assert real == model, f"\nafter     {self.said}\nlisted by {verb}\nserver    {real}\nreference {model}"

    def compare(self, jobs: list[str]) -> None:
        """Read all that there is, and hold one against the other."""
        looks = [Look(queue=QUEUE, job=job) for job in jobs]
        whole: list[Verb[Any]] = [Status(queue=QUEUE), Workers(queue=QUEUE), Queues(queue="")]
        reads: list[Verb[Any]] = [*looks, *whole, Audit(queue=QUEUE)]
        expected, found = self.model.call_many(reads), self.real.call_many(reads)
        for verb, right, left in zip(reads, expected, found, strict=True):
            assert left == right, f"\nafter     {self.said}\nread by   {verb}\nserver    {left}\nreference {right}"
        self.listing(Jobs(queue=QUEUE, limit=7))
        assert found[-1] == [], f"after {self.said} the audit finds {found[-1]}"

    def close(self) -> None:
        """End of the story."""
        self.model.close()
        self.real.close()
        self._forget()


def _listing(store: SyncStore, verb: Jobs) -> tuple[list[JobRecord], list[JobRecord]]:
    """All pages: what lives, as it comes, and the dead letters by id."""
    jobs: list[JobRecord] = []
    while True:
        page = store.call(verb)
        jobs += page.jobs
        if page.after is None:
            break
        verb = msgspec.structs.replace(verb, after=page.after)
    dead = sorted((job for job in jobs if job.state is State.DEAD), key=lambda job: job.id)
    return [job for job in jobs if job.state in LIVE], dead
