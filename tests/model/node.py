"""Simulated workers for the harness: the rules of the worker child and its supervisor, in virtual time.

They follow what the real ones follow: claims numbered and repeated until answered; `answered` raised, and shared with
the supervisor, before anything starts; a gate before each start; held until the settle is confirmed; an id that is gone
is never used again. They freeze, crash alone or with their supervisor, and are cut off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stillhere.domain.job import Grant, Outcome, OutcomeKind, Verdict
from stillhere.domain.lease import LeasePlan, plan_for
from stillhere.ports.backend import (
    Beat,
    BeatReply,
    Claim,
    Claimed,
    End,
    Held,
    Register,
    Renew,
    Renewed,
    Settle,
    Sweep,
    Swept,
    Tick,
    Ticked,
    Verb,
)
from tests.model.world import LEASE_MS, QUEUE, World

SLOTS = 4
CHUNK = 2
SILENT_MS = 1_000


class Node:
    """A supervisor and its child. The board they share is this object's fields."""

    def __init__(self, world: World, name: str, until: int) -> None:
        self.world, self.name, self.until = world, name, until
        self.plan: LeasePlan = plan_for(LEASE_MS / 1000)
        self.births = 0
        self.silent_since = 0
        self.frozen_until = 0
        """The child does nothing: its loop is blocked, or the whole group stands still."""
        self.stopped_until = 0
        """The supervisor does nothing either."""
        self.cut_until = 0
        self.ticked = 0
        self.dead = True
        self.supervised = True
        self.trouble_free = False
        self.born()
        self._every(500, self._supervise_tick, lambda: self.stopped_until)
        self._every(self.plan.renew_every * 1000, self._renew, lambda: self.stopped_until)
        self._every(self.plan.sweep_every * 1000, self._sweep, lambda: self.stopped_until)
        self._every(self.plan.renew_every * 1000, self._beat, lambda: self.frozen_until)
        self._every(1_000, self._claim, lambda: self.frozen_until)

    # -------------------------------------------------------------------------------------------------- its life

    def born(self) -> None:
        """A new child, under an id of its own."""
        self.births += 1
        self.worker = f"{self.name}-{self.births}"
        self.dead = False
        self.registered = False
        self.answered = 0
        self.claiming = 0
        self.claim_sent = 0
        self.sent_confirmed = self.own_confirmed = -(10**12)
        self.held: dict[str, Grant] = {}
        self.running: set[str] = set()
        self.settling: dict[str, Outcome] = {}
        self._register()

    def _here(self, worker: str, do: Callable[[], None]) -> Callable[[], None]:
        """Something that this child does: later if it is frozen, not at all if it is dead or another by now."""

        def act() -> None:
            if self.dead or self.worker != worker:
                return
            if self.world.now < self.frozen_until:
                self.world.at(self.frozen_until, act)
                return
            do()

        return act

    def _send(self, verb: Verb[Any], reply: Callable[[Any], None]) -> None:
        worker = self.worker
        self.world.send(
            verb,
            lambda answer: self._here(worker, lambda: reply(answer))(),
            cut=lambda: self.world.now < self.cut_until,
        )

    def _every(self, ms: float, do: Callable[[], None], still_until: Callable[[], int]) -> None:
        """Call it again and again, with jitter, whether the child lives or not: `do` looks for itself."""

        def turn() -> None:
            if self.world.now < still_until():
                self.world.at(still_until(), turn)
                return
            do()
            self.world.after(ms * self.world.dice.uniform(0.9, 1.1), turn)

        self.world.after(self.world.dice.uniform(0, ms), turn)

    def _register(self) -> None:
        worker = self.worker

        def again() -> None:
            if not self.registered:
                sent = self.world.now
                register = Register(queue=QUEUE, worker=worker, lease_ms=LEASE_MS, tasks=("t",))
                self._send(register, lambda answer: self._registered(answer, sent))
                self.world.after(2_000, self._here(worker, again))

        again()

    def _registered(self, answer: str, sent: int) -> None:
        if answer == "gone":
            self.void()
        elif not self.registered:
            self.registered = True
            self.sent_confirmed = max(self.sent_confirmed, sent)
            self._claim()

    def void(self) -> None:
        """The id is gone: drop all, go on as somebody else."""
        self._stop_all()
        self.born()

    def _stop_all(self) -> None:
        for job in list(self.running):
            self._stopped(job)

    def crash(self) -> None:
        """The child dies; its supervisor, if it lives, releases what it had and starts another."""
        if self.dead:
            return
        self.dead = True
        worker, answered = self.worker, self.answered
        several = len(self.running) > 1
        verdicts = {
            job: Verdict.BYSTANDER if job not in self.running else Verdict.SUSPECT if several else Verdict.CULPRIT
            for job in self.held
        }
        self._stop_all()
        if self.supervised:
            self._release(worker, answered, verdicts)
        self.world.after(self.world.dice.uniform(300, 5_000), self.born)

    def _release(self, worker: str, answered: int, verdicts: dict[str, Verdict]) -> None:
        """Close the worker, step by step, until the store says that nothing is left."""
        done = False

        def turn() -> None:
            nonlocal done
            if done:
                return
            cut = lambda: self.world.now < self.cut_until  # noqa: E731 - a name for a test of two words
            self.world.send(Renew(queue=QUEUE, worker=worker, answered=answered), lambda _: None, cut=cut)
            end = End(
                queue=QUEUE, worker=worker, reason="killed by SIGKILL", force=True, default=Verdict.BYSTANDER,
                verdicts=verdicts, limit=CHUNK,
            )  # fmt: skip
            self.world.after(25, lambda: self.world.send(end, heard, cut=cut))
            self.world.after(3_000, turn)

        def heard(answer: Any) -> None:
            nonlocal done
            done = done or answer.status in ("ended", "unknown")
            if answer.status == "more":
                self.world.after(5, turn)

        turn()

    # ------------------------------------------------------------------------------------------------- the child

    def trusted(self) -> bool:
        """Whether the lease cannot be over yet, by the child's own clock, which counts freezes."""
        return self.world.now - self.sent_confirmed < self.plan.trust_limit * 1000

    def _claim(self) -> None:
        if self.dead or not self.registered or self.world.now < self.frozen_until:
            return
        if self.claiming and self.world.now - self.claim_sent < self.plan.try_bound * 1000:
            return
        free = SLOTS - len(self.held)
        if not self.claiming and free <= 0:
            return
        if not self.claiming:
            self.first_sent = self.world.now
        self.claiming = self.answered + 1
        self.claim_sent = self.world.now
        number = self.claiming
        lanes = self.world.dice.choice(["pool", "both"]) if not self.held else "pool"
        claim = Claim(queue=QUEUE, worker=self.worker, n=number, slots=max(free, 1), long=1, lanes=lanes)  # type: ignore[arg-type]
        self._send(claim, lambda answer: self._claimed(number, answer))

    def _claimed(self, number: int, answer: Claimed) -> None:
        if answer.standing == "gone":
            self.void()
        elif answer.standing == "over":
            self.claiming = 0
            self._beat()
        elif answer.standing == "ok" and number == self.claiming:
            fresh = [grant for grant in answer.jobs if grant.id not in self.held]
            self.held.update({grant.id: grant for grant in fresh})
            self.answered = number
            self.claiming = 0
            if self.world.now - self.first_sent > 500 or not self.trusted():
                self._confirm(fresh)
            else:
                self._start(fresh)

    def _confirm(self, fresh: list[Grant]) -> None:
        """Start only what an own beat, sent after waking, leaves to us; the supervisor's voice does not compare."""
        asked = self.world.now

        def look() -> None:
            still = [grant for grant in fresh if self.held.get(grant.id) is grant]
            if not still:
                return
            if self.own_confirmed > asked and self.trusted():
                self._start(still)
            else:
                self._beat()
                self.world.after(500, self._here(self.worker, look))

        look()

    def _start(self, grants: list[Grant]) -> None:
        for grant in grants:
            if self.held.get(grant.id) is not grant:
                continue
            self.running.add(grant.id)
            worker = self.worker
            self.world.judge.running[grant.id, grant.token] = lambda worker=worker: self._alive(worker)  # type: ignore[misc]
            length = self.world.dice.choice([200, 2_000, 10_000, 40_000, 120_000])
            self.world.after(length, self._here(worker, lambda grant=grant: self._ends(grant)))  # type: ignore[misc]

    def _alive(self, worker: str) -> bool:
        """Whether this holder lives, moves, and knows no doubt."""
        return not self.dead and self.worker == worker and self.world.now >= self.stopped_until and self.trusted()

    def _stopped(self, job: str) -> None:
        self.running.discard(job)
        grant = self.held.get(job)
        if grant is not None:
            self.world.judge.running.pop((job, grant.token), None)

    def _ends(self, grant: Grant) -> None:
        if grant.id not in self.running or self.held.get(grant.id) is not grant:
            return
        self._stopped(grant.id)
        kinds = [OutcomeKind.SUCCEEDED] * 6 + [OutcomeKind.RETRY, OutcomeKind.SNOOZE, OutcomeKind.INTERRUPTED]
        kind = self.world.dice.choice([OutcomeKind.SUCCEEDED] if self.trouble_free else kinds)
        outcome = Outcome(job=grant.id, token=grant.token, kind=kind, result="1", delay_ms=3_000, reason="r")
        self.settling[grant.id] = outcome
        self._settle(grant, outcome)

    def _settle(self, grant: Grant, outcome: Outcome) -> None:
        def confirmed(_: Any) -> None:
            if self.held.get(grant.id) is grant:
                del self.held[grant.id]
                self.settling.pop(grant.id, None)
                self._claim()

        def again() -> None:
            if self.held.get(grant.id) is grant:
                self._settle(grant, outcome)

        self._send(Settle(queue=QUEUE, worker=self.worker, outcomes=[outcome]), confirmed)
        self.world.after(self.plan.try_bound * 1000, self._here(self.worker, again))

    def _beat(self) -> None:
        if self.dead or not self.registered or self.world.now < self.frozen_until:
            return
        sent = self.world.now
        held = [Held(grant.id, grant.token) for grant in self.held.values()]
        beat = Beat(queue=QUEUE, worker=self.worker, answered=self.answered, held=held)
        self._send(beat, lambda answer: self._heard(answer, sent))

    def _heard(self, answer: BeatReply, sent: int) -> None:
        if answer.standing == "gone":
            self.void()
            return
        self.sent_confirmed = max(self.sent_confirmed, sent)
        self.own_confirmed = max(self.own_confirmed, sent)
        for pair in [*answer.lost, *answer.cancelled]:
            grant = self.held.get(pair.job)
            if grant is None or grant.token != pair.token:
                continue
            was_running = pair.job in self.running
            self._stopped(pair.job)
            if pair in answer.lost:
                del self.held[pair.job]
            elif was_running:
                outcome = Outcome(job=pair.job, token=pair.token, kind=OutcomeKind.CANCELLED, reason="cancelled")
                self._settle(grant, outcome)

    # --------------------------------------------------------------------------------------------- the supervisor

    def _supervisor_send(self, verb: Verb[Any], reply: Callable[[Any], None]) -> None:
        if self.supervised:
            self.world.send(verb, reply, cut=lambda: self.world.now < self.cut_until)

    def _supervise_tick(self) -> None:
        def heard(answer: Ticked) -> None:
            self.ticked = max(self.ticked, answer.lease_clock)

        self._supervisor_send(Tick(queue=QUEUE), heard)

    def _renew(self) -> None:
        if self.dead or not self.registered:
            return
        worker, sent = self.worker, self.world.now
        silent = self.world.now < self.frozen_until and self.world.now - self.silent_since > SILENT_MS
        hand_back = self.ticked if silent else 0
        verb = Renew(queue=QUEUE, worker=worker, answered=self.answered, hand_back=hand_back)

        def heard(answer: Renewed) -> None:
            """It cannot clear a doubt: what was taken meanwhile, only the child's own beat is told."""
            if answer.standing == "ok" and self.worker == worker and not self.dead and self.trusted():
                self.sent_confirmed = max(self.sent_confirmed, sent)

        self._supervisor_send(verb, heard)

    def _sweep(self) -> None:
        def heard(answer: Swept) -> None:
            for worker in answer.over:
                self._end(worker, 50)

        self._supervisor_send(Sweep(queue=QUEUE), heard)

    def _end(self, worker: str, most: int) -> None:
        def heard(answer: Any) -> None:
            if answer.status == "more" and most > 0:
                self._end(worker, most - 1)

        end = End(queue=QUEUE, worker=worker, reason="lease ended", default=Verdict.VANISHED, limit=CHUNK)
        self._supervisor_send(end, heard)

    # --------------------------------------------------------------------------------------------------- trouble

    def trouble(self) -> None:
        """From time to time: freeze, crash, or be cut off."""
        world = self.world
        if world.now >= self.until:
            return
        roll = world.dice.random()
        if roll < 0.3:
            self.silent_since = world.now
            self.frozen_until = world.now + round(world.dice.uniform(500, 90_000))
            self.stopped_until = self.frozen_until if world.dice.random() < 0.5 else 0
        elif roll < 0.55:
            self.cut_until = world.now + round(world.dice.uniform(500, 90_000))
        elif roll < 0.85:
            self.supervised = world.dice.random() < 0.7
            self.crash()
            world.after(6_000, self._supervised_again)
        world.after(world.dice.uniform(10_000, 60_000), self.trouble)

    def _supervised_again(self) -> None:
        self.supervised = True
