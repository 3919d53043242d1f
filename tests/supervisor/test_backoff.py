"""When a child that died is replaced."""

from __future__ import annotations

from random import Random

from stillhere.worker.supervisor.backoff import CEILING_S, JITTER, Backoff


def test_a_child_that_ran_jobs_is_replaced_at_once_however_often() -> None:
    backoff = Backoff(Random(1))
    assert [backoff.died(lived_s=0.1, ran_jobs=True) for _ in range(20)] == [0.0] * 20


def test_a_child_that_ran_nothing_waits_longer_each_time_up_to_a_ceiling() -> None:
    backoff = Backoff(Random(1))
    delays = [backoff.died(lived_s=0.1, ran_jobs=False) for _ in range(20)]
    for nth, delay in enumerate(delays):
        plain = min(CEILING_S, 0.5 * 2**nth)
        assert plain * (1 - JITTER) <= delay <= plain * (1 + JITTER)


def test_a_long_life_or_a_job_sets_the_delay_back() -> None:
    backoff = Backoff(Random(1))
    for _ in range(8):
        backoff.died(lived_s=0.1, ran_jobs=False)
    assert backoff.died(lived_s=11.0, ran_jobs=False) == 0.0
    assert backoff.died(lived_s=0.1, ran_jobs=False) < 0.7


def test_three_failed_starts_with_one_cause_are_enough() -> None:
    backoff = Backoff(Random(1))
    assert [backoff.failed_to_start(cause) for cause in "aabaa"] == [False] * 5
    assert backoff.failed_to_start("a")


def test_a_start_that_worked_forgets_the_failed_ones() -> None:
    backoff = Backoff(Random(1))
    backoff.failed_to_start("a")
    backoff.failed_to_start("a")
    backoff.started()
    assert not backoff.failed_to_start("a")
