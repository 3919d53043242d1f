"""An app's way to its store: which one, and one client per place it may be used from.

An async client belongs to the event loop that opened it, and any client to the process that opened it: used after a
fork, parent and child would read each other's replies. So a `Link` keeps one async store per (process, loop) and one
sync store per process, opened at first use. Two ``asyncio.run`` in a row, a loop per test, threads with loops of their
own and servers that fork after the import all work, and none of them has to know.

A loop's client is closed when its loop ends, without anybody's doing: beside it stands an async generator, and loops
close those in their last moments. A client that was inherited through a fork is left alone: closing it would speak on
the parent's connection.

What a handle or a sender does is written once, as a *script*: a generator that yields the verbs it wants to have run
and the pauses it wants to make, and gets the replies back. `Link.run` plays it on the running loop, `Link.run_sync`
blocks; there is no second copy of any decision. A script that is dropped half-way leaves nothing behind but the verbs
it has run.

Errors of the store pass through here, to say where its address came from.
"""

from __future__ import annotations

import os
import re
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast

from stillhere.domain.errors import ConfigurationError, StoreUnavailable

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from stillhere.ports.backend import AsyncStore, SyncStore, Verb

T = TypeVar("T")

DEFAULT_NAMESPACE = "stillhere"
EMBEDDED = "embedded://"

_NAMESPACE = re.compile(r"[^\s{}\x00-\x1f\x7f]{1,100}")


class Address(NamedTuple):
    """A store's URL and where that setting came from, in words that can stand after "from"."""

    url: str
    origin: str


def find_address(environ: Mapping[str, str] = os.environ) -> Address:
    """The store to use where the program names none: that of the environment, else the embedded one."""
    if url := environ.get("STILLHERE_URL", "").strip():
        return Address(url, "STILLHERE_URL")
    return Address(EMBEDDED, "the default, since STILLHERE_URL is not set")


def find_namespace(given: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """The first part of every key in the store."""
    namespace = given if given is not None else environ.get("STILLHERE_NAMESPACE", "").strip() or DEFAULT_NAMESPACE
    if not isinstance(namespace, str) or not _NAMESPACE.fullmatch(namespace):
        raise ConfigurationError(f"namespace={namespace!r}: text without spaces and braces, at most 100 long.")
    return namespace


class Pause(NamedTuple):
    """A script's wish to sleep."""

    seconds: float


Step: TypeAlias = "Verb[Any] | list[Verb[Any]] | Pause"
Script: TypeAlias = Generator[Step, Any, T]


_links: weakref.WeakSet[Link] = weakref.WeakSet()


class Link:
    """The clients of one app."""

    def __init__(
        self, url: str | None = None, namespace: str | None = None, clock: Callable[[], int] | None = None
    ) -> None:
        """`clock` (ms) stands in for the store's own, in tests."""
        if url is not None and (not isinstance(url, str) or "://" not in url):
            raise ConfigurationError(f"url={url!r}: write redis://host:6379/0, unix:///path or embedded://.")
        self._url = url
        self._origin = "App(url=...)"
        self._namespace = namespace
        self._clock = clock
        self._sync: dict[int, SyncStore] = {}
        self._async: dict[int, dict[AbstractEventLoop, _Kept]] = {}
        self._lock = threading.Lock()
        _links.add(self)

    def redirect(self, url: str | None, namespace: str | None) -> None:
        """Use another store, as a worker's command line says; before the first use."""
        if url is not None:
            self._url, self._origin = url, "--url"
        if namespace is not None:
            self._namespace = namespace

    @property
    def address(self) -> Address:
        """Read at each use: a test or a framework may set the environment after the import."""
        return find_address() if self._url is None else Address(self._url, self._origin)

    @property
    def namespace(self) -> str:
        """The namespace, by the same rule."""
        return find_namespace(self._namespace)

    async def run(self, script: Script[T]) -> T:
        """Play a script on the running loop."""
        try:
            step = next(script)
            while True:
                step = script.send(await self._take(step))
        except StopIteration as end:
            return cast("T", end.value)
        except StoreUnavailable as error:
            raise self._with_origin(error) from error

    def run_sync(self, script: Script[T]) -> T:
        """Play a script, blocking."""
        try:
            step = next(script)
            while True:
                step = script.send(self._take_sync(step))
        except StopIteration as end:
            return cast("T", end.value)
        except StoreUnavailable as error:
            raise self._with_origin(error) from error

    def sync_store(self) -> SyncStore:
        """This process's blocking client."""
        pid = os.getpid()
        with self._lock:
            if pid not in self._sync:
                from stillhere.stores import open_sync  # noqa: PLC0415 - the driver comes with the first use

                self._sync[pid] = open_sync(self.address.url, self.namespace, clock=self._clock)
            return self._sync[pid]

    async def async_store(self) -> AsyncStore:
        """The running loop's client in this process."""
        import asyncio  # noqa: PLC0415 - as above

        loop = asyncio.get_running_loop()
        with self._lock:
            kept = self._async.setdefault(os.getpid(), {})
            if loop in kept:
                return kept[loop].store
            for gone in [other for other in kept if other.is_closed()]:  # closed without its last moments
                del kept[gone]
            from stillhere.stores import open_async  # noqa: PLC0415 - as above

            store = open_async(self.address.url, self.namespace, clock=self._clock)
            guard = _until_the_loop_ends(kept, loop, store)
            kept[loop] = _Kept(store, guard)
        await anext(guard)  # from here on the loop knows it, and will close it
        return store

    def close(self) -> None:
        """Close this process's blocking client; the next use opens a new one."""
        with self._lock:
            store = self._sync.pop(os.getpid(), None)
        if store is not None:
            store.close()

    async def aclose(self) -> None:
        """Close the running loop's client, and the blocking one."""
        import asyncio  # noqa: PLC0415 - as above

        with self._lock:
            mine = self._async.setdefault(os.getpid(), {}).get(asyncio.get_running_loop())
        if mine is not None:
            await mine.guard.aclose()
        self.close()

    async def _take(self, step: Step) -> Any:
        if isinstance(step, Pause):
            import asyncio  # noqa: PLC0415 - a program that only blocks never pays for it

            return await asyncio.sleep(step.seconds)
        store = await self.async_store()
        return await (store.call_many(step) if isinstance(step, list) else store.call(step))

    def _take_sync(self, step: Step) -> Any:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        store = self.sync_store()
        return store.call_many(step) if isinstance(step, list) else store.call(step)

    def _with_origin(self, error: StoreUnavailable) -> StoreUnavailable:
        return StoreUnavailable(f"{str(error).rstrip('.')}, from {self.address.origin}.", sent=error.sent)


class _Kept(NamedTuple):
    """A loop's client, and the generator that closes it."""

    store: AsyncStore
    guard: AsyncGenerator[None]


async def _until_the_loop_ends(
    kept: dict[AbstractEventLoop, _Kept], loop: AbstractEventLoop, store: AsyncStore
) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        kept.pop(loop, None)
        await store.aclose()


def _renew_locks() -> None:
    """In a forked child: a lock that some thread held in the parent would never be free here."""
    for link in _links:
        link._lock = threading.Lock()  # noqa: SLF001 - the same module


if hasattr(os, "register_at_fork"):  # where there is no fork there is nothing to renew
    os.register_at_fork(after_in_child=_renew_locks)
