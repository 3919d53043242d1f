"""The arithmetic of leases: when to renew, how long to trust, when a silent worker is given up.

All of it is pure: time and randomness come from the caller, so the same code runs in a worker and in a simulation of
thousands of them. Three readers: the child's keeper and the supervisor's beater drive a `RenewalClock` each; the
supervisor takes its tick and sweep cadence from `LeasePlan`; the memory store keeps its time in a `LeaseClock`, whose
rule the scripts of the other stores repeat.

Two clocks are at work and they never see each other. The *store* judges a lease by its lease clock, which runs only
while somebody calls, so an outage or a step of the server's clock costs every lease at most one gap. The *holder*
judges itself by seconds that count suspend, from the moment it *sent* the last renewal that was answered. A renewal
reaches the store after it was sent, so the store's end of the lease is never before sent + T on a clock that keeps
pace, and never before sent + T - gap when the store's clock has made one step forward.

What may go wrong between two lines: a holder that is frozen between asking `trusted` and acting on the answer acts
late. No clock can close that; the token does, at the store.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

DEFAULT_LEASE_S = 30.0
MIN_LEASE_S = 0.5
"""Below this the smallest gap would be more than a tenth of the lease, and three hung renewals could end it."""

MAX_GAP_S = 2.0
MIN_GAP_S = 0.05
DRAIN_LEASE_S = 5.0

JITTER = 0.1
"""Renewals and sweeps come up to this share early or late, so that a fleet started together drifts apart."""

HUNG_RENEWALS = 3
"""So many renewals in a row may hang for their whole bound, and the lease still holds."""


def gap_for(length_s: float) -> float:
    """Return the gap that a lease of this length asks of its queue: a tenth, at least 50 ms, at most 2 s.

    The gap is what a step of the store's clock, or an outage, can cost a lease. A tenth fits beside three hung
    renewals: 0.87 T + 0.1 T < T. Above 2 s nothing is won, and the clock would run long through an outage.
    """
    return max(MIN_GAP_S, min(MAX_GAP_S, length_s / 10))


def plan_for(length_s: float = DEFAULT_LEASE_S, queue_gap_s: float = MAX_GAP_S) -> LeasePlan:
    """Return the plan of a worker that registers with this lease; the queue's gap is then at most its `gap_for`."""
    return LeasePlan(length_s, min(queue_gap_s, gap_for(length_s)))


@dataclass(frozen=True, slots=True)
class LeasePlan:
    """Every interval that follows from a lease length T and the queue's gap, in seconds.

    Raises `ValueError` for a lease too short to be kept, or a gap that would end trust between two good renewals.
    """

    length_s: float
    gap_s: float = MAX_GAP_S

    def __post_init__(self) -> None:
        if not MIN_LEASE_S <= self.length_s < math.inf:
            message = f"A lease of {self.length_s:g} s cannot be kept: the shortest is {MIN_LEASE_S:g} s."
            raise ValueError(message)
        if self.gap_s <= 0 or self.trust_limit <= self.worst_age():
            message = f"A gap of {self.gap_s:g} s does not fit a lease of {self.length_s:g} s."
            raise ValueError(message)

    # ------------------------------------------------------------------------------------------------- the holder

    @property
    def renew_every(self) -> float:
        """T/4 from send to send, give or take `JITTER`."""
        return self.length_s / 4

    @property
    def try_bound(self) -> float:
        """T/8: a renewal without an answer is given up, and its connection with it."""
        return self.length_s / 8

    @property
    def retry_after(self) -> float:
        """T/32 from giving up to the next try: also the cadence in an outage, so the first answer comes soon after."""
        return self.length_s / 32

    def worst_age(self, hung: int = 0) -> float:
        """Return how old a confirmed renewal can get, counted from its send, when `hung` tries in a row hang.

        The next send comes at most 1.1 T/4 after the last confirmed one; each hung try costs its bound and the pause
        behind it; the one that succeeds may take its whole bound: 1.1 T/4 + (hung + 1) T/8 + hung T/32, that is
        0.40, 0.56, 0.71 and 0.87 T for none to three.
        """
        late = (1 + JITTER) * self.renew_every
        return late + (hung + 1) * self.try_bound + hung * self.retry_after

    @property
    def trust_limit(self) -> float:
        """0.9 T less the gap: a younger lease cannot be over at the store, even if the store's clock made a step.

        From this age on the lease is in doubt. One gap covers one forward step within one lease length.
        """
        return 0.9 * self.length_s - self.gap_s

    @property
    def mute_after(self) -> float:
        """T/2: a voice that got no answer for so long counts as broken, whatever the other voice does."""
        return self.length_s / 2

    def draining(self) -> LeasePlan:
        """Return the plan of the same worker while it drains: 5 s, so that a kill in mid-drain costs little.

        The queue keeps its gap, so under a long lease's gap of 2 s one hung renewal is borne on top of a clock step,
        not three; a drain is short and its jobs are about to be handed back anyhow.
        """
        return LeasePlan(min(DRAIN_LEASE_S, self.length_s), self.gap_s)

    # --------------------------------------------------------------------------------------------- the supervisor

    @property
    def tick_every(self) -> float:
        """Half a gap: with one call per gap the lease clock loses nothing, and a late tick is still in time."""
        return self.gap_s / 2

    @property
    def sweep_every(self) -> float:
        """A quarter of the shortest lease on the queue, give or take `JITTER`; the first sweep comes at once.

        The queue's gap is at most a tenth of its shortest lease, so ten gaps stand for that lease: a worker with a
        long lease finds a dead one with a short lease inside the latter's bound. The sweep at the start makes
        processes that live for less than a quarter count too.
        """
        return min(self.length_s, 10 * self.gap_s) / 4

    @property
    def recovery_bound(self) -> float:
        """1.3 T + 1 s of contact: from a host's death until its jobs are ready elsewhere, as printed for people.

        The lease ends T after its last renewal, the next sweep is at most 1.1 T/4 away: 1.275 T. The rest is for the
        sweep's and the end's round trips, and for ticks that came late.
        """
        return 1.3 * self.length_s + 1.0


