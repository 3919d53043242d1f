"""The Lua scripts: read from their files, put together, and known by their digest.

One verb is one file in ``lua/``. The comment at its top is its contract, and this loader reads it::

    -- mode: write                     write | admit | read, see `_prelude.lua`
    -- uses: lanes ends                library files `_lanes.lua` and `_ends.lua`, in this order
    -- args: worker n:int lanes        the verb's attributes by name, with a kind where it is not text
    -- reply: ...                      for people
    -- guarantees: G2 G7               numbers of the port's docstring

The inputs become Lua locals of those names, so neither side ever counts positions: `verbs` asks the script which
attributes to send. A script's text is the inputs, the prelude, the libraries, its own text as a function, the epilogue.

A server knows a script by the SHA1 of its text and forgets it at a restart, a failover or SCRIPT FLUSH. It then answers
NOSCRIPT and has run nothing, so the store loads the text and repeats; see `backend`.

`Scripts(mutate=...)` is for tests that prove themselves: it runs every text through a function that may break it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

Mutate = Callable[[str, str], str]

_LUA = Path(__file__).parent / "lua"
_HEADER = re.compile(r"^-- (mode|uses|args|reply|guarantees): *(.*)$")
_MODES = ("write", "admit", "read")
_KINDS = {
    "text": "ARGV[{i}]",
    "int": "tonumber(ARGV[{i}])",  # empty: nil
    "flag": "ARGV[{i}] == '1'",
    "list": "cmsgpack.unpack(ARGV[{i}])",
}
STANDING_INPUTS = 2
"""Before a script's own inputs come the test's time (empty: the server's) and the queue's name."""


class Input(NamedTuple):
    """One named input of a script."""

    name: str
    kind: str


class Script(NamedTuple):
    """A script, ready to be sent."""

    stem: str
    text: bytes
    sha: bytes
    inputs: tuple[Input, ...]
    guarantees: tuple[str, ...]


class Header(NamedTuple):
    """What a file says of itself."""

    mode: str
    uses: tuple[str, ...]
    inputs: tuple[Input, ...]
    reply: str
    guarantees: tuple[str, ...]


def read_header(stem: str, text: str) -> Header:
    """Read the contract at the top of a verb's file; raises `ValueError` where it is incomplete."""
    said: dict[str, str] = {}
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        if found := _HEADER.match(line):
            said[found[1]] = found[2]
    mode, guarantees = said.get("mode", ""), tuple(said.get("guarantees", "").split())
    inputs = tuple(
        Input(name, kind or "text") for name, _, kind in (a.partition(":") for a in said.get("args", "").split())
    )
    strange = [i for i in inputs if i.kind not in _KINDS]
    if mode not in _MODES or strange or not said.get("reply") or not guarantees:
        raise ValueError(
            f"{stem}.lua: its header needs mode ({', '.join(_MODES)}), args of known kinds, reply, guarantees"
        )
    return Header(mode, tuple(said.get("uses", "").split()), inputs, said["reply"], guarantees)


def compose(stem: str) -> tuple[str, Header]:
    """Put a script together from its files."""
    body = _read(stem)
    header = read_header(stem, body)
    names = "".join(f", {i.name}" for i in header.inputs)
    values = "".join(f", {_KINDS[i.kind].format(i=n)}" for n, i in enumerate(header.inputs, STANDING_INPUTS + 1))
    parts = [
        f"-- stillhere: {stem}",
        f"local MODE = '{header.mode}'",
        f"local NOW, queue{names} = tonumber(ARGV[1]), ARGV[2]{values}",
        _read("_prelude"),
        *(_read(f"_{name}") for name in header.uses),
        f"local reply = (function()\n{body}\nend)()",
        _read("_epilogue"),
    ]
    return "\n".join(parts), header


def stems() -> list[str]:
    """The verbs that have a script."""
    return sorted(path.stem for path in _LUA.glob("[!_]*.lua"))


def _read(stem: str) -> str:
    return (_LUA / f"{stem}.lua").read_text(encoding="utf-8")


class Scripts:
    """The scripts of one store, each read when it is first used."""

    def __init__(self, mutate: Mutate | None = None) -> None:
        """`mutate(stem, text)` returns the text to run; only tests give one."""
        self._mutate = mutate
        self._known: dict[str, Script] = {}

    def __getitem__(self, stem: str) -> Script:
        """The script of this stem."""
        script = self._known.get(stem)
        if script is None:
            text, header = compose(stem)
            if self._mutate is not None:
                text = self._mutate(stem, text)
            raw = text.encode()
            sha = hashlib.sha1(raw, usedforsecurity=False).hexdigest().encode()
            script = self._known[stem] = Script(stem, raw, sha, header.inputs, header.guarantees)
        return script


SCRIPTS = Scripts()
"""Those that every store of this process uses."""
