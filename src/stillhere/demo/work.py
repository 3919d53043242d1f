"""The long job's work: read every file of the installed standard library, count, parse, and chain a fingerprint.

The fingerprint of file n contains that of file n - 1, so it comes out right only when each file was taken exactly once
and in order, over however many runs. Who wants to check it needs a fraction of a second, because the parsing, which
takes the time, is not needed for it.

The job is paced: each file has a share of the time by its size, and is parsed again, with the same outcome, until its
share is used. So it takes about the same time on a fast machine as on a slow one, and all of that time is work.
"""

from __future__ import annotations

import ast
import hashlib
import sysconfig
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

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
        """Take in the next file; all but its functions, which cost the time."""
        chained = hashlib.sha256(self.fingerprint.encode() + data).hexdigest()
        return replace(
            self,
            files=self.files + 1,
            size=self.size + len(data),
            words=self.words + len(data.split()),
            fingerprint=chained,
        )


def library_files(limit: int | None = None) -> list[Path]:
    """All Python files of the standard library, sorted; the first `limit` of them."""
    root = Path(sysconfig.get_path("stdlib"))
    found = sorted(path for path in root.rglob("*.py") if not _FOREIGN & set(path.parts))
    return found[:limit]


def expected(files: Sequence[Path]) -> Tally:
    """What the job must come to, but for the functions."""
    tally = Tally()
    for path in files:
        tally = tally.with_file(path.read_bytes())
    return tally


def functions_in(data: bytes) -> int:
    """How many functions and classes a file defines; the library holds some files that do not parse, on purpose."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0
    return sum(isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) for node in ast.walk(tree))


def read_all(files: Sequence[Path], done: Tally, seconds: float) -> Iterator[Tally]:
    """Go on behind `done`; one tally for each file, the whole of it in about `seconds` from the first file on."""
    sizes = [path.stat().st_size for path in files]
    total = sum(sizes) or 1
    begun = time.monotonic() - seconds * done.size / total
    for path in files[done.files :]:
        data = path.read_bytes()
        done = done.with_file(data)
        share_ends = begun + seconds * done.size / total
        found = functions_in(data)
        while time.monotonic() < share_ends and data:
            found = functions_in(data)
        done = replace(done, functions=done.functions + found)
        yield done