def jittered(interval: float, random: Random) -> float:
    """Return the interval, up to `JITTER` shorter or longer."""
    return interval * random.uniform(1 - JITTER, 1 + JITTER)


class RenewalClock:
    """When one voice renews next, and how old the lease is. Seconds of one clock that counts suspend are passed in.

    The loop around it: sleep until `next_due`; `sent`; call the store, bounded by `plan.try_bound`; then `confirmed`
    with the time of the send, or `failed` with the time of giving up. A crash between any two of these only leaves
    the lease older. Not thread-safe: each voice has its own, and tells it what the other voice achieved by `witness`.
    """

    __slots__ = ("_confirmed", "_due", "_random", "_witnessed", "plan")

    def __init__(self, plan: LeasePlan, random: Random) -> None:
        """Start without any renewal: due at once, trusted never. Registering counts as the first renewal."""
        self.plan = plan
        self._random = random
        self._due = -math.inf
        self._confirmed = -math.inf
        self._witnessed = -math.inf

    def next_due(self, now: float) -> float:
        """Return when to send next; a time that has passed is now."""
        return max(now, self._due)

    def sent(self, now: float) -> None:
        """Note a send; the next one is due a jittered quarter later, unless this one fails."""
        self._due = now + jittered(self.plan.renew_every, self._random)

    def confirmed(self, sent_at: float) -> None:
        """Note that the renewal sent at this time was answered. A late answer to an older one never makes younger."""
        self._confirmed = max(self._confirmed, sent_at)

    def failed(self, now: float) -> None:
        """Note that a try failed or was given up: try again soon, on a fresh connection."""
        self._due = now + self.plan.retry_after

    def witness(self, sent_at: float) -> None:
        """Note the other voice's last confirmed send: it keeps the same lease, at no change to this voice's cadence."""
        self._witnessed = max(self._witnessed, sent_at)

    def hurry(self) -> None:
        """Make the next renewal due at once: after waking in doubt, only a renewal sent from now on clears it."""
        self._due = -math.inf

    def shorten(self, plan: LeasePlan) -> None:
        """Go over to a shorter lease (a drain). The holder has to say so to the store, so a renewal is due at once."""
        self.plan = plan
        self.hurry()

    def age(self, now: float) -> float:
        """Return the lease's age: since the send of the last confirmed renewal of either voice."""
        return now - max(self._confirmed, self._witnessed)

    def mute(self, now: float) -> bool:
        """Say whether this voice itself has gone without an answer for too long."""
        return now - self._confirmed > self.plan.mute_after

    def trusted(self, now: float) -> bool:
        """Say whether the lease cannot be over yet; the gate before a handler starts."""
        return self.age(now) < self.plan.trust_limit


class LeaseClock:
    """The store's two clocks that never go back, in whole milliseconds, moved by each call that the store hears.

    `lease` moves by the time since the last call, at most one gap, never backwards: leases end by it. `steady` is
    the wall clock plus all its backward steps: relative delays count on it, so a retry due in 3 s is due in 3 s
    although the server's clock went back an hour. Absolute times stay on the wall clock.
    """

    __slots__ = ("_last", "back", "gap_ms", "lease")

    def __init__(self, *, lease: int = 0, last: int | None = None, back: int = 0) -> None:
        """Start at zero, or where a stored clock stood."""
        self.lease = lease
        self.back = back
        self.gap_ms = round(MAX_GAP_S * 1000)
        self._last = last

    def tick(self, now_ms: int) -> int:
        """Move both clocks to this reading of the wall clock; return the lease clock."""
        if self._last is not None:
            step = now_ms - self._last
            self.lease += min(max(step, 0), self.gap_ms)
            self.back += max(-step, 0)
        self._last = now_ms
        return self.lease

    @property
    def steady(self) -> int:
        """The wall clock of the last tick plus the sum of all its backward steps."""
        return (self._last or 0) + self.back

    def lower_gap(self, lease_ms: int) -> None:
        """Take in a worker's lease: the gap becomes the smallest that any registered lease asks for."""
        self.gap_ms = min(self.gap_ms, max(round(MIN_GAP_S * 1000), lease_ms // 10))

    def reset_gap(self) -> None:
        """Forget the gap when the last worker of the queue has left."""
        self.gap_ms = round(MAX_GAP_S * 1000)
