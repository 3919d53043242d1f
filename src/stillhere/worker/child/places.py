"""Who sits where: slots for all jobs, long places for those that are long.

A run takes a slot. When it passes its `long_after` it moves to a long place and gives the slot back; with it move the
other runs of its task that sit in slots, since what is long once is long again. A run that finds no long place free
stays in its slot, and moves as soon as one is. So one long job cannot take a one-slot worker, and a worker never runs
more than slots + long places at once.

A job that is known to be long before it starts takes a long place from the beginning, and only one that no run in a
slot still needs: otherwise the long jobs that wait would take the places in front of captured slots, and the slots
would stay captured. That a slot needs one may be known to the store before it is known here: another worker has learnt
it. So a claim says what sits in slots. Places that a claim has asked for are kept for what it brings.

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
        self._seated: dict[str, int] = {}
        """Of those in slots: how many of each task. Kept beside them, since each claim says it."""
        self._in_long: set[Run] = set()
        self._long_tasks: set[str] = set()
        self._kept = 0

    @property
    def free(self) -> int:
        """Slots that are free."""
        return self.slots - len(self._in_slots)

    @property
    def free_long(self) -> int:
        """Long places that are free and that no run in a slot needs."""
        return 0 if self._movable() else max(0, self.long_places - len(self._in_long) - self._kept)

    @property
    def seated(self) -> dict[str, int]:
        """How many runs of each task sit in slots: should it be known elsewhere as long, they need long places."""
        return dict(self._seated)

    @property
    def empty(self) -> bool:
        """Whether nothing runs here at all."""
        return not self._in_slots and not self._in_long

    @property
    def running(self) -> list[Run]:
        """All that sit somewhere."""
        return [*self._in_slots, *self._in_long]

    def keep(self, long: int) -> list[Run]:
        """Keep so many long places for what a claim on its way may bring; 0 when that has its seats.

        Returns the runs that move to a long place because of it: what passed in the meantime found them spoken for.
        """
        self._kept = long
        return self._move()

    def take(self, run: Run) -> list[Run]:
        """Give it a slot, or the long place for which it was claimed; returns the runs that are in long places by that.

        A claim that was on its way when its task turned out long brings it for a slot: it moves on at once.
        """
        if run.grant.lane == "long":
            run.long = True
            self._in_long.add(run)
            return [run]
        self._in_slots[run] = None
        self._seated[run.grant.task] = self._seated.get(run.grant.task, 0) + 1
        return self._move()

    def leave(self, run: Run) -> list[Run]:
        """Its seat is free; returns the runs that moved to a long place because of it."""
        if run in self._in_slots:
            self._give_back_slot(run)
        self._in_long.discard(run)
        return self._move()

    def passed(self, run: Run) -> list[Run]:
        """It has run for longer than `long_after`; returns the runs that move to a long place."""
        run.passed = True
        self._long_tasks.add(run.grant.task)
        return self._move()

    def _give_back_slot(self, run: Run) -> None:
        del self._in_slots[run]
        left = self._seated[run.grant.task] - 1
        if left:
            self._seated[run.grant.task] = left
        else:
            del self._seated[run.grant.task]

    def _movable(self) -> list[Run]:
        """Those that passed first, then others of a long task, oldest first."""
        if not self._long_tasks:  # asked at each end of a run, and mostly there is none
            return []
        passed = [run for run in self._in_slots if run.passed]
        return passed + [run for run in self._in_slots if not run.passed and run.grant.task in self._long_tasks]

    def _move(self) -> list[Run]:
        """Move as many as there are places for."""
        moved = self._movable()[: max(0, self.long_places - len(self._in_long) - self._kept)]
        for run in moved:
            self._give_back_slot(run)
            self._in_long.add(run)
            run.long = True
        return moved
