"""What a supervisor makes of a child's `hello`: whether it can work with it, and the first lines of the worker.

The lines say where the store is and who says so, what the worker serves, and what its lease promises.
"""

from __future__ import annotations

import re

from stillhere.domain.durations import spell
from stillhere.domain.lease import LeasePlan
from stillhere.worker.board import MAX_QUEUES
from stillhere.worker.control import PROTOCOL, Message
from stillhere.worker.settings import WorkerSettings

_PASSWORD = re.compile(r"(?<=://)[^/:?#@]*:.*@|(?<=[?&]password=)[^&]*")  # to the last @: passwords may hold one


def refusal(hello: Message, store: tuple[str, str] | None) -> str:
    """Why the supervisor cannot speak for this child, "" when it can; `store`: the first child's URL and namespace."""
    if hello.get("proto") != PROTOCOL:
        return "the child is of another version of stillhere than its supervisor: restart the worker"
    if len(hello["queues"]) > MAX_QUEUES:
        return f"{len(hello['queues'])} queues are too many: one worker serves up to {MAX_QUEUES}, name them by -q"
    if store not in (None, (hello["url"], hello["namespace"])):
        return "the app names another store now than when this worker was started: restart the worker"
    return ""


def greeting(settings: WorkerSettings, hello: Message, plan: LeasePlan) -> list[str]:
    """The lines, from the settings and what the first child has found in the app."""
    count, names = hello["tasks"], hello["task_names"]
    queues = ", ".join(name if weight == 1 else f"{name} (weight {weight})" for name, weight in hello["queues"].items())
    total = settings.processes * settings.slots
    store = (
        f"stillhere {hello['version']}: store {shown(hello['url'])} (from {hello['origin']}), "
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
    return [store, knows, places, lease, *_few_places(settings)]


def _few_places(settings: WorkerSettings) -> list[str]:
    """With too few long places long jobs hold slots after all."""
    if settings.long_places == 0:
        return ["Without long places (--overflow 0) no job of a task that is known as long starts here."]
    if settings.long_places < settings.slots / 2:
        few = f"--overflow {settings.long_places} is less than half of the slots"
        return [f"{few}: a burst of jobs that turn out long can hold slots until one of them ends."]
    return []


def shown(url: str) -> str:
    """A URL without user and password."""
    return _PASSWORD.sub(lambda found: "***@" if found[0].endswith("@") else "***", url)


def _number(count: int, noun: str, plural: str = "s") -> str:
    return f"{count} {noun}{'' if count == 1 else plural}"
