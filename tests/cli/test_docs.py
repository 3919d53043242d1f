"""The page of the command line is what the program says."""

from __future__ import annotations

from docs.draw_cli import BEGIN, END, PAGE, drawn
from stillhere.cli.environment import option_names
from stillhere.cli.exits import Code


def test_the_tables_are_not_stale() -> None:
    text = PAGE.read_text()
    assert BEGIN in text
    assert END in text
    assert drawn(text) == text, "run `make docs`"


def test_every_variable_of_an_option_that_is_shown_is_in_it() -> None:
    hidden = {"STILLHERE_DEMO_" + name for name in ("LEASE", "SECONDS", "SHORTS", "SPREAD", "FILES", "LIMIT")}
    for name in set(option_names()) - hidden:
        assert f"`{name}`" in PAGE.read_text()


def test_every_exit_code_is_in_it() -> None:
    told = {line.split("|")[1].strip() for line in PAGE.read_text().splitlines() if line.startswith("| ")}
    assert {str(int(code)) for code in Code if code is not Code.BROKEN_PIPE} <= told
