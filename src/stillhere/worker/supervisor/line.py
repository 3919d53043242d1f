"""A store that one thread of the supervisor talks to, opened by the first call.

Opening may start an embedded server, which takes its time, and may be refused: both belong to the thread that calls,
never to the main thread, and what could not be opened is tried again with the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from stillhere.ports.backend import SyncStore, Verb

R = TypeVar("R")


class Line:
    """A `SyncStore` that opens itself."""

    def __init__(self, open_store: Callable[[], SyncStore]) -> None:
        self._open_store = open_store
        self._store: SyncStore | None = None

    def call(self, verb: Verb[R], *, timeout: float | None = None) -> R:
        """Run one verb."""
        return self._opened().call(verb, timeout=timeout)

    def call_many(self, verbs: Sequence[Verb[R]], *, timeout: float | None = None) -> list[R]:
        """Run verbs in one round trip."""
        return self._opened().call_many(verbs, timeout=timeout)

    def close(self) -> None:
        """Close it, if it was ever opened."""
        if self._store is not None:
            self._store.close()

    def _opened(self) -> SyncStore:
        if self._store is None:
            self._store = self._open_store()
        return self._store
