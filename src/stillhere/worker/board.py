"""The board: one page of memory that a supervisor and one child share, and that survives the child's death.

A message tells what somebody found time to say; the board tells what *is*. The child marks on it which claims it has
answered (before any handler starts), what it holds and what it runs, and that its loop and its keeper are alive. The
supervisor reads it at each beat, and once more when the child is dead: what ran, what was only granted, and whose
step the loop was in at that instant. Both write when their voice last renewed the lease, so that trust is the later of
the two. When a run has to be over, by its own limits or because it was told to stop, stands here too, since the loop
that would see to it may be the one that is blocked: the supervisor enforces it (see `supervisor.warden`).

Rules. Each field has one writer. A field is eight bytes, aligned, stored in one instruction, so a reader sees the old
value or the new one. Texts are written before the number that makes them count: a slot's state last when it fills and
first when it empties, the worker id before its generation. A writer may die between any two stores: a slot then looks
free although it was claimed, and its job is one that was never started, which is what it is.

A process forked by a handler inherits the page. `register_at_fork` makes it deaf and dumb there: a fork must not speak
for its parent.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import weakref
from enum import IntEnum
from typing import get_args

import msgspec

from stillhere.domain.errors import StopReason
from stillhere.domain.job import OutcomeKind
from stillhere.worker.anonymous import anonymous_file

MAX_QUEUES = 256
_ID_BYTES = 136  # a job id has up to 128, and a zero ends it
_TASK_BYTES = 64
_WORKER_BYTES = 128
MAGIC = 0x5354494C4C303032


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

_REASONS: tuple[StopReason, ...] = get_args(StopReason)
_LATE_KINDS = (OutcomeKind.DEAD, OutcomeKind.RETRY)


class Late(msgspec.Struct, frozen=True):
    """How a run ends if it has to be killed for being late: decided by its task's policy when it starts."""

    kind: OutcomeKind
    delay_ms: int


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """By when a run has to be over; 0: no such limit. With any limit goes what its end is then."""

    deadline_ns: int = 0
    """On the clock of `boottime_ns`."""
    stall_ns: int = 0
    """It may be so long without progress or a checkpoint."""
    late: Late | None = None
    stops_in_doubt: bool = False
    """It must be over before the lease can be."""


NO_LIMITS = Limits()


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
    thread: int
    """Ident of the thread that runs it; 0: it runs on the loop."""
    limits: Limits
    moved_ns: int
    """Its last progress or checkpoint, or its start."""
    stopped_ns: int
    """When it was told to stop; 0: it was not."""
    stopping: StopReason | None
    retention_ms: int
    """How long its job is kept, if it ends here and is not dead."""

    @property
    def over_ns(self) -> int:
        """From when on it should not run any more; 0: no such time is known."""
        limits = self.limits
        ends = (self.stopped_ns, limits.deadline_ns, self.moved_ns + limits.stall_ns if limits.stall_ns else 0)
        return min((end for end in ends if end), default=0)

    @property
    def why_over(self) -> StopReason:
        """Which of them it is."""
        if self.stopping is not None:
            return self.stopping
        return "timeout" if self.over_ns == self.limits.deadline_ns else "stalled"


# name -> position of an eight-byte field in the header
_HEADER = {
    name: 8 * position
    for position, name in enumerate(
        [
            "magic", "slots", "phase", "loop_tick_ns", "keeper_tick_ns", "generation", "child_sent_ns",
            "supervisor_sent_ns", "current", "loop_thread", "cut_slot", "cut_token",
            "cuttable",
        ]
    )
}  # fmt: skip
_WORKER_AT = 8 * 16
_ANSWERED_AT = _WORKER_AT + 2 * _WORKER_BYTES
_SLOTS_AT = _ANSWERED_AT + 8 * MAX_QUEUES
# within a slot: numbers, then the two texts
_NUMBERS = [
    "state", "queue", "token", "started_ns", "long", "thread", "deadline_ns", "stall_ns", "moved_ns", "stopped_ns",
    "stopping", "late_kind", "late_delay_ms", "retention_ms", "stops_in_doubt",
]  # fmt: skip
_SLOT = {name: 8 * position for position, name in enumerate(_NUMBERS)}
_SLOT["job"] = 8 * len(_NUMBERS)
_SLOT["task"] = _SLOT["job"] + _ID_BYTES
_SLOT_BYTES = _SLOT["task"] + _TASK_BYTES
_NUMBER = struct.Struct("=q")
_ROW = struct.Struct(f"={len(_NUMBERS)}q")
_EMPTY = [0] * (len(_NUMBERS) - 3)
CURRENT = _HEADER["current"] // 8
"""Where in `words` stands the slot, plus one, whose step the loop is in; 0: none."""

_boards: weakref.WeakSet[Board] = weakref.WeakSet()


