"""Hears of work and of cancels; a broken ear is replaced, and what it missed is found by polling and beats.

A process that claims nothing must not listen for work: it would swallow hints that an idle one could use. It says so
with the next tick and not at once, because a worker that is full for some milliseconds only uses the hint itself. A
solo child never listens for work: nearly all of it is not for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from stillhere.domain.errors import StillhereError
from stillhere.ports.backend import AsyncStore, Hint, Hints
from stillhere.worker.child.identity import Identity

WAIT_S = 1.0


class Ear:
    """One connection that waits, under the worker id of the moment."""

    def __init__(
        self, store: AsyncStore, identity: Identity, queues: Sequence[str], on_hint: Callable[[Hint], None]
    ) -> None:
        self._store, self._identity, self._queues, self._on_hint = store, identity, list(queues), on_hint
        self._hints: Hints | None = None
        self._wants_work = True

    def want(self, work: bool) -> None:  # noqa: FBT001 - as the port's `want`
        """Listen for work too, or only for cancels."""
        self._wants_work = work
        if self._hints is not None:
            self._hints.want(work)

    async def run(self) -> None:
        """Listen until cancelled."""
        while True:
            worker = self._identity.worker
            hints = self._hints = self._store.hints(worker, self._queues)
            hints.want(self._wants_work)
            try:
                while worker == self._identity.worker:
                    hint = await hints.next(WAIT_S)
                    if hint is not None and worker == self._identity.worker:
                        self._on_hint(hint)
            except StillhereError as error:
                self._identity.complain("hints", error)
                await asyncio.sleep(self._identity.plan.retry_after)
            finally:
                self._hints = None
                await hints.aclose()
