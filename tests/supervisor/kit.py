"""What the supervisor's process tests share: one worker with fake children on a store that writes everything down."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from stillhere.worker.clock import boottime_ns
from stillhere.worker.settings import WorkerSettings
from tests.support.procs import RealProcess, eventually

LEASE_MS = 2_000


class Home:
    """The directory of one worker: what its store was asked, what its children wrote, how the store behaves."""

    def __init__(self, home: Path) -> None:
        self.home = home

    # --------------------------------------------------------------------------------------------------- the store

    def mood(self, **mood: Any) -> None:
        """Change the store's behaviour; the next call sees it."""
        new = self.home / "mood.new"
        new.write_text(json.dumps(mood))
        new.replace(self.home / "mood")

    def verbs(self, name: str, **fields: Any) -> list[dict[str, Any]]:
        """What the store was asked."""
        return [
            line
            for line in _lines(self.home / "verbs")
            if line["verb"] == name and all(line.get(key) == value for key, value in fields.items())
        ]

    def ends(self, count: int = 1, within: float = 10.0) -> list[dict[str, Any]]:
        """Wait for ends of so many workers; the first call for each worker and queue."""

        def look() -> list[dict[str, Any]]:
            found = {(line["worker"], line["queue"]): line for line in reversed(self.verbs("End"))}
            return list(found.values()) if len({worker for worker, _ in found}) >= count else []

        return eventually(look, within, what=self.said)

    # ------------------------------------------------------------------------------------------------- the children

    def events(self, name: str) -> list[dict[str, Any]]:
        """What children have written."""
        return [line for line in _lines(self.home / "children") if line["event"] == name]

    def event(self, name: str, count: int = 1, within: float = 15.0) -> dict[str, Any]:
        """Wait until children have written this so often; the last of them."""
        return eventually(lambda: self.events(name)[count - 1 :], within, what=self.said)[0]

    def said(self) -> str:
        """The log."""
        path = self.home / "log"
        return path.read_text() if path.exists() else ""


class Worker(Home, RealProcess):
    """A supervisor with fake children that play a story."""

    def __init__(self, home: Path, story: str, *, environ: dict[str, str] | None = None, **settings: Any) -> None:
        Home.__init__(self, home)
        told = {"lease_ms": LEASE_MS, "slots": 4, "solo": 2, "grace_ms": 1_000, **settings}
        RealProcess.__init__(
            self,
            [
                sys.executable,
                "-m",
                "tests.supervisor.program",
                str(home),
                WorkerSettings(app=story, **told).to_json(),
            ],
            log=home / "log",
            environ={"FAKE_CHILD_LOG": str(home / "children"), **(environ or {})},
            cwd=home,
        )

    def terminate(self) -> None:
        """As an orchestrator does."""
        self.signal(signal.SIGTERM)


def since(at: int) -> float:
    """Seconds since a time that somebody wrote."""
    return (boottime_ns() - at) / 1e9


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def cores_are_files() -> bool:
    """Whether a core dump here is written to disk by the kernel, where it takes its time."""
    pattern = Path("/proc/sys/kernel/core_pattern")
    return pattern.exists() and not pattern.read_text().startswith("|") and os.geteuid() >= 0
