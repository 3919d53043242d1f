"""G2: long jobs start in long places only and solo jobs alone, whenever it became known that they are such.

What is said of a task changes while its jobs wait: a worker of a new release declares it, a run turns out long, a day
passes. A job that is met in the wrong lane must be moved, never granted, lost or left behind.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stillhere.domain.job import KNOWN_LONG_MS, DeclaredLane, OutcomeKind, Verdict
from stillhere.domain.states import State
from tests.conformance.kit import DAY, HOUR, LEASE, MINUTE, SECOND, Listen, Worker, World, ids

DECLARED: list[DeclaredLane] = ["long", "solo"]
WayBack = Callable[[World, Worker], None]
"""What happens to the long job `x`, after which it is ready again."""


def waiting(world: World) -> tuple[int, int, int]:
    """How many jobs are ready in all, in the long lane, in the solo lane."""
    status = world.status()
    return status.ready, status.long, status.solo


# ----------------------------------------------------------------------------------------------- which lane a job is in


@pytest.mark.parametrize("lane", DECLARED)
def test_g2_a_job_says_its_lane_itself(world: World, lane: DeclaredLane) -> None:
    world.enqueue("a", lane=lane)
    world.enqueue("b")
    assert world.look("a").lane == lane
    assert world.look("b").lane is None
    assert waiting(world) == (2, lane == "long", lane == "solo")
    worker = world.worker()
    assert ids(worker.take()) == ["b"]
    assert worker.take(0) == []


@pytest.mark.parametrize("lane", DECLARED)
def test_g2_a_worker_declares_the_lane_of_a_task(world: World, lane: DeclaredLane) -> None:
    world.worker(tasks=("t", "u"), lanes={"u": lane})
    world.enqueue("a", task="u")
    world.enqueue("b")
    assert world.look("a").lane is None, "it is said of the task, not of the job"
    assert waiting(world) == (2, lane == "long", lane == "solo")


def test_g2_a_declaration_of_a_task_that_is_not_registered_says_nothing(world: World) -> None:
    world.worker(tasks=("t",), lanes={"u": "long"})
    world.enqueue("a", task="u")
    assert waiting(world) == (1, 0, 0)


def test_g2_whoever_registers_last_declares(world: World) -> None:
    world.worker("old", tasks=("t", "u"), lanes={"t": "long", "u": "long"})
    world.worker("new", tasks=("t",))
    world.enqueue("a")
    world.enqueue("b", task="u")
    assert waiting(world) == (2, 1, 0), "what the newer worker does not know stays as it was"
    assert world.status().long_tasks == ["u"]


def test_g2_a_worker_that_declares_nothing_changes_nothing(world: World) -> None:
    world.worker("old", tasks=("t", "u"), lanes={"u": "solo"})
    world.worker("host", tasks=("t", "u"), lanes={"t": "long"}, declares=False)
    world.enqueue("a", task="u")
    world.enqueue("b")
    assert waiting(world) == (2, 0, 1)


def test_g2_a_second_registration_of_a_live_worker_declares_nothing(world: World) -> None:
    worker = world.worker(lanes={"t": "long"})
    world.worker("new", lanes={"t": "solo"})
    assert worker.register() == "exists"
    worker.die()
    assert worker.register(lanes={"t": "long"}) == "gone"
    world.enqueue("a")
    assert waiting(world) == (1, 0, 1)


def test_g2_a_task_that_ran_long_is_long_for_a_day(world: World) -> None:
    world.lengthen()
    world.enqueue("a")
    assert waiting(world) == (1, 1, 0)
    assert world.status().long_tasks == ["t"]
    world.jump(KNOWN_LONG_MS - 1)
    world.enqueue("b")
    assert waiting(world) == (2, 2, 0)
    world.jump(1)
    world.enqueue("c")
    assert waiting(world) == (3, 2, 0)
    assert world.status().long_tasks == []


def test_g2_each_long_run_makes_the_day_begin_anew(world: World) -> None:
    world.lengthen()
    world.jump(DAY - HOUR)
    world.lengthen()
    world.jump(DAY - HOUR)
    assert world.status().long_tasks == ["t"]
    world.jump(HOUR)
    assert world.status().long_tasks == []


def test_g2_the_day_is_not_lengthened_by_a_clock_that_steps_back(world: World) -> None:
    world.lengthen()
    world.tick()
    world.jump(-HOUR)
    world.tick()
    world.jump(KNOWN_LONG_MS)
    assert world.status().long_tasks == []


def test_g2_what_goes_first_suspicion_the_job_the_declaration_experience(world: World) -> None:
    world.lengthen("solo")
    world.lengthen("long")
    world.worker(tasks=("solo", "long"), lanes={"solo": "solo", "long": "long"})
    assert world.status().long_tasks == ["long"], "declared solo is stronger than learnt long"
    world.enqueue("declared", task="solo")
    world.enqueue("own-word", task="long", lane="solo")
    world.enqueue("own-word-too", task="solo", lane="long")
    assert waiting(world) == (3, 1, 2)
    world.cancel("declared")
    world.cancel("own-word")
    worker = world.worker("v", tasks=("solo", "long"), lanes={"solo": "solo", "long": "long"})
    (grant,) = worker.take(0, long=1)
    assert grant.id == "own-word-too"
    worker.die(Verdict.SUSPECT)
    assert waiting(world) == (1, 0, 0)
    assert world.status().suspects == 1


# ------------------------------------------------------------------------------------------------- which claims take it


def test_g2_a_claim_has_slots_and_long_places(world: World) -> None:
    world.enqueue_many(["a", "b", "c"])
    world.enqueue_many(["x", "y", "z"], lane="long")
    world.enqueue("s", lane="solo")
    worker = world.worker()
    grants = worker.take(2, long=1)
    assert [(grant.id, grant.lane) for grant in grants] == [("a", "pool"), ("b", "pool"), ("x", "long")]
    assert not any(grant.suspect for grant in grants)
    assert ids(worker.take(0, long=5)) == ["y", "z"]
    assert ids(worker.take(5, "both", long=5)) == ["c"]
    assert ids(worker.take(5, "solo", long=5)) == ["s"]


def test_g2_the_same_number_gives_the_same_grants_of_both_lanes(world: World) -> None:
    world.enqueue("a")
    world.enqueue("x", lane="long")
    worker = world.worker()
    first = worker.claim(1, long=1)
    assert worker.claim(5, long=5).jobs == first.jobs
    assert [grant.lane for grant in first.jobs] == ["pool", "long"]


def test_g2_a_solo_claim_takes_one_a_suspect_before_the_rest(world: World) -> None:
    world.enqueue("low", lane="solo", priority=9)
    world.enqueue("high", lane="solo", priority=0)
    world.enqueue("suspect")
    worker = world.worker()
    worker.take_one()
    worker.die(Verdict.SUSPECT)
    worker = world.worker("v")
    taken = [worker.take_one("solo") for _ in range(3)]
    assert [(one.id, one.suspect, one.lane) for one in taken] == [
        ("suspect", True, "pool"),
        ("high", False, "solo"),
        ("low", False, "solo"),
    ]
    assert worker.take(0, "solo") == []


def test_g2_a_worker_that_runs_nothing_else_takes_no_long_job_beside_a_suspect(world: World) -> None:
    world.enqueue("suspect")
    worker = world.worker()
    worker.take_one()
    worker.die(Verdict.SUSPECT)
    world.enqueue("x", lane="long")
    world.enqueue("s", lane="solo")
    worker = world.worker("v")
    assert ids(worker.take(5, "both", long=5)) == ["suspect"]
    assert ids(worker.take(5, "both", long=5)) == ["x"]
    assert worker.take(5, "both", long=5) == []


def test_g2_long_places_that_runs_in_slots_will_need_are_left_free(world: World) -> None:
    """Another worker has learnt it; this one cannot know yet that what sits in its slots is long."""
    worker = world.worker(tasks=("t", "u", "declared", "apart"), lanes={"declared": "long", "apart": "solo"})
    for number in range(9):
        world.enqueue(f"j{number}", lane="long")
    seated = {"t": 2, "u": 5}
    assert len(worker.take(0, long=3, seated=seated)) == 3, "nothing is known of these"
    world.lengthen("t")
    assert len(worker.take(0, long=3, seated=seated)) == 1
    assert worker.take(0, long=2, seated=seated) == []
    assert worker.take(0, long=1, seated=seated) == [], "fewer places than runs that need one"
    assert worker.take(0, long=3, seated={"declared": 1, "apart": 1, "t": 2}) == []
    world.lengthen("apart")
    assert len(worker.take(0, long=3, seated={"declared": 1, "apart": 1})) == 2, "what runs apart sits in no slot"
    world.jump(KNOWN_LONG_MS)
    assert len(worker.take(0, long=3, seated=seated)) == 3


def test_g2_slots_are_filled_whatever_the_long_places_are_kept_for(world: World) -> None:
    worker = world.worker(tasks=("t", "u"))
    world.lengthen("t")
    world.enqueue("a", task="u")
    world.enqueue("b")
    assert ids(worker.take(1, long=1, seated={"t": 1})) == ["a"]
    assert ids(worker.take(1, long=1)) == ["b"]


@pytest.mark.parametrize("lane", DECLARED)
def test_g2_one_claim_in_eight_begins_with_the_least_priority_of_each_lane(world: World, lane: DeclaredLane) -> None:
    world.enqueue_many([f"high{i}" for i in range(8)], lane=lane, priority=0)
    world.enqueue("low", lane=lane, priority=9)
    worker = world.worker()
    taken = [
        grant.id for _ in range(8) for grant in (worker.take(0, long=1) if lane == "long" else worker.take(1, "solo"))
    ]
    assert taken == [*[f"high{i}" for i in range(7)], "low"]


def test_g2_claims_for_slots_alone_are_no_turn_of_the_long_lane(world: World) -> None:
    world.enqueue_many([f"high{i}" for i in range(8)], lane="long", priority=0)
    world.enqueue("low", lane="long", priority=9)
    worker = world.worker()
    taken = []
    for _ in range(8):
        taken += ids(worker.take(0, long=1))
        assert worker.take(1) == []
    assert taken[7] == "low"


def test_g2_a_job_of_any_lane_needs_a_worker_that_knows_it(world: World) -> None:
    world.enqueue("x", task="strange", lane="long")
    world.enqueue("s", task="strange", lane="solo")
    worker = world.worker()
    assert worker.take(5, long=5) == []
    assert worker.take(1, "solo") == []
    assert world.status().parked_tasks == ["strange"]
    knows = world.worker("v", tasks=("strange",))
    assert knows.take(5) == [], "and then it is in its own lane again"
    assert waiting(world) == (2, 1, 1)
    assert ids(knows.take(5, long=5)) == ["x"]


def test_g2_nothing_is_granted_from_any_lane_while_the_queue_is_paused(world: World) -> None:
    world.enqueue("x", lane="long")
    world.enqueue("s", lane="solo")
    world.pause()
    worker = world.worker()
    assert worker.take(5, long=5) == []
    assert worker.take(1, "solo") == []


# ------------------------------------------------------------------------------------------------ ways back to the lane


def give_back(world: World, worker: Worker) -> None:
    """Nobody ever saw the grant."""
    worker.claim(0, long=1)
    world.run(2 * LEASE, worker)
    world.sweep()


def retry(_: World, worker: Worker) -> None:
    """It fails, and is tried again at once."""
    worker.settle(worker.take(0, long=1)[0], OutcomeKind.RETRY)


def interrupt(_: World, worker: Worker) -> None:
    """Its worker stops in peace."""
    worker.settle(worker.take(0, long=1)[0], OutcomeKind.INTERRUPTED)


def forget(_: World, worker: Worker) -> None:
    """Its worker does not know of it any more."""
    worker.take(0, long=1)
    worker.beat()


def vanish(_: World, worker: Worker) -> None:
    """Its worker is gone, for a reason that is not the job's."""
    worker.take(0, long=1)
    worker.die(Verdict.VANISHED)


