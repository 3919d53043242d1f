"""What must not outlive its lease is dead before anybody else can have the job, and what may goes on and is fenced."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.faults.doubt import STATES, cut_off, workers_of
from tests.faults.kit import APART, LEASE_S, Stage, staged
from tests.support.ledger import Ledger
from tests.support.procs import WorkerProcess, eventually
from tests.support.proxy import Proxy
from tests.support.servers import RedisServer

MakeProxy = Callable[[RedisServer], Proxy]


@pytest.fixture
def stage(
    redis_server: RedisServer, namespace: str, ledger: Ledger, make_worker: Callable[..., WorkerProcess]
) -> Iterator[Stage]:
    """A stage with the tasks that run apart."""
    yield from staged(redis_server.url, namespace, ledger, make_worker, APART)


def test_g13_cut_off_it_is_dead_before_its_heir_starts(
    stage: Stage, redis_server: RedisServer, make_proxy: MakeProxy
) -> None:
    """Awaiting, its loop blocked, the GIL held: whatever it is at."""
    trials = cut_off(stage, make_proxy(redis_server), each=2)
    assert [trial.task for trial in trials if not trial.clean] == []
    assert len(trials) == 2 * len(STATES)
    hows = [run.how for run in stage.story().runs() if run.end is not None]
    assert hows == ["CancelledError"] * 2, "those that could hear it ended by themselves"


def test_g4_cut_off_others_go_on_and_are_fenced(stage: Stage, redis_server: RedisServer, make_proxy: MakeProxy) -> None:
    proxy = make_proxy(redis_server)
    lonely = workers_of(stage, 2, proxy.url)
    job = stage.add("alone", 4 * LEASE_S)
    stage.started(job)
    stage.answered(job)
    workers_of(stage, 2)
    proxy.blackhole()
    heir = stage.started(job, 2, timeout=2 * LEASE_S + 5)
    eventually(lambda: stage.story().runs(job.id)[0].last > heir.start + 0.5e9, 5, what="it goes on")
    proxy.heal()
    eventually(lambda: stage.story().runs(job.id)[0].end, 20, what=lambda: lonely.log)
    stage.finished(job, timeout=8 * LEASE_S)
    record = stage.record(job)
    assert (record.state, record.token, record.failures) == ("succeeded", heir.token, 0)
    assert stage.story().starts(job.id) == 2
