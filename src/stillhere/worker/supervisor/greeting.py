"""The first lines of a worker: where its store is and who says so, what it serves, and what its lease promises."""

from __future__ import annotations

import re

from stillhere.domain.durations import spell
from stillhere.domain.lease import LeasePlan
from stillhere.worker.control import Message
from stillhere.worker.settings import WorkerSettings

_PASSWORD = re.compile(r"(?<=://)([^/@]*):[^/]*@")


def greeting(settings: WorkerSettings, hello: Message, plan: LeasePlan) -> list[str]:
    """The lines, from the settings and what the first child has found in the app."""
    count, names = hello["tasks"], hello["task_names"]
    queues = ", ".join(name if weight == 1 else f"{name} (weight {weight})" for name, weight in hello["queues"].items())
    total = settings.processes * settings.slots
    store = (
        f"stillhere {hello['version']}: store {_PASSWORD.sub(r'***@', hello['url'])} (from {hello['origin']}), "
        f"namespace {hello['namespace']}"
    )
    more = ", ..." if count > len(names) else ""
    knows = f"Knows {_number(count, 'task')}: {', '.join(names)}{more}. Queues: {queues}."
    places = (
        f"{_number(settings.processes, 'process', 'es')} x {_number(settings.slots, 'slot')} = {total} jobs at once, "
        f"and up to {settings.processes * settings.long_places} long ones beside them."
    )
    lease = (
        f"Lease {spell(settings.lease_ms)}: a dead process's jobs are ready again within 1 s, a dead host's within "
        f"{plan.recovery_bound:.3g} s. Grace {spell(settings.grace_ms)}."
    )
    return [store, knows, places, lease]


def _number(count: int, noun: str, plural: str = "s") -> str:
    return f"{count} {noun}{'' if count == 1 else plural}"
