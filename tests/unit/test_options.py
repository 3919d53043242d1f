"""Options: each wrong one is refused where it is written, with the word to write instead."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

from stillhere.domain.errors import ArgumentError, ConfigurationError, UnknownOption
from stillhere.domain.job import DEFAULT_RETENTION_MS, NORMAL
from stillhere.domain.options import (
    CALL_OPTIONS,
    TASK_OPTIONS,
    Backoff,
    CallOptions,
    TaskOptions,
    check_call_options,
    check_task_options,
)
from stillhere.domain.plan import TaskPlan, foreign_record, new_record
from stillhere.domain.task import TaskDef

NOON = dt.datetime(2026, 12, 1, 12, tzinfo=dt.UTC)


def fetch(domain: str, depth: int = 1) -> None: ...


def record(task: TaskOptions | None = None, call: CallOptions | None = None, *args: Any, **kwargs: Any) -> Any:
    return new_record(TaskDef(fetch, task or {}), call or {}, args or (() if kwargs else ("a",)), kwargs)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_attempt": 3}, "here: unknown option 'max_attempt' (did you mean 'max_attempts'?)."),
        ({"zzz": 3}, "here: unknown option 'zzz'."),
        ({"delay": "1m"}, "here: 'delay' is an option of the call: .options(delay=...)."),
        ({"timeouts": "1m"}, "here: unknown option 'timeouts' (did you mean 'timeout'?)."),
    ],
)
def test_an_option_that_a_task_does_not_have_names_the_nearest(options: Any, words: str) -> None:
    with pytest.raises(UnknownOption) as caught:
        check_task_options("here", options)
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dely": "1m"}, "here: unknown option 'dely' (did you mean 'delay'?)."),
        ({"backoff": Backoff()}, "here: 'backoff' is an option of the task: @app.task(backoff=...)."),
        ({"via": None}, "here: unknown option 'via'."),
    ],
)
def test_an_option_that_a_call_does_not_have_names_the_nearest(options: Any, words: str) -> None:
    with pytest.raises(UnknownOption) as caught:
        check_call_options("here", options)
    assert str(caught.value) == words


WRONG: list[tuple[Callable[..., None], str, Any, str]] = [
    (
        check_task_options,
        "max_attempts",
        "3",
        "max_attempts='3': write a whole number of 1 or more, or None for no limit.",
    ),
    (check_task_options, "max_attempts", 0, "max_attempts=0: write a whole number of 1 or more, or None for no limit."),
    (check_task_options, "max_attempts", True, "max_attempts=True: write a whole number of 1 or more"),
    (check_task_options, "max_losses", -1, "max_losses=-1: write a whole number of 0 or more."),
    (check_task_options, "priority", "urgent", "priority='urgent': one of 'high', 'normal', 'low'."),
    (
        check_task_options,
        "queue",
        "a b",
        "queue='a b': a name is text without spaces, ':', '{' and '}', at most 200 long.",
    ),
    (check_task_options, "queue", "", "queue='': a name is text"),
    (check_task_options, "queue", "a:3", "queue='a:3': a name is text"),
    (check_task_options, "name", 5, "name=5: a name is text"),
    (check_task_options, "aliases", "old", "aliases='old': write a tuple of names: ('old_name',)."),
    (check_task_options, "backoff", "2s", "backoff='2s': write Backoff(...), or a dict of exception classes"),
    (check_task_options, "backoff", {int: Backoff()}, "backoff={"),
    (check_task_options, "long_after", "1 min", "long_after='1 min': write 10m, 90s, 1h30m or a number of seconds."),
    (check_task_options, "timeout", 0, "timeout=0: write how long it may take, or None for no limit."),
    (check_task_options, "timeout", "1 min", "timeout='1 min': write 10m, 90s, 1h30m or a number of seconds."),
    (check_task_options, "stall_after", "0s", "stall_after='0s': write how long it may take, or None for no limit."),
    (check_task_options, "stall_after", -1, "stall_after=-1: a duration cannot be negative"),
    (check_task_options, "process", 1, "process=1: write True or False."),
    (check_task_options, "long", "yes", "long='yes': write True or False."),
    (check_task_options, "on_lease_doubt", "kill", "on_lease_doubt='kill': one of 'continue', 'stop'."),
    (check_call_options, "timeout", 0, "timeout=0: write how long it may take, or None for no limit."),
    (check_call_options, "long", None, "long=None: write True or False."),
    (check_task_options, "unique", "key", "unique='key': write True for all arguments, or a function"),
    (check_task_options, "retention", -1, "retention=-1: a duration cannot be negative"),
    (check_call_options, "delay", 3_600_000, "delay=3600000: numbers are seconds, and this one is over 30 days"),
    (check_call_options, "delay", "10 min", "delay='10 min': write 10m, 90s, 1h30m or a number of seconds."),
    (check_call_options, "at", dt.datetime(2026, 12, 1, 3), "at=2026-12-01 03:00 has no time zone. Add tzinfo,"),  # noqa: DTZ001
    (check_call_options, "at", "2026-12-01", "at='2026-12-01': write a datetime with a time zone, or use delay=."),
    (check_call_options, "id", "a b", "id='a b': an id is 1 to 128 of the characters A-Z a-z 0-9 . _ : -"),
    (check_call_options, "id", "", "id='': an id is"),
    (check_call_options, "unique", "", "unique='': a unique key is a text of 1 to 500 characters."),
    (check_call_options, "unique", True, "unique=True: a unique key is a text"),
    (check_call_options, "unique", "\ud800", "unique='\\ud800': a unique key cannot hold half a character"),
    (check_call_options, "on_conflict", "ignore", "on_conflict='ignore': one of 'existing', 'replace', 'raise'."),
    (check_call_options, "headers", {"a": 1}, "headers={'a': 1}: headers are text to text."),
    (check_call_options, "headers", {"a": "\udfff"}, "headers={'a': '\\udfff'}: headers cannot hold half a character"),
]


@pytest.mark.parametrize(("check", "option", "value", "words"), WRONG, ids=lambda item: repr(item)[:30])
def test_a_wrong_value_says_what_to_write(check: Callable[..., None], option: str, value: Any, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check("here", {option: value})
    assert str(caught.value).startswith(f"here: {words}")


@pytest.mark.parametrize("option", ["timeout", "stall_after"])
def test_none_is_no_limit(option: str) -> None:
    check_task_options("here", {option: None})


def test_a_process_of_its_own_is_part_of_stopping_in_doubt() -> None:
    with pytest.raises(ConfigurationError, match=r"here: on_lease_doubt='stop' needs a process of its own, and "):
        check_task_options("here", {"on_lease_doubt": "stop", "process": False})
    check_task_options("here", {"on_lease_doubt": "stop", "process": True})
    check_task_options("here", {"on_lease_doubt": "continue", "process": False})


def test_delay_and_at_are_two_ways_to_say_one_thing() -> None:
    with pytest.raises(ConfigurationError, match=r"here: delay= and at= say two things"):
        check_call_options("here", {"delay": 1, "at": NOON})
    check_call_options("here", {"delay": None, "at": NOON})


@pytest.mark.parametrize(
    "arguments", [{"first": "1 s"}, {"ceiling": -1}, {"factor": 0.5}, {"factor": float("nan")}, {"factor": "2"}]
)
def test_a_backoff_that_cannot_be_is_refused_where_it_is_written(arguments: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^Backoff: "):
        Backoff(**arguments)


def test_every_option_has_a_check_and_a_place_in_the_plan_or_the_record() -> None:
    assert set(get_type_hints(TaskOptions)) == TASK_OPTIONS
    assert set(get_type_hints(CallOptions)) == CALL_OPTIONS
    for option in TASK_OPTIONS | CALL_OPTIONS:
        check = check_task_options if option in TASK_OPTIONS else check_call_options
        with pytest.raises(ConfigurationError):
            check("here", {option: object()})


class TestPlan:
    def test_the_defaults(self) -> None:
        plan = TaskPlan.of({})
        assert (plan.queue, plan.priority, plan.max_attempts, plan.max_losses) == ("default", NORMAL, 5, 3)
        assert (plan.retention_ms, plan.long_after_ms, plan.unique) == (3_600_000, None, False)
        assert plan.backoff == {Exception: Backoff("1s", 2.0, "10m", jitter=True)}

    def test_what_is_said_becomes_numbers(self) -> None:
        plan = TaskPlan.of(
            {
                "max_attempts": None,
                "long_after": None,
                "retention": 0,
                "priority": "low",
                "backoff": {OSError: Backoff("5s")},
            }
        )
        assert (plan.max_attempts, plan.long_after_ms, plan.retention_ms, plan.priority) == (0, 0, 0, 9)
        assert list(plan.backoff) == [OSError, Exception]


class TestRecord:
    def test_an_ordinary_call_carries_nothing_that_the_worker_knows(self) -> None:
        one = record()
        assert (one.task, one.queue, one.priority, one.args) == ("fetch", "default", NORMAL, '{"domain":"a"}')
        assert (one.max_attempts, one.max_losses, one.retention_ms, one.unique, one.delay_ms, one.due) == (None,) * 6
        assert len(one.id) == 32

    def test_budgets_travel_when_they_differ_from_the_default(self) -> None:
        one = record({"max_attempts": 9, "max_losses": 0, "retention": "2h", "queue": "q", "priority": "high"})
        assert (one.max_attempts, one.max_losses, one.retention_ms) == (9, 0, 7_200_000)
        assert (one.queue, one.priority) == ("q", 0)

    def test_the_call_wins_over_the_task_even_with_a_default(self) -> None:
        one = record({"max_attempts": 9, "retention": 0}, {"max_attempts": 5, "retention": "1h", "queue": "other"})
        assert (one.max_attempts, one.retention_ms, one.queue) == (5, DEFAULT_RETENTION_MS, "other")
        assert record({}, {"max_attempts": None}).max_attempts == 0
        assert record({"retention": 0}, {"retention": None}).retention_ms == DEFAULT_RETENTION_MS

    def test_delay_at_and_headers(self) -> None:
        one = record({}, {"delay": "90s", "headers": {"a": "b"}, "id": "my-id", "unique_for": "1d", "unique": "k"})
        assert (one.delay_ms, one.headers, one.id, one.unique_for_ms, one.unique) == (
            90_000,
            {"a": "b"},
            "my-id",
            86_400_000,
            "k",
        )
        assert record({}, {"at": NOON}).due == 1_796_126_400_000
        late = NOON + dt.timedelta(microseconds=1)
        assert record({}, {"at": late}).due == 1_796_126_400_001, "never before its time"

    def test_headers_over_4_kb_are_refused(self) -> None:
        with pytest.raises(ArgumentError) as caught:
            record({}, {"headers": {"big": "x" * 5_000}})
        assert (
            str(caught.value) == "fetch: headers are 5 kB (limit 4 kB). Store the data elsewhere and send a reference."
        )


class TestUnique:
    def test_true_takes_all_arguments_by_name(self) -> None:
        by_position, by_name = record({"unique": True}, {}, "a", 2), record({"unique": True}, {}, depth=2, domain="a")
        assert by_position.unique == by_name.unique is not None
        assert record({"unique": True}, {}, "a", 3).unique != by_position.unique

    def test_a_function_gets_what_it_names_defaults_filled_in(self) -> None:
        assert record({"unique": lambda domain: domain.upper()}, {}, "a", 2).unique == "A"
        assert record({"unique": lambda depth: f"d{depth}"}, {}, "a").unique == "d1"
        assert record({"unique": lambda **everything: str(sorted(everything))}, {}, "a").unique == "['depth', 'domain']"

    def test_what_the_function_returns_must_be_a_key(self) -> None:
        def not_a_text(domain: str) -> Any:
            return len(domain)

        with pytest.raises(ConfigurationError, match=r"^fetch: unique=1: a unique key is a text"):
            record({"unique": not_a_text})

    def test_none_takes_the_rule_of_the_task_back(self) -> None:
        assert record({"unique": True}, {"unique": None}).unique is None
        assert record({"unique": True}, {"unique": "mine"}).unique == "mine"


class TestForeign:
    def test_a_task_of_another_program_takes_plain_values_by_name(self) -> None:
        one = foreign_record("far", {"delay": 1}, (), {"x": [1, None, "é"], "y": 0.5})
        assert (one.task, one.queue, one.args, one.delay_ms) == ("far", "default", '{"x":[1,null,"é"],"y":0.5}', 1_000)
        assert (one.max_attempts, one.retention_ms) == (None, None)

    def test_it_refuses_what_it_cannot_know(self) -> None:
        with pytest.raises(
            ArgumentError, match=r"^far: this program does not have the task, so give its arguments by name"
        ):
            foreign_record("far", {}, (1,), {})
        with pytest.raises(ArgumentError, match=r"'when'.*This program does not have the task: only text, numbers"):
            foreign_record("far", {}, (), {"when": NOON})


LIMITS: list[TaskOptions] = [{"timeout": "5s"}, {"stall_after": "5s"}]


class TestLanes:
    """What must be ended from outside, whatever its code is at, needs a process of its own."""

    @pytest.mark.parametrize("limit", LIMITS)
    def test_a_def_with_a_limit_has_a_process_unless_it_says_otherwise(self, limit: TaskOptions) -> None:
        assert TaskPlan.of(limit, is_async=False).lane == "solo"
        assert TaskPlan.of(limit | {"process": False}, is_async=False).lane is None
        assert TaskPlan.of(limit | {"process": False, "long": True}, is_async=False).lane == "long"
        assert TaskPlan.of(limit, is_async=True).lane is None, "a coroutine can be cut"
        assert TaskPlan.of(limit | {"process": True}, is_async=True).lane == "solo"

    def test_without_a_limit(self) -> None:
        none: TaskOptions = {"timeout": None, "stall_after": None}
        assert TaskPlan.of(none, is_async=False).lane is None
        assert TaskPlan.of({"process": True}, is_async=False).lane == "solo"
        assert TaskPlan.of({"on_lease_doubt": "stop"}).lane == "solo"
        assert TaskPlan.of({"long": True}).lane == "long"

    def test_the_limits_are_in_the_plan(self) -> None:
        plan = TaskPlan.of({"timeout": "5s", "stall_after": 2.5, "on_lease_doubt": "stop"})
        assert (plan.timeout_ms, plan.stall_ms, plan.stops_in_doubt) == (5_000, 2_500, True)
        plan = TaskPlan.of({})
        assert (plan.timeout_ms, plan.stall_ms, plan.stops_in_doubt) == (0, 0, False)

    @pytest.mark.parametrize(
        ("task", "call", "lane"),
        [
            ({}, {"timeout": "5s"}, "solo"),
            ({}, {"timeout": None}, None),
            ({}, {}, None),
            ({"process": False}, {"timeout": "5s"}, None),
            ({"process": False}, {"timeout": "5s", "long": True}, "long"),
            ({}, {"timeout": "5s", "long": True}, "solo"),
            ({"timeout": "9s"}, {"timeout": "5s"}, None),  # as its task, which is solo
        ],
    )
    def test_a_call_with_a_limit_of_its_own(self, task: TaskOptions, call: CallOptions, lane: str | None) -> None:
        assert record(task, call).lane == lane

    def test_the_calls_limit_is_in_the_record(self) -> None:
        assert record({}, {"timeout": "5s"}).timeout_ms == 5_000
        assert record({"timeout": "9s"}, {"timeout": None}).timeout_ms == 0
        assert record({"timeout": "9s"}, {}).timeout_ms is None, "the worker's own options hold"
