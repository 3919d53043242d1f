"""Whether a queue is stuck: it has work that could be done, and nothing has moved for a long time.

A full queue is not a stuck one, and a long job is not a stuck worker; what is stuck has all three: a job that has
waited longer than the bound, nothing settled between two looks, and no running job that started within the bound. Six
workers that have all been in long jobs for hours while others wait are stuck in this sense, and somebody should know.
Jobs of a task that no live worker knows will not move by themselves either. A paused queue is somebody's will.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stillhere.cli.filters import Filter, walk
from stillhere.cli.output import now_ms, span
from stillhere.domain.states import State
from stillhere.ports.inspector import QueueStatus, Status

if TYPE_CHECKING:
    from stillhere.cli.place import CommandLink

_BETWEEN_S = 1.0


def stuck_queues(link: CommandLink, before: Sequence[QueueStatus], bound_ms: int) -> list[str]:
    """One line for each queue that is stuck. Waits a second for a second look, where the first gives reason to."""
    suspicious = [one for one in before if not one.paused and _waits_long(one, bound_ms)]
    lines = []
    if suspicious:
        time.sleep(_BETWEEN_S)
        again: list[QueueStatus] = link.ask_many([Status(queue=one.queue) for one in suspicious])
        for first, second in zip(suspicious, again, strict=True):
            if _waits_long(second, bound_ms) and first.settled == second.settled:
                lines += _if_nothing_started(link, second, bound_ms)
    for one in before:
        lines += [] if one.paused else _unknown_tasks(link, one, bound_ms)
    return lines


def _waits_long(one: QueueStatus, bound_ms: int) -> bool:
    return one.oldest_ready_ms is not None and one.oldest_ready_ms >= bound_ms


def _if_nothing_started(link: CommandLink, one: QueueStatus, bound_ms: int) -> list[str]:
    since = now_ms() - bound_ms
    running = walk(link, Filter(queue=one.queue, state=State.RUNNING))
    if any((job.started or 0) > since for job in running):
        return []
    workers = f"{one.workers} workers with {one.running} jobs" if one.workers else "no worker"
    oldest = span(one.oldest_ready_ms or 0)
    line = f"queue {one.queue}: {one.ready} ready, the oldest for {oldest}; nothing has started or ended for"
    return [f"{line} {span(bound_ms)} ({workers})"]


def _unknown_tasks(link: CommandLink, one: QueueStatus, bound_ms: int) -> list[str]:
    lines = []
    for task in one.parked_tasks:
        old = Filter(queue=one.queue, state=State.READY, task=task, older_than_ms=bound_ms)
        if next(walk(link, old), None) is not None:
            lines.append(f"queue {one.queue}: jobs of {task!r} wait for more than {span(bound_ms)}; no worker knows it")
    return lines
