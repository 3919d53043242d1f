"""What a running handler asks of its worker, through the `Job` it is given."""

from __future__ import annotations

import logging

from stillhere.worker.child.identity import Identity
from stillhere.worker.child.records import Records
from stillhere.worker.child.runs import Run

job_log = logging.getLogger("stillhere.job")


class Desk:
    """The `Host` of all runs of one worker."""

    def __init__(self, identity: Identity, records: Records) -> None:
        self._identity, self._records = identity, records

    def in_doubt(self) -> bool:
        """Whether the lease may be over by now."""
        return not self._identity.trusted

    def note_progress(self, run: Run, done: float, total: float | None, note: str) -> None:
        """A handler's progress."""
        self._records.note(run, done, total, note)

    async def checkpoint(self, run: Run, value: object) -> None:
        """A handler's checkpoint, from the loop."""
        await self._records.checkpoint(run, value)

    def checkpoint_sync(self, run: Run, value: object) -> None:
        """A handler's checkpoint, from a thread."""
        self._records.checkpoint_sync(run, value)

    def log(self, run: Run, line: str) -> None:
        """A handler's line."""
        job_log.info("%s (%s): %s", run.grant.id, run.grant.task, line)
