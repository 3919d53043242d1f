"""The memory store's containers: an ordered place, and a dictionary whose entries have a time to go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stillhere.backends.memory.model import Job, Kept, Place, Queue
from stillhere.domain.states import Event

NAMES = st.sampled_from("abcdef")


@given(st.lists(st.tuples(NAMES, st.integers(0, 5), st.booleans())))
def test_a_place_is_a_sorted_set(steps: list[tuple[str, int, bool]]) -> None:
    place, model = Place(), dict[str, int]()
    for name, score, adds in steps:
        if name in model:
            place.remove(name)
            del model[name]
        if adds:
            place.add(name, score)
            model[name] = score
        rows = sorted((number, one) for one, number in model.items())
        assert list(place.rows()) == rows
        assert place.first(2) == [one for _, one in rows[:2]]
        assert place.due(3, 2) == [one for number, one in rows if number <= 3][:2]
        assert place.lowest == (rows[0][0] if rows else None)
        assert (len(place), name in place) == (len(model), name in model)


@given(st.lists(st.tuples(NAMES, st.sampled_from(["put", "pop", "expire", "persist", "prune"]), st.integers(0, 9))))
def test_what_has_had_its_time_is_pruned_once_and_nothing_else_is(steps: list[tuple[str, str, int]]) -> None:
    kept: Kept[str, int] = Kept()
    values, deadlines = dict[str, int](), dict[str, int]()
    for name, what, number in steps:
        if what == "put":
            kept.put(name, number)
            values[name] = number
            deadlines.pop(name, None)
        elif what == "pop":
            kept.pop(name)
            values.pop(name, None)
            deadlines.pop(name, None)
        elif what == "expire" and name in values:
            kept.expire(name, number)
            deadlines[name] = number
        elif what == "persist":
            kept.persist(name)
            deadlines.pop(name, None)
        elif what == "prune":
            over = [one for one, at in deadlines.items() if at <= number]
            assert sorted(kept.prune(number)) == sorted(values.pop(one) for one in over)
            for one in over:
                del deadlines[one]
        assert dict(kept.items()) == values
        assert {one for one in "abcdef" if kept.mortal(one)} == set(deadlines)
        assert kept.get(name) == values.get(name)


def test_a_park_that_is_empty_is_no_park() -> None:
    queue = Queue("q", lambda: 0)
    job = Job(id="a", task="t", args="{}", priority=5, created=0)
    job.move(Event.ENQUEUE)
    queue.settle_in(job, "park:task:t", 1)
    assert queue.parks() == ["task:t"]
    queue.take_out(job)
    assert queue.parks() == []


def test_priorities_round_up_to_the_nearest_lane() -> None:
    queue = Queue("q", lambda: 0)
    jobs = [Job(id="a", task="t", args="{}", priority=number, created=0) for number in range(10)]
    lanes = [queue.route(job, "m", 0) for job in jobs]
    assert lanes == ["0:m", *["5:m"] * 5, *["9:m"] * 4]
