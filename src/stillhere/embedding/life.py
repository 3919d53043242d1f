"""One life of an embedded worker: from the first look at the store to the moment when nothing of it is left.

    enter: tasks imported, store asked, lifespan entered, board and second voice, worker registered and running
    leave: drain (grace), settle, close the worker id, lifespan left, second voice ended, threads gone, stores closed

All of it is undone in the opposite order, whatever fails on the way. Nothing here touches what belongs to the host: no
signal, no handler at the end of the interpreter, no watchdog, no exit.

*What does not end.* A run whose thread is in a call that nobody can cut short outlives the grace period, and the block
ends without it: a host must be able to end. To give such a job back would be to run it twice at once, so it is not: the
second voice keeps the lease for as long as that code runs. If it ends while the loop still turns, its result is stored
as always. If the host ends first, a keeper process releases the job at once, as interrupted; with a keeper thread it
comes back when the lease is over. Only then is the worker id closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from stillhere.domain.durations import spell
from stillhere.domain.errors import ConfigurationError, StillhereError
from stillhere.domain.lease import plan_for
from stillhere.embedding.voices import KeeperProcess, KeeperThread, Voice
from stillhere.ports.backend import AsyncStore, SyncStore, Tick
from stillhere.stores import open_async, open_sync
from stillhere.worker.board import Board, Phase
from stillhere.worker.child.lifespan import leave_lifespan
from stillhere.worker.child.options import Options
from stillhere.worker.child.worker import Worker
from stillhere.worker.keeper.program import Charge
from stillhere.worker.timeline import Timeline

if TYPE_CHECKING:
    from stillhere.app import App
    from stillhere.embedding.options import EmbeddingOptions

log = logging.getLogger("stillhere.worker")

UP_WITHIN_S = 5.0
"""The worker waits so long for its second voice before it takes jobs without."""
HURRY = Timeline(cancel=0.0, leave=0.5, kill=0.5, exit=0.5)
"""For a block that is itself cancelled while it ends."""
HURRY_S = 3.0
GONE_WITHIN_S = 4.0
LAST_S = 1.0
LOOK_S, LATE_LOOK_S = 0.005, 0.1


class Life:
    """See the module. Made, entered and left on one loop."""

    def __init__(self, app: App[Any], options: EmbeddingOptions) -> None:
        self._app, self._given = app, options
        self._loop = asyncio.get_running_loop()
        self._stack = AsyncExitStack()
        self._followed = False
        self.left_something = False
        """Whether code of jobs ran on when it was left."""

    # ----------------------------------------------------------------------------------------------------- its start

    async def enter(self) -> None:
        """Start; raises `ConfigurationError` for what the user has to mend, and leaves nothing behind then."""
        try:
            await self._enter()
        except BaseException:
            await self._stack.aclose()
            raise

    async def _enter(self) -> None:
        self._app.load()
        options = self._given.for_worker(self._app.tasks)
        url, namespace = self._app.link.address.url, self._app.link.namespace
        self._refuse_memory(url)
        self._store: AsyncStore = open_async(url, namespace)
        self._stack.push_async_callback(self._store.aclose)
        self._own: SyncStore = open_sync(url, namespace)
        self._stack.callback(self._own.close)
        await self._ask_store(options)
        self._lifespan = self._app.lifespan()
        await self._lifespan.__aenter__()
        self._stack.push_async_callback(self._leave_lifespan)
        self._voice = self._make_voice(options, url, namespace)
        await self._start_voice()
        self._worker = Worker(self._store, self._own, self._app.tasks, self._board, options)
        self._work = self._loop.create_task(self._run())
        log.info(
            "Worker %s in this process (%d): %d slots, queues %s, lease %s, keeper %s. "
            "Each process that gets here is a worker of its own.",
            self.id, os.getpid(), options.slots, ", ".join(options.queues), spell(options.lease_ms), self._given.keeper,
        )  # fmt: skip

    def _refuse_memory(self, url: str) -> None:
        if url.startswith("memory://") and self._given.keeper == "process":
            raise ConfigurationError(
                f'{url} is in the memory of this process, where no keeper process can reach it: keeper="thread".'
            )

    async def _ask_store(self, options: Options) -> None:
        """A store that refuses is a mistake to be told now; one that is away may come back, and the worker waits."""
        ticks = [Tick(queue=queue) for queue in options.queues]
        try:
            await self._store.call_many(ticks, timeout=plan_for(options.lease_ms / 1000).try_bound * 2)
        except ConfigurationError:
            raise
        except StillhereError as error:
            log.warning("The store does not answer yet; the worker starts all the same and keeps trying. %s", error)

    def _make_voice(self, options: Options, url: str, namespace: str) -> Voice:
        level = logging.getLevelName(logging.getLogger("stillhere").getEffectiveLevel())
        queues = list(options.queues)
        charge = Charge(url=url, namespace=namespace, queues=queues, lease_ms=options.lease_ms, log_level=level)
        self._board = Board.create(options.board_slots)
        if self._given.keeper == "process":
            return KeeperProcess(charge, self._board)
        return KeeperThread(charge, self._board, lambda: open_sync(url, namespace))

    def _stack_of(self, job: str) -> str:
        """Where the code of a job is; from another thread."""
        return self._worker.stacks.of(job)

    async def _start_voice(self) -> None:
        up = self._loop.create_future()
        try:
            self._voice.start(lambda: self._post(_settle, up), self._gone, self._stack_of)
        except BaseException:
            self._board.close()
            raise
        self._stack.callback(self._voice.end, closed=True)
        await asyncio.wait({up}, timeout=UP_WITHIN_S)
        if not up.done():
            log.warning("The keeper has not come up within %g s; the worker starts with one voice.", UP_WITHIN_S)

    def _post(self, call: Callable[..., object], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(call, *arguments)

    def _gone(self, worker: str) -> None:
        self._worker.gone(worker)

    # ---------------------------------------------------------------------------------------------------- its course

    @property
    def id(self) -> str:
        """The id under which the worker is registered now."""
        return self._worker.identity.worker

    @property
    def running(self) -> int:
        """How many jobs run now."""
        return sum(run.started for run in self._worker.holdings.active())

    def drain(self, timeline: Timeline | None = None) -> None:
        """Have the worker end."""
        self._worker.drain(timeline)

    async def ended(self) -> None:
        """Wait for the end of the worker, however it ends; to be cancelled costs the worker nothing."""
        await asyncio.wait({self._work})

    async def _run(self) -> int:
        try:
            left = await self._worker.run()
        except Exception as error:
            log.critical("The worker in this process has ended: %s: %s", type(error).__name__, error, exc_info=error)
            await self._stop_rest()
            raise
        if not left:
            self._board.phase = Phase.EXIT  # its id is closed: nobody needs to speak for it, however long the block is
        return left

    async def _stop_rest(self) -> None:
        """The worker is no more: what it ran is told to stop, and what it held is given back."""
        self._board.phase = Phase.DRAIN
        for run in self._worker.holdings.active():
            self._worker.executor.stop(run, "shutdown")
        await _until(self._has_ended, self._given.grace_ms / 1000)
        await self._worker.close_id()

    # ------------------------------------------------------------------------------------------------------- its end

    async def leave(self) -> None:
        """Drain and undo everything; raises what the worker itself has failed of, or `CancelledError` if cancelled."""
        cancelled = await self._wait_for_work()
        failure = None if self._work.cancelled() else self._work.exception()
        if self._work.cancelled():
            await self._stop_rest()
        if left := self._left:
            await self._leave_behind(left)
        else:
            self._board.phase = Phase.EXIT
            await _until(lambda: not self._worker.keeper.is_alive() and not self._worker.executor.threads.alive)
            await self._stack.aclose()
            await _until(lambda: self._voice.is_over)
        if cancelled is not None:
            raise cancelled
        if failure is not None:
            raise failure

    async def _wait_for_work(self) -> asyncio.CancelledError | None:
        self.drain()
        try:
            await self.ended()
        except asyncio.CancelledError as cancelled:
            self.drain(HURRY)
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({self._work}, timeout=HURRY_S)
            if not self._work.done():
                self._work.cancel()
                await asyncio.wait({self._work}, timeout=HURRY_S)
            return cancelled
        return None

    @property
    def _left(self) -> int:
        """How many runs have not ended; on the loop."""
        return max(len(self._worker.holdings.active()), self._worker.executor.threads.busy)

    async def _leave_behind(self, left: int) -> None:
        """End the block without what does not end; see the module."""
        jobs = ", ".join(f"{run.grant.task} {run.grant.id}" for run in self._worker.holdings.active()[:5])
        log.error(
            "%d jobs have not ended within the grace period and run on in this process: %s. Their lease is kept while "
            "they do.", left, jobs or "(their lease was lost before)",
        )  # fmt: skip
        self.left_something = True
        self._stack.pop_all()
        self._voice.keep_until(self._keeps)
        following = self._loop.create_task(self._follow())
        _following.add(following)
        following.add_done_callback(_following.discard)
        await self._leave_lifespan()

    def _keeps(self) -> bool:
        """Whether anything still runs; asked by the voice, in its thread."""
        busy = self._worker.executor.threads.busy > 0
        return not self._followed and (busy or not self._loop.is_closed())

    async def _follow(self) -> None:
        """Wait for what was left behind: while the loop turns its results are stored, and the worker id is closed.

        When the loop is about to end all handlers on it are cancelled, as this is; how they ended is stored even then.
        """
        cancelled: asyncio.CancelledError | None = None
        try:
            while not self._has_ended():  # noqa: ASYNC110 - threads have no event of ours
                await asyncio.sleep(LATE_LOOK_S)
        except asyncio.CancelledError as ending:
            cancelled = ending
            await _until(self._has_ended, LAST_S)
        await self._worker.crew.disband()
        if not self._left:
            await self._worker.close_id()
            self._followed = True
            self._board.phase = Phase.EXIT
            self._voice.end(closed=True)
            self._own.close()
        await self._store.aclose()
        if cancelled is not None:
            raise cancelled

    def _has_ended(self) -> bool:
        """Whether no run is active, and how each of them ended is stored."""
        return not self._left and self._worker.settler.idle

    async def _leave_lifespan(self) -> None:
        await leave_lifespan(self._lifespan, self._given.grace_ms / 1000)


_following: set[asyncio.Task[None]] = set()
"""Held here, so that the collector cannot take one in mid work."""


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _until(condition: Callable[[], bool], within_s: float = GONE_WITHIN_S) -> None:
    """Look until it is so, for a bounded time."""
    loop = asyncio.get_running_loop()
    over = loop.time() + within_s
    while not condition() and loop.time() < over:  # noqa: ASYNC110 - as above
        await asyncio.sleep(LOOK_S)
