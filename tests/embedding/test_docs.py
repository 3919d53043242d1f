"""The programs of the page on embedding do what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stillhere import App
from tests.support.servers import RedisServer

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "embedding.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def run(place: Path, server: RedisServer, namespace: str, *words: str) -> str:
    """A program in this directory; what it says."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("STILLHERE_")}
    told = {"PYTHONPATH": str(ROOT / "src"), "STILLHERE_URL": server.url, "STILLHERE_NAMESPACE": namespace}
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=place, env=kept | told, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_script_and_its_test(tmp_path: Path, valkey_server: RedisServer, namespace: str) -> None:
    for block in BLOCKS:
        if name := re.match(r"# (\w+\.py)\n", block):
            (tmp_path / name[1]).write_text(block)
    assert run(tmp_path, valkey_server, namespace, "script.py") == "42\n"
    assert "1 passed" in run(tmp_path, valkey_server, namespace, "-m", "pytest", "-q", "test_double.py")


def test_the_cells_of_the_notebook(app: App[None]) -> None:
    @app.task
    def where() -> str:
        return threading.current_thread().name

    start, stop = [block for block in BLOCKS if block.startswith("worker")]
    cells = {"app": app}
    exec(start, cells)
    try:
        assert where.enqueue_sync().result("10s").startswith("stillhere-job")
    finally:
        exec(stop, cells)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_each_block_is_a_program(block: str) -> None:
    compile(block, str(PAGE), "exec")
