"""The second voice of an embedded worker: a keeper process, or a thread where a process is too much.

A handler that holds the GIL silences every thread of the host; a keeper *process* goes on vouching for it, and when the
host is killed it releases the jobs within a second. It is started by exec, in a session of its own, so that what the
terminal or a killed process group takes with it is not the one that must tell. A host that is stopped, or dead, it sees
for itself; nothing is asked of the host.

A thread of the host watches over the keeper: one that died is replaced after a pause, and in between the worker's own
voice is enough. What may go wrong between two lines: the keeper may die while it is told something, so what it must
know (`left`) is told to the next one again; and the host may fork: the fork closes its copy of the socket.

The voice stays for as long as code of a job still runs, also when the worker has ended: see `keep_until`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from random import Random
from typing import Protocol

import msgspec

from stillhere.domain.errors import ConfigurationError
from stillhere.domain.lease import plan_for
from stillhere.ports.backend import Asked, Held, SyncStore
from stillhere.worker.board import Board
from stillhere.worker.clock import boottime
from stillhere.worker.control import Channel
from stillhere.worker.keeper.host import Host
from stillhere.worker.keeper.program import Charge
from stillhere.worker.supervisor.backoff import Backoff
from stillhere.worker.supervisor.beater import Beater
from stillhere.worker.supervisor.line import Line
from stillhere.worker.supervisor.questions import about
from stillhere.worker.supervisor.vouched import Vouched

log = logging.getLogger("stillhere.worker")

PROGRAM = ("-m", "stillhere.worker.keeper")
LOOK_S, IDLE_S = 0.1, 1.0
END_S = 3.0
"""A keeper that has been told to end is killed after so long; it is a child of ours."""


class Voice(Protocol):
    """The second voice, as the embedded worker sees it."""

    def start(self, on_up: Callable[[], None], on_gone: Callable[[str], None], stack_of: Callable[[str], str]) -> None:
        """Begin to speak. All are called in another thread.

        When it speaks, when the worker id is closed, and when somebody wants to know where a job's code is.
        """

    def keep_until(self, still_runs: Callable[[], bool]) -> None:
        """The worker has ended and some of its code runs on: speak until that is over, then end by yourself."""

    def end(self, *, closed: bool) -> None:
        """Stop speaking; `closed`: nothing is left under the worker id. Returns at once."""

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left: no thread, no process."""


