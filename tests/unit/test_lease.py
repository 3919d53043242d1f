"""The lease arithmetic: the figures that are printed, and what must hold for every lease length."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillhere.domain.lease import (
    HUNG_RENEWALS,
    JITTER,
    MAX_GAP_S,
    MIN_LEASE_S,
    LeaseClock,
    LeasePlan,
    RenewalClock,
    gap_for,
    jittered,
    plan_for,
)

lengths = st.floats(MIN_LEASE_S, 86_400, allow_nan=False)
plans = st.builds(plan_for, lengths, st.floats(0.05, MAX_GAP_S))
seeds = st.integers(0, 2**32).map(Random)


class TestPlan:
    def test_the_default_lease_has_the_figures_of_the_docs(self) -> None:
        plan = plan_for()
        assert (plan.length_s, plan.gap_s) == (30, 2)
        assert (plan.renew_every, plan.try_bound, plan.retry_after) == (7.5, 3.75, 0.9375)
        assert plan.trust_limit == 25
        assert plan.tick_every == 1
        assert plan.sweep_every == 5
        assert plan.recovery_bound == 40

    @pytest.mark.parametrize(("hung", "share"), [(0, 0.40), (1, 0.56), (2, 0.71), (3, 0.87)])
    def test_the_age_after_hung_renewals_is_the_one_printed(self, hung: int, share: float) -> None:
        assert plan_for(100).worst_age(hung) / 100 == pytest.approx(share, abs=0.005)

    @given(plans)
    def test_g13_three_hung_renewals_and_a_clock_step_fit_in_one_lease(self, plan: LeasePlan) -> None:
        assert plan.worst_age(HUNG_RENEWALS) + plan.gap_s < plan.length_s

    @given(plans)
    def test_trust_outlives_one_hung_renewal_and_ends_before_the_lease_can(self, plan: LeasePlan) -> None:
        assert plan.worst_age(1) < plan.trust_limit < plan.length_s - plan.gap_s

    @given(plans, lengths)
    def test_g14_the_last_sweep_comes_inside_the_bound_of_every_lease_on_the_queue(
        self, mine: LeasePlan, other: float
    ) -> None:
        queue_gap = min(mine.gap_s, gap_for(other))
        sweeper = plan_for(mine.length_s, queue_gap)
        latest_sweep = other + (1 + JITTER) * sweeper.sweep_every
        assert latest_sweep < plan_for(other).recovery_bound

    @given(plans)
    def test_two_ticks_fit_into_a_gap(self, plan: LeasePlan) -> None:
        assert 2 * plan.tick_every <= plan.gap_s

    @given(plans)
    def test_a_draining_lease_is_short_and_still_kept(self, plan: LeasePlan) -> None:
        drain = plan.draining()
        assert drain.length_s == min(5, plan.length_s)
        assert drain.gap_s == plan.gap_s, "the queue's gap is not the drainer's to change"
        assert drain.worst_age(1) + drain.gap_s < drain.length_s
        assert drain.recovery_bound <= 7.5

    @pytest.mark.parametrize(("lease", "gap"), [(0.5, 0.05), (1, 0.1), (5, 0.5), (20, 2), (30, 2), (3600, 2)])
    def test_the_gap_is_a_tenth_of_the_lease_within_its_limits(self, lease: float, gap: float) -> None:
        assert gap_for(lease) == pytest.approx(gap)

    def test_a_queue_with_a_shorter_lease_on_it_has_a_smaller_gap(self) -> None:
        assert plan_for(30, queue_gap_s=0.1).gap_s == 0.1
        assert plan_for(1, queue_gap_s=2).gap_s == 0.1

    @pytest.mark.parametrize("length", [0.49, 0, -1, math.inf, math.nan])
    def test_a_lease_that_cannot_be_kept_is_refused(self, length: float) -> None:
        with pytest.raises(ValueError, match=r"the shortest is 0\.5 s"):
            plan_for(length)

    @pytest.mark.parametrize("gap", [2.0, 0.0, -1.0])
    def test_a_gap_that_does_not_fit_is_refused(self, gap: float) -> None:
        with pytest.raises(ValueError, match=f"A gap of {gap:g} s does not fit a lease of 1 s"):
            LeasePlan(1, gap)

    @given(seeds, st.floats(0.001, 1000))
    def test_jitter_stays_inside_its_share(self, random: Random, interval: float) -> None:
        assert abs(jittered(interval, random) - interval) <= JITTER * interval * 1.000001

    def test_jitter_spreads(self) -> None:
        random = Random(1)
        drawn = [jittered(1, random) for _ in range(1000)]
        assert min(drawn) < 0.91
        assert max(drawn) > 1.09


class TestRenewalClock:
    def make(self, length: float = 32.0) -> RenewalClock:
        return RenewalClock(plan_for(length), Random(7))

    def test_before_the_first_answer_a_renewal_is_due_and_nothing_is_trusted(self) -> None:
        clock = self.make()
        assert clock.next_due(100) == 100
        assert not clock.trusted(100)
        assert clock.mute(100)

    def test_age_counts_from_the_send(self) -> None:
        clock = self.make()
        clock.sent(100)
        clock.confirmed(100)
        assert clock.age(104) == 4

    def test_the_next_is_due_a_quarter_after_the_send_give_or_take_a_tenth(self) -> None:
        for seed in range(200):
            clock = RenewalClock(plan_for(32), Random(seed))
            clock.sent(100)
            clock.confirmed(100)
            assert 107.2 <= clock.next_due(103) <= 108.8

    def test_a_failed_try_is_repeated_soon(self) -> None:
        clock = self.make()
        clock.sent(100)
        clock.failed(104)
        assert clock.next_due(104) == 105

    def test_a_late_answer_to_an_older_renewal_makes_nothing_younger(self) -> None:
        clock = self.make()
        clock.confirmed(108)
        clock.confirmed(100)
        assert clock.age(110) == 2

    def test_trust_ends_at_the_limit_and_a_renewal_sent_before_the_freeze_does_not_bring_it_back(self) -> None:
        clock = self.make()
        clock.confirmed(0)
        limit = clock.plan.trust_limit
        assert clock.trusted(limit - 0.001)
        assert not clock.trusted(limit)
        clock.sent(8)  # frozen here for 40 s; its answer waits in the socket
        clock.confirmed(8)
        assert not clock.trusted(48)
        clock.hurry()
        assert clock.next_due(48) == 48
        clock.confirmed(48)
        assert clock.trusted(49)

    def test_the_other_voice_keeps_the_lease_young_but_does_not_cure_muteness(self) -> None:
        clock = self.make()
        clock.confirmed(0)
        clock.witness(20)
        assert clock.age(24) == 4
        assert clock.trusted(24)
        assert clock.mute(24)
        assert not clock.mute(16)

    def test_the_other_voice_does_not_move_the_cadence(self) -> None:
        clock = self.make()
        clock.sent(0)
        due = clock.next_due(0)
        clock.witness(5)
        assert clock.next_due(0) == due

    def test_a_drain_is_told_at_once_and_renews_each_quarter_of_its_own_length(self) -> None:
        clock = self.make()
        clock.sent(0)
        clock.confirmed(0)
        clock.shorten(clock.plan.draining())
        assert clock.next_due(1) == 1
        clock.sent(1)
        assert 2.125 <= clock.next_due(1) <= 2.375

    @given(plans, seeds, st.lists(st.sampled_from(["answered at once", "answered late", "refused", "hung"])))
    def test_g13_the_age_never_passes_the_printed_worst_for_its_run_of_failures(
        self, plan: LeasePlan, random: Random, tries: list[str]
    ) -> None:
        clock = RenewalClock(plan, random)
        clock.sent(0)
        clock.confirmed(0)
        now, failures = 0.0, 0
        for outcome in tries:
            now = clock.next_due(now)
            clock.sent(now)
            sent = now
            now += 0 if outcome in {"answered at once", "refused"} else plan.try_bound
            assert clock.age(now) <= plan.worst_age(failures) * 1.000001
            if outcome.startswith("answered"):
                clock.confirmed(sent)
                failures = 0
            else:
                clock.failed(now)
                failures += 1


class TestLeaseClock:
    def test_it_runs_with_the_calls(self) -> None:
        clock = LeaseClock()
        assert [clock.tick(t) for t in (5_000, 6_000, 7_500)] == [0, 1_000, 2_500]

    def test_g3_silence_costs_a_gap_at_most(self) -> None:
        clock = LeaseClock()
        clock.tick(0)
        assert clock.tick(3_600_000) == 2_000

    def test_g3_a_step_back_costs_nothing_and_the_clock_runs_on(self) -> None:
        clock = LeaseClock()
        clock.tick(7_200_000)
        assert clock.tick(3_600_000) == 0
        assert clock.tick(3_601_000) == 1_000

    def test_g9_steady_time_goes_on_where_the_wall_went_back(self) -> None:
        clock = LeaseClock()
        clock.tick(7_200_000)
        due = clock.steady + 3_000
        clock.tick(3_600_000)
        clock.tick(3_603_000)
        assert clock.steady == due

    def test_the_gap_follows_the_shortest_lease_until_all_have_left(self) -> None:
        clock = LeaseClock()
        clock.lower_gap(1_000)
        clock.lower_gap(30_000)
        assert clock.gap_ms == 100
        clock.lower_gap(100)
        assert clock.gap_ms == 50
        clock.reset_gap()
        assert clock.gap_ms == 2_000

    def test_a_stored_clock_goes_on_where_it_stood(self) -> None:
        clock = LeaseClock(lease=500, last=1_000, back=70)
        assert clock.tick(1_300) == 800
        assert clock.steady == 1_370

    @given(st.lists(st.integers(0, 10**13), min_size=1), st.integers(500, 60_000))
    def test_g3_both_clocks_rise_and_the_lease_clock_by_a_gap_at_most(self, readings: list[int], lease_ms: int) -> None:
        clock = LeaseClock()
        clock.lower_gap(lease_ms)
        lease = steady = -1
        for now in readings:
            moved = clock.tick(now)
            assert moved == clock.lease
            assert lease == -1 or 0 <= clock.lease - lease <= clock.gap_ms
            assert clock.steady >= steady
            lease, steady = clock.lease, clock.steady

    @given(st.lists(st.integers(0, 2_000)))
    def test_g3_with_a_call_per_gap_and_a_sound_wall_clock_nothing_is_lost(self, steps: list[int]) -> None:
        clock = LeaseClock()
        now = 10**12
        clock.tick(now)
        for step in steps:
            now += step
            clock.tick(now)
        assert clock.lease == sum(steps)
        assert clock.steady == now
