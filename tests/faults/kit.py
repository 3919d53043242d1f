"""What fault tests share: one stage with a store, a ledger, real workers and a client that enqueues and reads."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from stillhere import App, SyncHandle
from stillhere.domain.job import JobRecord
from stillhere.domain.states import FINAL
from stillhere.ports.backend import Look, SyncStore
from stillhere.ports.inspector import Audit, Complaint, QueueStatus, Status, Workers
from stillhere.stores import open_sync
from tests.support.ledger import Ledger, Run, Story
from tests.support.procs import WorkerProcess, eventually

JOBS = "tests.faults.jobs"
APART = "tests.faults.apart"
"""Jobs in processes of their own: apart, since a worker keeps a process to spare where there are any."""
LEASE_S = 2.0
QUEUE = "default"


class Stage:
    """A store with a namespace of its own, the workers on it, and the ledger that their jobs write."""

    def __init__(
        self, url: str, namespace: str, ledger: Ledger, make_worker: Callable[..., WorkerProcess], jobs: str = JOBS
    ) -> None:
        self.url, self.namespace, self.ledger = url, namespace, ledger
        self._make_worker = make_worker
        self._target = f"{jobs}:app"
        self._events: list[dict[str, Any]] = []
        self._read_to = 0
        self._jobs = import_module(jobs)
        self.client: App = self._jobs.app
        self.client.close()
        self.client.link.redirect(url, namespace)
        self.store: SyncStore = open_sync(url, namespace)

    def worker(self, *arguments: str, lease: float = LEASE_S, url: str | None = None, **environ: str) -> WorkerProcess:
        """Start `stillhere worker`; `url` for one that reaches the store by another way (a proxy)."""
        told = {"STILLHERE_NAMESPACE": self.namespace, **self.ledger.environ, **environ}
        return self._make_worker(self._target, "--lease", f"{lease}s", *arguments, url=url or self.url, environ=told)

    def ready_worker(self, *arguments: str, **options: Any) -> WorkerProcess:
        """Start a worker and wait until it is registered: an id stands in the store that was not there before."""
        before = self.worker_ids()
        worker = self.worker(*arguments, **options)
        eventually(lambda: self.worker_ids() - before or not worker.running, 20, what=lambda: worker.log)
        assert worker.running, worker.log
        return worker

    def workers(self) -> int:
        """How many workers are registered."""
        return self.status().workers

    def worker_ids(self) -> set[str]:
        """Who is registered."""
        return {worker.id for worker in self.store.call(Workers(queue=QUEUE))}

    def add(self, task: str, *args: Any, **options: Any) -> SyncHandle[Any]:
        """Enqueue one job by keyword-free arguments."""
        function: Any = getattr(self._jobs, task)
        prepared = function.options(**options).prepare(*args) if options else function.prepare(*args)
        return self.client.enqueue_many_sync([prepared])[0]

    def add_many(self, task: str, count: int, *args: Any) -> list[SyncHandle[Any]]:
        """Enqueue so many equal jobs."""
        function: Any = getattr(self._jobs, task)
        return self.client.enqueue_many_sync([function.prepare(*args) for _ in range(count)])

    def add_each(self, calls: Iterable[tuple[str, *tuple[Any, ...]]]) -> list[SyncHandle[Any]]:
        """Enqueue jobs of several tasks at one blow, each a task's name and its arguments."""
        return self.client.enqueue_many_sync([getattr(self._jobs, task).prepare(*args) for task, *args in calls])

    def story(self) -> Story:
        """The ledger up to now."""
        with contextlib.suppress(FileNotFoundError), self.ledger.path.open("rb") as file:
            file.seek(self._read_to)
            new = file.read()
            whole = new.rpartition(b"\n")[0]
            self._events += [json.loads(line) for line in whole.splitlines()]
            self._read_to += len(whole) + bool(whole)
        return Story(self._events)

    def forget(self) -> None:
        """Tell no more of what the ledger has told up to now."""
        self.story()
        self._events.clear()

    def started(self, handle: SyncHandle[Any], times: int = 1, timeout: float = 15.0) -> Run:
        """Wait for the given start of a job; the run."""

        def look() -> Run | None:
            runs = self.story().runs(handle.id)
            return runs[times - 1] if len(runs) >= times else None

        run = eventually(look, timeout, what=lambda: f"start {times} of {handle.id}; {self.record(handle)}")
        assert run is not None
        return run

    def answered(self, *handles: SyncHandle[Any]) -> None:
        """Wait until the store knows that the grants of these running jobs have arrived: a beat has said so."""

        def look() -> bool:
            seen = {worker.id: worker.seen for worker in self.store.call(Workers(queue=QUEUE))}
            records = [self.record(handle) for handle in handles]
            return all(seen.get(record.worker or "", 0) > (record.started or 0) for record in records)

        eventually(look, 2 * LEASE_S, what="a word from the worker after its claim")

    def finished(self, *handles: SyncHandle[Any], timeout: float = 30.0) -> None:
        """Wait until all have ended, however."""
        left = list(handles)

        def look() -> bool:
            left[:] = [handle for handle in left if self.record(handle).state not in FINAL]
            return not left

        eventually(look, timeout, every=0.05, what=lambda: f"{len(left)} left: {left and self.record(left[0])}")

    def record(self, handle: SyncHandle[Any]) -> JobRecord:
        """All that the store knows of a job."""
        record = self.store.call(Look(queue=QUEUE, job=handle.id))
        assert record is not None, f"{handle.id} is unknown"
        return record

    def status(self) -> QueueStatus:
        """The queue in figures."""
        return self.store.call(Status(queue=QUEUE))

    def audit(self) -> list[Complaint]:
        """Jobs that are not in exactly one place."""
        return self.store.call(Audit(queue=QUEUE))

    def close(self) -> None:
        """Close the client."""
        self.client.close()
        self.store.close()


def staged(
    url: str, namespace: str, ledger: Ledger, make_worker: Callable[..., WorkerProcess], jobs: str = JOBS
) -> Iterator[Stage]:
    """Yield a stage; afterwards its audit must be clean."""
    import os

    os.environ.update(ledger.environ)
    stage = Stage(url, namespace, ledger, make_worker, jobs)
    yield stage
    complaints = eventually_clean(stage)
    stage.close()
    assert complaints == []


def eventually_clean(stage: Stage) -> list[Complaint]:
    """Audit once; the look is one step in the store, so there is nothing to wait for."""
    return stage.audit()


def log_of(tmp_path: Path) -> str:
    """All that the workers of a test have said."""
    return "\n".join(path.read_text(errors="replace") for path in sorted(tmp_path.glob("worker-*.log")))
