"""Which tasks have turned out long: told to the store before the slots that their runs gave back are offered again.

The order is what keeps long jobs out of the slots. A claim that overtook the word would bring the next jobs of the same
task, and they would find the long places taken by the first ones and keep their slots to the end. So while a word is on
its way no job is claimed for a slot. A store that does not answer has no jobs to give either; after a few tries the
slots are offered all the same, and the next run that passes tells it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice

from stillhere.domain.errors import StillhereError
from stillhere.ports.backend import AsyncStore, Lengthen
from stillhere.worker.child.crew import Crew
from stillhere.worker.child.identity import Identity

TRIES = 3


class Lessons:
    """What one worker has found out and is about to tell. On the loop."""

    def __init__(self, store: AsyncStore, identity: Identity, crew: Crew, told: Callable[[], None]) -> None:
        """`told` is called whenever nothing is on its way any more."""
        self._store, self._identity, self._crew, self._told = store, identity, crew, told
        self._pending: set[tuple[str, str]] = set()

    @property
    def pending(self) -> bool:
        """Whether a word is on its way: what is claimed now may be what it is about."""
        return bool(self._pending)

    def tell(self, queue: str, task: str) -> None:
        """A run of this task has passed `long_after`. Many at once are one word."""
        if (queue, task) not in self._pending:
            self._pending.add((queue, task))
            self._crew.spawn(self._tell(queue, task))

    async def _tell(self, queue: str, task: str) -> None:
        for bound in islice(self._identity.growing_bounds(), TRIES):
            try:
                await self._store.call(Lengthen(queue=queue, task=task), timeout=bound)
                break
            except StillhereError as error:
                self._identity.complain("lengthen", error)
                await asyncio.sleep(self._identity.plan.retry_after)
        self._pending.discard((queue, task))
        if not self._pending:
            self._told()
