"""Whatever is killed, and whenever: no orphan, no stale lock, nothing that was answered is lost."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import redis

from stillhere.backends.redis.embedded import EmbeddedServer
from stillhere.backends.redis.embedded_guard import OWNERS_LOCK, SERVER_LOCK, try_lock
from stillhere.domain.errors import StoreUnavailable
from tests.embedded.conftest import OWNER, Project
from tests.support.procs import RealProcess, alive, eventually, kill

Hold = Callable[[Path], EmbeddedServer]
Client = Callable[[EmbeddedServer | RealProcess], redis.Redis]

CHURN = """
import random
import redis
server.close()
for n in range(int(sys.argv[2])):
    server = ensure_embedded(Path(sys.argv[1]))
    client = redis.Redis.from_url(server.url)
    client.incr("n")
    client.close()
    server.close()
    time.sleep(random.random() * float(sys.argv[3]))
print("done", flush=True)
"""


def died(pid: int) -> bool:
    return not alive(pid)


def test_a_killed_server_comes_back_by_itself(project: Project, client: Client) -> None:
    connected = client(project.owner())
    connected.set("k", "v")
    guard, server = project.guard, project.server
    os.kill(server, signal.SIGKILL)

    def answers() -> bool:
        try:
            return connected.get("k") == "v"
        except redis.ConnectionError:
            return False

    eventually(answers)
    assert project.guard == guard
    assert project.server != server
    assert "killed by SIGKILL" in project.log()
    os.kill(project.server, signal.SIGKILL)  # at once again: it pauses, and comes back
    eventually(answers)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the server outlives its guard until the next owner")
def test_a_killed_guard_takes_the_server_along_and_an_owner_brings_both_back(
    project: Project, hold: Hold, client: Client
) -> None:
    server = hold(project.directory)
    client(server).set("k", "v")
    old = project.processes()
    os.kill(project.guard, signal.SIGKILL)
    eventually(lambda: not set(old) & set(project.processes()))
    server.ensure()
    assert client(server).get("k") == "v"
    assert len(project.processes()) == 2


def test_two_owners_that_miss_the_guard_start_one(project: Project, hold: Hold, client: Client) -> None:
    server = hold(project.directory)
    other = project.owner("for line in sys.stdin: pass\nwhile True:\n    server.ensure()\n    time.sleep(0.001)\n")
    for _ in range(5):
        old = eventually(lambda: found if len(found := project.processes()) == 2 else [])
        os.kill(project.guard, signal.SIGKILL)
        for pid in old:
            eventually(partial(died, pid))
        server.ensure()
        assert client(server).ping()
    assert len(project.processes()) == 2
    other.close()


def test_a_start_waits_for_the_last_writer_of_the_file(project: Project, client: Client) -> None:
    project.owner().kill9_all()
    project.gone()
    writer = try_lock(project.store / SERVER_LOCK)
    assert writer is not None
    owner = project.owner(wait=False)
    eventually(project.processes)
    time.sleep(0.3)  # five times what a start takes
    assert project.processes() == [project.guard]
    os.close(writer)
    owner.wait_for("up")
    assert try_lock(project.store / SERVER_LOCK) is None  # the server is the writer now
    assert client(owner).ping()


def test_everything_killed_at_once_leaves_nothing_in_the_way(project: Project, client: Client) -> None:
    owner = project.owner()
    client(owner).set("k", "v")
    kill([owner.pid, project.guard, project.server])
    assert (project.store / "valkey.sock").exists()
    assert client(project.owner()).get("k") == "v"


def test_a_torn_tail_of_the_file_costs_only_what_was_never_answered(project: Project, client: Client) -> None:
    owner = project.owner()
    for n in range(100):
        client(owner).set(f"k{n}", "v" * 100)
    kill([owner.pid, project.guard, project.server])
    eventually(lambda: not project.processes())
    [file] = (project.store / "appendonlydir").glob("*.incr.aof")
    os.truncate(file, file.stat().st_size - 50)
    fresh = client(project.owner())
    assert fresh.dbsize() == 99
    assert fresh.get("k98") == "v" * 100


def test_a_damaged_file_is_said_to_be_and_left_as_it_is(project: Project, hold: Hold, client: Client) -> None:
    owner = project.owner()
    for n in range(100):
        client(owner).set(f"k{n}", "v" * 100)
    owner.kill9_all()
    project.gone()
    [file] = (project.store / "appendonlydir").glob("*.incr.aof")
    damaged = bytearray(file.read_bytes())
    damaged[2000:2200] = b"\0" * 200
    file.write_bytes(damaged)
    with pytest.raises(StoreUnavailable) as caught:
        hold(project.directory)
    assert "Bad file format" in str(caught.value)
    assert str(project.store / "server.log") in str(caught.value)
    assert file.read_bytes() == damaged
    project.gone()


def test_a_program_with_thousands_of_open_files_has_it_too(project: Project, hold: Hold, client: Client) -> None:
    many = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        assert client(hold(project.directory)).incr("n") == 1
    finally:
        for fd in many:
            os.close(fd)


def test_joining_at_the_moment_of_shutdown_always_works(project: Project, hold: Hold, client: Client) -> None:
    for n in range(1, 41):
        server = hold(project.directory)
        assert client(server).incr("n") == n
        server.close()
        time.sleep(n * 0.0025)  # the guard stops the server meanwhile: 0 to 100 ms into it


def test_many_processes_that_come_and_go_lose_nothing(project: Project, client: Client) -> None:
    owners = []
    for pause in ("0", "0.02", "0.1", "0.2"):
        log = project.directory / f"churn{pause}.log"
        owners.append(RealProcess([sys.executable, "-c", OWNER + CHURN, str(project.directory), "25", pause], log=log))
    try:
        for owner in owners:
            owner.wait_for("done", 60)
    finally:
        for owner in owners:
            owner.close()
    assert client(project.owner()).get("n") == "100"


def test_owners_killed_at_any_moment_of_their_start_leave_no_orphan(project: Project, client: Client) -> None:
    chance = random.Random(1)
    for _ in range(20):
        owner = project.owner(wait=False)
        time.sleep(0.05 + chance.random() * 0.15)
        owner.kill9_all()
    project.gone()
    assert client(project.owner()).ping()


def test_a_guard_killed_at_any_moment_of_its_start_is_replaced(project: Project) -> None:
    chance = random.Random(2)
    for _ in range(8):
        owner = project.owner(wait=False)
        eventually(project.processes)
        time.sleep(chance.random() * 0.06)
        kill(project.processes())
        owner.wait_for("up", 30)
        owner.kill9_all()
        project.gone()


def test_a_suspended_server_is_not_started_twice(project: Project, hold: Hold, monkeypatch: pytest.MonkeyPatch) -> None:
    project.owner()
    monkeypatch.setattr("stillhere.backends.redis.embedded._PATIENCE_S", 0.3)
    server = project.server
    os.kill(server, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailable, match="no server answers"):
            hold(project.directory)
    finally:
        os.kill(server, signal.SIGCONT)
    hold(project.directory)
    assert project.server == server


def test_an_operator_may_stop_the_guard(project: Project, hold: Hold, client: Client) -> None:
    server = hold(project.directory)
    client(server).set("k", "v")
    os.kill(project.guard, signal.SIGTERM)
    project.gone()
    server.ensure()
    assert client(server).get("k") == "v"


def test_a_store_removed_under_its_owners_is_made_anew_and_shared_again(
    project: Project, hold: Hold, client: Client
) -> None:
    server = hold(project.directory)
    client(server).set("k", "v")
    old = project.processes()
    shutil.rmtree(project.store)
    fresh = project.owner()
    for pid in old:
        eventually(partial(died, pid))
    server.ensure()
    assert client(server).get("k") is None
    client(server).set("k", "new")
    assert client(fresh).get("k") == "new"
    now = project.processes()
    fresh.kill9_all()
    shared = try_lock(project.store / OWNERS_LOCK, fcntl.LOCK_SH)
    assert shared is not None  # the guard has not taken it
    os.close(shared)
    assert try_lock(project.store / OWNERS_LOCK) is None  # because we are an owner of the new one
    assert project.processes() == now