class _Keeper:
    """One keeper process, from its start to its end."""

    def __init__(self, charge: Charge, board: Board, program: tuple[str, ...]) -> None:
        """Start it; raises `OSError` when no process is to be had."""
        self.channel, theirs = Channel.pair()
        try:
            with theirs:
                words = ["--board", str(board.fd), "--control", str(theirs.fileno()), "--host", str(os.getpid())]
                self._popen = subprocess.Popen(
                    [sys.executable, *program, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[board.fd, theirs.fileno()],
                    start_new_session=True,
                )
        except OSError:
            self.channel.close()
            raise
        self.pid = self._popen.pid
        self.born = boottime()
        self.channel.send(m="start", charge=msgspec.json.encode(charge).decode())

    @property
    def exit_code(self) -> int | None:
        """None while it lives; negative for a signal."""
        return self._popen.poll()

    def close(self, within_s: float) -> None:
        """Wait for its end for so long, and kill it then."""
        try:
            self._popen.wait(within_s)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self.channel.close()


class KeeperProcess:
    """The voice that goes on when the host's threads cannot, and after its death."""

    def __init__(self, charge: Charge, board: Board, program: tuple[str, ...] = PROGRAM) -> None:
        self._charge, self._board, self._program = charge, board, program
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._backoff = Backoff(Random())
        self._keeper: _Keeper | None = None
        self._again_at = 0.0
        self._left = False
        self._closed: bool | None = None
        self._still_runs: Callable[[], bool] | None = None
        self._lock = threading.Lock()
        self._nudge: tuple[int, int] | None = os.pipe()
        self._on_up: Callable[[], None] = lambda: None
        self._on_gone: Callable[[str], None] = lambda _: None
        self._stack_of: Callable[[str], str] = lambda _: ""
        self._thread = threading.Thread(target=self._serve, name="stillhere-minder", daemon=True)

    @property
    def pid(self) -> int | None:
        """Of the keeper that lives now."""
        keeper = self._keeper
        return None if keeper is None else keeper.pid

    def start(self, on_up: Callable[[], None], on_gone: Callable[[str], None], stack_of: Callable[[str], str]) -> None:
        """Start the keeper and the thread that watches over it; raises `ConfigurationError` when there is none."""
        self._on_up, self._on_gone, self._stack_of = on_up, on_gone, stack_of
        try:
            self._keeper = _Keeper(self._charge, self._board, self._program)
        except OSError as error:
            self._close_pipe()
            raise ConfigurationError(
                f'The keeper process cannot be started with {sys.executable!r} ({error}). keeper="thread" does without.'
            ) from error
        self._thread.start()

    def keep_until(self, still_runs: Callable[[], bool]) -> None:
        """See `Voice`; the keeper is told as well, since the host may die meanwhile."""
        self._order(lambda: self._leave(still_runs))

    def end(self, *, closed: bool) -> None:
        """See `Voice`."""
        self._order(lambda: self._finish(closed))

    @property
    def is_over(self) -> bool:
        """See `Voice`."""
        return not self._thread.is_alive()

    def _order(self, order: Callable[[], None]) -> None:
        self._orders.put(order)
        with self._lock, contextlib.suppress(BlockingIOError):
            if self._nudge is not None:  # the thread may have ended by itself, and the number is another file's then
                os.write(self._nudge[1], b"x")

    # ---------------------------------------------------------------------------------------------- in the thread

    def _serve(self) -> None:
        try:
            while self._closed is None:
                self._turn()
            if self._keeper is not None:
                self._keeper.channel.send(m="bye", closed=self._closed)
                within = END_S if self._closed else plan_for(self._charge.lease_ms / 1000).recovery_bound + END_S
                self._keeper.close(within)
        finally:
            self._board.close()
            self._close_pipe()

    def _close_pipe(self) -> None:
        with self._lock:
            for fd in self._nudge or ():
                os.close(fd)
            self._nudge = None

    def _turn(self) -> None:
        keeper = self._keeper
        deaf = keeper is None or keeper.channel.eof
        waiting = select.poll()  # not `select`: a host may have thousands of files open
        assert self._nudge is not None  # noqa: S101 - this thread alone closes it
        waiting.register(self._nudge[0], select.POLLIN)
        if keeper is not None and not deaf:
            waiting.register(keeper.channel, select.POLLIN)
        came = waiting.poll(1000 * (LOOK_S if deaf or self._still_runs is not None else IDLE_S))
        if any(fd == self._nudge[0] for fd, _ in came):
            os.read(self._nudge[0], 64)
        while not self._orders.empty():
            self._orders.get()()
        if keeper is not None:
            self._hear(keeper)
            self._look(keeper)
        elif boottime() >= self._again_at:
            self._start_again()
        if self._closed is None and self._still_runs is not None and not self._still_runs():
            self._closed = False

    def _hear(self, keeper: _Keeper) -> None:
        for message in keeper.channel.receive():
            match message.get("m"):
                case "up":
                    self._backoff.started()
                    self._on_up()
                case "gone":
                    self._on_gone(str(message.get("worker")))
                case "stack":
                    text = self._stack_of(str(message.get("job")))
                    keeper.channel.send(m="stack", req=message.get("req"), text=text)

    def _look(self, keeper: _Keeper) -> None:
        code = keeper.exit_code
        if code is None or self._closed is not None:
            return
        keeper.channel.close()
        self._keeper = None
        delay = self._backoff.died(lived_s=boottime() - keeper.born, ran_jobs=False)
        self._again_at = boottime() + delay
        log.warning(
            "The keeper process %d has ended (%s); another one starts in %.1f s. Until then the worker has one voice.",
            keeper.pid, f"signal {-code}" if code < 0 else f"exit code {code}", delay,
        )  # fmt: skip

    def _start_again(self) -> None:
        try:
            self._keeper = _Keeper(self._charge, self._board, self._program)
        except OSError as error:
            self._again_at = boottime() + self._backoff.died(lived_s=0.0, ran_jobs=False)
            log.error("The keeper process cannot be started: %s", error)  # noqa: TRY400 - the system's words say it all
            return
        if self._left:
            self._keeper.channel.send(m="left")

    def _leave(self, still_runs: Callable[[], bool]) -> None:
        self._left, self._still_runs = True, still_runs
        if self._keeper is not None:
            self._keeper.channel.send(m="left")

    def _finish(self, closed: bool) -> None:  # noqa: FBT001 - passed on
        self._closed = closed


class KeeperThread:
    """The voice for tests and notebooks, where one process shall be enough: a beater in a thread of the host.

    It ticks, sweeps, and speaks for a worker whose loop is blocked. It cannot do what takes a process: a handler that
    holds the GIL for longer than the lease silences it together with the worker's own voice, and then the job is run
    elsewhere beside it; and a host that is killed is noticed only when its lease has ended, after 1.3 times its length.
    """

    def __init__(self, charge: Charge, board: Board, open_store: Callable[[], SyncStore]) -> None:
        self._board = board
        self._host: Host | None = None
        self._charge, self._open_store = charge, open_store
        self._still_runs: Callable[[], bool] | None = None
        self._beater: Beater | None = None
        self._stack_of: Callable[[str], str] = lambda _: ""

    def start(self, on_up: Callable[[], None], on_gone: Callable[[str], None], stack_of: Callable[[str], str]) -> None:
        """Start the thread."""
        self._host = Host(os.getpid(), self._board, self._charge.queues, on_gone, lambda *_: None)
        self._stack_of = stack_of
        plan = plan_for(self._charge.lease_ms / 1000)
        self._beater = Beater(Line(self._open_store), plan, lambda: self._charge.queues, self._vouched, chief=self)
        self._beater.start()
        on_up()

    def keep_until(self, still_runs: Callable[[], bool]) -> None:
        """See `Voice`."""
        self._still_runs = still_runs
        self._nudge()

    def end(self, *, closed: bool) -> None:
        """See `Voice`. What is not closed comes back when its lease ends: there is nobody else to release it."""
        del closed
        if self._beater is not None:
            self._beater.stop()

    @property
    def is_over(self) -> bool:
        """See `Voice`."""
        if self._beater is not None and self._beater.is_alive():
            return False
        self._board.close()
        return True

    def _nudge(self) -> None:
        if self._beater is not None:
            self._beater.nudge()

    def _vouched(self) -> list[Vouched]:
        """Asked by the beater in its thread, at least once a second."""
        if self._still_runs is not None and not self._still_runs() and self._beater is not None:
            self._beater.stop()
            return []
        return [] if self._host is None else [self._host]

    # ----------------------------------------------------------------------------------------- what the beater says

    def cancelled(self, child: Vouched, queue: str, pairs: list[Held]) -> None:
        """The worker's own voice hears the same."""

    def turns(self) -> None:
        """The host has a service manager of its own, or none."""

    def asked(self, queue: str, asks: list[Asked]) -> None:
        """Somebody wants to know where these jobs' code is."""
        for one in asks:
            if self._host is not None and self._beater is not None and one.worker == self._host.worker:
                self._beater.answer(queue, one.id, f"{about(self._host, one.job)}\n{self._stack_of(one.job)}")

    def store_answers(self) -> None:
        """The worker finds out by itself."""

    def store_refuses(self, why: str) -> None:
        """So it does of this."""

    def worker_gone(self, child: Vouched, worker: str) -> None:
        """The worker must drop everything and register anew."""
        if child.worker == worker:
            child.declared_gone()

    def jobs_wait(self, suspects: int, solo: int) -> None:
        """The worker takes them when it holds nothing."""

    def thread_failed(self, error: BaseException) -> None:
        """The worker goes on with its own voice."""
        log.error("This is a fault of stillhere: the second voice has ended, the own one goes on.", exc_info=error)
