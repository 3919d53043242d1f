"""A fleet in virtual time: thousands of workers renew, hang, freeze and die while the store's clock steps and stops.

The parts under test are the real ones: `LeasePlan`, `RenewalClock`, `LeaseClock`. Around them stands the smallest
store that can judge (a clock and a table of lease ends) and supervisors that tick and sweep. Three things are watched:
a lease that is taken from a live worker; a lease that is taken while its holder still trusts it; and how long, in
contact, it takes until a dead worker is found. Each rule is then broken on purpose, and the fleet has to notice.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest

from stillhere.domain.lease import HUNG_RENEWALS, LeaseClock, LeasePlan, RenewalClock, gap_for, jittered

HOUR_MS = 3_600_000


class AlwaysLate(Random):
    """The worst luck: every jitter at its upper end."""

    def uniform(self, a: float, b: float) -> float:
        return max(a, b)


@dataclass
class Weather:
    """What goes wrong. Times in lease lengths where not said otherwise; `hung` is the most failures in a row."""

    hung: int = 0
    deaths: float = 0.0
    freezes: float = 0.0
    clock_steps: bool = False
    outages: bool = False
    supervisor_lives_s: float = float("inf")
    supervisor_away_s: float = 0.0
    first_sweep: bool = True


@dataclass
class Watched:
    """What the fleet saw."""

    renewals: int = 0
    worst_run: int = 0
    taken: int = 0
    taken_trusted: int = 0
    dead: int = 0
    late: list[float] = field(default_factory=list)
    """How long it took to find each dead worker, in contact, as a share of its printed bound."""


class World:
    """Time, the store, the network between, and everything that happens next."""

    def __init__(
        self, seed: int, weather: Weather, lengths: list[float], plan: type[LeasePlan], clock: type[LeaseClock]
    ) -> None:
        self.random = Random(seed)
        self.weather = weather
        self.now = 0.0
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.watched = Watched()
        self.offset_ms = 0
        self.clock = clock()
        self.plan = plan
        self.longest = max(lengths)
        self.gap_s = min(gap_for(length) for length in lengths)
        self.ends: dict[Worker, int] = {}
        self.down_until = 0.0
        self.no_contact: list[tuple[float, float]] = []
        self.workers = [Worker(self, length) for length in lengths]

    def at(self, time: float, do: Callable[[], None]) -> None:
        heapq.heappush(self.queue, (time, next(self.order), do))

    def run(self, until: float) -> None:
        while self.queue and self.queue[0][0] <= until:
            self.now, _, do = heapq.heappop(self.queue)
            do()
        self.now = until

    def contact(self, since: float) -> float:
        """Return the time from `since` to now in which a supervisor could reach the store."""
        away = sum(max(0.0, min(end, self.now) - max(start, since)) for start, end in self.no_contact)
        return self.now - since - away

    # ---------------------------------------------------------------------------------------------------- the store

    @property
    def down(self) -> bool:
        return self.now < self.down_until

    def tick(self) -> int:
        return self.clock.tick(10**12 + round(self.now * 1000) + self.offset_ms)

    def register(self, worker: Worker) -> None:
        self.clock.lower_gap(round(worker.plan.length_s * 1000))
        self.ends[worker] = self.tick() + round(worker.plan.length_s * 1000)

    def renew(self, worker: Worker) -> None:
        lease = self.tick()
        if worker in self.ends:
            self.watched.renewals += 1
            worker.last_sign = self.now
            self.ends[worker] = max(self.ends[worker], lease + round(worker.plan.length_s * 1000))

    def sweep(self) -> None:
        lease = self.tick()
        for worker in [worker for worker, end in self.ends.items() if end <= lease]:
            del self.ends[worker]
            if worker.dead_at is None:
                self.watched.taken += 1
                self.watched.taken_trusted += worker.voice.trusted(self.now)
            else:
                since = max(worker.dead_at, worker.last_sign)
                self.watched.late.append(self.contact(since) / worker.plan.recovery_bound)

    # --------------------------------------------------------------------------------------------- steps and outages

    def step_clock(self) -> None:
        self.offset_ms += self.random.choice((-1, 1)) * self.random.randint(1, HOUR_MS)
        self.at(self.now + self.longest * self.random.uniform(1.1, 2), self.step_clock)

    def go_down(self) -> None:
        self.down_until = self.now + self.longest * self.random.uniform(0.1, 3)
        self.no_contact.append((self.now, self.down_until))
        self.at(self.down_until + self.longest * self.random.uniform(2, 4), self.go_down)


class Worker:
    """One voice that keeps one lease, on a network that may hang it a few times in a row."""

    def __init__(self, world: World, length: float) -> None:
        self.world = world
        self.plan = world.plan(length, min(world.gap_s, gap_for(length)))
        unlucky = world.random.random() < 0.3
        self.random: Random = AlwaysLate() if unlucky else Random(world.random.random())
        self.voice = RenewalClock(self.plan, self.random)
        self.failures_ahead = self.failures = 0
        self.dead_at: float | None = None
        self.last_sign = 0.0
        world.at(world.random.uniform(0, length), self.start)

    def start(self) -> None:
        self.world.register(self)
        self.voice.sent(self.world.now)
        self.voice.confirmed(self.world.now)
        self.sleep()
        if self.world.random.random() < self.world.weather.deaths:
            self.world.at(self.world.now + self.world.random.uniform(0, 5) * self.plan.length_s, self.die)

    def die(self) -> None:
        if self in self.world.ends:
            self.dead_at = self.world.now
            self.world.watched.dead += 1

    def sleep(self) -> None:
        self.world.at(self.voice.next_due(self.world.now), self.renew)

    def renew(self) -> None:
        if self.dead_at is not None or self not in self.world.ends:
            return
        world, sent = self.world, self.world.now
        self.voice.sent(sent)
        if world.down:
            self.failures_ahead = 0
            world.at(sent + world.random.choice((0, self.plan.try_bound)), self.fail)
        elif self.failures_ahead:
            self.failures_ahead -= 1
            self.hang_or_fail(sent)
        else:
            self.succeed(sent)

    def hang_or_fail(self, sent: float) -> None:
        world = self.world
        if world.random.random() < 0.2:
            world.at(sent, self.fail)
            return
        if world.random.random() < 0.3:  # the request arrives, the reply never does; or it arrives far too late
            world.at(sent + world.random.uniform(0, 2) * self.plan.try_bound, lambda: world.renew(self))
        world.at(sent + self.plan.try_bound, self.fail)

    def fail(self) -> None:
        self.failures += 1
        self.world.watched.worst_run = max(self.world.watched.worst_run, self.failures)
        self.voice.failed(self.world.now)
        self.sleep()

    def succeed(self, sent: float) -> None:
        world = self.world
        trip = self.plan.try_bound * world.random.choice((0, world.random.random(), 1))
        world.at(sent + trip * world.random.choice((0, world.random.random())), lambda: world.renew(self))
        if world.random.random() < world.weather.freezes:
            trip += self.plan.length_s * world.random.uniform(0, 3)

        def answered() -> None:
            self.voice.confirmed(sent)
            self.failures = 0
            if world.random.random() < 0.25:
                self.failures_ahead = world.random.randint(0, world.weather.hung)
            self.sleep()

        world.at(sent + trip, answered)


class Supervisor:
    """Ticks each half gap and sweeps each quarter of the queue's shortest lease; may live for short whiles only."""

    def __init__(self, world: World, length: float) -> None:
        self.world = world
        self.plan = world.plan(length, min(world.gap_s, gap_for(length)))
        self.born = 0
        world.at(0, self.start)

    def start(self) -> None:
        self.born += 1
        life = self.born
        world = self.world
        self.tick(life)
        world.at(world.now + (0 if world.weather.first_sweep else self.plan.sweep_every), lambda: self.sweep(life))
        ends = world.now + world.weather.supervisor_lives_s
        if ends < float("inf"):
            back = ends + world.weather.supervisor_away_s
            world.no_contact.append((ends, back))
            world.at(ends, self.end)
            world.at(back, self.start)

    def end(self) -> None:
        self.born += 1

    def trip(self) -> float:
        return self.world.random.uniform(0, self.plan.gap_s / 4)

    def tick(self, life: int) -> None:
        if life == self.born:
            if not self.world.down:
                self.world.tick()
            self.world.at(self.world.now + self.plan.tick_every + self.trip(), lambda: self.tick(life))

    def sweep(self, life: int) -> None:
        if life == self.born:
            pause = self.plan.tick_every  # a sweep that failed is repeated with the next tick
            if not self.world.down:
                self.world.sweep()
                pause = jittered(self.plan.sweep_every, self.world.random)
            self.world.at(self.world.now + pause + self.trip(), lambda: self.sweep(life))


