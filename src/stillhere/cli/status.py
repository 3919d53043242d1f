"""`stillhere status`: queues and workers in figures, once or again and again, and the verdict whether one is stuck."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from stillhere.cli.exits import VerdictNo
from stillhere.cli.filters import queues_of
from stillhere.cli.kinds import DURATION, NameKind
from stillhere.cli.options import Choices, Verb
from stillhere.cli.output import now_ms, print_json, print_json_line, print_table, rfc3339, span
from stillhere.cli.stuck import stuck_queues
from stillhere.ports.inspector import QueueStatus, Status, WorkerRecord, Workers

if TYPE_CHECKING:
    from stillhere.cli.place import CommandLink

_CLEAR = "\x1b[H\x1b[2J"


class Look(NamedTuple):
    """One look at everything."""

    queues: list[QueueStatus]
    workers: list[WorkerRecord]


@click.command(cls=Verb)
@click.option("--queue", "-q", type=NameKind("queue"), multiple=True, help="Only this queue (again for more).")
@click.option("--watch", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option("--interval", type=DURATION, default="1s", show_default=True, help="Time between looks.")
@click.option("--fail-if-stuck", is_flag=True, help="Exit with 1 when a queue has work and does not move.")
@click.option("--stuck-after", type=DURATION, default="5m", show_default=True, help="So long without any movement.")
@click.pass_obj
def status(
    choices: Choices, *, queue: tuple[str, ...], watch: bool, interval: int, fail_if_stuck: bool, stuck_after: int
) -> None:
    """Show queues and workers in figures."""
    link = choices.place().link
    while True:
        seen = look(link, queue)
        print_look(choices, seen, watching=watch)
        if fail_if_stuck and (found := stuck_queues(link, seen.queues, stuck_after)):
            raise VerdictNo("\n".join(["stuck:", *found]))
        if not watch:
            return
        time.sleep(interval / 1_000)


def look(link: CommandLink, names: Sequence[str]) -> Look:
    """Queues and workers, in two round trips."""
    queues = looks_at(link, names)
    found: list[list[WorkerRecord]] = link.ask_many([Workers(queue=one.queue) for one in queues])
    return Look(queues, [worker for workers in found for worker in workers])


def looks_at(link: CommandLink, names: Sequence[str]) -> list[QueueStatus]:
    """The queues in figures: these, or all."""
    queues = [name for one in names for name in queues_of(link, one)] if names else queues_of(link, None)
    return link.ask_many([Status(queue=queue) for queue in queues]) if queues else []


def print_look(choices: Choices, seen: Look, *, watching: bool) -> None:
    """As JSON (one line a look when watching), or as tables; on a terminal each look takes the place of the last."""
    if choices.as_json:
        (print_json_line if watching else print_json)({"at": rfc3339(now_ms()), **as_json(seen)})
        return
    if watching and choices.is_live:
        click.echo(_CLEAR, nl=False)
    print_queues(seen.queues)
    if seen.workers:
        click.echo()
        print_workers(seen.workers)
    if watching and not choices.is_live:
        click.echo()


def as_json(seen: Look) -> dict[str, Any]:
    """The look's own fields, times as texts."""
    workers = [msgspec.to_builtins(worker) | {"seen": rfc3339(worker.seen)} for worker in seen.workers]
    return {"queues": seen.queues, "workers": workers}


def print_queues(queues: Sequence[QueueStatus]) -> None:
    """One line a queue."""
    if not queues:
        click.echo("no queues: nothing was ever enqueued here, and no worker has been here")
        return
    rows = [
        (
            one.queue,
            one.ready,
            one.running,
            one.scheduled,
            one.dead,
            one.workers,
            "-" if one.oldest_ready_ms is None else span(one.oldest_ready_ms),
            notes(one),
        )
        for one in queues
    ]
    header = ("QUEUE", "READY", "RUNNING", "SCHEDULED", "DEAD", "WORKERS", "OLDEST", "")
    print_table(header, rows, right=header[1:7])


def notes(one: QueueStatus) -> str:
    """What is out of the ordinary."""
    words = []
    if one.paused:
        words.append("paused")
    if one.ready and not one.workers:
        words.append("no worker")
    if one.parked:
        tasks = f" ({', '.join(one.parked_tasks)})" if one.parked_tasks else ""
        words.append(f"{one.parked} that no live worker knows{tasks}")
    if one.suspects:
        words.append(f"{one.suspects} suspects of a crash")
    if one.inbox:
        words.append(f"{one.inbox} in the inbox")
    return "; ".join(words)


def print_workers(workers: Iterable[WorkerRecord]) -> None:
    """One line a worker, whatever the number of its queues."""
    by_id: dict[str, list[WorkerRecord]] = {}
    for worker in workers:
        by_id.setdefault(worker.id, []).append(worker)
    now = now_ms()
    rows = [
        (
            name,
            some[0].info.get("host", "-"),
            some[0].info.get("pid", "-"),
            sum(one.holds for one in some),
            f"{span(now - max(one.seen for one in some))} ago",
            span(min(one.left_ms for one in some)) if not some[0].gone else f"gone: {some[0].gone}",
            ",".join(sorted(one.queue for one in some)),
        )
        for name, some in sorted(by_id.items())
    ]
    header = ("WORKER", "HOST", "PID", "HOLDS", "LAST SIGN", "LEASE LEFT", "QUEUES")
    print_table(header, rows, right=("PID", "HOLDS", "LAST SIGN", "LEASE LEFT"))