def fail_and_revive(world: World, worker: Worker) -> None:
    """It fails for good, and somebody makes it ready again."""
    worker.settle(worker.take(0, long=1)[0], OutcomeKind.DEAD)
    world.retry("x")


def recall(world: World, worker: Worker) -> None:
    """It waits for its next try, and somebody makes it ready at once."""
    worker.settle(worker.take(0, long=1)[0], OutcomeKind.RETRY, delay_ms=HOUR)
    world.retry("x")


WAYS_BACK: list[WayBack] = [
    give_back,
    retry,
    interrupt,
    forget,
    vanish,
    fail_and_revive,
    recall,
]


@pytest.mark.parametrize("way", WAYS_BACK)
@pytest.mark.parametrize("why", ["own word", "declared", "learnt"])
def test_g2_a_long_job_comes_back_to_the_long_lane(world: World, way: WayBack, why: str) -> None:
    worker = world.worker(lanes={"t": "long"} if why == "declared" else {})
    if why == "learnt":
        world.lengthen()
    world.enqueue("x", lane="long" if why == "own word" else None)
    way(world, worker)
    ready, in_long, _ = waiting(world)
    assert ready == in_long, "at once, not when somebody meets it"
    world.jump(SECOND)
    other = world.worker("other", tasks=("u", "t"), lanes={"t": "long"} if why == "declared" else {})
    assert other.take(5) == []
    assert waiting(world) == (1, 1, 0)
    assert [grant.lane for grant in other.take(5, long=1)] == ["long"]


