"""Durations: every spelling, the way back, and the words for what is none."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillhere.domain.durations import LONGEST_MS, Duration, DurationError, delay_milliseconds, milliseconds, spell


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        ("500ms", 500),
        ("90s", 90_000),
        ("10m", 600_000),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
        ("1d1h1m1s1ms", 90_061_001),
        (" 1.5s ", 1_500),
        ("90", 90_000),
        (90, 90_000),
        (0.25, 250),
        (0, 0),
        (timedelta(minutes=2), 120_000),
    ],
)
def test_a_duration_is_seconds_a_text_or_a_timedelta(value: Duration, ms: int) -> None:
    assert milliseconds(value) == ms


def test_what_is_shorter_than_a_millisecond_does_not_vanish() -> None:
    assert milliseconds(1e-9) == 1
    assert milliseconds(timedelta(microseconds=1)) == 1


@given(st.integers(min_value=0, max_value=LONGEST_MS))
def test_a_spelled_duration_reads_back_as_the_same(ms: int) -> None:
    assert milliseconds(spell(ms)) == ms


@given(st.integers(min_value=0, max_value=2**31))
def test_whole_milliseconds_given_as_seconds_stay_exact(ms: int) -> None:
    assert milliseconds(ms / 1000) == ms


@pytest.mark.parametrize(
    "value", ["10 min", "", "m", "1m1h", "1m2m", "-1s", "1e3", "ten", "\uff11s", True, None, b"1s", []]
)
def test_what_is_no_duration_says_how_to_write_one(value: Any) -> None:
    with pytest.raises(DurationError) as caught:
        milliseconds(value, "timeout")
    assert str(caught.value) == f"timeout={value!r}: write 10m, 90s, 1h30m or a number of seconds."


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), timedelta(days=-1), "99999999d"])
def test_negative_undefined_and_endless_durations_are_refused(value: Any) -> None:
    with pytest.raises(DurationError, match=r"^lease="):
        milliseconds(value, "lease")


def test_a_bare_number_above_thirty_days_is_taken_for_milliseconds() -> None:
    with pytest.raises(DurationError, match=r"did you mean '1h'\?"):
        delay_milliseconds(3_600_000)
    assert delay_milliseconds(30 * 86_400) == 30 * 86_400_000
    assert delay_milliseconds("60d") == 60 * 86_400_000
