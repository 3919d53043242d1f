"""The embedded default: a real Valkey in a project's ``.stillhere/``, shared by the project's processes.

Called by `stores` for ``embedded://``, from any thread. The first process of a project starts the server, the others
join it, and when the last one is gone, however it went, so is the server; what was enqueued lies on disk for the next
start. Where the directory lies is decided in `embedded_place`; how the server is started, watched and ended, and what
each kind of crash leaves, is told in `embedded_guard`.

A process is an *owner* from before it looks for the server until it has closed every `EmbeddedServer` of it, or ends.
That is one shared lock, so order is all that matters here: first be an owner (after this no guard stops the server any
more), then look. Found: done. Not found: whoever gets the guard's lock starts a guard and hands it that lock; the rest
look again a moment later. Death between two lines leaves no lock, so the next to look goes on from there.

A forked child shares its parent's lock: it is an owner as long as it lives, whether or not the parent does. A program
that it executes is not one: the descriptor closes at exec.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote

from stillhere.backends.redis import embedded_guard as guard
from stillhere.backends.redis.embedded_place import find_store, place_socket, prepare_store, server_binary, store_in
from stillhere.domain.errors import ConfigurationError, StoreUnavailable

_log = logging.getLogger("stillhere")

_PATIENCE_S = 15.0  # more than the guard's own, which knows the better words
_LOOK_AGAIN_S = 0.002
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TZ")


def ensure_embedded(directory: Path | None = None, *, environ: Mapping[str, str] = os.environ) -> EmbeddedServer:
    """The running embedded server of this project, started if need be; this process is an owner until it is closed.

    Without `directory` the place is found by `STILLHERE_EMBEDDED` or from the project; see `embedded_place.find_store`.
    Raises `ConfigurationError` where there can be no embedded store, `StoreUnavailable` where it does not come up.
    """
    if sys.platform == "win32":
        msg = "The embedded store does not run on Windows. Set STILLHERE_URL=redis://... or postgresql://..."
        raise ConfigurationError(msg)
    store = find_store(environ) if directory is None else _given(directory, environ)
    with _lock:
        membership = _memberships.get(store)
        if membership is None:
            membership = _Membership(store, server_binary(), environ)
        membership.ensure()
        membership.handles += 1
        _memberships[store] = membership
    return EmbeddedServer(membership)


def _given(directory: Path, environ: Mapping[str, str]) -> Path:
    if environ.get("STILLHERE_EMBEDDED", "").strip().lower() == "never":
        find_store(environ)  # says so
    return store_in(directory)


class EmbeddedServer:
    """One user's hold on the server; close it when done, or let the end of the process do so."""

    def __init__(self, membership: _Membership) -> None:
        self._membership = membership
        self._closed = False
        self.directory = membership.store

    @property
    def url(self) -> str:
        """For redis-py: ``unix:///path/of/the/socket?db=0``."""
        return self._membership.url

    @property
    def version(self) -> str:
        """The server's version: ``9.1.2``."""
        return self._membership.version

    def ensure(self) -> None:
        """See to it that the server is there and answers: a fraction of a millisecond when it does.

        For use when a connection fails: a guard that was killed took the server with it, and only an owner can start
        both again.
        """
        with _lock:
            if not self._closed:
                self._membership.ensure()

    def close(self) -> None:
        """Give up this hold. With the last one in this process, the process is no owner any more."""
        with _lock:
            if self._closed:
                return
            self._closed = True
            self._membership.handles -= 1
            if not self._membership.handles:
                _memberships.pop(self.directory, None)
                self._membership.leave()

    def __repr__(self) -> str:
        return f"EmbeddedServer({str(self.directory)!r}, version={self.version!r})"


