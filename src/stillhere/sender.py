"""The public side of a task: enqueue it, prepare a call of it, or just call it.

`Sender` is anything that can be enqueued; ``task.options(...)`` and ``app.sender("name")`` are no more than that.
`AsyncTask` and `SyncTask` are what the decorator returns: still the user's function when called, and still taken for it
by `inspect` and by frameworks that ask whether it is a coroutine function.

``enqueue`` is a plain function that binds, checks and encodes at the call and returns a coroutine for the sending: a
wrong argument is reported on the caller's line, and where no loop runs the caller hears it at once, instead of losing
the job in a coroutine that nobody awaits. Everything about the sending is an option, so that no option can ever clash
with a parameter of the user's function.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, cast

from stillhere.domain.errors import ConfigurationError, WrongDoor
from stillhere.domain.options import CallOptions, check_call_options
from stillhere.domain.task import TaskDef, method_text

if TYPE_CHECKING:
    from typing import Unpack

    from stillhere.domain.job import NewRecord
    from stillhere.handle import Handle, NewJob, SyncHandle
    from stillhere.link import Link

P = ParamSpec("P")
R = TypeVar("R")

_ELSEWHERE = frozenset(
    {
        "apply_async",
        "apply",
        "defer",
        "defer_async",
        "delay",
        "kiq",
        "push",
        "queue",
        "s",
        "schedule",
        "send",
        "signature",
    }
)
"""What other libraries call it."""


class Home(Protocol):
    """Where a task lives: an app, or a blueprint that an app has included."""

    @property
    def link(self) -> Link:
        """The way to the store."""


class Sender(Generic[P, R]):
    """Something to enqueue under one name, with the options of one call."""

    def __init__(self, home: Home, name: str, definition: TaskDef | None, call: CallOptions) -> None:
        self._home = home
        self._name = name
        self._definition = definition
        self._call = call

    @property
    def name(self) -> str:
        """The task's name."""
        return self._name

    def options(self, **options: Unpack[CallOptions]) -> Sender[P, R]:
        """The same with these options for the call; later ones win."""
        check_call_options(f"{self._name}.options", options)
        both = cast("CallOptions", {**self._call, **options})
        if options.get("at") is not None and "delay" not in options:
            both.pop("delay", None)
        if options.get("delay") is not None and "at" not in options:
            both.pop("at", None)
        return Sender(self._home, self._name, self._definition, both)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Handle[R]]:
        """Check and encode the call now; awaited, store the job. Durable when it returns.

        Raises `ArgumentError` at the call, and `StoreUnavailable`, `StoreFull` or `DuplicateJob` when awaited.
        """
        if not loop_is_running():
            raise WrongDoor(
                f"{self._name}.enqueue() was called without a running event loop, so nothing was sent. "
                f"Use {self._name}.enqueue_sync(...) here."
            )
        from stillhere.sending import send  # noqa: PLC0415 - msgspec and asyncio come with the first job

        job: NewJob[R] = self.prepare(*args, **kwargs)
        coroutine: Any = send(job)
        coroutine.__qualname__ = f"{self._name}.enqueue"  # what Python names when nobody awaits it
        return cast("Coroutine[Any, Any, Handle[R]]", coroutine)

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> SyncHandle[R]:
        """Check, encode and store the job, blocking. Durable when it returns; errors as in `enqueue`."""
        if loop_is_running():
            raise WrongDoor(
                f"{self._name}.enqueue_sync() was called inside a running event loop, which it would block; "
                f"nothing was sent. Use await {self._name}.enqueue(...) here."
            )
        from stillhere.sending import send_sync  # noqa: PLC0415 - as above

        job: NewJob[R] = self.prepare(*args, **kwargs)
        return send_sync(job)

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> NewJob[R]:
        """Check and encode the call without sending it: for ``app.enqueue_many`` and tests."""
        from stillhere.handle import NewJob  # noqa: PLC0415 - as above

        return NewJob(self._record(args, kwargs), self._definition, self._home.link)

    def _record(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewRecord:
        from stillhere.domain.plan import foreign_record, new_record  # noqa: PLC0415 - as above

        if self._definition is not None:
            return new_record(self._definition, self._call, args, kwargs)
        return foreign_record(self._name, self._call, args, kwargs)

    def __repr__(self) -> str:
        return f"<sender {self._name}>"

    if not TYPE_CHECKING:  # what follows only says what to write instead; to a type checker it is not there

        def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
            """Say that options are for enqueueing."""
            raise TypeError(f"options apply to .enqueue(); to run it here call {self._name}(...).")

        def __getattr__(self, attribute: str) -> Any:
            kind = "Task" if isinstance(self, Task) else "Sender"
            if attribute in _ELSEWHERE:
                raise AttributeError(
                    f"{kind} has no {attribute}(). Use .enqueue() / .enqueue_sync(); a delay is .options(delay='10m').",
                    name=attribute,
                    obj=self,
                )
            raise AttributeError(
                f"{kind} {self.__dict__.get('_name')!r} has no {attribute!r}.", name=attribute, obj=self
            )


class Task(Sender[P, R]):
    """A registered function."""

    def __init__(self, home: Home, definition: TaskDef) -> None:
        super().__init__(home, definition.name, definition, {})
        self.definition = definition
        fn = definition.fn
        self.__wrapped__ = fn
        self.__name__ = fn.__name__
        self.__qualname__ = fn.__qualname__
        self.__module__ = fn.__module__
        self.__doc__ = fn.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        """Refuse a function that was defined in a class body; an attribute that merely names a task is fine."""
        if self.__qualname__ == f"{owner.__qualname__}.{name}":
            raise ConfigurationError(method_text(self.__qualname__))

    def __reduce__(self) -> str:
        """Pickled by name, like the function it stands for."""
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<task {self._name}>"


class AsyncTask(Task[P, R]):
    """A task written with ``async def``."""

    def __init__(self, home: Home, definition: TaskDef) -> None:
        super().__init__(home, definition)
        if sys.version_info >= (3, 12):
            inspect.markcoroutinefunction(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the function here, in this process, without any queue."""
        return cast("Callable[P, Coroutine[Any, Any, R]]", self.definition.fn)(*args, **kwargs)

    if not TYPE_CHECKING:

        @property
        def _is_coroutine(self) -> object:
            """The mark of asyncio, by which Python 3.11 tells a coroutine function that is an object."""
            asyncio = sys.modules.get("asyncio.coroutines")
            return getattr(asyncio, "_is_coroutine", None)


class SyncTask(Task[P, R]):
    """A task written with ``def``; a worker runs it in a thread."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here, in this process, without any queue."""
        return cast("Callable[P, R]", self.definition.fn)(*args, **kwargs)


def loop_is_running() -> bool:
    """Whether this thread is inside an event loop; a program that never imported asyncio is not."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
