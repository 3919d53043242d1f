"""A supervisor as a process of its own, with fake children and a store that writes down what it is asked.

    python -m tests.supervisor.program DIRECTORY SETTINGS

Each verb becomes a line in ``DIRECTORY/verbs``. How the store behaves stands in ``DIRECTORY/mood`` (JSON), read at each
call, so a test changes it in mid flight: ``away`` (no answer), ``hang`` (verbs that take until their bound), ``gone``
(worker ids that are closed), ``suspects``, ``refuse`` (a reason), ``over`` (workers that a sweep finds).
What the kernel tells of memory is read below ``DIRECTORY/root``.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from stillhere.domain.errors import ConfigurationError, StoreUnavailable
from stillhere.ports.backend import End, Ended, Renew, Renewed, Sweep, Swept, SyncStore, Tick, Ticked, Verb
from stillhere.worker.clock import boottime_ns
from stillhere.worker.settings import WorkerSettings
from stillhere.worker.supervisor.undertaker import NOBODY

R = TypeVar("R")


class RecordingStore:
    """A `SyncStore` that does what its mood says."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def mood(self) -> dict[str, Any]:
        try:
            mood: dict[str, Any] = json.loads((self._directory / "mood").read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return mood

    def call(self, verb: Verb[R], *, timeout: float | None = None) -> R:
        return self.call_many([verb], timeout=timeout)[0]

    def call_many(self, verbs: Sequence[Verb[R]], *, timeout: float | None = None) -> list[R]:
        mood, names = self.mood(), {type(verb).__name__ for verb in verbs}
        if reason := mood.get("refuse"):
            raise ConfigurationError(reason)
        if mood.get("away"):
            raise StoreUnavailable("Cannot reach the fake store (it is away).", sent=False)
        if names & set(mood.get("hang", [])):
            self._write(verbs, timeout, hung=True)
            time.sleep(timeout or 5)
            raise StoreUnavailable("No answer from the fake store.")
        self._write(verbs, timeout)
        return [self._reply(verb, mood) for verb in verbs]

    def close(self) -> None:
        pass

    def _write(self, verbs: Sequence[Verb[Any]], timeout: float | None, **more: Any) -> None:
        if any(getattr(verb, "worker", "") == NOBODY for verb in verbs):
            return  # the undertaker keeps its connection warm
        call = {"at": boottime_ns(), "thread": threading.current_thread().name, "bound": timeout, **more}
        lines = [
            json.dumps({"verb": type(verb).__name__, **msgspec.to_builtins(verb), **call}) + "\n" for verb in verbs
        ]
        with (self._directory / "verbs").open("a") as file:
            file.write("".join(lines))

    def _reply(self, verb: Verb[Any], mood: dict[str, Any]) -> Any:
        match verb:
            case Renew():
                return Renewed(standing="gone" if verb.worker in mood.get("gone", []) else "ok")
            case Tick():
                return Ticked(lease_clock=boottime_ns() // 1_000_000, gap_ms=100, suspects=mood.get("suspects", 0))
            case Sweep():
                return Swept(over=mood.get("over", []))
            case End():
                return Ended(status="ended", returned=sorted(verb.verdicts))
            case _:
                raise AssertionError(verb)


def main(directory: Path, settings: WorkerSettings) -> int:
    """As `stillhere.worker.supervisor.main.run`, with the two stand-ins."""
    from stillhere.worker.supervisor.main import install_signals

    wakeup = install_signals()
    from stillhere.worker.supervisor import family
    from stillhere.worker.supervisor.log import start_logging
    from stillhere.worker.supervisor.memory import OomKills
    from stillhere.worker.supervisor.service import ServiceManager
    from stillhere.worker.supervisor.supervisor import Supervisor

    vars(family)["OomKills"] = partial(OomKills, directory / "root")
    log = start_logging(settings.log, settings.log_level)

    def open_store(url: str, namespace: str) -> SyncStore:
        assert (url, namespace) == ("redis://user:secret@store:6379/0", "ns")
        return RecordingStore(directory)

    try:
        program = ("-m", "tests.supervisor.fake_child")
        return Supervisor(settings, open_store, wakeup, program, service=ServiceManager()).run()
    finally:
        log.finish()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), WorkerSettings.from_json(sys.argv[2])))
