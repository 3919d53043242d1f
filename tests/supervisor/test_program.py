"""`stillhere worker` as a program: it hears signals from its first moment, also as process 1 of a container."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.procs import children, eventually

ROOT = Path(__file__).resolve().parents[2]
PATH = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}


def may_unshare() -> bool:
    program = shutil.which("unshare")
    return program is not None and subprocess.run([program, "-p", "-f", "true"], check=False).returncode == 0


def hears(pid: int, number: int) -> bool:
    """Whether a process has a handler for this signal."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = int(status.split("SigCgt:\t")[1].split()[0], 16)
    return bool(caught >> (number - 1) & 1)


def test_the_handlers_stand_before_the_command_line_is_imported() -> None:
    seen = subprocess.run(
        [sys.executable, "-m", "stillhere", "worker", "--help"],
        env=os.environ | PATH | {"PYTHONPROFILEIMPORTTIME": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    imports = [line.rpartition("|")[2].strip() for line in seen.stderr.splitlines() if line.startswith("import time:")]
    assert imports.index("stillhere.worker.supervisor.main") < imports.index("click")
    before = imports[: imports.index("stillhere.worker.supervisor.main")]
    assert not {"msgspec", "redis", "asyncio", "logging"} & set(before)


def test_other_verbs_keep_the_usual_signals() -> None:
    seen = subprocess.run(
        [sys.executable, "-m", "stillhere", "status", "--help"],
        env=os.environ | PATH | {"PYTHONPROFILEIMPORTTIME": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "stillhere.worker.supervisor" not in seen.stderr


@pytest.mark.skipif(not may_unshare(), reason="needs the right to make a process namespace")
def test_as_process_1_it_ends_on_a_signal_that_comes_before_it_is_ready() -> None:
    program = shutil.which("unshare") or ""
    worker = subprocess.Popen(
        [program, "-p", "-f", "--kill-child", sys.executable, "-m", "stillhere", "worker", "tests.faults.jobs:app"],
        cwd=ROOT,
        env=os.environ | PATH | {"STILLHERE_URL": "redis://127.0.0.1:1"},
        stderr=subprocess.PIPE,
    )
    try:
        (inner,) = eventually(lambda: children(worker.pid), 5)
        eventually(lambda: hears(inner, signal.SIGTERM), 10)
        os.kill(inner, signal.SIGTERM)
        _, said = worker.communicate(timeout=10)
        assert worker.returncode == 0
        assert b"SIGTERM: stopping" in said
        assert b"Knows" not in said, "no child was started for nothing"
    finally:
        worker.kill()
        worker.wait()