@pytest.mark.parametrize("lane", DECLARED)
def test_g2_a_job_that_was_due_goes_to_its_lane(world: World, lane: DeclaredLane) -> None:
    world.enqueue("soon", lane=lane, delay_ms=MINUTE)
    world.enqueue("at", lane=lane, due=world.now + MINUTE)
    world.jump(MINUTE)
    assert world.worker().take(5) == []
    assert waiting(world) == (2, 2 * (lane == "long"), 2 * (lane == "solo"))


def test_g2_what_was_running_stands_in_front_in_every_lane(world: World) -> None:
    worker = world.worker()
    for lane in ("long", "solo"):
        world.enqueue_many([f"{lane}1", f"{lane}2"], lane=lane)
    for grant in (worker.take(0, long=1) + worker.take(1, "solo"))[::-1]:
        worker.settle(grant, OutcomeKind.INTERRUPTED)
    assert ids(worker.take(0, long=2)) == ["long1", "long2"]
    assert [worker.take_one("solo").id for _ in range(2)] == ["solo1", "solo2"]


# --------------------------------------------------------------------------------------- what is met in the wrong lane


def test_g2_a_job_that_became_long_while_it_waited_is_moved(world: World) -> None:
    world.enqueue_many(["x", "y"])
    world.enqueue("a", task="u")
    world.lengthen()
    assert waiting(world) == (3, 0, 0), "nobody has met them"
    worker = world.worker(tasks=("t", "u"))
    assert ids(worker.take(1)) == ["a"], "what is moved costs no slot"
    assert waiting(world) == (2, 2, 0)
    assert ids(worker.take(5, long=1)) == ["x"], "in their order"