def simulate(
    seed: int,
    weather: Weather,
    lengths: list[float],
    *,
    supervisors: int = 3,
    plan: type[LeasePlan] = LeasePlan,
    clock: type[LeaseClock] = LeaseClock,
) -> Watched:
    """Run a fleet for forty terms of its longest lease and return what was seen. Deaths come in the first six."""
    world = World(seed, weather, lengths, plan, clock)
    for _ in range(supervisors):
        Supervisor(world, world.longest)
    if weather.clock_steps:
        world.at(world.longest, world.step_clock)
    if weather.outages:
        world.at(world.longest * 3, world.go_down)
    world.run(40 * world.longest)
    return world.watched


def fleet(size: int, *lengths: float) -> list[float]:
    return [length for _, length in zip(range(size), itertools.cycle(lengths), strict=False)]


FLEETS = [fleet(600, 30), fleet(600, 10, 20, 30), fleet(600, 1), fleet(400, 0.5, 0.7), fleet(600, 5, 60)]


class TestLive:
    @pytest.mark.parametrize("lengths", FLEETS, ids=lambda lengths: f"{sorted(set(lengths))}")
    def test_g13_no_live_lease_is_over_while_at_most_three_renewals_in_a_row_hang(self, lengths: list[float]) -> None:
        seen = simulate(1, Weather(hung=HUNG_RENEWALS, clock_steps=True, deaths=0.1), lengths)
        assert seen.taken == 0
        assert seen.worst_run == HUNG_RENEWALS
        assert seen.renewals > 20 * len(lengths)

    @pytest.mark.parametrize("lengths", FLEETS[:3], ids=lambda lengths: f"{sorted(set(lengths))}")
    def test_g3_an_outage_of_three_terms_ends_no_live_lease(self, lengths: list[float]) -> None:
        seen = simulate(2, Weather(hung=1, outages=True, deaths=0.2), lengths)
        assert seen.taken == 0
        assert seen.worst_run > HUNG_RENEWALS, "the outages were felt"
        assert max(seen.late) <= 1

    @pytest.mark.parametrize("lengths", FLEETS[:3], ids=lambda lengths: f"{sorted(set(lengths))}")
    def test_a_frozen_holder_knows_by_its_own_clock_before_its_lease_is_taken(self, lengths: list[float]) -> None:
        seen = simulate(3, Weather(hung=3, freezes=0.05, clock_steps=True), lengths)
        assert seen.taken > len(lengths) / 4, "freezes of three terms do cost leases"
        assert seen.taken_trusted == 0


