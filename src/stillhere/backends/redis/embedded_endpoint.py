"""The embedded server as an endpoint: found, and started if need be, before each new connection.

A connection that breaks because the server was taken away is replaced like any other; on the way to the new one the
server is looked for again, and whoever finds it gone starts it.
"""

from __future__ import annotations

from pathlib import Path

from stillhere.backends.redis.connection import Endpoint
from stillhere.backends.redis.embedded import ensure_embedded


class EmbeddedEndpoint(Endpoint):
    """Where the embedded store of a directory (empty: of this project) is."""

    moves = True

    def __init__(self, directory: str = "") -> None:
        self._server = ensure_embedded(Path(directory) if directory else None)
        super().__init__(self._server.url)
        self.shown = f"the embedded store in {self._server.directory}"

    def locate(self) -> None:
        """See that the server runs; where it does, this takes a fraction of a millisecond."""
        self._server.ensure()
        self._url = self._read(self._server.url)

    def release(self) -> None:
        """Give up this hold on the server."""
        self._server.close()
