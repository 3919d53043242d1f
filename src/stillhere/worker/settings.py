"""What a worker was asked to be: made once by the command line, handed to the supervisor, and by it to each child.

It travels as JSON over the control socket, never on a command line that everybody on the host can read. Where the store
is, stands in the app (or the environment): the child finds out when it imports the app, and tells its supervisor.
"""

from __future__ import annotations

import os

import msgspec

DEFAULT_SLOTS = 20
DEFAULT_GRACE_MS = 8_000
DEFAULT_LEASE_MS = 30_000
DEFAULT_LONG_AFTER_MS = 10_000
DEFAULT_RETIRE_GRACE_MS = 60_000


def default_solo() -> int:
    """As many suspects at once as there are processors, but at least four: most of them only wait."""
    return max(4, os.cpu_count() or 1)


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One `stillhere worker`; durations in ms."""

    app: str
    """`pkg.mod:attr`, for the child to import."""
    processes: int = 1
    slots: int = DEFAULT_SLOTS
    """Runs at once in each process."""
    queues: dict[str, int] = {}
    """Name to weight; empty: all queues of the tasks that the app knows."""
    lease_ms: int = DEFAULT_LEASE_MS
    grace_ms: int = DEFAULT_GRACE_MS
    overflow: int | None = None
    """Long places of each process; None: as many as slots."""
    long_after_ms: int = DEFAULT_LONG_AFTER_MS
    """A run that passes it moves to a long place, unless its task says otherwise; 0: never."""
    burst: bool = False
    """End when nothing is left to do."""
    name: str = ""
    max_jobs: int = 0
    """A process ends after so many jobs, and another takes its place; 0: never."""
    max_memory: int = 0
    """Bytes of memory at which a process takes no more jobs and is replaced; 0: no limit. See `supervisor.warden`."""
    retire_grace_ms: int = DEFAULT_RETIRE_GRACE_MS
    """So long the neighbours of a run that cannot be ended have to come to their own ends."""
    solo: int = msgspec.field(default_factory=default_solo)
    """Most children at once that each run one job: suspects of a crash, and those that ask for a process."""
    url: str | None = None
    """The store as given on the command line; it wins over the app's own."""
    namespace: str | None = None
    log: str = "plain"
    log_level: str = "info"

    @property
    def long_places(self) -> int:
        """How many runs may go on beside the slots."""
        return self.slots if self.overflow is None else self.overflow

    def to_json(self) -> str:
        """As it travels."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> WorkerSettings:
        """What `to_json` wrote."""
        return msgspec.json.decode(text, type=cls)
