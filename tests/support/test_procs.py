"""Starting, looking at and ending real processes works before anything relies on it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.procs import RealProcess, alive, children, descendants, eventually, state
from tests.support.servers import RedisServer

TREE = """
import os, sys, time
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
    time.sleep(600)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], RealProcess]]:
    started: list[RealProcess] = []

    def start(program: str) -> RealProcess:
        started.append(RealProcess([sys.executable, "-c", program], log=tmp_path / f"log{len(started)}"))
        return started[-1]

    yield start
    for process in started:
        process.close()


Start = Callable[[str], RealProcess]


def test_what_a_process_says_and_how_it_ends(start: Start) -> None:
    process = start("print('hello'); raise SystemExit(3)")
    process.wait_for("hello")
    assert process.wait() == 3
    with pytest.raises(AssertionError, match="without saying 'more'"):
        process.wait_for("more")


def test_the_whole_tree_dies_together_whoever_the_parents_are(start: Start) -> None:
    process = start(TREE)
    process.wait_for("ready")
    tree = eventually(lambda: pids if len(pids := process.everything()) == 3 else [])
    assert process.pid in tree
    assert len(children(process.pid)) == 1
    assert len(descendants(process.pid)) == 2
    process.kill9_all()
    assert not any(alive(pid) for pid in tree)


def test_a_stopped_process_shows_as_stopped(start: Start) -> None:
    process = start("import time; print('ready', flush=True); time.sleep(600)")
    process.wait_for("ready")
    process.signal(signal.SIGSTOP)
    eventually(lambda: state(process.pid) == "T")
    process.signal(signal.SIGCONT)
    eventually(lambda: state(process.pid) == "S")


def test_a_process_dies_with_the_test_that_started_it(start: Start, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    process = start(
        "import sys, time\n"
        "from pathlib import Path\n"
        "from tests.support.procs import RealProcess\n"
        f"p = RealProcess([sys.executable, '-c', 'import time; time.sleep(600)'], log=Path({str(inner)!r}))\n"
        "print('pid', p.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    process.wait_for("pid")
    pid = int(process.log.split()[1])
    assert alive(pid)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    eventually(lambda: not alive(pid))


def test_a_server_keeps_its_address_and_data_over_kill_and_restart(
    make_server: Callable[..., RedisServer], redis_server: RedisServer
) -> None:
    server = make_server(redis_server.flavour, append_only=True, tcp=True)
    url = server.url
    server.client().set("k", "v")
    server.restart(hard=True)
    assert server.url == url
    assert server.client().get("k") == "v"
    server.sigstop()
    eventually(lambda: state(server.pid) == "T")
    server.sigcont()
    assert server.client().ping()


def test_versions_are_what_the_flavours_say(valkey_server: RedisServer, redis62_server: RedisServer) -> None:
    assert str(valkey_server.info("server")["valkey_version"]).startswith("9.")
    assert str(redis62_server.info("server")["redis_version"]).startswith("6.2.")
