"""What an embedded worker was asked to be: the arguments of `app.worker`, checked when it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from stillhere.domain.durations import Duration, DurationError, milliseconds, spell
from stillhere.domain.errors import ConfigurationError
from stillhere.domain.options import check_name
from stillhere.domain.plan import DEFAULT_QUEUE
from stillhere.worker.board import MAX_QUEUES
from stillhere.worker.child.options import Options
from stillhere.worker.platforms import refuse_elsewhere
from stillhere.worker.settings import DEFAULT_LONG_AFTER_MS

if TYPE_CHECKING:
    from stillhere.domain.task import Tasks

KeeperKind = Literal["process", "thread"]
QueueChoice = Sequence[str] | Mapping[str, int] | None
DEFAULT_LONG_AFTER: Duration = DEFAULT_LONG_AFTER_MS / 1000
SHORTEST_LEASE_MS, LONGEST_LEASE_MS = 500, 86_400_000
_MOST = 1_000
_LONGEST_NAME = 64


class EmbeddingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Checked; durations in ms."""

    queues: dict[str, int]
    """Empty: all queues of the app's tasks."""
    slots: int
    lease_ms: int
    grace_ms: int
    long_after_ms: int
    overflow: int
    keeper: KeeperKind
    burst: bool
    name: str

    @classmethod
    def checked(
        cls,
        *,
        queues: QueueChoice,
        slots: int,
        lease: Duration,
        grace: Duration,
        long_after: Duration,
        overflow: int | None,
        keeper: KeeperKind,
        burst: bool,
        name: str,
    ) -> EmbeddingOptions:
        """From the arguments as they were given; raises `ConfigurationError` for one that cannot be."""
        lease_ms = _duration("lease", lease)
        if not SHORTEST_LEASE_MS <= lease_ms <= LONGEST_LEASE_MS:
            least, most = spell(SHORTEST_LEASE_MS), spell(LONGEST_LEASE_MS)
            raise ConfigurationError(f"lease={lease!r}: a lease is from {least} to {most} long.")
        refuse_elsewhere()
        if keeper not in ("process", "thread"):
            raise ConfigurationError(f'keeper={keeper!r}: write "process" or "thread".')
        if len(name) > _LONGEST_NAME or not all(c.isalnum() or c in "._" for c in name):
            raise ConfigurationError(f"name={name!r}: letters, digits, '.' and '_', at most {_LONGEST_NAME}.")
        return cls(
            queues=_queues(queues),
            slots=_number("slots", slots, 1),
            lease_ms=lease_ms,
            grace_ms=_duration("grace", grace),
            long_after_ms=_duration("long_after", long_after),
            overflow=slots if overflow is None else _number("overflow", overflow, 0),
            keeper=keeper,
            burst=burst,
            name=name,
        )

    def for_worker(self, tasks: Tasks) -> Options:
        """What the worker is told; raises `ConfigurationError` for more queues than one worker can serve."""
        found = sorted({task.options.queue for task in tasks} or {DEFAULT_QUEUE})
        queues = self.queues or dict.fromkeys(found, 1)
        if len(queues) > MAX_QUEUES:
            raise ConfigurationError(
                f"{len(queues)} queues are too many for one worker (at most {MAX_QUEUES}): name some in queues=[...]."
            )
        return Options(
            slots=self.slots,
            long_places=self.overflow,
            queues=queues,
            lease_ms=self.lease_ms,
            grace_ms=self.grace_ms,
            long_after_ms=self.long_after_ms,
            burst=self.burst,
            name=self.name,
            alone=True,
        )


def _queues(given: QueueChoice) -> dict[str, int]:
    if given is None:
        return {}
    if isinstance(given, str):
        raise ConfigurationError(f"queues={given!r}: write a list of names: [{given!r}].")
    weights = dict(given) if isinstance(given, Mapping) else dict.fromkeys(given, 1)
    for name, weight in weights.items():
        check_name("queues", name)
        _number(f"queues: the weight of {name!r}", weight, 1)
    if not weights:
        raise ConfigurationError("queues=[]: name at least one, or leave it out for all queues of the app's tasks.")
    return weights


def _duration(name: str, given: Duration) -> int:
    try:
        return milliseconds(given, name)
    except DurationError as error:
        raise ConfigurationError(str(error)) from None


def _number(name: str, given: object, least: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= _MOST:
        raise ConfigurationError(f"{name}={given!r}: a number from {least} to {_MOST}.")
    return given
