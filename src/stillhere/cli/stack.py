"""`stillhere stack ID`: where the code of a running job is at this moment.

The question goes through the store, so it may be asked from anywhere: the supervisor of the job's worker finds it at
its next tick, at most a second later, and answers by the same way. The job is not disturbed, whatever it is at.
"""

from __future__ import annotations

import secrets
import time

import click

from stillhere.cli.exits import VerdictNo
from stillhere.cli.find import find_job
from stillhere.cli.kinds import DURATION, NameKind
from stillhere.cli.options import Choices, Verb
from stillhere.cli.output import print_json
from stillhere.domain.durations import spell
from stillhere.ports.inspector import Answered, Ask

_LOOK_EVERY_S = 0.1


@click.command(cls=Verb)
@click.argument("job_id", metavar="ID")
@click.option("--queue", "-q", type=NameKind("queue"), help="Look in this queue only.")
@click.option("--timeout", type=DURATION, default="15s", show_default=True, help="Wait so long for the answer.")
@click.pass_obj
def stack(choices: Choices, job_id: str, queue: str | None, timeout: int) -> None:
    """Show the stack of a running job's code. ID may be a tail of 6 characters or more. The job goes on undisturbed."""
    link = choices.place().link
    job = find_job(link, job_id, queue)
    question, over = secrets.token_hex(8), time.monotonic() + timeout / 1000
    if not link.ask(Ask(queue=job.queue, id=question, job=job.id)):
        raise VerdictNo(f"job {job.id} does not run, it is {job.state}: stillhere show {job.id}")
    while (text := link.ask(Answered(queue=job.queue, id=question))) is None:
        if time.monotonic() > over:
            raise VerdictNo(
                f"no answer within {spell(timeout)} from worker {job.worker}, which runs job {job.id}: it may be of an "
                "older version, cut off from the store, or dead. stillhere status tells."
            )
        time.sleep(_LOOK_EVERY_S)
    if choices.as_json:
        print_json({"job": job.id, "worker": job.worker, "stack": text})
    else:
        click.echo(text)
