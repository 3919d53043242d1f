"""What one worker process is."""

from __future__ import annotations

import msgspec

from stillhere.ports.backend import Lanes


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Times in ms."""

    slots: int
    long_places: int
    queues: dict[str, int]
    lease_ms: int
    grace_ms: int
    long_after_ms: int
    lanes: Lanes = "pool"
    burst: bool = False
    max_jobs: int = 0
    """It ends after so many, and another takes its place; 0: never."""
    max_memory: int = 0
    """Bytes; a process of one job at a time that keeps half of it after a job takes no other; 0: no limit."""
    mark: str = ""
    """In the environment of this process and of all that it starts; "": they cannot be told from others."""
    name: str = ""
    worker: str | None = None
    alone: bool = False
    """In another program, without a supervisor that could start a process for a job: it takes suspects itself, and
    says nothing about which tasks want a process."""

    @property
    def board_slots(self) -> int:
        """Room on the board: all seats, and as many runs again that have ended and are not confirmed yet."""
        return 2 * (self.slots + self.long_places) + 8
