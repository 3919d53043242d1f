"""Where the demo plays: a directory of its own with a server in it, and processes that end when the demo does.

Everything lies under one temporary directory, which goes at the end: the server's data, the ledger, what the workers
say. The order at the end is processes, server, directory, and it is kept on Ctrl-C, on SIGTERM and on errors. If the
demo itself is killed, the server goes because its last owner is gone, and the workers see that or their parent's death;
only the directory stays.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from stillhere.backends.redis.embedded import EmbeddedServer, ensure_embedded
from stillhere.demo.jobs import PARENT
from stillhere.demo.ledger import VARIABLE, Ledger, Story

_STOP_S = 3.0
_TAIL_LINES = 15


@dataclass(frozen=True)
class Plan:
    """The figures of a play."""

    workers: int = 6
    lease_s: float = 4.0
    """Lease length here; the idle limit in the naive pool."""
    long_s: float = 22.0
    shorts: int = 300
    short_s: float = 0.3
    spread_s: float = 20.0
    """The short jobs come evenly over this time."""
    files: int | None = None
    """Only the first so many files; None: all."""
    limit_s: float = 27.5
    """Whatever has not ended by then, counts as lost."""


class Failed(Exception):
    """The play could not go on; the text says why, with the last lines of what the workers said."""


class Stage:
    """The directory, the server and the processes."""

    def __init__(self, directory: Path, server: EmbeddedServer) -> None:
        self.directory = directory
        self.server = server
        self.ledger = Ledger(directory / "ledger")
        self.log = directory / "workers.log"
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        """The server's address."""
        return self.server.url

    def story(self) -> Story:
        """A reader of the ledger."""
        return Story(self.ledger.path)

    def start(self, *words: str, environ: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a Python program in a session of its own (Ctrl-C is ours to handle), its words going to the log."""
        base = {name: text for name, text in os.environ.items() if not name.startswith("STILLHERE_")}
        told = {VARIABLE: str(self.ledger.path), PARENT: str(os.getpid())}
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=base | told | dict(environ or {}),
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def must_live(self) -> None:
        """Raise `Failed` when a process of ours has ended by itself."""
        for process in self._processes:
            if process.poll() is not None:
                said = self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
                raise Failed("\n".join([f"a worker ended by itself ({process.returncode}):", *said]))

    def errors_logged(self) -> int:
        """Lines that speak of an error or a warning."""
        text = self.log.read_text(errors="replace").lower()
        return sum("error" in line or "warning" in line for line in text.splitlines())

    def close(self) -> None:
        """End all processes: asked first, then killed, each with its session."""
        for process in self._processes:
            process.terminate()
        over = time.monotonic() + _STOP_S
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, over - time.monotonic()))
        for process in self._processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@contextlib.contextmanager
def stage() -> Iterator[Stage]:
    """Set up, and clean up whatever happens."""
    directory = Path(tempfile.mkdtemp(prefix="stillhere-demo-"))
    logger = logging.getLogger("stillhere")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # its words about an embedded store are for people who use one
    before = signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        server = ensure_embedded(directory, environ={})
        built = Stage(directory, server)
        try:
            yield built
        finally:
            impatient = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would leave half of it behind
            built.close()
            server.close()
            _remove(directory)
            signal.signal(signal.SIGINT, impatient)
    finally:
        signal.signal(signal.SIGTERM, before)
        logger.setLevel(level)
        _remove(directory)


def _remove(directory: Path) -> None:
    """Again until it is gone: a server on its way out still writes its last words."""
    over = time.monotonic() + _STOP_S
    while directory.exists() and time.monotonic() < over:
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(0.01)


def _as_interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
