"""Whom the supervisor speaks for, how often, and what it does with the answers (G4, G13, G14)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from itertools import pairwise

from tests.supervisor.kit import LEASE_MS, Worker, since
from tests.support.procs import alive, eventually, kill

Play = Callable[..., Worker]


def test_g13_it_renews_each_child_in_each_queue_from_go_on(play: Play) -> None:
    worker = play("steady:job", processes=2)
    worker.event("runs", 2)
    workers = {event["worker"] for event in worker.events("runs")}
    eventually(lambda: len(worker.verbs("Renew", thread="stillhere-beater")) >= 24, 15)
    renewals = worker.verbs("Renew", thread="stillhere-beater")
    assert {(renew["worker"], renew["queue"]) for renew in renewals} == {
        (one, queue) for one in workers for queue in ("default", "mail")
    }
    assert {renew["answered"] for renew in renewals} <= {0, 7}
    one = [renew["at"] for renew in worker.verbs("Renew", worker=min(workers), queue="mail")]
    gaps = [(b - a) / 1e9 for a, b in pairwise(one)]
    assert all(0.85 * LEASE_MS / 4000 < gap < 1.4 * LEASE_MS / 4000 for gap in gaps), gaps


def test_g13_a_stopped_child_is_not_vouched_for_and_not_given_up(play: Play) -> None:
    worker = play("steady:job")
    ran = worker.event("runs")
    eventually(lambda: worker.verbs("Renew", worker=ran["worker"]), 5)
    os.kill(ran["pid"], signal.SIGSTOP)
    stopped = since(0)
    eventually(lambda: since(0) > stopped + 1.5 * LEASE_MS / 1000, 10)
    late = [renew for renew in worker.verbs("Renew") if renew["at"] / 1e9 > stopped + 0.1]
    assert late == []
    assert worker.verbs("End") == [], "its own lease ends it, never its supervisor"
    kill([ran["pid"]], signal.SIGCONT)
    eventually(lambda: any(renew["at"] / 1e9 > stopped + 2 for renew in worker.verbs("Renew")), 5)


def test_g14_what_a_silent_child_has_not_seen_is_handed_back_within_a_second_and_a_half(play: Play) -> None:
    worker = play("goes_silent", lease_ms=30_000)
    silent = worker.event("silent")

    def handed_back() -> list[int]:
        """When, with a lease clock that was read after the silence had begun."""
        told = worker.verbs("Renew", worker=silent["worker"], queue="mail")
        return [renew["at"] for renew in told if renew["hand_back"] > silent["at"] // 1_000_000]

    at = eventually(handed_back, 5)[0]
    assert 0.9 < (at - silent["at"]) / 1e9 < 1.5
    worker.wait_for("its event loop has not moved for 1.0 s: it is in none of its jobs' steps")
    worker.wait_for("It runs one blocker")
    assert worker.verbs("End") == []


def test_g13_a_draining_child_is_renewed_at_the_pace_of_its_short_lease(play: Play) -> None:
    worker = play("drains_long", lease_ms=30_000, grace_ms=20_000)
    ran = worker.event("runs")
    worker.terminate()
    drained = worker.event("drain")
    worker.wait(10)
    times = [renew["at"] for renew in worker.verbs("Renew", worker=ran["worker"], queue="mail")]
    times = [drained["at"], *(at for at in times if drained["at"] < at < drained["at"] + 3e9), drained["at"] + int(3e9)]
    assert max((b - a) / 1e9 for a, b in pairwise(times)) < 1.6, "a lease of 5 s, not of 30"


def test_g4_a_child_that_the_store_has_given_up_is_told_and_killed_if_its_runs_do_not_end(play: Play) -> None:
    worker = play("keeps_void_runs")
    ran = worker.event("runs")
    worker.mood(gone=[ran["worker"]])
    reborn = worker.event("reborn")
    assert reborn["before"] == ran["worker"]
    end = worker.ends()[-1]
    assert end["worker"] == reborn["worker"]
    assert 5.5 < (end["at"] - reborn["at"]) / 1e9 < 8, "they had time for their last words"
    assert end["reason"] == "killed by its supervisor: job old (one) does not end: lease_lost"
    assert {verdict for one in worker.ends() for verdict in one["verdicts"].values()} == {"interrupted"}


def test_g14_what_a_sweep_finds_is_ended_as_vanished(play: Play) -> None:
    worker = play("steady")
    worker.event("runs")
    worker.mood(over=["dead-host"])
    end = eventually(lambda: worker.verbs("End", worker="dead-host"), 5)[0]
    worker.mood()
    assert (end["force"], end["default"], end["verdicts"]) == (False, "vanished", {})
    ticks = [tick["at"] for tick in worker.verbs("Tick", queue="default", thread="stillhere-beater")]
    gaps = sorted((b - a) / 1e9 for a, b in pairwise(ticks))
    assert gaps[len(gaps) // 2] < 0.1, "half the gap of 100 ms, give or take a renewal"


def test_g12_while_the_store_is_away_children_live_and_the_log_is_calm(play: Play) -> None:
    worker = play("steady:job")
    ran = worker.event("runs")
    worker.mood(away=True)
    begun = since(0)
    eventually(lambda: since(0) > begun + 1.5 * LEASE_MS / 1000, 10)
    assert alive(ran["pid"])
    assert worker.log.count("gets no answer from the store") == 1
    worker.mood()
    worker.wait_for("The store answers again, after ")
    eventually(lambda: any(renew["at"] / 1e9 > begun + 3 for renew in worker.verbs("Renew")), 5)


def test_without_a_store_at_the_start_nobody_works(play: Play) -> None:
    worker = play("steady", lease_ms=500)
    worker.mood(away=True)
    worker.wait_for("gets no answer from the store and keeps trying. Cannot reach the fake store (it is away).")
    assert worker.events("go") == []
    worker.mood()
    worker.event("go")
