"""Real workers for tests: started like a user would, looked at through /proc, killed, suspended, always cleaned up.

Each worker is a session of its own with a mark in its environment, so `close` finds everything that came from it,
whoever its parent is by now, and ends it by process id.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from tests.support.servers import bound

T = TypeVar("T")

_MARK = "TEST_WORKER_MARK"
_ROOT = Path(__file__).resolve().parents[2]


def eventually(condition: Callable[[], T], timeout: float = 10.0, *, every: float = 0.01, what: object = "") -> T:
    """Ask until the answer is true, and give it back; `what` (a text, or a function for one) explains a failure."""
    over = time.monotonic() + timeout
    while not (answer := condition()):
        if time.monotonic() > over:
            words = what() if callable(what) else what
            raise AssertionError(f"not within {timeout} s: {words or condition}\nlast answer: {answer!r}")
        time.sleep(every)
    return answer


def state(pid: int) -> str:
    """The state letter of a process (R, S, T, Z, ...), or "" if there is none."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def alive(pid: int) -> bool:
    """Whether it runs or could run: a zombie does not."""
    return state(pid) not in ("", "Z", "X")


def children(pid: int) -> list[int]:
    """Its living children, oldest first."""
    return sorted(child for child in _pids() if (fields := _stat(child)) and int(fields[1]) == pid and fields[0] != "Z")


def descendants(pid: int) -> list[int]:
    """Children, their children, and so on."""
    found = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found


def marked(mark: str) -> list[int]:
    """Every living process with this text in its environment."""
    wanted = mark.encode()
    found = []
    for pid in _pids():
        with contextlib.suppress(OSError):
            if wanted in Path(f"/proc/{pid}/environ").read_bytes() and alive(pid):
                found.append(pid)
    return found


def kill(pids: Iterable[int], number: int = signal.SIGKILL) -> None:
    """Send a signal to each that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


class RealProcess:
    """A command of ours as a process in a session of its own, output to a file."""

    def __init__(
        self, command: list[str], *, log: Path, environ: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self.log_path = log
        self._mark = f"{_MARK}={secrets.token_hex(8)}"
        name, value = self._mark.split("=")
        paths = [str(_ROOT / "src"), str(_ROOT), os.environ.get("PYTHONPATH", "")]
        base = {key: text for key, text in os.environ.items() if not key.startswith("STILLHERE_")}
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                bound(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=cwd,
                env=base | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), name: value, **(environ or {})},
                start_new_session=True,
            )
        self.pid = self._process.pid

    @property
    def log(self) -> str:
        """All it has said."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    @property
    def running(self) -> bool:
        """Whether the process itself lives."""
        return self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        """Its exit code; negative for a signal; None while it runs."""
        return self._process.poll()

    def wait_for(self, text: str, timeout: float = 15.0) -> None:
        """Until it has said this; at once a failure if it has ended without."""

        def said() -> bool:
            if text in self.log:
                return True
            if not self.running and text not in self.log:
                raise AssertionError(f"ended ({self.returncode}) without saying {text!r}:\n{self.log}")
            return False

        eventually(said, timeout, what=lambda: f"the line {text!r} in:\n{self.log}")

    def wait(self, timeout: float = 15.0) -> int:
        """Until it has ended; its exit code."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still there after {timeout} s:\n{self.log}") from None

    def signal(self, number: int) -> None:
        """To the process alone."""
        kill([self.pid], number)

    def everything(self) -> list[int]:
        """All living processes that came from it, itself included."""
        return marked(self._mark)

    def close(self) -> None:
        """End whatever is left of it, by process id."""
        self.kill9_all()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)

    def kill9_all(self) -> None:
        """SIGKILL for all of it together: nobody sees the others die and can still act."""
        kill([self.pid], signal.SIGSTOP)  # it shall not start another while we count
        while left := self.everything():
            kill(left, signal.SIGSTOP)
            kill(left)
            self._process.poll()
            time.sleep(0.001)


class WorkerProcess(RealProcess):
    """``stillhere worker TARGET ...`` with its supervisor and children."""

    def __init__(
        self,
        target: str,
        *arguments: str,
        log: Path,
        url: str | None = None,
        environ: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        told = {} if url is None else {"STILLHERE_URL": url}
        command = [sys.executable, "-m", "stillhere", "worker", target, *arguments]
        super().__init__(command, log=log, environ={**told, **(environ or {})}, cwd=cwd)

    def children(self) -> list[int]:
        """The worker processes under the supervisor."""
        return children(self.pid)

    def wait_children(self, count: int = 1, timeout: float = 15.0) -> list[int]:
        """Until there are so many of them."""
        return eventually(
            lambda: found if len(found := self.children()) >= count else [],
            timeout,
            what=lambda: f"{count} children; log:\n{self.log}",
        )

    def terminate(self) -> None:
        """As `kill` or an orchestrator does: the supervisor drains."""
        self.signal(signal.SIGTERM)

    def kill9_supervisor(self) -> None:
        """The supervisor alone; its children must notice."""
        self.signal(signal.SIGKILL)
        self._process.wait(10)

    def kill9_child(self, index: int = 0) -> int:
        """One worker process; the supervisor must notice. Gives the pid that it had."""
        pid = self.children()[index]
        kill([pid])
        return pid

    def freeze(self) -> None:
        """SIGSTOP for all of it, the supervisor first, so that it sees no child stop."""
        kill([self.pid], signal.SIGSTOP)
        kill((pid for pid in self.everything() if pid != self.pid), signal.SIGSTOP)
        eventually(lambda: all(state(pid) in "TZ" for pid in self.everything()), what="all of it stopped")

    def thaw(self) -> None:
        """SIGCONT for all of it, the children first."""
        kill((pid for pid in self.everything() if pid != self.pid), signal.SIGCONT)
        kill([self.pid], signal.SIGCONT)
