"""Tasks: what can be one, what it is called, and what the registry refuses."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

import pytest

from stillhere.domain.errors import ConfigurationError
from stillhere.domain.task import TaskDef, Tasks

HERE = "tests/unit/test_task.py"


def send(to: str) -> None: ...


async def fetch(domain: str) -> int:
    return 1


def line_of(fn: Callable[..., Any]) -> int:
    return fn.__code__.co_firstlineno


class TestDefinition:
    def test_the_name_is_the_function_s_own_never_its_module(self) -> None:
        assert TaskDef(send, {}).name == "send"
        assert TaskDef(send, {"name": "mail"}).name == "mail"
        assert TaskDef(send, {}, prefix="billing").name == "billing.send"
        assert TaskDef(send, {"name": "mail"}, prefix="billing").name == "billing.mail"

    def test_it_tells_async_from_sync_through_decorators(self) -> None:
        @functools.wraps(fetch)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return fetch(*args, **kwargs)

        assert TaskDef(fetch, {}).is_async
        assert TaskDef(wrapped, {}).is_async
        assert not TaskDef(send, {}).is_async

    def test_it_knows_its_place(self) -> None:
        assert TaskDef(send, {}).place == f"{HERE}:{line_of(send)}"

    def test_the_codec_is_built_once_and_late(self) -> None:
        def unresolvable(x: NowhereToBeFound) -> None: ...  # type: ignore[name-defined] # noqa: F821

        definition = TaskDef(unresolvable, {})
        with pytest.raises(ConfigurationError, match="NowhereToBeFound"):
            definition.codec  # noqa: B018 - reading it is the point
        good = TaskDef(send, {})
        assert good.codec is good.codec


def generator(n: int) -> Iterator[int]:
    yield n


async def async_generator(n: int) -> AsyncIterator[int]:
    yield n


class Service:
    def run(self, n: int) -> None: ...

    @classmethod
    def make(cls) -> None: ...

    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (generator, "generator is a generator: a task returns once; use job.progress() to tell on the way."),
        (
            async_generator,
            "async_generator is a generator: a task returns once; use job.progress() to tell on the way.",
        ),
        (functools.partial(send, "x"), "A partial has no name of its own: write a function that calls it."),
        (
            Service().run,
            "Service.run is a method: a job carries no self. Use a function, or put @staticmethod above @app.task.",
        ),
        (staticmethod(send), "send: put @staticmethod above @app.task, not below it."),
        (classmethod(cast("Any", send)), "send: put @classmethod above @app.task, not below it."),
        (Service, "Service is a class: a task is a function, written with def or async def."),
        (len, "<built-in function len> is not a function: a task is a function, written with def or async def."),
        (5, "5 is not a function: a task is a function, written with def or async def."),
    ],
)
def test_what_cannot_be_a_task_is_refused_with_the_way_out(fn: Any, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        TaskDef(fn, {})
    assert str(caught.value) == words


def test_a_lambda_is_refused_with_its_place() -> None:
    nameless = lambda: None  # noqa: E731 - that is what is refused
    with pytest.raises(ConfigurationError) as caught:
        TaskDef(nameless, {})
    assert str(caught.value) == (
        f"A lambda has no name of its own ({HERE}:{line_of(nameless)}): write a function with def."
    )


def test_a_unique_function_may_ask_only_for_what_the_task_has() -> None:
    TaskDef(send, {"unique": lambda to: to})
    TaskDef(send, {"unique": lambda **everything: str(everything)})
    with pytest.raises(ConfigurationError) as caught:
        TaskDef(send, {"unique": lambda whom: whom})
    assert str(caught.value) == "task 'send': unique= asks for 'whom', which the task does not have: to."


class TestRegistry:
    def test_it_finds_a_task_by_name_and_alias(self) -> None:
        tasks = Tasks()
        tasks.add(TaskDef(send, {"aliases": ("old_send",)}))
        tasks.add(TaskDef(fetch, {}))
        assert tasks.names() == ["fetch", "old_send", "send"]
        assert tasks.get("old_send") is tasks.get("send") is not None
        assert tasks.get("other") is None
        assert [task.name for task in tasks] == ["fetch", "send"]
        assert len(tasks) == 2

    def test_one_name_for_two_functions_is_refused_with_both_places(self) -> None:
        tasks = Tasks()
        tasks.add(TaskDef(send, {}))
        with pytest.raises(ConfigurationError) as caught:
            tasks.add(TaskDef(fetch, {"name": "send"}))
        assert str(caught.value) == (
            f"Task 'send' is defined twice: {HERE}:{line_of(send)} and {HERE}:{line_of(fetch)}. Give one a name=."
        )
        with pytest.raises(ConfigurationError, match="Task 'send' is defined twice"):
            tasks.add(TaskDef(fetch, {"aliases": ("send",)}))
        assert tasks.names() == ["send"], "a refused task leaves nothing behind"

    def test_the_same_text_loaded_again_takes_its_own_place(self) -> None:
        tasks = Tasks()
        first, again = TaskDef(send, {}), TaskDef(send, {"max_attempts": 1})
        tasks.add(first)
        tasks.add(again)
        assert tasks.get("send") is again
