"""What the tests of the command line share: a store with a namespace of its own, and commands run in this process."""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stillhere.cli import main
from stillhere.cli.options import Choices
from stillhere.domain.job import NewRecord, Outcome, OutcomeKind, new_job_id
from stillhere.ports.backend import Claim, Enqueue, Register, Settle, SyncStore, Verb
from stillhere.stores import open_sync
from tests.support.servers import RedisServer


class Cli:
    """A store, and `stillhere` on it."""

    def __init__(self, url: str, namespace: str) -> None:
        self.url, self.namespace = url, namespace
        self.store: SyncStore = open_sync(url, namespace)
        self._claims = 0

    def __call__(self, *words: str, environ: dict[str, str] | None = None, place: bool = True) -> Result:
        """Run a command; `place` False: without --url and --namespace."""
        where = ["--url", self.url, "--namespace", self.namespace] if place else []
        return CliRunner().invoke(main, [*where, *words], env=environ, prog_name="stillhere")

    def well(self, *words: str, **options: Any) -> str:
        """Run it, it must end in 0; what it printed."""
        result = self(*words, **options)
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stdout

    def json(self, *words: str, code: int = 0) -> Any:
        """Run it with --json; stdout must be one JSON document."""
        result = self("--json", *words)
        assert result.exit_code == code, (result.output, result.exception)
        return json.loads(result.stdout)

    def fails(self, code: int, *words: str, **options: Any) -> str:
        """Run it, it must end in this code; what it said on stderr."""
        result = self(*words, **options)
        assert result.exit_code == code, (result.output, result.exception)
        return result.stderr

    def call(self, verb: Verb[Any]) -> Any:
        return self.store.call(verb)

    def add(self, task: str = "ping", queue: str = "default", **fields: Any) -> str:
        """Put one job into the store; its id."""
        record = NewRecord(**{"id": new_job_id(), "task": task, "queue": queue, "args": "{}"} | fields)
        self.call(Enqueue(queue=queue, jobs=[record]))
        return record.id

    def worker(self, queue: str = "default", name: str = "w1", tasks: tuple[str, ...] = ("ping",)) -> str:
        """Register a worker that nobody is behind."""
        info = {"host": "here", "pid": str(os.getpid())}
        self.call(Register(queue=queue, worker=name, lease_ms=60_000, tasks=tasks, info=info))
        return name

    def grant(self, worker: str = "w1", queue: str = "default", slots: int = 1) -> list[Any]:
        """Let it claim."""
        self._claims += 1
        granted: list[Any] = self.call(Claim(queue=queue, worker=worker, n=self._claims, slots=slots)).jobs
        return granted

    def settle(self, grant: Any, kind: OutcomeKind, worker: str = "w1", **fields: Any) -> None:
        """End a run."""
        outcome = Outcome(job=grant.id, token=grant.token, kind=kind, **fields)
        self.call(Settle(queue=grant.queue, worker=worker, outcomes=[outcome]))

    def dead(self, task: str = "ping", message: str = "boom") -> str:
        """One dead letter."""
        job = self.add(task)
        (grant,) = self.grant()
        assert grant.id == job
        error = json.dumps({"type": "ValueError", "message": message, "traceback": "Traceback:\n  line 1"})
        self.settle(grant, OutcomeKind.DEAD, error=error, reason="failed")
        return job


@pytest.fixture
def cli(valkey_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cli]:
    """Commands on a fresh namespace, from an empty directory, with no settings of ours in the environment."""
    for name in list(os.environ):
        if name.startswith("STILLHERE_") or name == "NO_COLOR":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    logger = logging.getLogger("stillhere")
    before = (list(logger.handlers), logger.level, logger.propagate)
    made = Cli(valkey_server.url, f"t{secrets.token_hex(6)}")
    yield made
    made.store.close()
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])
    Choices.debug = False