class _Membership:
    """This process among the owners of one store. Guarded by `_lock`."""

    def __init__(self, store: Path, binary: Path, environ: Mapping[str, str]) -> None:
        self.store = store
        self.binary = binary
        self.environ = environ
        self.handles = 0
        self.owner_fd: int | None = None
        self.url = ""
        self.version = ""

    def ensure(self) -> None:
        try:
            if self.owner_fd is not None and self._is_here(self.owner_fd):
                self._find_server()
            else:
                self.leave()
                self._join()
        except OSError as error:
            msg = (
                f"The embedded store in {self.store} cannot be used: {error.strerror or error}. "
                "Set STILLHERE_URL, or STILLHERE_EMBEDDED=/a/directory elsewhere."
            )
            raise ConfigurationError(msg) from error

    def leave(self) -> None:
        """Close, never unlock: unlocking would take the lock from forked processes too."""
        if self.owner_fd is not None:
            os.close(self.owner_fd)
            self.owner_fd = None

    def _is_here(self, fd: int) -> bool:
        """Whether our lock is on the store that lies there now: somebody may have removed the directory meanwhile."""
        try:
            return os.path.samestat(os.fstat(fd), (self.store / guard.OWNERS_LOCK).stat())
        except FileNotFoundError:
            return False

    def _join(self) -> None:
        prepare_store(self.store)
        self.owner_fd = self._become_owner()
        try:
            self._find_server()
        except BaseException:
            self.leave()
            raise
        _announce(self.store)

    def _become_owner(self) -> int:
        """At once, or when the guard that is just ending an unused server has done so."""
        over = time.monotonic() + _PATIENCE_S
        while (fd := guard.try_lock(self.store / guard.OWNERS_LOCK, fcntl.LOCK_SH)) is None:
            if time.monotonic() > over:
                self._complain(f"its last server is still not gone after {_PATIENCE_S:.0f} s")
            time.sleep(_LOOK_AGAIN_S)
        return fd

    def _find_server(self) -> None:
        """Until it answers; whoever finds it without a guard starts one."""
        over = time.monotonic() + _PATIENCE_S
        while True:
            guard_fd = guard.try_lock(self.store / guard.GUARD_LOCK)
            if guard_fd is not None:
                self._start_guard(guard_fd)
            record = guard.read_record(self.store)
            path = os.fspath(self.store / record["socket"]) if "socket" in record else ""
            match guard.state_of(path) if path else "away":
                case "up":
                    self.url = f"unix://{quote(path)}?db=0"
                    self.version = record.get("version", "unknown")
                    return
                case "loading":
                    over = time.monotonic() + _PATIENCE_S
            if time.monotonic() > over:
                self._complain(_why_away(record, path))
            time.sleep(_LOOK_AGAIN_S)

    def _start_guard(self, guard_fd: int) -> None:
        """Hand the lock to a new guard and wait until it says how it went; returns also if it dies without a word."""
        _in_transit.add(guard_fd)
        read, write = os.pipe()
        try:
            try:
                self._run_guard(guard_fd, write)
            finally:
                _in_transit.discard(guard_fd)
                os.close(guard_fd)
                os.close(write)
            self._await_report(read)
        finally:
            os.close(read)

    def _run_guard(self, guard_fd: int, report_fd: int) -> None:
        """It leaves our family at once, so this is over in a few milliseconds and no child of ours is left."""
        socket_path = place_socket(self.store, self.environ)
        if socket_path.parent == self.store:
            socket_path = Path(socket_path.name)
        subprocess.run(
            [sys.executable, "-I", "-S", guard.__file__, socket_path, self.binary, str(guard_fd), str(report_fd)],
            cwd=self.store,
            env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(guard_fd, report_fd),
            check=False,
        )

    def _await_report(self, pipe: int) -> None:
        said = b""
        waiting = select.poll()  # not `select`: a program may have thousands of files open
        waiting.register(pipe, select.POLLIN)
        while waiting.poll(1000 * _PATIENCE_S):
            piece = os.read(pipe, 4096)
            said += piece
            *lines, rest = said.decode(errors="replace").split("\n")
            words = [line for line in lines if line != guard.WAIT]
            if words and words[0] != guard.READY:
                self._complain(words[0])
            if words or not piece:
                return
            said = rest.encode()
        self._complain(f"its guard has not said a word for {_PATIENCE_S:.0f} s")

    def _complain(self, why: str) -> NoReturn:
        msg = (
            f"The embedded store in {self.store} is not available: {why}. "
            f"See {self.store / guard.LOG}, or set STILLHERE_URL to use a server."
        )
        raise StoreUnavailable(msg)


def _why_away(record: Mapping[str, str], path: str) -> str:
    if record.get("host", os.uname().nodename) != os.uname().nodename:
        return f"it is served from another host or container ({record['host']}) and its socket does not reach here"
    return f"a process that guards it is there, but no server answers at {path or 'any socket'}"


def _announce(store: Path) -> None:
    """Once for each process and store: the one thing that nobody must miss about it."""
    if store not in _announced:
        _announced.add(store)
        _log.warning(
            "embedded store in %s: only processes of this project on this machine see it; "
            "set STILLHERE_URL for anything else",
            store,
        )


_lock = threading.Lock()
_memberships: dict[Path, _Membership] = {}
_announced: set[Path] = set()
_in_transit: set[int] = set()


def _after_fork() -> None:
    """In a forked child: a lock that is on its way to a guard is not ours to keep, nor is another thread's lock."""
    global _lock  # noqa: PLW0603 - a lock held by a thread that does not exist here can only be replaced
    _lock = threading.Lock()
    while _in_transit:
        os.close(_in_transit.pop())


os.register_at_fork(after_in_child=_after_fork)
