"""A world in virtual time around a real store: a network that loses, delays and repeats, clocks that step, an audit.

Nothing sleeps and nothing runs at once: a heap of events, a seed, and the real scripts. A request is executed by the
store at some moment between being sent and much later, once or twice, or never; its reply arrives, or does not. So one
seed is one interleaving, and a violation can be played again.

What is checked is in `Judge`: at each grant, each settle, and now and then over the whole store.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any

from stillhere.domain.job import OutcomeKind
from stillhere.domain.states import FINAL
from stillhere.ports.backend import Claim, Claimed, Enqueue, Look, Settle, SettledOne, SyncStore, Verb
from stillhere.ports.inspector import Audit

QUEUE = "default"
LEASE_MS = 30_000
Reply = Callable[[Any], None]


class Violation(AssertionError):
    """A promise was broken."""


class Weather:
    """How often what goes wrong."""

    def __init__(self, *, calm: bool = False) -> None:
        self.lost_request = 0.0 if calm else 0.03
        self.lost_reply = 0.0 if calm else 0.03
        self.late = 0.0 if calm else 0.02
        self.twice = 0.0 if calm else 0.02
        self.latest_ms = 70_000


class Judge:
    """Keeps the truth about who runs what, and holds the store's answers against it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._tokens: dict[str, int] = {}
        self._claims: dict[tuple[str, int], dict[str, int]] = {}
        self._settled: dict[tuple[str, int], OutcomeKind] = {}
        self._ended: set[str] = set()
        self.enqueued: set[str] = set()
        self.running: dict[tuple[str, int], Callable[[], bool]] = {}
        """(job, token) of each handler that runs, and whether its holder lives and knows no doubt."""
        self.grants = self.calls = 0

    def see(self, verb: Verb[Any], reply: Any) -> None:
        """Judge one executed call."""
        self.calls += 1
        if isinstance(verb, Enqueue):
            self.enqueued.update(new.id for new in verb.jobs)
        elif isinstance(verb, Claim) and isinstance(reply, Claimed):
            self._grants(verb, reply)
        elif isinstance(verb, Settle):
            for outcome, one in zip(verb.outcomes, reply, strict=True):
                self._settle(outcome.job, outcome.token, outcome.kind, one)

    def _grants(self, claim: Claim, reply: Claimed) -> None:
        before = self._claims.setdefault((claim.worker, claim.n), {})
        for grant in reply.jobs:
            if before.get(grant.id) == grant.token:
                continue
            self.grants += 1
            last = self._tokens.get(grant.id, 0)
            if grant.token <= last:
                raise Violation(f"{grant.id}: token {grant.token} after {last}")
            for (job, token), alive in self.running.items():
                if job == grant.id and alive():
                    raise Violation(f"{job}: taken from a live holder under {token}, given to {claim.worker}")
            self._tokens[grant.id] = before[grant.id] = grant.token

    def _settle(self, job: str, token: int, kind: OutcomeKind, reply: SettledOne) -> None:
        if reply.status != "ok":
            return
        if (job, token) in self._settled or job in self._ended:
            raise Violation(f"{job}: settled twice ({kind} under {token})")
        if token != self._tokens.get(job):
            raise Violation(f"{job}: settled under the token {token} of an earlier run")
        self._settled[job, token] = kind
        if reply.state in FINAL:
            self._ended.add(job)

    def audit(self) -> None:
        """Every job is in exactly one place."""
        complaints = self._world.store.call(Audit(queue=QUEUE))
        if complaints:
            raise Violation(f"audit: {complaints[:3]}")


class World:
    """Time, network and store of one episode."""

    def __init__(self, seed: int, open_store: Callable[[Callable[[], int]], SyncStore], audit_share: float) -> None:
        self.dice = random.Random(seed)
        self.now = 1_800_000_000_000
        self.step_ms = 0
        self.weather = Weather()
        self.steps_ms: tuple[int, ...] = (-3_600_000, -60_000, -2_000, 2_000, 60_000, 3_600_000)
        self.away_until = 0
        self.store = open_store(lambda: self.now + self.step_ms)
        self.judge = Judge(self)
        self._audit_share = audit_share
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Do something at this time, or now if that has passed."""
        heapq.heappush(self._events, (max(self.now, round(when)), next(self._count), do))

    def after(self, ms: float, do: Callable[[], None]) -> None:
        """Do something later."""
        self.at(self.now + ms, do)

    def run(self, until: int, done: Callable[[], bool] = lambda: False) -> None:
        """Let time pass."""
        while self._events and not done():
            when, _, do = heapq.heappop(self._events)
            if when > until:
                self.at(when, do)
                break
            self.now = when
            do()

    # ----------------------------------------------------------------------------------------------- the network

    def send(self, verb: Verb[Any], reply: Reply, *, cut: Callable[[], bool] = lambda: False) -> None:
        """Send a request; `reply` is called when, and if, an answer arrives. `cut`: the sender is partitioned off."""
        dice, weather = self.dice, self.weather
        if cut() or dice.random() < weather.lost_request:
            return
        delay = dice.uniform(0, weather.latest_ms) if dice.random() < weather.late else dice.uniform(0, 20)
        self.after(delay, lambda: self._execute(verb, reply, cut))
        if dice.random() < weather.twice:
            self.after(dice.uniform(0, weather.latest_ms), lambda: self._execute(verb, lambda _: None, cut))

    def _execute(self, verb: Verb[Any], reply: Reply, cut: Callable[[], bool]) -> None:
        if self.now < self.away_until:
            return
        answer = self.store.call(verb)
        self.judge.see(verb, answer)
        if self.dice.random() < self._audit_share:
            self.judge.audit()
        if not cut() and self.dice.random() >= self.weather.lost_reply:
            self.after(self.dice.uniform(0, 20), lambda: reply(answer))

    # --------------------------------------------------------------------------------------------------- faults

    def trouble(self, until: int) -> None:
        """From time to time: the store is away, or its clock steps."""
        if self.now >= until:
            return
        roll = self.dice.random()
        if roll < 0.4:
            self.away_until = self.now + round(self.dice.choice([3_000, 20_000, 60_000, 200_000]))
        elif roll < 0.8:
            self.step_ms += self.dice.choice(self.steps_ms)
        self.after(self.dice.uniform(20_000, 120_000), lambda: self.trouble(until))

    def state_of(self, job: str) -> Any:
        """The record of a job."""
        return self.store.call(Look(queue=QUEUE, job=job))
