"""Any story of verbs, told to the reference in memory and to a real server: both answer the same, and both stay sound.

The stories are drawn by Hypothesis: producers, workers and supervisors at once, clocks that step an hour either way,
replies that get lost, requests that come again when they are long out of date. What is written down of the workers here
(the grants they know of, the number of their claim) is what real ones know, so that most of what they say is apt; the
rest is noise on purpose.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from stillhere.domain.job import Grant, NewRecord, Outcome, OutcomeKind, Verdict
from stillhere.domain.states import State
from stillhere.ports.backend import (
    Beat,
    Cancel,
    Checkpoint,
    Claim,
    End,
    Enqueue,
    Held,
    Progress,
    ProgressItem,
    Register,
    Renew,
    Retry,
    Settle,
    Sweep,
    Tick,
)
from stillhere.ports.inspector import Jobs, Pause, Purge
from tests.model.pair import QUEUE, Pair
from tests.support.servers import RedisServer

EXAMPLES = int(os.environ.get("STATEFUL_EXAMPLES", "60"))
STEPS = 50
HOUR_MS = 3_600_000

PLACES = st.integers(0, 3)
"""Which worker: four live at a time; one that is closed is followed by another under a new id."""
PICK = st.integers(0, 1_000)
"""Which one of those that are there, by the remainder."""
IDS = st.integers(0, 11).map(lambda number: f"job-{number:02}")
DELAYS = st.sampled_from([None, 0, 1, 900, 3_000, 20_000])

NEW = st.builds(
    NewRecord,
    id=IDS,
    task=st.sampled_from(["a", "a", "b", "rare"]),
    queue=st.just(QUEUE),
    args=st.sampled_from(["{}", '{"x": "é/\\u2028"}']),
    priority=st.sampled_from([5, 5, 0, 9, 3, 7]),
    delay_ms=DELAYS,
    unique=st.sampled_from([None, None, "k", "ü"]),
    unique_for_ms=st.sampled_from([None, 5_000, 2 * HOUR_MS]),
    on_conflict=st.sampled_from(["existing", "replace", "raise"]),
    max_attempts=st.sampled_from([None, 3]),
    max_losses=st.sampled_from([None, 0, 1]),
    retention_ms=st.sampled_from([None, 0, 2 * HOUR_MS]),
    headers=st.sampled_from([{}, {"trace": "1/ä"}]),
)
LIVE_AND_DEAD = [State.READY, State.RUNNING, State.SCHEDULED, State.DEAD]
OUTCOMES = st.sampled_from(list(OutcomeKind))
VERDICTS = st.sampled_from(list(Verdict))


@dataclass
class Place:
    """What a worker knows of itself."""

    id: str
    n: int = 0
    answered: int = 0
    is_registered: bool = False
    held: list[Grant] = field(default_factory=list)


class Story(RuleBasedStateMachine):
    """The machine that Hypothesis drives; `url` is set by the test."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(self.url)
        self.places = [Place(f"w{number}.0") for number in range(4)]
        self.generation = 0
        self.lease_clock = 0
        """As the last tick told it."""
        self.grants: list[tuple[str, Grant]] = []
        """Every grant that anybody ever saw, with its worker."""
        self.jobs: set[str] = set()

    def teardown(self) -> None:
        self.pair.close()

    @initialize(new=st.lists(NEW, min_size=6, max_size=10), lease_ms=st.sampled_from([10_000, 30_000]))
    def open(self, new: list[NewRecord], lease_ms: int) -> None:
        """Most stories begin with work and two workers, or nothing would happen in many."""
        self.enqueue(new)
        for at in (0, 1):
            self.register(at, lease_ms, ("a", "b"), 1)

    # ------------------------------------------------------------------------------------------------- producers

    @rule(new=st.lists(NEW, min_size=1, max_size=4))
    def enqueue(self, new: list[NewRecord]) -> None:
        self.jobs |= {one.id for one in new}
        self.pair.call(Enqueue(queue=QUEUE, jobs=new))

    @rule(new=NEW, ahead=st.sampled_from([-5_000, 0, 400, 5_000, HOUR_MS]))
    def enqueue_at(self, new: NewRecord, ahead: int) -> None:
        fields = {name: getattr(new, name) for name in NewRecord.__struct_fields__}
        self.enqueue([NewRecord(**(fields | {"delay_ms": None, "due": self.pair.now + ahead}))])

    @rule(job=IDS, reason=st.sampled_from(["cancelled", "", "no more"]), keep=st.sampled_from([None, 0, HOUR_MS]))
    def cancel(self, job: str, reason: str, keep: int | None) -> None:
        self.pair.call(Cancel(queue=QUEUE, job=job, reason=reason, retention_ms=keep))

    @rule(job=IDS)
    def retry(self, job: str) -> None:
        self.pair.call(Retry(queue=QUEUE, job=job))

    @rule(job=IDS)
    def purge(self, job: str) -> None:
        self.pair.call(Purge(queue=QUEUE, job=job))

    @rule(paused=st.sampled_from([False, False, True]))
    def pause(self, paused: bool) -> None:
        self.pair.call(Pause(queue=QUEUE, paused=paused))

    # --------------------------------------------------------------------------------------------------- workers

    @rule(
        at=PLACES,
        lease_ms=st.sampled_from([500, 10_000, 30_000]),
        tasks=st.sampled_from([("a",), ("a", "b"), ("a", "b", "rare"), ()]),
        version=st.sampled_from([1, 2]),
    )
    def register(self, at: int, lease_ms: int, tasks: tuple[str, ...], version: int) -> None:
        place = self.places[at]
        verb = Register(
            queue=QUEUE,
            worker=place.id,
            lease_ms=lease_ms,
            tasks=tasks,
            record_version=version,
            info={"host": "h"} if lease_ms > 500 else {},
        )
        if self.pair.call(verb) == "gone":
            self._follow(at)
        else:
            place.is_registered = True

    def _follow(self, at: int) -> None:
        """Somebody else takes the place of a worker that is closed."""
        self.generation += 1
        self.places[at] = Place(f"w{at}.{self.generation}")

    @rule(
        at=PLACES,
        slots=st.integers(0, 4),
        lanes=st.sampled_from(["pool", "pool", "solo", "both"]),
        step=st.sampled_from([1, 1, 1, 0, -1]),
        arrives=st.sampled_from([True, True, True, False]),
    )
    def claim(self, at: int, slots: int, lanes: Any, step: int, arrives: bool) -> None:
        place = self.places[at]
        place_registered = place.is_registered
        n = max(1, place.n + step)
        reply = self.pair.call(Claim(queue=QUEUE, worker=place.id, n=n, slots=slots, lanes=lanes))
        if reply.standing == "gone" and place_registered:
            self._follow(at)
        if reply.standing != "ok":
            return
        place.n = n
        if arrives:
            place.answered = max(place.answered, n)
            place.held += [grant for grant in reply.jobs if grant not in place.held]
            self.grants += [(place.id, grant) for grant in reply.jobs]

    @rule(
        at=PLACES,
        forgets=st.sampled_from([False, False, True]),
        behind=st.sampled_from([0, 0, 1]),
        lease_ms=st.sampled_from([None, None, None, 5_000]),
        strange=st.sampled_from([None, None, 7]),
    )
    def beat(self, at: int, forgets: bool, behind: int, lease_ms: int | None, strange: int | None) -> None:
        place = self.places[at]
        known = place.held[1:] if forgets else place.held
        held = [Held(grant.id, grant.token) for grant in known]
        if strange is not None:
            held.append(Held("job-00", strange))
        answered = max(0, place.answered - behind)
        reply = self.pair.call(Beat(queue=QUEUE, worker=place.id, answered=answered, held=held, lease_ms=lease_ms))
        lost = {(pair.job, pair.token) for pair in reply.lost}
        place.held = [grant for grant in known if (grant.id, grant.token) not in lost]

    def _any_grant(self, pick: int, old: bool) -> tuple[str, Grant] | None:
        """One that is held now; or, in one case of a few, any that ever was."""
        held = [(place.id, grant) for place in self.places for grant in place.held]
        from_these = self.grants if old or not held else held
        return from_these[pick % len(from_these)] if from_these else None

    @precondition(lambda self: self.grants)
    @rule(
        picks=st.lists(PICK, min_size=1, max_size=3),
        kinds=st.lists(OUTCOMES, min_size=3, max_size=3),
        old=st.sampled_from([False, False, False, True]),
        delay_ms=st.sampled_from([0, 500, 10_000]),
        retention_ms=st.sampled_from([0, HOUR_MS]),
        result=st.sampled_from([None, "1"]),
        reason=st.sampled_from([None, "why"]),
    )
    def settle(self, picks: list[int], kinds: list[OutcomeKind], old: bool, reason: str | None, **fields: Any) -> None:
        chosen = [found for pick in picks if (found := self._any_grant(pick, old))]
        worker = chosen[0][0]
        outcomes = [
            Outcome(job=grant.id, token=grant.token, kind=kind, reason=reason, **self._said(kind, fields))
            for (_, grant), kind in zip(chosen, kinds, strict=False)
        ]
        self.pair.call(Settle(queue=QUEUE, worker=worker, outcomes=outcomes))
        done = {(outcome.job, outcome.token) for outcome in outcomes}
        for place in self.places:
            if place.id == worker:
                place.held = [grant for grant in place.held if (grant.id, grant.token) not in done]

    @staticmethod
    def _said(kind: OutcomeKind, fields: dict[str, Any]) -> dict[str, Any]:
        if kind is OutcomeKind.SUCCEEDED:
            return fields
        error = '{"type":"E"}' if kind in (OutcomeKind.RETRY, OutcomeKind.DEAD) else None
        return fields | {"result": None, "error": error}

    @precondition(lambda self: self.grants)
    @rule(pick=PICK, old=st.booleans(), number=st.integers(1, 4), value=st.sampled_from(["1", "2", '"ä"']))
    def checkpoint(self, pick: int, old: bool, number: int, value: str) -> None:
        if found := self._any_grant(pick, old):
            worker, grant = found
            self.pair.call(
                Checkpoint(queue=QUEUE, worker=worker, job=grant.id, token=grant.token, number=number, value=value)
            )

    @precondition(lambda self: self.grants)
    @rule(pick=PICK, old=st.booleans(), number=st.integers(1, 4), value=st.sampled_from(["{}", '{"done": 1} ', "{ }"]))
    def progress(self, pick: int, old: bool, number: int, value: str) -> None:
        if found := self._any_grant(pick, old):
            worker, grant = found
            item = ProgressItem(job=grant.id, token=grant.token, number=number, value=value)
            self.pair.call(Progress(queue=QUEUE, worker=worker, items=[item, item]))

    # ----------------------------------------------------------------------------------------------- supervisors

    @rule(at=PLACES, behind=st.sampled_from([0, 0, 1]), silent=st.sampled_from(["", "by the last tick", "for ever"]))
    def renew(self, at: int, behind: int, silent: str) -> None:
        place = self.places[at]
        answered = max(0, place.answered - behind)
        hand_back = {"": 0, "by the last tick": self.lease_clock}.get(silent, 1 << 50)
        self.pair.call(Renew(queue=QUEUE, worker=place.id, answered=answered, hand_back=hand_back))

    @rule(ms=st.sampled_from([0, 1, 40, 900, 2_500]))
    def tick(self, ms: int) -> None:
        self.pair.now += ms
        self.lease_clock = self.pair.call(Tick(queue=QUEUE), keep=False).lease_clock

    @rule(ticks=st.integers(1, 12))
    def pass_time(self, ticks: int) -> None:
        """Long enough, with somebody there, for leases to end."""
        for _ in range(ticks):
            self.tick(2_000)

    @rule(hours=st.sampled_from([1, -1]))
    def step_clock(self, hours: int) -> None:
        self.pair.now += hours * HOUR_MS

    @rule(limit=st.sampled_from([1, 20]), default=VERDICTS, chunk=st.sampled_from([1, 2, 100]))
    def sweep(self, limit: int, default: Verdict, chunk: int) -> None:
        for worker in self.pair.call(Sweep(queue=QUEUE, limit=limit)).over:
            self._end(worker, force=False, default=default, verdicts={}, limit=chunk)

    @rule(
        at=PLACES,
        force=st.booleans(),
        default=VERDICTS,
        verdicts=st.dictionaries(IDS, VERDICTS, max_size=4),
        limit=st.sampled_from([1, 2, 100]),
        finishes=st.booleans(),
    )
    def end(self, at: int, force: bool, finishes: bool, **said: Any) -> None:
        if finishes:
            self._end(self.places[at].id, force=force, **said)
        else:
            self.pair.call(End(queue=QUEUE, worker=self.places[at].id, reason="exit 3", force=force, **said))

    def _end(self, worker: str, **said: Any) -> None:
        while self.pair.call(End(queue=QUEUE, worker=worker, reason='SIGKILL "9"/1', **said)).status == "more":
            pass

    # ----------------------------------------------------------------------------------------------------- noise

    @precondition(lambda self: self.pair.sent)
    @rule(pick=st.integers(0, 10_000), back=st.integers(1, 12), recent=st.booleans())
    def again(self, pick: int, back: int, recent: bool) -> None:
        """An earlier request comes once more: just now, or long out of date."""
        sent = self.pair.sent
        self.pair.call(sent[-min(back, len(sent))] if recent else sent[pick % len(sent)], keep=False)

    @rule(
        state=st.sampled_from([None, *LIVE_AND_DEAD]),
        task=st.sampled_from([None, "a"]),
        tail=st.sampled_from([None, "1", "job-01"]),
        older=st.sampled_from([None, 5_000]),
        text=st.sampled_from([None, "WorkerLost"]),
    )
    def list_jobs(self, state: Any, task: str | None, tail: str | None, older: int | None, text: str | None) -> None:
        self.pair.listing(
            Jobs(queue=QUEUE, state=state, task=task, id_tail=tail, older_than_ms=older, error_text=text, limit=3)
        )

    @invariant()
    def same(self) -> None:
        if self.pair.said:
            self.pair.compare(sorted(self.jobs))


@pytest.fixture(scope="module", params=["valkey", "redis62"])
def story(request: pytest.FixtureRequest) -> Iterator[Callable[[], Story]]:
    server = request.getfixturevalue(f"{request.param}_server")
    assert isinstance(server, RedisServer)

    class Told(Story):
        url = server.url

    yield Told


def test_the_reference_and_a_server_answer_the_same(story: Callable[[], Story]) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        story, settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS)
    )
