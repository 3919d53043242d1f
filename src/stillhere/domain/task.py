"""What a program's tasks are: a function, its name, its options; and the registry that a worker looks them up in.

A definition is made by the decorator, while modules are imported, so it does no more than look at the function: a
function that cannot be a task is refused on its own line. Annotations are resolved and the codec is built with the
first job that is sent or run, because names that an annotation uses may be defined further down.

The name of a task is the function's own, never its module: moving a function orphans no queued job, and a script that
runs as ``__main__`` sends the same name that a worker knows. Two functions with one name are refused with both places.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhere.domain.errors import ConfigurationError
from stillhere.domain.options import TaskOptions, check_name, check_task_options

if TYPE_CHECKING:
    from stillhere.domain.codec import Codec
    from stillhere.domain.codec_args import CallCodec
    from stillhere.domain.job import DeclaredLane
    from stillhere.domain.plan import TaskPlan


class TaskDef:
    """One task. `scope` holds the names around a local function, which its annotations may use."""

    def __init__(
        self,
        fn: Callable[..., Any],
        options: TaskOptions,
        *,
        prefix: str = "",
        scope: Mapping[str, Any] | None = None,
    ) -> None:
        refuse(fn)
        own = options.get("name", fn.__name__)
        self.name = check_name("name", f"{prefix}.{own}" if prefix else own)
        check_task_options(f"task {self.name!r}", options)
        self.fn = fn
        self.is_async = inspect.iscoroutinefunction(inspect.unwrap(fn)) or inspect.iscoroutinefunction(fn)
        self.aliases = tuple(options.get("aliases", ()))
        self.given: TaskOptions = options
        self.place = _place(fn)
        self.codecs: Mapping[type, Codec] = {}
        """The app's codecs; set by the registry that takes the task in, before the first job."""
        self._scope = scope if "<locals>" in fn.__qualname__ else None
        _check_unique_function(self.name, fn, options.get("unique"))

    @functools.cached_property
    def codec(self) -> CallCodec:
        """The task's wire side; raises `ConfigurationError` when an annotation cannot be served."""
        from stillhere.domain.codec import Hooks  # noqa: PLC0415 - msgspec comes with the first job, not with imports
        from stillhere.domain.codec_args import CallCodec  # noqa: PLC0415 - as above

        return CallCodec(self.fn, self.name, Hooks(self.codecs), self._scope)

    @functools.cached_property
    def options(self) -> TaskPlan:
        """The options as numbers, defaults filled in."""
        from stillhere.domain.plan import TaskPlan  # noqa: PLC0415 - as in `codec`

        return TaskPlan.of(self.given, is_async=self.is_async)

    def __repr__(self) -> str:
        return f"<task {self.name} at {self.place}>"


class Tasks:
    """The tasks of one app, by name and alias."""

    def __init__(self, codecs: Mapping[type, Codec] | None = None) -> None:
        self._codecs: Mapping[type, Codec] = codecs or {}
        self._by_name: dict[str, TaskDef] = {}

    def add(self, definition: TaskDef) -> None:
        """Take a task in; raises `ConfigurationError` when one of its names is taken by another function."""
        names = (definition.name, *definition.aliases)
        for name in names:
            other = self._by_name.get(name)
            if other is not None and not _same_function(other, definition):
                raise ConfigurationError(
                    f"Task {name!r} is defined twice: {other.place} and {definition.place}. Give one a name=."
                )
        definition.codecs = self._codecs
        self._by_name.update(dict.fromkeys(names, definition))

    def get(self, name: str) -> TaskDef | None:
        """The task with this name or alias."""
        return self._by_name.get(name)

    def names(self) -> list[str]:
        """All names under which a job of these tasks may come, aliases too, sorted."""
        return sorted(self._by_name)

    def lanes(self) -> dict[str, DeclaredLane]:
        """The names of the tasks that do not start in the pool, with the lane where they do."""
        return {name: lane for name, one in self._by_name.items() if (lane := one.options.lane) is not None}

    def __iter__(self) -> Iterator[TaskDef]:
        """Each task once, by name."""
        return iter(sorted(set(self._by_name.values()), key=lambda definition: definition.name))

    def __len__(self) -> int:
        return len(set(self._by_name.values()))


def refuse(fn: object) -> None:
    """Raise `ConfigurationError` when `fn` cannot be a task, saying what to do instead."""
    if isinstance(fn, (staticmethod, classmethod)):
        kind = type(fn).__name__
        raise ConfigurationError(f"{fn.__func__.__qualname__}: put @{kind} above @app.task, not below it.")
    if isinstance(fn, functools.partial):
        raise ConfigurationError("A partial has no name of its own: write a function that calls it.")
    if inspect.ismethod(fn):
        raise ConfigurationError(method_text(fn.__qualname__))
    if not inspect.isfunction(fn):
        what = f"{fn.__name__} is a class" if isinstance(fn, type) else f"{fn!r} is not a function"
        raise ConfigurationError(f"{what}: a task is a function, written with def or async def.")
    inner = inspect.unwrap(fn)
    if fn.__name__ == "<lambda>":
        raise ConfigurationError(f"A lambda has no name of its own ({_place(fn)}): write a function with def.")
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise ConfigurationError(
            f"{fn.__name__} is a generator: a task returns once; use job.progress() to tell on the way."
        )


def method_text(qualname: str) -> str:
    """What to say when a task is defined inside a class."""
    return f"{qualname} is a method: a job carries no self. Use a function, or put @staticmethod above @app.task."


def local_scope(fn: Callable[..., Any], depth: int) -> Mapping[str, Any] | None:
    """The names around a function that is defined inside another one, `depth` frames up; None for all others."""
    if "<locals>" not in getattr(fn, "__qualname__", ""):
        return None
    return dict(sys._getframe(depth + 1).f_locals)  # noqa: SLF001 - there is no other way to the names around


def _place(fn: Callable[..., Any]) -> str:
    """``proj/a.py:10``, below the working directory where it can be."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    if code is None:
        return "somewhere"
    path = Path(code.co_filename)
    with contextlib.suppress(ValueError, OSError):  # elsewhere, or the working directory is gone: the whole path then
        path = path.relative_to(Path.cwd())
    return f"{path}:{code.co_firstlineno}"


def _same_function(one: TaskDef, other: TaskDef) -> bool:
    """Whether it is the same text loaded again: a reloaded module, or a cell of a notebook run a second time."""
    if one is other:
        return True
    if one.fn.__module__ != other.fn.__module__ or one.fn.__qualname__ != other.fn.__qualname__:
        return False
    return one.place == other.place or (one.fn.__module__ == "__main__" and hasattr(sys, "ps1"))


def _check_unique_function(task: str, fn: Callable[..., Any], unique: object) -> None:
    if isinstance(unique, bool) or not callable(unique):
        return
    known = inspect.signature(fn).parameters
    for name, parameter in inspect.signature(unique).parameters.items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) or name in known:
            continue
        text = (
            f"task {task!r}: unique= asks for {name!r}, which the task does not have: {', '.join(known) or 'nothing'}."
        )
        raise ConfigurationError(text)
