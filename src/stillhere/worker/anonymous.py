"""Files without a name, which two processes share: a board, a dump. Memory on Linux, an unlinked file elsewhere."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

_MOST = 1 << 18


def anonymous_file(name: str) -> int:
    """Make one; its descriptor. `name` is for people who look into /proc."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name)
    fd, path = tempfile.mkstemp()
    Path(path).unlink()
    return fd


def read_all(fd: int) -> str:
    """What stands in it, from its beginning; at most 256 KiB."""
    return os.pread(fd, _MOST, 0).decode(errors="replace")
