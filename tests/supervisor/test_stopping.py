"""Orders to stop: which signals count, and that a later order only brings the end nearer. Pure arithmetic."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from stillhere.worker.supervisor.stopping import ONE_SIGNAL_S, Stopping
from stillhere.worker.timeline import Timeline


def test_without_an_order_nothing_is_due() -> None:
    stopping = Stopping(8.0)
    assert not stopping.ordered
    assert (stopping.kill_at, stopping.exit_at) == (math.inf, math.inf)


def test_the_first_drains_the_second_ends_now_the_third_kills() -> None:
    stopping = Stopping(60.0)
    assert stopping.signal(100.0) == 1
    assert (stopping.ordered, stopping.kill_at, stopping.exit_at) == (True, 159.0, 160.0)
    assert stopping.timeline == Timeline.of(60.0)
    assert stopping.signal(110.0) == 2
    assert (stopping.kill_at, stopping.exit_at) == (111.0, 112.0)
    assert stopping.timeline == Timeline.now()
    assert stopping.signal(110.4) == 3
    assert stopping.kill_at == 110.4
    assert stopping.signal(111.0) == 3


def test_what_a_wrapper_forwards_is_the_same_signal() -> None:
    stopping = Stopping(60.0)
    assert [stopping.signal(at) for at in (10.0, 10.02, 10.2, 10.2999)] == [1, 0, 0, 0]
    assert stopping.signal(10.0 + ONE_SIGNAL_S) == 2


def test_a_second_signal_late_in_the_grace_gives_no_more_time() -> None:
    stopping = Stopping(8.0)
    stopping.signal(0.0)
    stopping.signal(6.8)
    assert (stopping.kill_at, stopping.exit_at) == (7.0, 8.0)


@given(st.floats(0, 1000), st.lists(st.floats(0, 1000)))
def test_the_end_only_comes_nearer(grace: float, signals: list[float]) -> None:
    stopping = Stopping(grace)
    for at in sorted(signals):
        before = stopping.kill_at, stopping.exit_at
        stopping.signal(at)
        assert (stopping.kill_at, stopping.exit_at) <= before
        assert stopping.kill_at <= stopping.exit_at