class TestDead:
    @pytest.mark.parametrize("lengths", FLEETS, ids=lambda lengths: f"{sorted(set(lengths))}")
    @pytest.mark.parametrize("supervisors", [1, 3])
    def test_g14_every_dead_worker_is_found_inside_the_printed_bound(
        self, lengths: list[float], supervisors: int
    ) -> None:
        seen = simulate(4, Weather(hung=3, deaths=1.0), lengths[:300], supervisors=supervisors)
        assert seen.dead == len(seen.late) == 300
        assert 0.25 < max(seen.late) <= 1

    @pytest.mark.parametrize(("lives", "away"), [(8, 1), (8, 60), (2, 2), (0.5, 10)])
    def test_g14_a_supervisor_that_lives_for_seconds_at_a_time_finds_them_as_soon(
        self, lives: float, away: float
    ) -> None:
        weather = Weather(deaths=1.0, supervisor_lives_s=lives, supervisor_away_s=away)
        seen = simulate(5, weather, fleet(200, 30), supervisors=1)
        assert seen.dead == len(seen.late) == 200
        assert max(seen.late) <= 1


# ------------------------------------------------------------------------------------ each rule broken on purpose


class RenewTooSeldom(LeasePlan):
    @property
    def renew_every(self) -> float:
        return self.length_s / 2


class BoundTooLoose(LeasePlan):
    @property
    def try_bound(self) -> float:
        return self.length_s / 4


class TrustToTheEnd(LeasePlan):
    @property
    def trust_limit(self) -> float:
        return self.length_s


class SweepTooSeldom(LeasePlan):
    @property
    def sweep_every(self) -> float:
        return self.length_s


class TickTooSeldom(LeasePlan):
    @property
    def tick_every(self) -> float:
        return 2 * self.gap_s


class WallClock(LeaseClock):
    def lower_gap(self, lease_ms: int) -> None:
        self.gap_ms = 10 * HOUR_MS + lease_ms


class OneGapForAll(LeaseClock):
    def lower_gap(self, lease_ms: int) -> None:
        """Keep the gap of 2 s whatever the lease."""


class TestTheFleetNotices:
    @pytest.mark.parametrize("plan", [RenewTooSeldom, BoundTooLoose])
    def test_a_cadence_that_is_too_slow(self, plan: type[LeasePlan]) -> None:
        assert simulate(6, Weather(hung=HUNG_RENEWALS), fleet(200, 30), plan=plan).taken > 0

    def test_more_hung_renewals_than_promised(self) -> None:
        assert simulate(6, Weather(hung=HUNG_RENEWALS + 2), fleet(200, 30)).taken > 0

    @pytest.mark.parametrize("weather", [Weather(clock_steps=True), Weather(outages=True)], ids=["steps", "outages"])
    def test_leases_on_the_wall_clock(self, weather: Weather) -> None:
        assert simulate(7, weather, fleet(200, 30), clock=WallClock).taken > 100

    def test_a_gap_that_does_not_shrink_with_the_lease(self) -> None:
        weather = Weather(hung=HUNG_RENEWALS, clock_steps=True)
        assert simulate(8, weather, fleet(200, 5), clock=OneGapForAll).taken > 0

    def test_trust_that_forgets_the_gap(self) -> None:
        weather = Weather(hung=3, freezes=0.05, clock_steps=True)
        assert simulate(9, weather, fleet(400, 30), plan=TrustToTheEnd).taken_trusted > 0

    @pytest.mark.parametrize("plan", [SweepTooSeldom, TickTooSeldom])
    def test_supervisors_that_are_too_slow(self, plan: type[LeasePlan]) -> None:
        seen = simulate(10, Weather(deaths=1.0), fleet(5, 30), supervisors=1, plan=plan)
        assert max(seen.late) > 1

    def test_supervisors_that_do_not_sweep_when_they_start(self) -> None:
        weather = Weather(deaths=1.0, supervisor_lives_s=4, supervisor_away_s=1, first_sweep=False)
        assert simulate(11, weather, fleet(50, 30), supervisors=1).late == []
