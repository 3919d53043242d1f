"""The warden: ends runs that should be over and that their own process does not end.

A run's limits, and whether it was told to stop, stand on the board; its process acts on them, but its loop may be
blocked, or its thread be in a C call. So the supervisor looks too, and acts one second after the process should have:

- The run holds the loop of a pool child: it is cut by a signal, which hits this run or nothing (see `child.steps`).
- It does not end for five more seconds: the child is *retired*. It takes no more jobs, another child takes its place at
  once, and the other runs in it get the retire-grace to come to their own ends. Then, or as soon as only such runs are
  left, the child is killed. Only then is the end of the run written: with what its policy said when it started.
- In a solo child there are no neighbours to spare: it is killed as soon as the run is late, after the time for its own
  last words when it was told to stop by somebody (cancelled, or its lease is lost).
- A run that must not outlive its lease is killed with its process before the lease can be over, whatever else holds.

Pure: the board is read and the clock is passed in; what is to be done comes out. A process that is killed here charges
nobody: its other jobs are interrupted, not lost. Between the look and the kill a run may end by itself; the board as it
stands after the death says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from stillhere.domain.errors import StopReason
from stillhere.domain.job import Outcome
from stillhere.domain.lease import LeasePlan
from stillhere.domain.policy import LateRun, after_kill
from stillhere.worker.board import Board, Slot, SlotState

ENFORCE_S = 1.0
LAST_WORDS_S = 5.0
CUT_EVERY_S = 0.5

Key = tuple[int, str, int]
"""Queue index, job, token: one run."""


def key_of(slot: Slot) -> Key:
    """The run in a slot."""
    return slot.queue, slot.job, slot.token


def running(board: Board) -> list[Slot]:
    """The runs that have started and not ended."""
    return [slot for slot in board.taken() if slot.state == SlotState.STARTED]


class Void(NamedTuple):
    """Runs whose worker id the store has closed, and since when that is known here."""

    since_ns: int = 0
    runs: frozenset[Key] = frozenset()


def why_over(slot: Slot, void: Void, cancelled: Mapping[Key, int]) -> StopReason:
    """Why a run should be over: by its board, or by what the store has told its supervisor alone."""
    if key_of(slot) in void.runs:
        return "lease_lost"
    return "cancelled" if not slot.over_ns and key_of(slot) in cancelled else slot.why_over


class Doing(NamedTuple):
    """What is to be done about a child now."""

    cut: Slot | None = None
    retire: str = ""
    kill: str = ""
    late: frozenset[Key] = frozenset()
    """The runs that are the reason."""


NOTHING = Doing()


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a child beside its board."""

    solo: bool
    cuttable: bool
    """It has a handler for the signal."""
    retired_ns: int = 0
    """Since when it is retired; 0: it is not."""
    retire_grace_ns: int = 0
    draining: bool = False
    """There is a timeline that will end it."""
    stop_all_ns: int = 0
    """When all that runs was told to stop, by that timeline; 0: not yet."""
    void: Void = Void()
    cancelled: Mapping[Key, int] = {}
    """Since when (ns) it is known here that runs are cancelled of which a silent child cannot have heard."""
    doubt_ns: int = 0
    """At this time what must not outlive its lease is killed."""


def look(board: Board, case: Case, now_ns: int) -> Doing:
    """Judge one child."""
    runs = running(board)
    in_doubt = [slot for slot in runs if slot.limits.stops_in_doubt]
    if in_doubt and now_ns >= case.doubt_ns:
        return Doing(kill="its lease may soon be over", late=frozenset())
    since = {slot: at for slot in runs if (at := _over_since(slot, case))}
    late = {slot: now_ns - at for slot, at in since.items() if now_ns - at >= ENFORCE_S * 1e9}
    if not late:
        return NOTHING
    keys = frozenset(map(key_of, late))
    stuck = {slot: at for slot, by in late.items() if (at := by - int(_patience_s(slot, case) * 1e9)) >= 0}
    if stuck and not case.draining:
        first, stuck_for = max(stuck.items(), key=lambda one: one[1])
        why = f"job {first.job} ({first.task}) does not end: {why_over(first, case.void, case.cancelled)}"
        alone = len(stuck) == len(runs)
        if alone or (case.retired_ns and _grace_is_over(case, stuck_for, now_ns)):
            return Doing(kill=why, late=keys)
        if not case.retired_ns:
            return Doing(cut=_cut(board, late, case), retire=why, late=keys)
    return Doing(cut=_cut(board, late, case), late=keys)


def outcomes(
    board: Board, queues: list[str], late: frozenset[Key], void: Void, cancelled: Mapping[Key, int]
) -> dict[str, list[Outcome]]:
    """How the late runs of a dead child end, by queue: those that were still running, and were still its own."""
    ends: dict[str, list[Outcome]] = {}
    for slot in running(board):
        if key_of(slot) in late and key_of(slot) not in void.runs and slot.queue < len(queues):
            end = after_kill(
                LateRun(
                    job=slot.job,
                    token=slot.token,
                    why=why_over(slot, void, cancelled),
                    took_ms=(slot.limits.deadline_ns - slot.started_ns) // 1_000_000,
                    stall_ms=slot.limits.stall_ns // 1_000_000,
                    kind=slot.limits.late.kind if slot.limits.late else None,
                    delay_ms=slot.limits.late.delay_ms if slot.limits.late else 0,
                    retention_ms=slot.retention_ms,
                )
            )
            if end is not None:
                ends.setdefault(queues[slot.queue], []).append(end)
    return ends


def doubt_ns(sent_ns: int, plan: LeasePlan) -> int:
    """When runs that must not outlive their lease are killed: 0.05 T after they were told to stop."""
    return sent_ns + int((plan.trust_limit + 0.05 * plan.length_s) * 1e9)


def _grace_is_over(case: Case, stuck_for_ns: int, now_ns: int) -> bool:
    """Counted from when there was a run to be killed: a child may be retired long before, for another reason."""
    return min(now_ns - case.retired_ns, stuck_for_ns) >= case.retire_grace_ns


def _over_since(slot: Slot, case: Case) -> int:
    void = case.void.since_ns if key_of(slot) in case.void.runs else 0
    cancelled = case.cancelled.get(key_of(slot), 0)
    return min((at for at in (slot.over_ns, void, cancelled, case.stop_all_ns) if at), default=0)


def _patience_s(slot: Slot, case: Case) -> float:
    """A solo run that is late by its own limits has had its time; one that was told to stop may have last words."""
    if case.solo and slot.over_ns and slot.why_over in ("timeout", "stalled"):
        return ENFORCE_S
    if case.solo and slot.stopping in ("timeout", "stalled"):
        return ENFORCE_S
    return ENFORCE_S + LAST_WORDS_S


def _cut(board: Board, late: dict[Slot, int], case: Case) -> Slot | None:
    """The run that holds the loop, if it is one of these."""
    current = board.current()
    if current is None or not case.cuttable or case.solo:
        return None
    return next((slot for slot in late if key_of(slot) == key_of(current)), None)
