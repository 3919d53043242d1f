"""When a worker that was told to stop does what."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stillhere.worker.timeline import Timeline


@given(st.floats(0, 100_000))
def test_the_order_holds_for_every_grace(grace: float) -> None:
    timeline = Timeline.of(grace)
    assert 0 <= timeline.cancel <= timeline.leave <= timeline.kill <= grace
    assert timeline.exit >= timeline.kill


def test_the_default_grace_ends_in_its_last_three_seconds() -> None:
    assert Timeline.of(8.0) == Timeline(cancel=5.0, leave=6.5, kill=7.0, exit=8.0)


def test_now_tells_runs_to_stop_at_once_and_kills_after_a_second_and_at_once_does_not_wait() -> None:
    assert Timeline.now().cancel == 0
    assert Timeline.now().kill == 1.0
    assert Timeline.at_once().kill == 0.0
