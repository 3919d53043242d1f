"""Where tasks are defined: the decorator, shared by `App` and `Blueprint`.

A blueprint is for modules that must not import the app: it collects tasks, and an app takes them in with
``app.include(blueprint)``, before or after they are defined. Its prefix stands in front of every name it defines, with
a dot, and its other arguments are defaults of its tasks' options. A blueprint that several apps include (an app per
test) sends through the one that included it last.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast, overload

from stillhere.domain.errors import ConfigurationError
from stillhere.domain.options import TaskOptions, check_name, check_task_options
from stillhere.domain.task import TaskDef, local_scope
from stillhere.sender import AsyncTask, SyncTask

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Unpack

    from stillhere.app import App
    from stillhere.link import Link

P = ParamSpec("P")
R = TypeVar("R")


class TaskDecorator(Protocol):
    """What ``@app.task(...)`` is: it keeps the function's types, and tells async from sync."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload] - a coroutine function is also any function
    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncTask[P, R]: ...


class HasTasks:
    """Something that defines tasks."""

    _prefix = ""
    _defaults: TaskOptions = {}  # noqa: RUF012 - replaced, never changed

    @property
    def link(self) -> Link:
        """The way to the store."""
        raise ConfigurationError(f"{self!r} has no store.")

    @overload
    def task(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload] - as above
    @overload
    def task(self, fn: Callable[P, R], /) -> SyncTask[P, R]: ...
    @overload
    def task(self, /, **options: Unpack[TaskOptions]) -> TaskDecorator: ...
    def task(self, fn: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]) -> Any:
        """Make a function a task: ``@app.task``, or ``@app.task(max_attempts=3)`` with options.

        Raises `ConfigurationError` on its own line for a function that cannot be one (a method, a generator, a lambda),
        for a wrong option, and for a name that another task has.
        """
        if fn is not None:
            return self._define(fn, {}, local_scope(fn, 1))
        check_task_options("@app.task", options)

        def decorator(fn: Callable[..., Any], /) -> Any:
            return self._define(fn, options, local_scope(fn, 1))

        return decorator

    def _define(self, fn: Callable[..., Any], options: TaskOptions, scope: Mapping[str, Any] | None) -> Any:
        both = cast("TaskOptions", {**self._defaults, **options})
        definition = TaskDef(fn, both, prefix=self._prefix, scope=scope)
        self._add(definition)
        return AsyncTask(self, definition) if definition.is_async else SyncTask(self, definition)

    def _add(self, definition: TaskDef) -> None:
        """Take a definition in."""
        raise ConfigurationError(f"{self!r} takes no task ({definition.name}).")


class Blueprint(HasTasks):
    """Tasks that an app takes in later: ``billing = Blueprint("billing", queue="billing")``."""

    def __init__(self, prefix: str = "", **defaults: Unpack[TaskOptions]) -> None:
        if prefix:
            check_name("prefix", prefix)
        check_task_options(f"Blueprint({prefix!r})", defaults)
        for option in ("name", "aliases"):
            if option in defaults:
                raise ConfigurationError(
                    f"Blueprint({prefix!r}): {option}= is of one task; give it to @blueprint.task."
                )
        self._prefix = prefix
        self._defaults = defaults
        self._definitions: list[TaskDef] = []
        self._apps: list[App[Any]] = []

    @property
    def link(self) -> Link:
        """The way to the store of the app that included this blueprint last."""
        if not self._apps:
            raise ConfigurationError(f"{self!r} is in no app, so nothing can be sent: call app.include(...) first.")
        return self._apps[-1].link

    def included_by(self, app: App[Any]) -> None:
        """Give the app all tasks, those of later definitions too. Called by ``app.include``."""
        for definition in self._definitions:
            app.tasks.add(definition)
        if app not in self._apps:
            self._apps.append(app)

    def _add(self, definition: TaskDef) -> None:
        for app in self._apps:
            app.tasks.add(definition)
        self._definitions.append(definition)

    def __repr__(self) -> str:
        return f"Blueprint({self._prefix!r})"
