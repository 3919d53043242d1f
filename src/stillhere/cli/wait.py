"""`stillhere wait`: until queues are empty, or until a job has ended. For scripts: deploys, tests, cron."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from stillhere.cli import describe
from stillhere.cli.exits import Code, VerdictNo
from stillhere.cli.find import find_job
from stillhere.cli.kinds import DURATION, NameKind
from stillhere.cli.options import Choices, Verb
from stillhere.cli.output import print_json
from stillhere.cli.status import looks_at
from stillhere.domain.durations import spell
from stillhere.domain.states import State

if TYPE_CHECKING:
    from stillhere.cli.place import CommandLink
    from stillhere.domain.job import JobRecord
    from stillhere.ports.inspector import QueueStatus

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5


@click.command(cls=Verb)
@click.argument("job_id", required=False, metavar="[ID]")
@click.option("--empty", is_flag=True, help="Wait until nothing is ready, running or scheduled.")
@click.option("--queue", "-q", type=NameKind("queue"), multiple=True, help="Only this queue (again for more).")
@click.option("--timeout", type=DURATION, help="Give up after so long, with exit code 1.")
@click.pass_obj
def wait(choices: Choices, job_id: str | None, empty: bool, queue: tuple[str, ...], timeout: int | None) -> None:
    """Wait for the end of the job ID, or with --empty until the queues are empty.

    Exit code 0 when the job succeeded or the queues are empty; 1 when it failed or the time is up.
    """
    if (job_id is None) != empty:
        raise click.UsageError("Give the ID of a job, or --empty: one of them.")
    link = choices.place().link
    if job_id is None:
        wait_for_empty(choices, link, queue, timeout)
    else:
        job = find_job(link, job_id, queue[0] if queue else None)
        print_end(choices, wait_for_end(link, job.id, job.queue, timeout))


def wait_for_end(link: CommandLink, job_id: str, queue: str, timeout_ms: int | None) -> JobRecord:
    """The record of the job once it has ended; `TimeoutError` when the time is up first, `JobNotFound` if forgotten."""
    from stillhere.handle import SyncHandle

    handle: SyncHandle[object] = SyncHandle(link, job_id, queue=queue)
    handle.wait(None if timeout_ms is None else spell(timeout_ms))
    return find_job(link, job_id, queue)


def print_end(choices: Choices, job: JobRecord) -> None:
    """The result, or why there is none; exits with 1 unless it succeeded."""
    if choices.as_json:
        print_json(describe.as_json(job))
    elif job.state is State.SUCCEEDED:
        click.echo(job.result if job.result is not None else f"{job.id} succeeded; its result is not kept")
    else:
        click.echo(f"stillhere: job {job.id} ({job.task}) is {job.state}: {describe.why(job)}", err=True)
    if job.state is not State.SUCCEEDED:
        raise click.exceptions.Exit(Code.NO)


def wait_for_empty(choices: Choices, link: CommandLink, names: tuple[str, ...], timeout_ms: int | None) -> None:
    """Look again and again, slower and slower."""
    over = None if timeout_ms is None else time.monotonic() + timeout_ms / 1_000
    pause = _FIRST_PAUSE_S
    while True:
        left = [one for one in looks_at(link, names) if _live(one)]
        if not left:
            if choices.as_json:
                print_json({"empty": True})
            return
        if over is not None and time.monotonic() >= over:
            raise VerdictNo(f"not empty after {spell(timeout_ms or 0)}: {'; '.join(_figures(one) for one in left)}")
        time.sleep(pause if over is None else max(0.0, min(pause, over - time.monotonic())))
        pause = min(pause * 1.5, _LONGEST_PAUSE_S)


def _live(one: QueueStatus) -> int:
    return one.ready + one.running + one.scheduled + one.inbox


def _figures(one: QueueStatus) -> str:
    return f"{one.queue} has {one.ready + one.inbox} ready, {one.running} running, {one.scheduled} scheduled"
