"""A worker cut off from its store while it runs jobs that must not outlive their lease: the trial and its verdict."""

from __future__ import annotations

from dataclasses import dataclass

from tests.faults.kit import LEASE_S, Stage
from tests.support.ledger import boot_ns
from tests.support.procs import WorkerProcess, eventually
from tests.support.proxy import Proxy

STATES = ("stops_awaiting", "stops_blocked", "stops_never")
FOR_EVER_S = 600.0


@dataclass(frozen=True)
class Trial:
    """How one job fared."""

    task: str
    clean: bool
    """Its first run was over, and its process gone or out of the job, before the next one began."""
    margin_s: float
    """From the last that its first run wrote to the start of the next."""
    back_s: float
    """From the cut to the start of the next run."""


def workers_of(stage: Stage, children: int, url: str | None = None) -> WorkerProcess:
    """A worker that may have so many jobs in processes of their own, its spare one ready."""
    before = len(stage.worker_ids())
    worker = stage.worker("-p", "1", "-c", "1", "--solo", str(children), url=url)
    eventually(lambda: len(stage.worker_ids()) >= before + 2, 20, what=lambda: worker.log)
    return worker


def cut_off(stage: Stage, proxy: Proxy, each: int) -> list[Trial]:
    """Let one worker start so many jobs in each state, cut it off for ever, and let another one take over."""
    number = each * len(STATES)
    doomed = workers_of(stage, number, proxy.url)
    jobs = [(task, stage.add(task, FOR_EVER_S)) for task in STATES for _ in range(each)]
    firsts = [stage.started(job, timeout=20) for _, job in jobs]
    workers_of(stage, number)
    stage.answered(*(job for _, job in jobs))
    proxy.blackhole()
    cut = boot_ns()
    heirs = [stage.started(job, 2, timeout=4 * LEASE_S + 10) for _, job in jobs]
    clashes = {earlier.key for earlier, _ in stage.story().overlaps()}
    lasts = {run.key: run.last for run in stage.story().runs()}
    doomed.close()
    proxy.heal()  # its connections end now, and in order
    return [
        Trial(
            task,
            clean=first.key not in clashes and not heir.busy,
            margin_s=(heir.start - lasts[first.key]) / 1e9,
            back_s=(heir.start - cut) / 1e9,
        )
        for (task, _), first, heir in zip(jobs, firsts, heirs, strict=True)
    ]
