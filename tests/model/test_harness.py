"""Randomised episodes of the real protocol in virtual time; and five ways to break it, each of which is noticed.

An episode: four workers with supervisors, sixty jobs, twenty minutes of trouble, then calm until all jobs have ended.
The seeds are fixed: what is green today is green tomorrow. `HARNESS_SEEDS=200` looks further.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from stillhere.backends.redis.backend import SyncRedisStore
from stillhere.backends.redis.connection import Endpoint
from stillhere.backends.redis.scripts import Scripts
from stillhere.domain.job import DeclaredLane, NewRecord
from stillhere.domain.states import FINAL
from stillhere.ports.backend import Cancel, Enqueue, SyncStore
from stillhere.stores import open_sync
from tests.model.node import Node
from tests.model.world import QUEUE, Violation, Weather, World
from tests.support.servers import RedisServer

SEEDS = int(os.environ.get("HARNESS_SEEDS", "4"))
FAULT_SEEDS = 12
STEPS_MS = (-3_600_000, -60_000, -2_000, 2_000, 60_000, 3_600_000)
NODES, JOBS = 4, 60
TROUBLE_MS, CALM_MS = 1_200_000, 3_600_000
OpenStore = Callable[[Callable[[], int]], SyncStore]


def episode(seed: int, open_store: OpenStore, *, late: float = 0.02, steps_ms: tuple[int, ...] = STEPS_MS) -> World:
    """Run one; raises `Violation`. `late`: the share of requests that come much later, and of those that come twice."""
    world = World(seed, open_store, audit_share=0.02)
    world.weather.late = world.weather.twice = late
    world.steps_ms = steps_ms
    start = world.now
    names = [f"job-{number}" for number in range(JOBS)]
    _produce(world, names)
    nodes = [Node(world, f"w{number}", start + TROUBLE_MS) for number in range(NODES)]
    for node in nodes:
        world.after(world.dice.uniform(5_000, 40_000), node.trouble)
    world.after(20_000, lambda: world.trouble(start + TROUBLE_MS))
    world.run(start + TROUBLE_MS)
    world.weather = Weather(calm=True)
    world.away_until = 0
    for node in nodes:
        node.frozen_until = node.stopped_until = 0
        node.cut_until = 0
        node.trouble_free = node.supervised = True
    left = set(names)
    world.run(world.now + CALM_MS, lambda: _all_ended(world, left))
    if left:
        raise Violation(f"never ended: {[world.state_of(name) for name in sorted(left)][:2]}")
    world.judge.audit()
    world.store.close()
    return world


def _produce(world: World, names: list[str]) -> None:
    for name in names:
        delay = world.dice.choice([None, None, 5_000])
        lane: DeclaredLane | None = "long" if world.dice.random() < 0.2 else None
        record = NewRecord(id=name, task="t", queue=QUEUE, args="{}", delay_ms=delay, max_losses=1_000, lane=lane)
        world.after(world.dice.uniform(0, TROUBLE_MS * 0.7), partial(_enqueue, world, record))
        if world.dice.random() < 0.1:
            world.after(
                world.dice.uniform(0, TROUBLE_MS),
                lambda name=name: world.send(Cancel(queue=QUEUE, job=name), lambda _: None),  # type: ignore[misc]
            )


def _enqueue(world: World, record: NewRecord) -> None:
    """Until it is there: a producer repeats what was not answered, which makes no second job."""
    if record.id not in world.judge.enqueued:
        world.send(Enqueue(queue=QUEUE, jobs=[record]), lambda _: None)
        world.after(5_000, partial(_enqueue, world, record))


def _all_ended(world: World, left: set[str]) -> bool:
    if world.dice.random() < 0.01:
        for name in list(left):
            record = world.state_of(name)
            if name in world.judge.enqueued and (record is None or record.state in FINAL):
                left.discard(name)  # ended, or ended so long ago that it is forgotten
    return not left


def on(server: RedisServer, namespace: str, scripts: Scripts | None = None) -> OpenStore:
    """Open stores on a real server, with other scripts if need be."""
    options: dict[str, Any] = {} if scripts is None else {"scripts": scripts}
    return lambda clock: SyncRedisStore(Endpoint(server.url), namespace, clock=clock, **options)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_g2_g5_g7_g11_g12_nothing_breaks_on_valkey(valkey_server: RedisServer, namespace: str, seed: int) -> None:
    world = episode(seed, on(valkey_server, namespace))
    assert world.judge.grants > JOBS


@pytest.mark.parametrize("seed", range(100, 100 + max(1, SEEDS // 2)))
def test_g2_g5_g7_g11_g12_nothing_breaks_on_redis62(redis62_server: RedisServer, namespace: str, seed: int) -> None:
    assert episode(seed, on(redis62_server, namespace)).judge.grants > JOBS


@pytest.mark.parametrize("seed", range(200, 200 + SEEDS))
def test_g2_g5_g7_g11_g12_nothing_breaks_in_memory(namespace: str, seed: int) -> None:
    assert episode(seed, lambda clock: open_sync("memory://harness", namespace, clock=clock)).judge.grants > JOBS


FAULTS: dict[str, dict[str, list[tuple[str, str]]]] = {
    "no claim numbers": {"beat": [("grant.number <= answered", "true")]},
    "no gone mark": {
        "claim": [
            ("if me.gone or not me.lease_ms then return {standing = 'gone'} end", "me.lease_ms = me.lease_ms or 30000"),
            ("if lease >= int(call('ZSCORE', key('w'), worker)) then return {standing = 'over'} end", ""),
            ("if not need and lane_for(j, side) == lane then", "if lane_for(j, side) == lane then"),
        ]
    },
    "settle without token": {
        "settle": [("if j.state ~= 'running' or int(j.token) ~= outcome.token or j.worker ~= worker then",
                    "if j.state ~= 'running' then")]
    },
    "wall-clock leases": {
        "*": [("if step > 0 then lease = lease + math.min(step, gap) else back_steps = back_steps - step end",
               "lease = math.max(lease, now) if step < 0 then back_steps = back_steps - step end")]
    },
    "token from time only": {"claim": [("math.max(int(j.token) + 1, micros)", "micros")]},
}  # fmt: skip


FORWARD_MS = (60_000, 3_600_000)
ROUGH: dict[str, dict[str, Any]] = {
    "no gone mark": {"late": 0.3},
    "wall-clock leases": {"late": 0.1, "steps_ms": FORWARD_MS},
    "token from time only": {"steps_ms": (-3_600_000, -60_000, 60_000)},
}
"""What makes a fault show itself soon. The sound scripts withstand each of them, too."""


def broken(edits: dict[str, list[tuple[str, str]]]) -> Scripts:
    """Scripts with a fault built in; an edit that finds nothing to edit is an error of this test."""
    applied: set[str] = set()

    def mutate(stem: str, text: str) -> str:
        for target in (stem, "*"):
            for old, new in edits.get(target, []):
                if old in text:
                    applied.add(old)
                text = text.replace(old, new)
        return text

    scripts = Scripts(mutate)
    for stem in ("claim", "beat", "settle"):
        scripts[stem]
    missing = {old for changes in edits.values() for old, _ in changes} - applied
    assert not missing, f"nothing to break there: {missing}"
    return scripts


@pytest.mark.parametrize("fault", FAULTS)
def test_each_deliberate_fault_is_noticed(valkey_server: RedisServer, namespace: str, fault: str) -> None:
    scripts = broken(FAULTS[fault])
    for seed in range(FAULT_SEEDS):
        try:
            episode(seed, on(valkey_server, f"{namespace}{seed}", scripts), **ROUGH.get(fault, {}))
        except Violation:
            return
    pytest.fail(f"{FAULT_SEEDS} episodes with the fault '{fault}' look sound")
