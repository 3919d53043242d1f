"""What a supervisor makes of a `hello`: the worker's first lines, and whom it cannot speak for."""

from __future__ import annotations

from typing import Any

import pytest

from stillhere.domain.lease import plan_for
from stillhere.worker.control import PROTOCOL
from stillhere.worker.settings import WorkerSettings
from stillhere.worker.supervisor.greeting import greeting, refusal, shown


def hello(**other: Any) -> dict[str, Any]:
    usual = {
        "proto": PROTOCOL,
        "url": "redis://h:6379/0",
        "origin": "STILLHERE_URL",
        "namespace": "ns",
        "queues": {"default": 1},
        "tasks": 1,
        "task_names": ["send"],
        "version": "1.2",
    }
    return usual | other


def test_g14_the_lines_name_the_store_the_places_and_the_bound() -> None:
    assert greeting(WorkerSettings(app="a:b", processes=2, slots=10, overflow=5), hello(), plan_for(30.0)) == [
        "stillhere 1.2: store redis://h:6379/0 (from STILLHERE_URL), namespace ns",
        "Knows 1 task: send. Queues: default.",
        "2 processes x 10 slots = 20 jobs at once, and up to 10 long ones beside them.",
        "Lease 30s: a dead process's jobs are ready again within 1 s, a dead host's within 40 s. Grace 8s.",
    ]


@pytest.mark.parametrize(
    ("overflow", "says"), [(0, "Without long places"), (4, "--overflow 4 is less"), (5, ""), (None, "")]
)
def test_too_few_long_places_are_told(overflow: int | None, says: str) -> None:
    lines = greeting(WorkerSettings(app="a:b", slots=10, overflow=overflow), hello(), plan_for(30.0))
    assert (lines[4:] == []) == (says == "")
    assert all(line.startswith(says) for line in lines[4:])


def test_only_so_many_names_are_shown() -> None:
    lines = greeting(
        WorkerSettings(app="a:b"), hello(tasks=60, task_names=["a", "b"], queues={"x": 2, "y": 1}), plan_for(30.0)
    )
    assert "Knows 60 tasks: a, b, .... Queues: x (weight 2), y." in lines


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("redis://h:6379/0", "redis://h:6379/0"),
        ("redis://user:secret@h/0", "redis://***@h/0"),
        ("rediss://:sec@ret@h", "rediss://***@h"),
        ("redis://user:sec/ret@h", "redis://***@h"),
        ("unix:///s?password=secret&db=1", "unix:///s?password=***&db=1"),
        ("embedded://", "embedded://"),
    ],
)
def test_no_password_is_shown(url: str, seen: str) -> None:
    assert shown(url) == seen


def test_whom_it_cannot_speak_for() -> None:
    assert refusal(hello(), None) == ""
    assert refusal(hello(), ("redis://h:6379/0", "ns")) == ""
    assert "another version" in refusal(hello(proto=PROTOCOL + 1), None)
    assert "another version" in refusal({"m": "hello"}, None)
    assert "another store" in refusal(hello(), ("redis://h:6379/0", "other"))
    assert "another store" in refusal(hello(url="redis://i"), ("redis://h:6379/0", "ns"))
    many = {f"q{n}": 1 for n in range(257)}
    assert refusal(hello(queues=many), None).startswith("257 queues are too many")
