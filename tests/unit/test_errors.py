"""The public errors: one base, texts of their own, and a way through pickle."""

from __future__ import annotations

import pickle
from typing import Any, cast

import pytest

import stillhere
from stillhere.domain import errors
from stillhere.domain.errors import (
    Discard,
    DuplicateJob,
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobStopped,
    Retry,
    Snooze,
    StillhereError,
    StoreUnavailable,
)

INFO: Any = "info"
WORDS = (Retry, Snooze, Discard, JobStopped)
PUBLIC = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, BaseException)]


def test_every_error_is_either_ours_or_a_word_between_handler_and_worker() -> None:
    ours = [kind for kind in PUBLIC if kind.__module__ == errors.__name__ and kind not in WORDS]
    assert len(ours) > 10
    assert all(issubclass(kind, StillhereError) for kind in ours)
    assert not any(issubclass(kind, StillhereError) for kind in WORDS)


def test_a_stopped_run_passes_through_except_exception() -> None:
    assert not issubclass(JobStopped, Exception)


def test_every_error_can_be_imported_from_the_package_and_says_what_it_is() -> None:
    for kind in PUBLIC:
        if kind.__module__ == errors.__name__:
            assert getattr(stillhere, kind.__name__) is kind
            assert kind.__doc__


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Retry("5m"), "the task asked to be tried again after 5m"),
        (Retry(), "the task asked to be tried again"),
        (Snooze(5), "come back in 5"),
        (Discard("why"), "why"),
        (JobStopped("shutdown"), "this run must end: shutdown"),
        (JobFailed("ValueError", "bad", "tb", INFO), "ValueError: bad"),
        (JobFailed("ValueError", "", "tb", INFO), "ValueError"),
        (JobCancelled("enough", INFO), "enough"),
        (JobCancelled("", INFO), "the job was cancelled"),
        (DuplicateJob("twice", "id"), "twice"),
        (JobNotFound("gone", "id"), "gone"),
        (StoreUnavailable("away"), "away"),
    ],
)
def test_it_says_its_text_and_survives_pickle(error: BaseException, text: str) -> None:
    again = cast("BaseException", pickle.loads(pickle.dumps(error)))
    assert str(error) == str(again) == text
    assert type(again) is type(error)
    assert vars(again) == vars(error)