def test_g2_a_claim_takes_at_once_what_it_moved_to_the_long_lane(world: World) -> None:
    world.enqueue_many(["x", "y"])
    world.lengthen()
    grants = world.worker().take(5, long=1)
    assert [(grant.id, grant.lane) for grant in grants] == [("x", "long")]


def test_g2_a_claim_takes_at_once_what_it_moved_to_the_pool(world: World) -> None:
    world.lengthen()
    world.enqueue_many(["x", "y", "z"])
    world.jump(KNOWN_LONG_MS)
    worker = world.worker()
    reply = worker.claim(2, long=3)
    assert [(grant.id, grant.lane) for grant in reply.jobs] == [("x", "pool"), ("y", "pool")]
    assert reply.more
    assert waiting(world) == (1, 0, 0)


def test_g2_a_job_of_a_task_that_is_not_solo_any_more_is_moved(world: World) -> None:
    world.worker("old", lanes={"t": "solo"})
    world.enqueue_many(["x", "y"])
    worker = world.worker()
    assert worker.take(1, "solo") == []
    assert waiting(world) == (2, 0, 0)
    assert ids(worker.take()) == ["x", "y"]


def test_g2_a_moved_job_keeps_its_side_and_its_priority(world: World) -> None:
    worker = world.worker()
    world.enqueue("was-running")
    worker.settle(worker.take_one(), OutcomeKind.INTERRUPTED)
    world.lengthen()
    world.enqueue("new")
    world.enqueue("high", lane="long", priority=0)
    assert worker.take() == []
    assert ids(worker.take(0, long=3)) == ["high", "was-running", "new"]


