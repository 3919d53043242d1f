"""From a URL to a store: the only place that knows all of them.

    redis://host:6379/0   rediss://   valkey://   valkeys://   unix:///path/of/the/socket
    embedded://           embedded:///a/directory     the project's own server, started if need be
    memory://name                                     this process only, for tests

A store's client is imported when its URL is opened. Opening reaches nothing yet, except that an embedded server is
started; the first call connects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stillhere.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from stillhere.backends.redis.connection import Endpoint
    from stillhere.ports.backend import AsyncStore, SyncStore

Clock = Callable[[], int]


def open_sync(url: str, namespace: str, *, clock: Clock | None = None) -> SyncStore:
    """A store for blocking calls. `clock` (ms) stands in for the store's own, in tests.

    Raises `ConfigurationError` for a URL that names no store.
    """
    if _scheme(url) == "memory":
        from stillhere.backends.memory import open_memory_sync

        return open_memory_sync(url, namespace, clock=clock)
    from stillhere.backends.redis.backend import SyncRedisStore

    return SyncRedisStore(_endpoint(url), namespace, clock=clock)


def open_async(url: str, namespace: str, *, clock: Clock | None = None) -> AsyncStore:
    """A store for asyncio, as `open_sync`."""
    if _scheme(url) == "memory":
        from stillhere.backends.memory import open_memory_async

        return open_memory_async(url, namespace, clock=clock)
    from stillhere.backends.redis.backend import AsyncRedisStore

    return AsyncRedisStore(_endpoint(url), namespace, clock=clock)


def _scheme(url: str) -> str:
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise ConfigurationError(f"{url!r} is not the URL of a store. Write redis://host:6379/0, or embedded://.")
    if scheme in ("postgres", "postgresql"):
        raise ConfigurationError("PostgreSQL is not among the stores yet. Write redis://host:6379/0, or embedded://.")
    return scheme


def _endpoint(url: str) -> Endpoint:
    if _scheme(url) == "embedded":
        from stillhere.backends.redis.embedded_endpoint import EmbeddedEndpoint

        return EmbeddedEndpoint(url.partition("://")[2])
    from stillhere.backends.redis.connection import Endpoint

    return Endpoint(url)
