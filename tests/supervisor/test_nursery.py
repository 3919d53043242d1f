"""Which children are started when: the first ones, replacements, solo children. Pure bookkeeping."""

from __future__ import annotations

import math
from random import Random
from typing import Any

from stillhere.worker.settings import WorkerSettings
from stillhere.worker.supervisor.backoff import Backoff
from stillhere.worker.supervisor.nursery import Death, Nursery


def nursery(**settings: Any) -> Nursery:
    return Nursery(WorkerSettings(app="a:b", **({"solo": 3} | settings)), Backoff(Random(1)))


def death(**other: Any) -> Death:
    usual: dict[str, Any] = {
        "lanes": "pool",
        "greeted": True,
        "orderly": False,
        "expected": False,
        "ran": True,
        "lived_s": 1.0,
        "cause": "killed by SIGKILL",
    }
    return Death(**(usual | other))


def test_as_many_as_asked_for_at_once() -> None:
    one = nursery(processes=3)
    assert one.next_at == -math.inf
    assert one.due(0.0) == ["pool"] * 3
    assert one.is_empty
    assert one.due(1e9) == []


def test_one_that_ran_jobs_is_replaced_at_once() -> None:
    one = nursery()
    one.due(0.0)
    assert one.died(death(), 10.0)
    assert one.next_at == 10.0
    assert one.due(9.9) == []
    assert one.due(10.0) == ["pool"]


def test_one_that_took_one_job_at_a_time_is_replaced_by_a_pool_child() -> None:
    one = nursery()
    one.due(0.0)
    one.died(death(lanes="both"), 0.0)
    assert one.due(0.0) == ["pool"]


def test_one_that_ran_nothing_is_replaced_later_each_time() -> None:
    one = nursery()
    one.due(0.0)
    delays = []
    for _ in range(4):
        one.died(death(ran=False), 0.0)
        delays.append(one.next_at)
        one.due(one.next_at)
    assert delays == sorted(delays)
    assert 0.4 <= delays[0] <= 0.6
    assert delays[3] > 3


def test_one_that_was_told_to_end_or_killed_by_us_is_no_failure() -> None:
    one = nursery()
    one.due(0.0)
    for _ in range(10):
        one.died(death(ran=False, expected=True), 5.0)
        assert one.due(5.0) == ["pool"]


def test_three_failed_starts_with_one_cause_are_the_end() -> None:
    one = nursery()
    one.due(0.0)
    unborn = death(greeted=False, ran=False, cause="ImportError")
    assert one.died(unborn, 0.0)
    first = one.next_at
    one.due(first)
    assert one.died(unborn, 10.0)
    assert one.next_at - 10 > first, "the pause grows: a deploy may be on its way"
    one.due(one.next_at)
    assert not one.died(unborn, 20.0)
    assert one.is_empty


def test_a_hello_in_between_begins_the_count_anew() -> None:
    one = nursery()
    unborn = death(greeted=False, cause="ImportError")
    assert one.died(unborn, 0.0)
    assert one.died(unborn, 0.0)
    one.greeted()
    assert one.died(unborn, 0.0)


def test_one_that_could_not_even_be_started_counts_the_same() -> None:
    one = nursery()
    assert one.failed_start("pool", "no memory", 0.0)
    assert one.failed_start("pool", "no memory", 0.0)
    assert not one.failed_start("pool", "no memory", 0.0)


def test_a_burst_is_over_for_a_child_that_found_nothing_left() -> None:
    one = nursery(burst=True)
    one.due(0.0)
    assert one.died(death(orderly=True, ran=False), 0.0)
    assert one.is_empty
    one.died(death(), 0.0)
    assert one.due(0.0) == ["pool"], "one that died is replaced in a burst too"
    one.died(death(orderly=True, expected=True), 0.0)
    assert one.due(0.0) == ["pool"], "and so is one that somebody stopped"


def test_solo_children_come_for_suspects_that_nobody_is_there_for() -> None:
    one = nursery(solo=3)
    assert one.solos(0.0, wanted=0, solos=0, idle=0) == 0
    assert one.solos(0.0, wanted=2, solos=0, idle=0) == 2
    assert one.solos(0.0, wanted=9, solos=1, idle=0) == 2, "never more than the limit"
    assert one.solos(0.0, wanted=2, solos=1, idle=1) == 1, "an idle one takes one of them"
    assert one.solos(0.0, wanted=1, solos=2, idle=2) == 0
    assert one.solos(0.0, wanted=5, solos=4, idle=0) == 0, "a pool child that turned solo may exceed the limit"


def test_a_solo_child_is_not_replaced_and_puts_off_the_next_when_it_did_nothing() -> None:
    one = nursery()
    one.due(0.0)
    one.died(death(lanes="solo"), 0.0)
    assert one.is_empty
    assert one.solos(0.0, wanted=1, solos=0, idle=0) == 1, "it ran its suspect: the next one may come at once"
    one.died(death(lanes="solo", ran=False), 0.0)
    assert one.is_empty
    assert one.solos(0.3, wanted=1, solos=0, idle=0) == 0
    assert one.solos(0.7, wanted=1, solos=0, idle=0) == 1
    one.died(death(lanes="solo", orderly=True, ran=False), 1.0)
    assert one.solos(1.0, wanted=1, solos=0, idle=0) == 1


def test_nobody_is_started_after_the_close() -> None:
    one = nursery(processes=2)
    one.close()
    assert one.is_empty
    assert one.due(1e9) == []