def test_g2_a_claim_moves_a_bounded_number_and_says_that_there_is_more(world: World) -> None:
    world.enqueue_many(f"x{i}" for i in range(150))
    world.enqueue("a", task="u")
    world.lengthen()
    worker = world.worker(tasks=("t", "u"))
    replies = []
    for _ in range(3):
        replies.append(worker.claim(10))
        worker.answered = worker.n
    assert waiting(world)[1] == 150
    assert [reply.more for reply in replies] == [True, False, False]
    assert [ids(reply.jobs) for reply in replies] == [[], ["a"], []]


# ------------------------------------------------------------------------------------------------------ what it is told


def test_g2_more_counts_long_jobs_for_which_places_were_lacking(world: World) -> None:
    world.enqueue_many(["x", "y"], lane="long")
    world.enqueue("s", lane="solo")
    worker = world.worker()
    assert not worker.claim(5).more, "it asked for none"
    worker.answered = worker.n
    assert worker.claim(5, long=1).more
    worker.answered = worker.n
    assert not worker.claim(5, long=1).more, "solo jobs are not for it"


def test_g2_supervisors_hear_of_solo_jobs_at_the_tick(world: World) -> None:
    assert world.tick().solo == 0
    world.enqueue_many(["s", "u"], lane="solo")
    world.enqueue("x", lane="long")
    assert (world.tick().solo, world.tick().suspects) == (2, 0)
    world.worker().take_one("solo")
    assert world.tick().solo == 1


async def test_g2_whoever_moves_a_job_wakes_one_that_may_have_a_place_for_it(world: World, listen: Listen) -> None:
    ear = listen("w")
    world.enqueue("x")
    assert await ear.next(1) is not None
    world.lengthen()
    assert world.worker().take() == []
    hint = await ear.next(1)
    assert hint is not None
    assert hint.kind == "wake"


def test_g2_jobs_of_every_lane_are_listed_and_cancelled(world: World) -> None:
    world.enqueue("x", lane="long")
    world.enqueue("s", lane="solo")
    world.enqueue("a")
    assert sorted(job.id for job in world.jobs(state=State.READY).jobs) == ["a", "s", "x"]
    assert world.cancel("x").changed
    assert world.cancel("s").changed
    assert waiting(world) == (1, 0, 0)


def test_g2_the_end_of_a_worker_frees_long_and_solo_jobs(world: World) -> None:
    world.enqueue_many(["x", "y"], lane="long")
    world.enqueue("s", lane="solo")
    worker = world.worker()
    worker.take(0, long=2)
    worker.take_one("solo")
    worker.claim(0, long=1)
    assert sorted(worker.die(Verdict.VANISHED, limit=1).returned) == ["s", "x", "y"]
    assert waiting(world) == (3, 2, 1)
