"""G2: a ready job goes to one worker, under a token that only ever rises. And in which order jobs are granted."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from stillhere.domain.job import Grant, OutcomeKind, Verdict
from stillhere.domain.states import State
from stillhere.ports.backend import Claim, Lanes
from tests.conformance.kit import DAY, HOUR, LEASE, MINUTE, SECOND, Worker, World, ids

# ------------------------------------------------------------------------------------------------------ one worker


def test_g2_a_grant_says_so_in_the_record(world: World) -> None:
    worker = world.worker()
    world.enqueue("a")
    grant = worker.take_one()
    kept = world.look("a")
    assert (kept.state, kept.worker, kept.token, kept.started) == (State.RUNNING, "w", grant.token, world.now)
    assert grant.v == kept.v == 1


def test_g2_many_workers_and_each_job_is_granted_once(world: World) -> None:
    jobs = world.enqueue_many(f"j{i}" for i in range(300))
    workers = [world.worker(f"w{i}") for i in range(12)]
    dice = random.Random(7)
    taken: list[str] = []
    while len(taken) < len(jobs):
        taken += ids(dice.choice(workers).take(dice.randint(0, 9)))
    assert sorted(taken) == sorted(jobs)
    assert all(worker.take() == [] for worker in workers)


def test_g2_threads_on_one_store_are_granted_each_job_once(world: World) -> None:
    jobs = world.enqueue_many(f"j{i}" for i in range(200))
    workers = [world.worker(f"w{i}") for i in range(4)]

    def work(worker: Worker) -> list[str]:
        taken: list[str] = []
        while grants := worker.take(3):
            taken += ids(grants)
            assert {worker.settle(grant).status for grant in grants} == {"ok"}
        return taken

    with ThreadPoolExecutor(len(workers)) as pool:
        taken = [job for part in pool.map(work, workers) for job in part]
    assert sorted(taken) == sorted(jobs)
    assert world.status().settled == len(jobs)


async def test_g2_coroutines_on_one_store_are_granted_each_job_once(world: World) -> None:
    jobs = world.enqueue_many(f"j{i}" for i in range(200))
    store = world.open_async()
    for number in range(20):
        world.worker(f"w{number}")
    claims = [Claim(queue="q", worker=f"w{number}", n=1, slots=10) for number in range(20)]
    replies = await asyncio.gather(*map(store.call, claims))
    assert sorted(job for reply in replies for job in ids(reply.jobs)) == sorted(jobs)
    await store.aclose()


def test_g2_a_claim_takes_no_more_than_its_slots(world: World) -> None:
    world.enqueue_many(["a", "b", "c"])
    world.enqueue_many(["d", "e"], priority=0)
    worker = world.worker()
    assert worker.claim(0).jobs == []
    worker.answered = worker.n
    assert [len(worker.take(slots)) for slots in (2, 2, 2)] == [2, 2, 1]


def test_g2_more_says_whether_work_is_left(world: World) -> None:
    world.enqueue_many(["a", "b", "c"])
    worker = world.worker()
    replies = []
    for _ in range(3):
        replies.append(worker.claim(1))
        worker.answered = worker.n
    assert [reply.more for reply in replies] == [True, True, False]
    assert not worker.claim(1).more


def test_g2_the_same_number_gives_the_same_grants(world: World) -> None:
    world.enqueue_many(["a", "b"])
    worker = world.worker()
    first = worker.claim(1)
    world.enqueue("c")
    again = worker.claim(5)
    assert again.jobs == first.jobs, "the reply was lost: the same again, whatever is asked now"
    assert ids(world.worker("v").take()) == ["b", "c"]


def test_g2_the_same_number_gives_only_what_still_runs(world: World) -> None:
    world.enqueue_many(["a", "b"])
    worker = world.worker()
    one, two = worker.claim().jobs
    worker.settle(one)
    assert worker.claim().jobs == [two]


def test_g2_a_late_copy_of_an_earlier_claim_gets_nothing(world: World) -> None:
    world.enqueue("a")
    worker = world.worker()
    worker.take()
    worker.take()
    world.enqueue("b")
    late = worker.claim(n=1)
    assert (late.standing, late.jobs) == ("old", [])
    assert ids(worker.take()) == ["b"]


def test_g2_claim_numbers_are_counted_in_each_queue(world: World) -> None:
    other = world.beside("other")
    world.enqueue("a")
    other.enqueue("b")
    here, there = world.worker("w"), other.worker("w")
    assert (ids(here.take()), ids(there.take())) == (["a"], ["b"])
    assert (world.status().running, other.status().running) == (1, 1)


# ------------------------------------------------------------------------------------------------------- the token


def pass_around(world: World, rounds: int) -> list[Grant]:
    """Grant one job again and again: back through the lane, through a retry, through another worker."""
    grants = []
    worker = world.worker("w0")
    for number in range(rounds):
        grants.append(worker.take_one())
        if number % 3 == 0:
            worker.settle(grants[-1], OutcomeKind.INTERRUPTED)
        elif number % 3 == 1:
            worker.settle(grants[-1], OutcomeKind.RETRY, delay_ms=1)
            world.jump(1)
        else:
            worker.die(Verdict.INTERRUPTED)
            worker = world.worker(f"w{number}")
    return grants


def assert_rising(grants: list[Grant]) -> None:
    assert all(one.token < two.token for one, two in pairwise(grants)), [grant.token for grant in grants]


@pytest.mark.parametrize("priority", [0, 5, 9])
def test_g2_each_grant_raises_the_token_on_whatever_way(world: World, priority: int) -> None:
    world.enqueue("a", priority=priority)
    grants = pass_around(world, 12)
    assert_rising(grants)
    assert all(grant.token < 2**53 for grant in grants), "exact in every language"


def test_g2_the_token_rises_when_the_clock_stands_or_goes_back(world: World) -> None:
    world.enqueue("a")
    worker = world.worker()
    grants = []
    for step in (0, 0, -HOUR, -1, 0, HOUR, -2 * HOUR):
        world.jump(step)
        grants.append(worker.take_one())
        worker.settle(grants[-1], OutcomeKind.INTERRUPTED)
        worker.beat()
    assert_rising(grants)


def test_g2_the_token_rises_over_the_suspects_lane(world: World) -> None:
    world.enqueue("a")
    grants = []
    lanes: list[Lanes] = ["pool", "both", "solo"]
    for lane in lanes:
        worker = world.worker(f"of-{lane}")
        grants.append(worker.take_one(lane))
        worker.die(Verdict.SUSPECT)
        world.jump(-MINUTE)
    assert_rising(grants)


def test_g2_the_token_rises_over_a_revival(world: World) -> None:
    world.enqueue("a")
    worker = world.worker()
    first = worker.take_one()
    worker.settle(first, OutcomeKind.DEAD)
    world.jump(-DAY)
    world.retry("a")
    second = worker.take_one()
    assert_rising([first, second])


def test_g2_a_destroyed_index_grants_under_a_new_token_and_nothing_twice(world: World) -> None:
    world.enqueue_many(["a", "b", "c"])
    worker = world.worker()
    held = worker.take(2)
    if not world.door.lose_index():
        pytest.skip("this store has no index apart from the jobs")
    assert ids(world.worker("v").take()) == ["c"], "what runs is not granted again"
    assert worker.beat(*held).lost == []
    assert [worker.settle(grant).status for grant in held] == ["ok", "ok"]


# ------------------------------------------------------------------------------------------------------- the order


def test_g2_priorities_in_order_and_first_in_first_out_within(world: World) -> None:
    for job, priority in [("l1", 9), ("n1", 5), ("h1", 0), ("l2", 9), ("n2", 5), ("h2", 0)]:
        world.enqueue(job, priority=priority)
    assert ids(world.worker().take()) == ["h1", "h2", "n1", "n2", "l1", "l2"]


def test_g2_any_priority_from_0_to_9_is_taken_and_kept(world: World) -> None:
    for priority in range(10):
        world.enqueue(f"p{priority}", priority=priority)
    grants = world.worker().take()
    assert grants[0].id == "p0"
    assert {grant.id: grant.priority for grant in grants} == {f"p{n}": n for n in range(10)}


def test_g2_one_claim_in_eight_begins_from_below(world: World) -> None:
    worker = world.worker()
    world.enqueue_many((f"h{i}" for i in range(20)), priority=0)
    world.enqueue_many((f"n{i}" for i in range(20)), priority=5)
    world.enqueue_many((f"l{i}" for i in range(20)), priority=9)
    taken = [worker.take_one().id for _ in range(16)]
    assert [number for number, job in enumerate(taken, 1) if job[0] != "h"] == [8, 16]
    assert (taken[7], taken[15]) == ("l0", "l1")


def test_g2_claims_for_nothing_are_no_turn(world: World) -> None:
    """A worker with one slot may ask for its long places in between: each second claim, say."""
    worker = world.worker()
    world.enqueue_many((f"h{i}" for i in range(20)), priority=0)
    world.enqueue("low", priority=9)
    taken = []
    for _ in range(8):
        taken.append(worker.take_one().id)
        assert worker.take(0, long=1) == []
    assert taken[7] == "low"


def test_g2_work_of_low_priority_does_not_starve(world: World) -> None:
    worker = world.worker()
    world.enqueue("low", priority=9)
    for number in range(8):
        world.enqueue_many([f"h{number}a", f"h{number}b"], priority=0)
        if "low" in ids(worker.take(1)):
            return
    pytest.fail("eight claims, and the low one is still waiting")


def test_g2_what_was_running_stands_in_front_of_what_is_new(world: World) -> None:
    worker = world.worker()
    world.enqueue_many(["a", "b"])
    one, two = worker.take()
    world.enqueue("c")
    worker.settle(two, OutcomeKind.INTERRUPTED)
    worker.settle(one, OutcomeKind.INTERRUPTED)
    assert set(ids(worker.take(2))) == {"a", "b"}, "returned before main"
    assert ids(worker.take()) == ["c"]


def test_g2_what_comes_back_of_high_priority_still_goes_first(world: World) -> None:
    worker = world.worker()
    world.enqueue("normal")
    worker.settle(worker.take_one(), OutcomeKind.INTERRUPTED)
    world.enqueue("high", priority=0)
    assert ids(worker.take()) == ["high", "normal"]


# ---------------------------------------------------------------------------------------------------------- pause


def test_g2_a_paused_queue_grants_nothing_and_what_runs_goes_on(world: World) -> None:
    worker = world.worker()
    world.enqueue_many(["a", "b"])
    grant = worker.take_one()
    assert world.pause()
    assert not world.pause(), "it was already"
    assert world.status().paused
    reply = worker.claim()
    assert (reply.standing, reply.jobs, reply.paused) == ("ok", [], True)
    worker.answered = worker.n
    assert worker.checkpoint(grant, 1, "1") == "ok"
    assert worker.beat(grant).lost == []
    assert worker.settle(grant).status == "ok"
    assert world.enqueue("c").created
    assert world.pause(False)
    assert not world.pause(False)
    assert ids(worker.take()) == ["b", "c"]


def test_g2_a_repeated_claim_in_a_pause_gives_what_it_gave(world: World) -> None:
    worker = world.worker()
    world.enqueue("a")
    first = worker.claim()
    world.pause()
    assert worker.claim().jobs == first.jobs


def test_g2_suspects_wait_too_in_a_pause(world: World) -> None:
    world.enqueue("a")
    worker = world.worker()
    worker.take()
    worker.die(Verdict.CULPRIT)
    world.pause()
    assert world.worker("v").take(1, "both") == []


# ---------------------------------------------------------------------------------------------------------- parks


def test_g2_an_unknown_task_is_set_aside_and_nobody_meets_it_again(world: World) -> None:
    worker = world.worker(tasks=("t",))
    world.enqueue_many(["x", "y"], task="strange")
    world.enqueue("a")
    assert ids(worker.take()) == ["a"], "it does not stand in the way"
    kept = world.look("x")
    assert (kept.state, kept.reason) == (State.READY, "unknown_task")
    status = world.status()
    assert (status.ready, status.parked, status.parked_tasks) == (2, 2, ["strange"])
    for _ in range(3):
        reply = worker.claim()
        worker.answered = worker.n
        assert (reply.jobs, reply.more) == ([], False), "no hot loop"
    assert world.worker("v", tasks=("strange",)).take_one().id == "x"
    assert world.look("x").reason is None


def test_g2_parked_jobs_come_back_in_their_order_and_before_new_ones(world: World) -> None:
    old = world.worker("old")
    world.enqueue_many((f"p{i:03}" for i in range(150)), task="strange")
    assert old.take(200) == []
    while world.status().parked < 150:
        old.take(200)
    world.enqueue("late", task="strange")
    new = world.worker("new", tasks=("strange",))
    taken = ids(new.take(100)) + ids(new.take(100))
    assert taken == [f"p{i:03}" for i in range(150)] + ["late"]
    assert world.status().parked == 0


def test_g2_a_suspect_of_an_unknown_task_is_still_a_suspect(world: World) -> None:
    world.enqueue("a", task="strange")
    first = world.worker("first", tasks=("strange",))
    first.take()
    first.die(Verdict.CULPRIT)
    assert world.worker("v").take(1, "solo") == []
    assert world.status().parked == 1
    knows = world.worker("knows", tasks=("strange",))
    assert knows.take(1, "pool") == []
    assert knows.take_one("solo").suspect


def test_g2_a_parked_job_is_cancelled_like_any_other(world: World) -> None:
    world.enqueue("a", task="strange")
    world.worker().take()
    assert world.cancel("a").changed
    assert world.status().parked == 0
    assert world.worker("v", tasks=("strange",)).take() == []


def test_g2_a_worker_of_an_older_record_version_sets_the_job_aside(world: World) -> None:
    world.enqueue("a")
    old = world.worker("old", version=0)
    assert old.take() == []
    assert (world.state("a"), world.look("a").reason) == (State.READY, "newer_record")
    assert old.take() == []
    assert ids(world.worker("new").take()) == ["a"]
    assert world.look("a").reason is None


# ------------------------------------------------------------------------------------------------- who may claim


def test_g2_only_a_registered_worker_is_granted_anything(world: World) -> None:
    world.enqueue("a")
    assert Worker(world, "nobody").claim().standing == "gone"


def test_g2_a_worker_whose_lease_is_over_renews_first(world: World) -> None:
    worker = world.worker()
    world.enqueue("a")
    world.run(LEASE + SECOND)
    assert worker.claim().standing == "over"
    assert worker.beat().standing == "ok"
    assert ids(worker.take()) == ["a"]


@pytest.mark.parametrize("lanes", ["pool", "solo", "both"])
def test_g2_lanes_of_a_queue_without_suspects(world: World, lanes: Lanes) -> None:
    world.enqueue_many(["a", "b"])
    assert ids(world.worker().take(2, lanes)) == ([] if lanes == "solo" else ["a", "b"])
