"""The long job's work: read every file of the installed standard library, count, chain a fingerprint, parse.

The fingerprint of file n contains that of file n - 1, so it comes out right only when each file was taken exactly once
and in order, over however many runs.

The job is paced: each file has a share of the time by its size, and is parsed as often as fits into its share. So it
takes about the same time on a fast machine, on a slow one and on a busy one, and all of that time is work.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import re
import sysconfig
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

_DEFINITION = re.compile(rb"^[ \t]*(?:async +)?def +\w", re.MULTILINE)
_FOREIGN = {"site-packages", "dist-packages"}


@dataclass(frozen=True)
class Tally:
    """What was found in the first `files` files."""

    files: int = 0
    size: int = 0
    words: int = 0
    functions: int = 0
    fingerprint: str = ""

    def with_file(self, data: bytes) -> Tally:
        """Take in the next file."""
        chained = hashlib.sha256(self.fingerprint.encode() + data).hexdigest()
        return replace(
            self,
            files=self.files + 1,
            size=self.size + len(data),
            words=self.words + len(data.split()),
            functions=self.functions + len(_DEFINITION.findall(data)),
            fingerprint=chained,
        )


def library_files(limit: int | None = None) -> list[Path]:
    """All Python files of the standard library, sorted; the first `limit` of them."""
    root = Path(sysconfig.get_path("stdlib"))
    found = sorted(path for path in root.rglob("*.py") if not _FOREIGN & set(path.parts))
    return found[:limit]


def expected(files: Sequence[Path]) -> Tally:
    """What the job must come to."""
    tally = Tally()
    for path in files:
        tally = tally.with_file(path.read_bytes())
    return tally


def read_all(files: Sequence[Path], done: Tally, seconds: float) -> Iterator[Tally]:
    """Go on behind `done`; one tally for each file, the whole of it in about `seconds` from the first file on."""
    sizes = [path.stat().st_size for path in files]
    total = sum(sizes) or 1
    begun = time.monotonic() - seconds * done.size / total
    for path in files[done.files :]:
        data = path.read_bytes()
        done = done.with_file(data)
        while data and time.monotonic() < begun + seconds * done.size / total:
            _parse(data)
        yield done


def _parse(data: bytes) -> None:
    """The library holds some files that do not parse, on purpose."""
    with warnings.catch_warnings(), contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        warnings.simplefilter("ignore")
        ast.parse(data)
