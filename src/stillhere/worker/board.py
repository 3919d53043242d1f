"""The board: one page of memory that a supervisor and one child share, and that survives the child's death.

A message tells what somebody found time to say; the board tells what *is*. The child marks on it which claims it has
answered (before any handler starts), what it holds and what it runs, and that its loop and its keeper are alive. The
supervisor reads it at each beat, and once more when the child is dead: what ran, what was only granted. Both write when
their voice last renewed the lease, so that trust is the later of the two.

Rules. Each field has one writer. A field is eight bytes, aligned, stored in one instruction, so a reader sees the old
value or the new one. Texts are written before the number that makes them count: a slot's state last when it fills and
first when it empties, the worker id before its generation. A writer may die between any two stores: a slot then looks
free although it was claimed, and its job is one that was never started, which is what it is.

A process forked by a handler inherits the page. `register_at_fork` makes it deaf and dumb there: a fork must not speak
for its parent.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import weakref
from enum import IntEnum
from pathlib import Path

import msgspec

MAX_QUEUES = 256
_ID_BYTES = 136  # a job id has up to 128, and a zero ends it
_TASK_BYTES = 64
_WORKER_BYTES = 128
MAGIC = 0x5354494C4C303031


class Phase(IntEnum):
    """What the child is doing, by its own word."""

    BOOT = 0
    RUN = 1
    MUTE = 2
    """Its own voice has gone unheard; it claims nothing until it is heard again."""
    RETIRE = 3
    DRAIN = 4
    ORPHAN = 5
    EXIT = 6
    """Written before the main function returns, whatever the reason: from here on nobody vouches for it."""


_PHASES = frozenset(Phase)
WORKING = frozenset({Phase.RUN, Phase.MUTE, Phase.RETIRE, Phase.DRAIN})


class SlotState(IntEnum):
    """What is in a slot."""

    FREE = 0
    HELD = 1
    STARTED = 2
    ENDED = 3
    """The run is over and its settle is not confirmed yet."""


_SLOT_STATES = frozenset(SlotState)


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """One slot as it was read."""

    index: int
    state: SlotState
    queue: int
    """Position in the list of queues that `hello` named."""
    job: str
    token: int
    task: str
    started_ns: int
    long: bool


# name -> position of an eight-byte field in the header
_HEADER = {
    name: 8 * position
    for position, name in enumerate(
        [
            "magic", "slots", "phase", "loop_tick_ns", "keeper_tick_ns", "generation", "child_sent_ns",
            "supervisor_sent_ns",
        ]
    )
}  # fmt: skip
_WORKER_AT = 8 * 16
_ANSWERED_AT = _WORKER_AT + 2 * _WORKER_BYTES
_SLOTS_AT = _ANSWERED_AT + 8 * MAX_QUEUES
# within a slot: state, queue, token, started, long, then the two texts
_SLOT = {"state": 0, "queue": 8, "token": 16, "started_ns": 24, "long": 32, "job": 40, "task": 40 + _ID_BYTES}
_SLOT_BYTES = 40 + _ID_BYTES + _TASK_BYTES
_NUMBER = struct.Struct("=q")

_boards: weakref.WeakSet[Board] = weakref.WeakSet()


class Board:
    """The shared page; `create` in the supervisor, `attach` in the child."""

    def __init__(self, fd: int, page: mmap.mmap) -> None:
        self.fd = fd
        self._page: mmap.mmap | None = page
        self.slots = self._get(_HEADER["slots"])
        _boards.add(self)

    @classmethod
    def create(cls, slots: int) -> Board:
        """Make a page for so many slots, in memory and in no directory."""
        fd = _anonymous_file()
        size = _SLOTS_AT + slots * _SLOT_BYTES
        os.ftruncate(fd, size)
        page = mmap.mmap(fd, size)
        _NUMBER.pack_into(page, _HEADER["slots"], slots)
        _NUMBER.pack_into(page, _HEADER["magic"], MAGIC)
        return cls(fd, page)

    @classmethod
    def attach(cls, fd: int) -> Board:
        """Open the page that came through exec; raises `ValueError` when it is not one of ours."""
        page = mmap.mmap(fd, os.fstat(fd).st_size)
        if _NUMBER.unpack_from(page, _HEADER["magic"])[0] != MAGIC:
            raise ValueError("the inherited file is no board of this version")
        return cls(fd, page)

    def close(self) -> None:
        """Let go of the page and its file; reading gives zeros from then on.

        The page itself goes with its last reader: another thread may be in the middle of it.
        """
        if self._page is not None:
            self._page = None
            os.close(self.fd)

    # ------------------------------------------------------------------------------------------------ numbers

    def _get(self, at: int) -> int:
        page = self._page
        if page is None:
            return 0
        number: int = _NUMBER.unpack_from(page, at)[0]
        return number

    def _set(self, at: int, value: int) -> None:
        page = self._page
        if page is not None:
            _NUMBER.pack_into(page, at, value)

    def _get_text(self, at: int, size: int) -> str:
        page = self._page
        if page is None:
            return ""
        return page[at : at + size].split(b"\0", 1)[0].decode(errors="replace")

    def _set_text(self, at: int, size: int, text: str) -> None:
        page = self._page
        if page is not None:
            page[at : at + size] = text.encode()[: size - 1].ljust(size, b"\0")

    def read(self, field: str) -> int:
        """A number of the header, by its name."""
        return self._get(_HEADER[field])

    def write(self, field: str, value: int) -> None:
        """Set a number of the header; only its one writer does."""
        self._set(_HEADER[field], value)

    @property
    def phase(self) -> Phase:
        """The child's phase. Nobody vouches for a process whose phase makes no sense."""
        number = self.read("phase")
        return Phase(number) if number in _PHASES else Phase.EXIT

    @phase.setter
    def phase(self, phase: Phase) -> None:
        self.write("phase", phase)

    @property
    def worker(self) -> str:
        """The id under which the child is registered now; "" before the first."""
        return self._get_text(_WORKER_AT + self.read("generation") % 2 * _WORKER_BYTES, _WORKER_BYTES)

    def name_worker(self, worker: str) -> None:
        """Take a new id (child): its claims start anew, so the answered numbers go first."""
        for queue in range(MAX_QUEUES):
            self._set(_ANSWERED_AT + 8 * queue, 0)
        generation = self.read("generation") + 1
        self._set_text(_WORKER_AT + generation % 2 * _WORKER_BYTES, _WORKER_BYTES, worker)
        self.write("generation", generation)

    def answered(self, queue: int) -> int:
        """The highest claim number of a queue whose reply the child has read."""
        return self._get(_ANSWERED_AT + 8 * queue)

    def answer(self, queue: int, number: int) -> None:
        """Raise that number (child), before anything that the claim brought is started."""
        self._set(_ANSWERED_AT + 8 * queue, max(number, self.answered(queue)))

    def last_sent_ns(self) -> int:
        """When the last confirmed renewal of either voice was sent; the age of the lease counts from it."""
        return max(self.read("child_sent_ns"), self.read("supervisor_sent_ns"))

    # -------------------------------------------------------------------------------------------------- slots

    def fill(self, index: int, *, queue: int, job: str, token: int, task: str) -> None:
        """Note a grant in a free slot: held."""
        at = _SLOTS_AT + index * _SLOT_BYTES
        self._set_text(at + _SLOT["job"], _ID_BYTES, job)
        self._set_text(at + _SLOT["task"], _TASK_BYTES, task)
        self._set(at + _SLOT["queue"], queue)
        self._set(at + _SLOT["token"], token)
        self._set(at + _SLOT["started_ns"], 0)
        self._set(at + _SLOT["long"], 0)
        self._set(at + _SLOT["state"], SlotState.HELD)

    def start(self, index: int, now_ns: int) -> None:
        """Note that the handler is about to start."""
        at = _SLOTS_AT + index * _SLOT_BYTES
        self._set(at + _SLOT["started_ns"], now_ns)
        self._set(at + _SLOT["state"], SlotState.STARTED)

    def end(self, index: int) -> None:
        """Note that the handler has ended."""
        self._set(_SLOTS_AT + index * _SLOT_BYTES, SlotState.ENDED)

    def lengthen(self, index: int) -> None:
        """Note that the run has moved to a long place."""
        self._set(_SLOTS_AT + index * _SLOT_BYTES + _SLOT["long"], 1)

    def free(self, index: int) -> None:
        """Empty a slot."""
        self._set(_SLOTS_AT + index * _SLOT_BYTES, SlotState.FREE)

    def slot(self, index: int) -> Slot:
        """Read one slot."""
        at = _SLOTS_AT + index * _SLOT_BYTES
        number = self._get(at)
        return Slot(
            index=index,
            state=SlotState(number) if number in _SLOT_STATES else SlotState.STARTED,
            queue=self._get(at + _SLOT["queue"]),
            job=self._get_text(at + _SLOT["job"], _ID_BYTES),
            token=self._get(at + _SLOT["token"]),
            task=self._get_text(at + _SLOT["task"], _TASK_BYTES),
            started_ns=self._get(at + _SLOT["started_ns"]),
            long=bool(self._get(at + _SLOT["long"])),
        )

    def taken(self) -> list[Slot]:
        """All slots that are not free."""
        indices = (n for n in range(self.slots) if self._get(_SLOTS_AT + n * _SLOT_BYTES) != SlotState.FREE)
        return [slot for n in indices if (slot := self.slot(n)).state != SlotState.FREE]


def _anonymous_file() -> int:
    """A file without a name: memory on Linux, an unlinked temporary file elsewhere."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("stillhere-board")
    fd, path = tempfile.mkstemp()
    Path(path).unlink()
    return fd


def _forget_in_fork() -> None:
    """Runs in a forked process: it must neither write on the parent's page nor read it as its own."""
    for board in list(_boards):
        board._page = None  # noqa: SLF001 - this module's own hook


os.register_at_fork(after_in_child=_forget_in_fork)
