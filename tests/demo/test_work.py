"""The long job's work: real files, a fingerprint that shows each file taken once and in order, a pace that holds."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stillhere.demo.work import Tally, expected, library_files, read_all


def test_the_library_is_found_and_nothing_foreign() -> None:
    files = library_files()
    assert len(files) > 200
    assert files == sorted(files)
    assert any(path.name == "ast.py" for path in files)
    assert not any("site-packages" in path.parts for path in files)
    assert library_files(5) == files[:5]


def test_what_is_read_is_what_is_expected() -> None:
    files = library_files(30)
    *_, last = read_all(files, Tally(), 0.0)
    assert last == expected(files)
    assert (last.files, last.size) == (30, sum(path.stat().st_size for path in files))
    assert last.functions > 100


def test_going_on_behind_any_file_comes_to_the_same() -> None:
    files = library_files(20)
    whole = list(read_all(files, Tally(), 0.0))
    for stop in (1, 7, 19):
        *_, resumed = read_all(files, whole[stop - 1], 0.0)
        assert resumed == whole[-1]


@pytest.mark.parametrize("order", [[0, 2], [0, 1, 1, 2], [1, 0, 2], [0, 1]])
def test_the_fingerprint_betrays_a_file_left_out_taken_twice_or_out_of_order(order: list[int]) -> None:
    files = library_files(3)
    assert expected([files[index] for index in order]).fingerprint != expected(files).fingerprint


def test_the_pace_holds_and_a_resumed_run_takes_the_rest_of_it() -> None:
    files = library_files(40)
    start = time.monotonic()
    whole = list(read_all(files, Tally(), 0.4))
    assert 0.39 < time.monotonic() - start < 1.5
    half = next(tally for tally in whole if tally.size > whole[-1].size / 2)
    start = time.monotonic()
    list(read_all(files, half, 0.4))
    assert time.monotonic() - start < 0.4


def test_files_that_do_not_parse_are_read_all_the_same(tmp_path: Path) -> None:
    for name, text in (("a", b"def f(:\n"), ("b", b"\x00"), ("c", b"def f(): ...\n    async def g(): ...\n# def h\n")):
        (tmp_path / name).write_bytes(text)
    *_, last = read_all(sorted(tmp_path.iterdir()), Tally(), 0.05)
    assert (last.files, last.functions) == (3, 3)
