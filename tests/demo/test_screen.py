"""The screen: rows keep their place on a terminal, plain lines elsewhere."""

from __future__ import annotations

import re

import pytest

from stillhere.demo.screen import Screen, bar, mark


def test_without_a_terminal_there_are_lines_and_no_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(live=False)
    screen.say("head")
    screen.picture(["a", "b"], "in short")
    screen.picture(["a", "b"], "too soon for another")
    screen.event(mark("bang", fg="red"))
    out = capsys.readouterr().out
    assert [re.sub(r"\d\d:\d\d", "mm:ss", line) for line in out.splitlines()] == [
        "head",
        "  mm:ss  in short",
        "  mm:ss  bang",
    ]


def test_on_a_terminal_the_picture_is_drawn_over_the_last_one(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(live=True)
    screen.picture(["one", "two"], "")
    screen.event("bang")
    screen.picture(["eins", "zwei"], "")
    screen.picture(["un", "deux"], "")
    out = capsys.readouterr().out
    assert out.startswith("one\ntwo\n")
    assert "\x1b[2F\x1b[Jeins\nzwei\n\n" in out
    assert "\x1b[4F\x1b[Jun\ndeux\n" in out, "two lines, an empty one and the event"
    assert out.count("bang") == 2, "events stay below the picture"


def test_a_line_never_wraps(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    screen = Screen(live=True)
    screen.picture([mark("x" * 50, fg="green"), mark("short", bold=True)], "")
    first, second = capsys.readouterr().out.splitlines()
    assert first == "x" * 18 + "…"
    assert "short" in second


def test_silent_for_json(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(live=False, silent=True)
    screen.say("head")
    screen.event("bang")
    screen.picture(["a"], "in short")
    assert capsys.readouterr().out == ""


def test_bar() -> None:
    assert set(bar(0, 10)) <= {"░", "."}
    assert set(bar(10, 10)) <= {"█", "#"}
    assert len(bar(3, 10)) == len(bar(99, 10)) == len(bar(0, 0)) == 30
