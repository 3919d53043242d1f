"""G12: a question about a run reaches its supervisor, its answer the one who asked, and neither outlives a minute.

Nobody waits for either: whoever asks may go away, the supervisor may die, the job may end in between.
"""

from __future__ import annotations

import pytest

from stillhere.ports.backend import Asked
from stillhere.ports.inspector import Answer, Answered, Ask
from tests.conformance.kit import DAY, MINUTE, SECOND, World


def ask(world: World, id: str = "q1", job: str = "a") -> bool:
    return world.call(Ask(queue="q", id=id, job=job))


def answer(world: World, text: str, id: str = "q1") -> None:
    world.call(Answer(queue="q", id=id, text=text))


def answered(world: World, id: str = "q1") -> str | None:
    return world.call(Answered(queue="q", id=id))


@pytest.fixture
def running(world: World) -> World:
    """The worker `w` runs `a`."""
    world.enqueue("a")
    world.worker().take_one()
    return world


def test_g12_a_question_its_answer_and_its_end(running: World) -> None:
    assert ask(running)
    assert answered(running) is None
    assert running.tick().asks == [Asked(id="q1", worker="w", job="a")]
    answer(running, "line 7\nin fetch, ä")
    assert answered(running) == "line 7\nin fetch, ä"
    assert running.tick().asks == []


def test_g12_only_a_job_that_runs_can_be_asked(world: World) -> None:
    world.enqueue("waits")
    assert not ask(world, job="waits")
    assert not ask(world, job="never was")
    assert world.tick().asks == []


def test_g12_an_answer_without_a_question_is_not_kept(running: World) -> None:
    answer(running, "nobody wants to know")
    assert answered(running) is None


def test_g12_the_first_answer_counts(running: World) -> None:
    ask(running)
    answer(running, "one")
    answer(running, "two")
    assert answered(running) == "one"


def test_g12_a_late_copy_of_a_question_asks_nothing_anew(running: World) -> None:
    ask(running)
    assert ask(running)
    assert len(running.tick().asks) == 1
    answer(running, "one")
    assert ask(running)
    assert running.tick().asks == []
    assert answered(running) == "one"


def test_g12_a_question_that_nobody_answers_is_forgotten(running: World) -> None:
    ask(running)
    running.jump(MINUTE - 1)
    ask(running, "q2")
    assert [asked.id for asked in running.tick().asks] == ["q1", "q2"]
    running.jump(1)
    assert [asked.id for asked in running.tick().asks] == ["q2"]
    answer(running, "too late")
    assert answered(running) is None
    running.jump(-DAY)
    running.tick()
    running.jump(MINUTE)
    assert running.tick().asks == [], "a clock that was set back keeps none alive"


def test_g12_an_answer_is_forgotten(running: World) -> None:
    ask(running)
    answer(running, "one")
    running.age(2 * MINUTE)
    assert answered(running) is None


def test_g12_the_oldest_questions_go_to_supervisors_first_and_few_at_once(running: World) -> None:
    for number in range(30):
        ask(running, f"q{number}")
        running.jump(SECOND // 10)
    assert [asked.id for asked in running.tick().asks] == [f"q{number}" for number in range(20)]
    answer(running, "", "q3")
    assert [asked.id for asked in running.tick().asks][-1] == "q20"
    assert answered(running, "q3") == ""


def test_g12_questions_are_kept_in_bounded_number(running: World) -> None:
    for number in range(101):
        ask(running, f"q{number}")
        running.jump(1)
    answer(running, "gone", "q0")
    answer(running, "there", "q1")
    assert (answered(running, "q0"), answered(running, "q1")) == (None, "there")


def test_g12_an_answer_is_kept_to_a_bound_in_whole_characters(running: World) -> None:
    for name, text in (("q1", "x" * 70_000), ("q2", "x" + "ä" * 40_000), ("q3", "🚲" * 16_384)):
        ask(running, name)
        answer(running, text, name)
    assert answered(running, "q1") == "x" * 65_536
    assert answered(running, "q2") == "x" + "ä" * 32_767
    assert answered(running, "q3") == "🚲" * 16_384
