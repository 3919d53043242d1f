"""Where a worker runs: it leans on what kernels tell of processes; elsewhere it would promise more than it keeps."""

from __future__ import annotations

import sys

from stillhere.domain.errors import ConfigurationError

SERVED = ("linux", "darwin")


def refuse_elsewhere() -> None:
    """Raise `ConfigurationError` on a platform where a worker is not known to keep its promises."""
    if sys.platform not in SERVED:
        raise ConfigurationError(
            f"A worker runs on Linux and macOS, not on {sys.platform}; enqueueing and all other commands do."
        )