class Board:
    """The shared page; `create` in the supervisor, `attach` in the child."""

    def __init__(self, fd: int, page: mmap.mmap) -> None:
        self.fd = fd
        self._page: mmap.mmap | None = page
        self.words = memoryview(page).cast("q")
        """The page as numbers, for the one field that is written at every step of every coroutine."""
        self.slots = self._get(_HEADER["slots"])
        _boards.add(self)

    @classmethod
    def create(cls, slots: int) -> Board:
        """Make a page for so many slots, in memory and in no directory."""
        fd = anonymous_file("stillhere-board")
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
            self._leave_page()
            os.close(self.fd)

    def __del__(self) -> None:
        """Close what nobody has closed."""
        with contextlib.suppress(AttributeError, OSError):  # it was never opened, or the interpreter is going
            self.close()

    def _leave_page(self) -> None:
        """Read zeros and write nowhere: a step of a job that is going on here must not mark anything."""
        self.words = memoryview(bytearray(8 * len(self.words))).cast("q")
        self._page = None

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

    def fill(self, index: int, *, queue: int, job: str, token: int, task: str, retention_ms: int = 0) -> None:
        """Note a grant in a free slot: held."""
        at = _SLOTS_AT + index * _SLOT_BYTES
        self._set_text(at + _SLOT["job"], _ID_BYTES, job)
        self._set_text(at + _SLOT["task"], _TASK_BYTES, task)
        if self._page is not None:
            _ROW.pack_into(self._page, at, SlotState.FREE, queue, token, *_EMPTY)
        self._write(index, retention_ms=retention_ms, state=SlotState.HELD)

    def start(self, index: int, now_ns: int, limits: Limits = NO_LIMITS) -> None:
        """Note that the handler is about to start, and by when it has to be over."""
        self._write(index, started_ns=now_ns, moved_ns=now_ns)
        if limits.late is not None:
            late = limits.late
            self._write(index, late_delay_ms=late.delay_ms, late_kind=1 + _LATE_KINDS.index(late.kind))
            self._write(index, deadline_ns=limits.deadline_ns, stall_ns=limits.stall_ns)
        if limits.stops_in_doubt:
            self._write(index, stops_in_doubt=1)
        self._write(index, state=SlotState.STARTED)

    def in_thread(self, index: int, ident: int) -> None:
        """Note which thread runs it."""
        self._write(index, thread=ident)

    def move(self, index: int, now_ns: int) -> None:
        """Note that the run has made progress."""
        self._write(index, moved_ns=now_ns)

    def stop(self, index: int, now_ns: int, why: StopReason) -> None:
        """Note that the run was told to stop."""
        self._write(index, stopping=1 + _REASONS.index(why), stopped_ns=now_ns)

    def end(self, index: int) -> None:
        """Note that the handler has ended."""
        self._set(_SLOTS_AT + index * _SLOT_BYTES, SlotState.ENDED)

    def lengthen(self, index: int) -> None:
        """Note that the run has moved to a long place."""
        self._write(index, long=1)

    def _write(self, index: int, **numbers: int) -> None:
        at = _SLOTS_AT + index * _SLOT_BYTES
        for name, value in numbers.items():
            self._set(at + _SLOT[name], value)

    def free(self, index: int) -> None:
        """Empty a slot."""
        self._set(_SLOTS_AT + index * _SLOT_BYTES, SlotState.FREE)

    def slot(self, index: int) -> Slot:
        """Read one slot."""
        at = _SLOTS_AT + index * _SLOT_BYTES
        number = {name: self._get(at + _SLOT[name]) for name in _NUMBERS}
        state, late, why = number["state"], number["late_kind"], number["stopping"]
        return Slot(
            index=index,
            state=SlotState(state) if state in _SLOT_STATES else SlotState.STARTED,
            queue=number["queue"],
            job=self._get_text(at + _SLOT["job"], _ID_BYTES),
            token=number["token"],
            task=self._get_text(at + _SLOT["task"], _TASK_BYTES),
            started_ns=number["started_ns"],
            long=bool(number["long"]),
            thread=number["thread"],
            limits=Limits(
                deadline_ns=number["deadline_ns"],
                stall_ns=number["stall_ns"],
                late=Late(_LATE_KINDS[late - 1], number["late_delay_ms"]) if 0 < late <= len(_LATE_KINDS) else None,
                stops_in_doubt=bool(number["stops_in_doubt"]),
            ),
            moved_ns=number["moved_ns"],
            stopped_ns=number["stopped_ns"],
            stopping=_REASONS[why - 1] if 0 < why <= len(_REASONS) else None,
            retention_ms=number["retention_ms"],
        )

    def current(self) -> Slot | None:
        """Whose step the loop is in at this moment."""
        index = self.read("current") - 1
        return self.slot(index) if 0 <= index < self.slots else None

    def taken(self) -> list[Slot]:
        """All slots that are not free."""
        indices = (n for n in range(self.slots) if self._get(_SLOTS_AT + n * _SLOT_BYTES) != SlotState.FREE)
        return [slot for n in indices if (slot := self.slot(n)).state != SlotState.FREE]


def _forget_in_fork() -> None:
    """Runs in a forked process: it must neither write on the parent's page nor read it as its own."""
    for board in list(_boards):
        board._leave_page()  # noqa: SLF001 - this module's own hook


os.register_at_fork(after_in_child=_forget_in_fork)
