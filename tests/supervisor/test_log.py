"""Logging that cannot block: bounded, dropping with a count, and never a lock at the end."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator

import pytest

from stillhere.worker.supervisor import log as module
from stillhere.worker.supervisor.log import QueueLog
from tests.support.procs import eventually


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    for end in (read, write):
        try:
            os.close(end)
        except OSError:
            continue


def record(text: str, *args: object) -> logging.LogRecord:
    return logging.LogRecord("x", logging.INFO, __file__, 1, text, args, None)


def test_lines_come_out_in_order(pipe: tuple[int, int]) -> None:
    handler = QueueLog(pipe[1])
    for number in range(3):
        handler.emit(record("line %d", number))
    handler.finish(5)
    assert os.read(pipe[0], 4096) == b"line 0\nline 1\nline 2\n"


def test_a_pipe_that_nobody_reads_costs_lines_and_no_time(pipe: tuple[int, int]) -> None:
    handler = QueueLog(pipe[1])
    begun = time.monotonic()
    for number in range(3 * module.LIMIT):
        handler.emit(record("%d " + "x" * 1000, number))
    handler.finish(0.1)
    assert time.monotonic() - begun < 2
    seen = b""
    while b"lines were dropped here" not in seen:  # read it after all
        seen += os.read(pipe[0], 1 << 16)
        handler.emit(record("more"))
    assert b"\n0 xxx" in b"\n" + seen


def test_a_record_that_cannot_be_formatted_is_told_and_the_next_one_written(pipe: tuple[int, int]) -> None:
    handler = QueueLog(pipe[1])
    handler.emit(record("%d", "no number"))
    handler.emit(record("next"))
    handler.finish(5)
    assert os.read(pipe[0], 4096) == b"(a line could not be written: '%d')\nnext\n"


def test_an_end_that_was_closed_is_survived(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    handler = QueueLog(pipe[1])
    for _ in range(2 * module.LIMIT):
        handler.emit(record("into the void"))
    eventually(handler._records.empty, 5)
    handler.finish(5)
    assert not handler._thread.is_alive()


def test_with_no_standard_error_at_all_nothing_is_written() -> None:
    handler = QueueLog(None)
    handler.emit(record("nobody"))
    handler.finish(5)
    assert not handler._thread.is_alive()
