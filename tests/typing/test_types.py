"""The public types under mypy and pyright, both strict: the right file is green, the wrong one red where it says so.

A marked line may be part of a statement that a checker reports on its first line, so marks stand on one-line statements
only. The checkers run as programs, from the environment that runs the tests; pyright brings its own node.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
RIGHT = HERE / "right" / "face.py"
WRONG = HERE / "wrong" / "face.py"
Checker = Callable[[Path, Path], dict[int, str]]
MARK = re.compile(r"# wrong$")

PYRIGHT_RULES = """{
  "typeCheckingMode": "strict",
  "pythonVersion": "3.11",
  "extraPaths": ["%s"],
  "include": ["%s"],
  "reportUnusedCoroutine": "error",
  "reportUnnecessaryTypeIgnoreComment": "error"
}"""


def marked(file: Path) -> set[int]:
    """Return the numbers of the lines that say they are wrong."""
    return {number for number, line in enumerate(file.read_text().splitlines(), 1) if MARK.search(line)}


def run(*command: str, cwd: Path) -> str:
    """Run a checker; its exit code is no news, since the wrong file must have errors."""
    environ = os.environ | {"MYPYPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, *command], cwd=cwd, env=environ, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.stdout


def mypy(file: Path, scratch: Path) -> dict[int, str]:
    """Return mypy's errors in the file by line."""
    config = scratch / "mypy.ini"
    config.write_text("[mypy]\nstrict = true\nenable_error_code = unused-awaitable\npython_version = 3.11\n")
    out = run(
        "-m", "mypy", "--config-file", str(config), "--cache-dir", str(ROOT / ".mypy_cache"), str(file), cwd=scratch
    )
    found = re.findall(rf"^.*{re.escape(file.parent.name)}/{file.name}:(\d+): error: (.*)$", out, re.MULTILINE)
    elsewhere = [
        line for line in out.splitlines() if ": error:" in line and f"{file.parent.name}/{file.name}" not in line
    ]
    assert not elsewhere, elsewhere
    return {int(line): text for line, text in found}


def pyright(file: Path, scratch: Path) -> dict[int, str]:
    """Return pyright's errors in the file by line."""
    copy = scratch / file.name
    shutil.copy(file, copy)  # pyright looks at nothing outside the directory of its configuration
    (scratch / "pyrightconfig.json").write_text(PYRIGHT_RULES % (ROOT / "src", file.name))
    out = json.loads(run("-m", "pyright", "--project", str(scratch), "--outputjson", cwd=scratch))
    assert out["summary"]["filesAnalyzed"] == 1, out
    errors = [item for item in out["generalDiagnostics"] if item["severity"] == "error"]
    assert all(Path(item["file"]).name == file.name for item in errors), errors
    return {item["range"]["start"]["line"] + 1: item["message"] for item in errors}


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_what_users_write_is_green(checker: Checker, tmp_path: Path) -> None:
    assert checker(RIGHT, tmp_path) == {}


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_each_mistake_is_red_and_nothing_else(checker: Checker, tmp_path: Path) -> None:
    errors = checker(WRONG, tmp_path)
    wanted = marked(WRONG)
    assert len(wanted) >= 30
    missed = {line: WRONG.read_text().splitlines()[line - 1].strip() for line in sorted(wanted - set(errors))}
    extra = {line: errors[line] for line in sorted(set(errors) - wanted)}
    assert (missed, extra) == ({}, {})
