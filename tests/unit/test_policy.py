"""What follows when a run has ended: every way out of a handler, and who is charged for it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillhere.domain.errors import ArgumentError, Discard, JobStopped, Retry, Snooze, StopReason
from stillhere.domain.job import DEAD_RETENTION_MS, DEFAULT_RETENTION_MS, Grant, Outcome, OutcomeKind
from stillhere.domain.options import Backoff, TaskOptions
from stillhere.domain.plan import TaskPlan
from stillhere.domain.policy import (
    LateRun,
    after_exception,
    after_kill,
    after_result_error,
    after_return,
    backoff_ms,
    error_record,
    stall_ms,
    timeout_ms,
)

K = OutcomeKind


def grant(**fields: Any) -> Grant:
    return Grant(id="j", queue="q", token=7, task="t", args="{}", **fields)


def after(
    error: BaseException,
    *,
    options: TaskOptions | None = None,
    stopping: StopReason | None = None,
    random: float = 0.5,
    **fields: Any,
) -> Outcome | None:
    return after_exception(grant(**fields), TaskPlan.of(options or {}), error, stopping=stopping, random=random)


def kind(outcome: Outcome | None) -> tuple[str, str | None, int]:
    assert outcome is not None
    assert (outcome.job, outcome.token) == ("j", 7)
    return outcome.kind, outcome.reason, outcome.delay_ms


class TestReturn:
    def test_a_result_is_kept_as_long_as_the_record_or_else_the_task_says(self) -> None:
        done = after_return(grant(), TaskPlan.of({}), "5")
        assert (done.kind, done.result, done.retention_ms) == (K.SUCCEEDED, "5", DEFAULT_RETENTION_MS)
        assert after_return(grant(), TaskPlan.of({"retention": "2h"}), "5").retention_ms == 7_200_000
        assert after_return(grant(retention_ms=1), TaskPlan.of({"retention": "2h"}), "5").retention_ms == 1

    def test_no_retention_keeps_no_result(self) -> None:
        done = after_return(grant(), TaskPlan.of({"retention": 0}), "5")
        assert (done.result, done.retention_ms) == (None, 0)

    def test_a_result_that_cannot_be_stored_is_a_success_all_the_same(self) -> None:
        done = after_result_error(grant(), TaskPlan.of({}), ArgumentError("too big"))
        assert (done.kind, done.reason, done.result) == (K.SUCCEEDED, "result_error", None)
        assert json.loads(done.error or "")["message"] == "too big"


class TestFailure:
    def test_it_is_tried_again_until_the_budget_is_used_up(self) -> None:
        ends = [kind(after(ValueError("x"), failures=n, random=1 / 1024)) for n in range(6)]
        assert [end[0] for end in ends] == [K.RETRY] * 4 + [K.DEAD] * 2
        assert ends[4][1] == "failed"

    def test_the_record_s_budget_wins_over_the_task_s(self) -> None:
        assert kind(after(ValueError(), max_attempts=1))[0] == K.DEAD
        assert kind(after(ValueError(), max_attempts=9, failures=7))[0] == K.RETRY
        assert kind(after(ValueError(), options={"max_attempts": 2}, failures=1))[0] == K.DEAD

    def test_no_limit_is_no_limit(self) -> None:
        assert kind(after(ValueError(), options={"max_attempts": None}, failures=10_000))[0] == K.RETRY
        assert kind(after(ValueError(), max_attempts=0, failures=10_000))[0] == K.RETRY

    def test_a_dead_letter_is_kept_for_thirty_days(self) -> None:
        dead = after(ValueError("x"), max_attempts=1, retention_ms=0)
        assert dead is not None
        assert dead.retention_ms == DEAD_RETENTION_MS

    @pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()])
    def test_a_handler_that_ends_itself_has_failed_too(self, error: BaseException) -> None:
        assert kind(after(error))[:2] == (K.RETRY, "retry")

    @pytest.mark.parametrize("reason", ["timeout", "stalled"])
    def test_a_run_that_had_its_time_has_failed(self, reason: StopReason) -> None:
        assert kind(after(JobStopped(reason), stopping=reason))[:2] == (K.RETRY, "retry")


class TestWords:
    def test_retry_is_charged_and_may_name_its_wait(self) -> None:
        assert kind(after(Retry("5m"))) == (K.RETRY, "retry", 300_000)
        assert kind(after(Retry(0))) == (K.RETRY, "retry", 0)
        assert kind(after(Retry(), random=0.5)) == (K.RETRY, "retry", 500)
        assert kind(after(Retry("5m"), failures=4))[0] == K.DEAD

    def test_snooze_is_not_charged(self) -> None:
        assert kind(after(Snooze("5m"), failures=4)) == (K.SNOOZE, "snoozed", 300_000)

    def test_discard_ends_as_cancelled_with_its_reason(self) -> None:
        assert kind(after(Discard("no such user"))) == (K.CANCELLED, "no such user", 0)
        assert kind(after(Discard())) == (K.CANCELLED, "discarded", 0)

    def test_a_bad_duration_fails_where_it_is_written(self) -> None:
        with pytest.raises(ValueError, match=r"^delay='5 min': write 10m"):
            Snooze("5 min")
        with pytest.raises(ValueError, match=r"^after='soon': write 10m"):
            Retry("soon")


def while_cleaning_up(first: BaseException) -> BaseException:
    """Return the error of a handler whose clean-up failed after `first` had told it to stop."""
    try:
        try:
            raise first
        finally:
            raise OSError("connection is closed")
    except OSError as error:
        return error


class TestStopped:
    @pytest.mark.parametrize("error", [asyncio.CancelledError(), JobStopped("cancelled"), ValueError()])
    def test_a_cancelled_job_ends_cancelled_on_whatever_way_out(self, error: BaseException) -> None:
        assert kind(after(error, stopping="cancelled"))[:2] == (K.CANCELLED, "cancelled")

    @pytest.mark.parametrize("error", [asyncio.CancelledError(), JobStopped("shutdown")])
    def test_a_shutdown_is_an_interruption(self, error: BaseException) -> None:
        assert kind(after(error, stopping="shutdown", failures=4)) == (K.INTERRUPTED, "interrupted", 0)
        assert kind(after(while_cleaning_up(error), stopping="shutdown"))[0] == K.INTERRUPTED
        assert kind(after(BaseExceptionGroup("both", [ValueError(), error]), stopping="shutdown"))[0] == K.INTERRUPTED

    def test_an_error_of_its_own_during_a_shutdown_is_a_failure(self) -> None:
        assert kind(after(ValueError(), stopping="shutdown"))[0] == K.RETRY

    def test_its_own_word_during_a_shutdown_counts(self) -> None:
        assert kind(after(Snooze(5), stopping="shutdown"))[0] == K.SNOOZE
        assert kind(after(Discard("x"), stopping="shutdown"))[0] == K.CANCELLED

    @pytest.mark.parametrize("error", [asyncio.CancelledError(), JobStopped("lease_lost"), ValueError()])
    def test_a_lost_lease_has_nothing_to_say(self, error: BaseException) -> None:
        assert after(error, stopping="lease_lost") is None


class TestBackoff:
    @given(st.integers(1, 5_000), st.floats(0, 1, exclude_max=True))
    def test_full_jitter_stays_between_nothing_and_the_ceiling(self, failures: int, random: float) -> None:
        wait = backoff_ms(Backoff(), failures, random)
        assert 0 <= wait <= min(600_000, 1_000 * 2 ** (failures - 1))

    def test_it_doubles_to_its_ceiling(self) -> None:
        plain = Backoff("1s", 2, "10m", jitter=False)
        assert [backoff_ms(plain, n, 0.1) for n in (1, 2, 3, 10, 11, 5_000)] == [
            1_000,
            2_000,
            4_000,
            512_000,
            600_000,
            600_000,
        ]

    def test_each_class_of_exception_may_have_its_own(self) -> None:
        options: TaskOptions = {
            "backoff": {ConnectionError: Backoff("1m", jitter=False), OSError: Backoff("2m", jitter=False)}
        }
        assert kind(after(ConnectionResetError(), options=options))[2] == 60_000
        assert kind(after(FileNotFoundError(), options=options))[2] == 120_000
        assert kind(after(ValueError(), options=options, random=0.5))[2] == 500

    def test_retry_from_an_error_waits_as_that_error_would(self) -> None:
        def fetch() -> None:
            raise ConnectionError

        def run() -> None:
            try:
                fetch()
            except ConnectionError as error:
                raise Retry from error

        with pytest.raises(Retry) as caught:
            run()
        assert kind(after(caught.value, options={"backoff": {OSError: Backoff("1m", jitter=False)}}))[2] == 60_000


class BadlyMadeError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class TestErrorRecord:
    def test_it_holds_type_message_and_the_user_s_traceback(self) -> None:
        def handler() -> None:
            raise KeyError("who")

        with pytest.raises(KeyError) as caught:
            handler()
        record = json.loads(error_record(caught.value))
        assert (record["type"], record["message"]) == ("KeyError", "'who'")
        assert 'raise KeyError("who")' in record["traceback"]
        assert "in handler" in record["traceback"]

    def test_the_type_names_its_module_unless_everybody_knows_it(self) -> None:
        assert json.loads(error_record(ArgumentError("x")))["type"] == "stillhere.domain.errors.ArgumentError"

    def test_it_is_bounded_and_readable_by_everybody(self) -> None:
        record = error_record(ValueError("x\ud800" * 100_000))
        assert len(record) < 20_000
        assert json.loads(record)["message"].startswith("x?x?")
        json.loads(record)["traceback"].encode()

    def test_an_error_that_cannot_tell_itself_is_recorded_all_the_same(self) -> None:
        assert json.loads(error_record(BadlyMadeError()))["message"] == "(its text cannot be made)"


class TestLate:
    """A run that was told to stop for being late has failed, and the error says so, whatever it raised on its way."""

    @pytest.mark.parametrize(
        ("stopping", "words"),
        [
            ("timeout", "it ran longer than its timeout of 5s"),
            ("stalled", "it said nothing for its stall_after of 1m30s"),
        ],
    )
    @pytest.mark.parametrize("error", [asyncio.CancelledError(), JobStopped("timeout")])
    def test_it_fails_with_a_timeout_error(self, stopping: StopReason, words: str, error: BaseException) -> None:
        outcome = after(error, options={"timeout": "5s", "stall_after": "90s"}, stopping=stopping)
        assert outcome is not None
        assert (outcome.kind, outcome.reason) == (K.RETRY, "retry")
        said = json.loads(outcome.error or "")
        assert (said["type"], said["message"]) == ("TimeoutError", words)

    def test_by_its_budget_and_its_backoff(self) -> None:
        options: TaskOptions = {"timeout": 5, "max_attempts": 2, "backoff": {TimeoutError: Backoff(7, jitter=False)}}
        first = after(asyncio.CancelledError(), options=options, stopping="timeout")
        assert kind(first) == (K.RETRY, "retry", 7_000)
        assert kind(after(asyncio.CancelledError(), options=options, stopping="timeout", failures=1))[0] == K.DEAD

    def test_its_own_error_is_its_own(self) -> None:
        outcome = after(ValueError("mine"), options={"timeout": 5}, stopping="timeout")
        assert outcome is not None
        assert json.loads(outcome.error or "")["type"] == "ValueError"

    def test_the_records_limit_goes_before_the_tasks(self) -> None:
        plan = TaskPlan.of({"timeout": 5, "stall_after": 6})
        assert (timeout_ms(grant(), plan), stall_ms(grant(), plan)) == (5_000, 6_000)
        own = grant(timeout_ms=7, stall_ms=0)
        assert (timeout_ms(own, plan), stall_ms(own, plan)) == (7, 0)


def late_run(why: StopReason, **fields: Any) -> LateRun:
    known: dict[str, Any] = {
        "job": "j", "token": 7, "why": why, "took_ms": 5_000, "stall_ms": 90_000,
        "kind": K.RETRY, "delay_ms": 1_500, "retention_ms": 77,
    }  # fmt: skip
    return LateRun(**known | fields)


class TestKilled:
    """How a run ends that its own process could not end."""

    @pytest.mark.parametrize(
        ("why", "words"),
        [
            ("timeout", "it ran longer than its timeout of 5s and did not end, so its process was killed"),
            ("stalled", "it said nothing for its stall_after of 1m30s and did not end, so its process was killed"),
        ],
    )
    def test_a_late_one_fails(self, why: StopReason, words: str) -> None:
        outcome = after_kill(late_run(why))
        assert kind(outcome) == (K.RETRY, "retry", 1_500)
        assert outcome is not None
        assert outcome.retention_ms == 77
        assert json.loads(outcome.error or "") == {"type": "TimeoutError", "message": words, "traceback": ""}

    def test_the_last_try_is_a_dead_letter_and_kept_as_one(self) -> None:
        outcome = after_kill(late_run("timeout", kind=K.DEAD, delay_ms=0))
        assert kind(outcome) == (K.DEAD, "failed", 0)
        assert outcome is not None
        assert outcome.retention_ms == DEAD_RETENTION_MS

    def test_a_cancelled_one_is_cancelled(self) -> None:
        outcome = after_kill(late_run("cancelled", kind=None))
        assert kind(outcome) == (K.CANCELLED, "cancelled", 0)
        assert outcome is not None
        assert (outcome.error, outcome.retention_ms) == (None, 77)

    @pytest.mark.parametrize(("why", "of"), [("lease_lost", K.RETRY), ("shutdown", K.RETRY), ("timeout", None)])
    def test_nothing_is_said_of(self, why: StopReason, of: OutcomeKind | None) -> None:
        assert after_kill(late_run(why, kind=of)) is None
