"""Who sits where: slots for all jobs, long places for those that turned out to be long.

A run takes a slot. When it passes its `long_after` it moves to a long place and gives the slot back; with it move the
other runs of its task that sit in slots, since what is long once is long again. A run that finds no long place free
stays in its slot, and moves as soon as one is. So one long job cannot take a one-slot worker, and a worker never runs
more than slots + long places at once.

Pure bookkeeping: nothing is stopped or started by moving.
"""

from __future__ import annotations

from stillhere.worker.child.runs import Run


class Places:
    """The seats of one worker process."""

    def __init__(self, slots: int, long_places: int) -> None:
        self.slots = slots
        self.long_places = long_places
        self._in_slots: dict[Run, None] = {}
        self._in_long: set[Run] = set()
        self._long_tasks: set[str] = set()

    @property
    def free(self) -> int:
        """Slots that are free."""
        return self.slots - len(self._in_slots)

    @property
    def empty(self) -> bool:
        """Whether nothing runs here at all."""
        return not self._in_slots and not self._in_long

    @property
    def running(self) -> list[Run]:
        """All that sit somewhere."""
        return [*self._in_slots, *self._in_long]

    def take(self, run: Run) -> None:
        """Give it a slot."""
        self._in_slots[run] = None

    def leave(self, run: Run) -> list[Run]:
        """Its seat is free; returns the runs that moved to a long place because of it."""
        self._in_slots.pop(run, None)
        self._in_long.discard(run)
        return self._move()

    def passed(self, run: Run) -> list[Run]:
        """It has run for longer than `long_after`; returns the runs that move to a long place."""
        run.passed = True
        self._long_tasks.add(run.grant.task)
        return self._move()

    def _move(self) -> list[Run]:
        """Those that passed first, then others of a long task, oldest first, as far as there are places."""
        candidates = [run for run in self._in_slots if run.passed]
        candidates += [run for run in self._in_slots if not run.passed and run.grant.task in self._long_tasks]
        moved = candidates[: self.long_places - len(self._in_long)]
        for run in moved:
            del self._in_slots[run]
            self._in_long.add(run)
            run.long = True
        return moved
