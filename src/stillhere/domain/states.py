"""The life of a job: one table of states and events, and the one function that applies it.

Every store moves a job only along a row of `TABLE`. The memory store calls `apply` for each move; the scripts of the
other stores are held to the same table by the conformance suite. The diagram in `docs/lifecycle.md` is drawn from the
table by `render_mermaid`, and a test says when the drawing is stale.

A state is a *place*: at every instant a job is in exactly one (G11). `scheduled` waits for a time, `ready` waits for a
worker, `running` is held by a worker under a token, and the other three are ends. A job whose task no live worker
knows stays `ready` with the reason `unknown_task`: it is waiting for a worker, only not for any worker.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a job is."""

    SCHEDULED = "scheduled"
    READY = "ready"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"


class Event(StrEnum):
    """What moves a job."""

    ENQUEUE = "enqueue"
    SCHEDULE = "schedule"
    REJECT = "reject"
    DUE = "due"
    GRANT = "grant"
    SUCCEED = "succeed"
    RETRY = "retry"
    SNOOZE = "snooze"
    FAIL = "fail"
    DISCARD = "discard"
    INTERRUPT = "interrupt"
    LOSE = "lose"
    EXHAUST = "exhaust"
    CANCEL = "cancel"
    REVIVE = "revive"


LIVE = frozenset({State.SCHEDULED, State.READY, State.RUNNING})
FINAL = frozenset({State.SUCCEEDED, State.DEAD, State.CANCELLED})

# (state before, event) -> state after. None before: the job does not exist yet.
TABLE: dict[tuple[State | None, Event], State] = {
    (None, Event.ENQUEUE): State.READY,
    (None, Event.SCHEDULE): State.SCHEDULED,
    (None, Event.REJECT): State.DEAD,
    (State.SCHEDULED, Event.DUE): State.READY,
    (State.SCHEDULED, Event.CANCEL): State.CANCELLED,
    (State.SCHEDULED, Event.REVIVE): State.READY,
    (State.READY, Event.GRANT): State.RUNNING,
    (State.READY, Event.CANCEL): State.CANCELLED,
    (State.RUNNING, Event.SUCCEED): State.SUCCEEDED,
    (State.RUNNING, Event.RETRY): State.SCHEDULED,
    (State.RUNNING, Event.SNOOZE): State.SCHEDULED,
    (State.RUNNING, Event.FAIL): State.DEAD,
    (State.RUNNING, Event.DISCARD): State.CANCELLED,
    (State.RUNNING, Event.CANCEL): State.CANCELLED,
    (State.RUNNING, Event.INTERRUPT): State.READY,
    (State.RUNNING, Event.LOSE): State.READY,
    (State.RUNNING, Event.EXHAUST): State.DEAD,
    (State.DEAD, Event.REVIVE): State.READY,
}


class IllegalMoveError(Exception):
    """A move that the table does not hold: always a bug in a store, never a user's mistake."""


def apply(state: State | None, event: Event) -> State:
    """Return the state after `event`; raises `IllegalMoveError` when the table has no such row."""
    try:
        return TABLE[state, event]
    except KeyError:
        message = f"a job that is {state or 'not there'} cannot take the event {event}"
        raise IllegalMoveError(message) from None


def render_mermaid() -> str:
    """Return the table as a Mermaid state diagram, one arrow per pair of states, its events as the label."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (before, event), after in TABLE.items():
        arrows.setdefault((before or "[*]", after), []).append(event)
    lines = [f"    {a} --> {b}: {', '.join(events)}" for (a, b), events in arrows.items()]
    ends = [f"    {state} --> [*]" for state in State if state in FINAL]
    return "\n".join(["stateDiagram-v2", *lines, *ends])
