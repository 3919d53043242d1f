"""The mark of whose step the loop is in, and the cut that it lets through."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import inspect
import os
import signal
import warnings
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from stillhere.domain.errors import JobStopped
from stillhere.worker.board import CURRENT, Board
from stillhere.worker.child.context import Job, enter
from stillhere.worker.child.executor import Executor
from stillhere.worker.child.places import Places
from stillhere.worker.child.runs import Run
from stillhere.worker.child.steps import Cut, Cutter, Steps, TaskFactory
from stillhere.worker.cut import CUT_SIGNAL
from tests.worker.kit import Desk, grant, run_of, soon


@pytest.fixture
def board() -> Iterator[Board]:
    board = Board.create(8)
    yield board
    board.close()


def current(board: Board) -> int | None:
    slot = board.current()
    return None if slot is None else slot.index


def of(run: Run) -> contextvars.Context:
    """A context that belongs to this run."""
    context = contextvars.copy_context()
    context.run(enter, Job(run))
    return context


async def nap_once(seen: list[int | None], board: Board) -> str:
    seen.append(current(board))
    await asyncio.sleep(0)
    seen.append(current(board))
    return "done"


class Stepwise:
    """Something to await that hands itself to whoever drives the coroutine."""

    def __await__(self) -> Any:
        return (yield "waiting")


class TestMark:
    def test_it_stands_during_each_step_and_only_then(self, board: Board) -> None:
        seen: list[int | None] = []

        async def handler() -> str:
            seen.append(current(board))
            got = await Stepwise()
            seen.append(current(board))
            return str(got)

        steps = Steps(handler(), board, run_of(slot=3))
        assert current(board) is None
        assert steps.send(None) == "waiting"
        assert current(board) is None
        with pytest.raises(StopIteration) as end:
            steps.send("something")
        assert end.value.value == "something"
        assert (seen, current(board)) == ([3, 3], None)

    def test_a_step_that_begins_with_an_exception_has_it_too(self, board: Board) -> None:
        seen: list[int | None] = []

        async def handler() -> None:
            try:
                await Stepwise()
            finally:
                seen.append(current(board))

        steps = Steps(handler(), board, run_of(slot=3))
        steps.send(None)
        with pytest.raises(KeyError):
            steps.throw(KeyError("x"))
        assert (seen, current(board)) == ([3], None)

    def test_a_step_within_a_step_gives_the_mark_back(self, board: Board) -> None:
        seen: list[int | None] = []

        async def inner() -> None:
            seen.append(current(board))

        async def outer() -> None:
            with pytest.raises(StopIteration):
                Steps(inner(), board, run_of(slot=5)).send(None)
            seen.append(current(board))

        with pytest.raises(StopIteration):
            Steps(outer(), board, run_of(slot=3)).send(None)
        assert seen == [5, 3]

    def test_a_run_that_has_ended_marks_nothing(self, board: Board) -> None:
        """A task that outlives its job: the slot may be another job's by now."""
        seen: list[int | None] = []
        run = run_of(slot=3)
        steps = Steps(nap_once(seen, board), board, run)
        steps.send(None)
        run.ended = True
        with pytest.raises(StopIteration):
            steps.send(None)
        assert seen == [3, None]

    def test_a_forked_process_does_not_write_on_the_board(self, board: Board) -> None:
        run = run_of(slot=3)

        read, write = os.pipe()

        async def forks() -> int:
            child = os.fork()
            if child:
                return child
            code = 1
            try:  # in the middle of a step that is over in the parent by now
                os.read(read, 1)
                board.words[CURRENT] = 7
                code = 0 if current(board) is None else 2
            finally:
                os._exit(code)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # other tests' threads
            with pytest.raises(StopIteration) as end:
                Steps(forks(), board, run).send(None)
        os.write(write, b"x")
        _, status = os.waitpid(end.value.value, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert board.words[CURRENT] == 0
        os.close(read)
        os.close(write)


class TestFactory:
    @pytest.fixture(autouse=True)
    async def factory(self, board: Board) -> None:
        asyncio.get_running_loop().set_task_factory(TaskFactory(board))

    async def test_tasks_of_a_job_are_marked_and_no_others(self, board: Board) -> None:
        seen: list[int | None] = []
        loop = asyncio.get_running_loop()
        assert await loop.create_task(nap_once(seen, board), context=of(run_of(slot=3))) == "done"
        await loop.create_task(nap_once(seen, board))
        assert seen == [3, 3, None, None]

    async def test_a_jobs_own_tasks_are_the_jobs(self, board: Board) -> None:
        seen: list[int | None] = []

        async def handler() -> None:
            await asyncio.gather(nap_once(seen, board), asyncio.wait_for(nap_once(seen, board), 5))
            async with asyncio.TaskGroup() as group:
                group.create_task(nap_once(seen, board))
            seen.append(current(board))

        neighbour: list[int | None] = []
        loop = asyncio.get_running_loop()
        await asyncio.gather(
            loop.create_task(handler(), context=of(run_of(slot=3))),
            loop.create_task(nap_once(neighbour, board), context=of(run_of(slot=4))),
        )
        assert (seen, neighbour) == ([3] * 7, [4, 4])
        assert current(board) is None

    async def test_a_task_that_outlives_its_job_is_nobodys(self, board: Board) -> None:
        seen: list[int | None] = []
        run, go = run_of(slot=3), asyncio.Event()

        async def lingers() -> None:
            await go.wait()
            await nap_once(seen, board)

        task = asyncio.get_running_loop().create_task(lingers(), context=of(run))
        await asyncio.sleep(0)
        run.ended = True
        go.set()
        await task
        assert seen == [None, None]

    async def test_who_looks_into_the_coroutine_finds_it(self) -> None:
        """As anyio does, and debuggers."""

        async def handler() -> None:
            await asyncio.sleep(3600)

        task = asyncio.get_running_loop().create_task(handler(), context=of(run_of(slot=3)))
        coroutine: Any = task.get_coro()
        assert isinstance(task.get_coro(), Coroutine)
        assert asyncio.iscoroutine(task.get_coro())
        assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED
        await asyncio.sleep(0)
        assert inspect.getcoroutinestate(coroutine) == inspect.CORO_SUSPENDED
        assert coroutine.cr_frame.f_code is handler.__code__
        assert coroutine.cr_await is not None
        assert task.get_stack()[0].f_code is handler.__code__
        assert "handler" in repr(task)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED

    async def test_cancelled_before_its_first_step_it_never_runs_and_nothing_is_marked(self, board: Board) -> None:
        seen: list[int | None] = []
        task = asyncio.get_running_loop().create_task(nap_once(seen, board), context=of(run_of(slot=3)))
        task.cancel()
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # "never awaited" would be one
            with pytest.raises(asyncio.CancelledError):
                await task
            del task
            gc.collect()
        assert (seen, current(board)) == ([], None)


@pytest.fixture
def cutter(board: Board) -> Iterator[Board]:
    """The board of a process that has the handler."""
    before = signal.getsignal(CUT_SIGNAL)
    Cutter(board)
    yield board
    signal.signal(CUT_SIGNAL, before)


def ask(board: Board, slot: int, token: int) -> None:
    """What the supervisor does."""
    board.write("cut_slot", slot + 1)
    board.write("cut_token", token)
    signal.raise_signal(CUT_SIGNAL)


class TestCut:
    def steps(self, board: Board, slot: int, asked: tuple[int, int], after: list[str]) -> Steps:
        board.fill(slot, queue=0, job="j", token=1, task="t")
        board.start(slot, 1)

        async def handler() -> None:
            ask(board, *asked)
            after.append("not cut")

        return Steps(handler(), board, run_of(slot=slot))

    def test_it_is_raised_in_the_run_that_was_asked_for(self, cutter: Board) -> None:
        after: list[str] = []
        with pytest.raises(Cut):
            self.steps(cutter, 3, (3, 1), after).send(None)
        assert (after, current(cutter)) == ([], None)
        assert cutter.read("cuttable") == 1

    @pytest.mark.parametrize("asked", [(4, 1), (3, 2)], ids=["another slot", "an earlier run in this slot"])
    def test_no_other_run_is_hit(self, cutter: Board, asked: tuple[int, int]) -> None:
        after: list[str] = []
        with pytest.raises(StopIteration):
            self.steps(cutter, 3, asked, after).send(None)
        assert after == ["not cut"]

    def test_outside_of_all_steps_it_does_nothing(self, cutter: Board) -> None:
        cutter.fill(3, queue=0, job="j", token=1, task="t")
        cutter.start(3, 1)
        ask(cutter, 3, 1)
        assert current(cutter) is None

    def test_it_comes_once_a_step(self, cutter: Board) -> None:
        """Whoever keeps it is not hit again on the way out; his process is retired."""
        cutter.fill(3, queue=0, job="j", token=1, task="t")
        cutter.start(3, 1)
        cuts = 0

        async def keeps() -> None:
            nonlocal cuts
            for _ in range(3):
                try:
                    ask(cutter, 3, 1)
                except Cut:
                    cuts += 1

        with pytest.raises(StopIteration):
            Steps(keeps(), cutter, run_of(slot=3)).send(None)
        assert cuts == 1

    def test_except_exception_does_not_keep_it(self) -> None:
        assert not issubclass(Cut, Exception)


class TestCutInTheExecutor:
    """The signal comes at any instruction of the run's steps, the executor's own at its end among them."""

    async def test_it_ends_the_run_with_the_reason_it_was_told(self) -> None:
        outcomes: list[Any] = []
        desk = Desk(slots=4)
        before = signal.getsignal(CUT_SIGNAL)
        Cutter(desk.board)
        asyncio.get_running_loop().set_task_factory(TaskFactory(desk.board))
        executor = Executor(desk.board, Places(4, 0), lambda _, outcome: outcomes.append(outcome), 0)

        async def swallows() -> None:
            while True:
                with contextlib.suppress(Exception):
                    ask(desk.board, run.slot, run.grant.token)

        try:
            run = desk.take(grant(task="swallows"), swallows)
            executor.start(run)
            run.flag("cancelled")
            await soon(lambda: outcomes)
        finally:
            signal.signal(CUT_SIGNAL, before)
        assert [(one.kind, one.reason) for one in outcomes] == [("cancelled", "cancelled")]
        assert current(desk.board) is None

    async def test_a_run_that_is_ending_cannot_be_cut_out_of_its_end(self) -> None:
        """Between the end on the board and the word to the worker: a cut there would leave a job for ever."""
        desk = Desk(slots=4)
        before = signal.getsignal(CUT_SIGNAL)
        Cutter(desk.board)
        asyncio.get_running_loop().set_task_factory(TaskFactory(desk.board))
        outcomes: list[Any] = []

        def on_end(run: Run, outcome: Any) -> None:
            ask(desk.board, run.slot, run.grant.token)
            outcomes.append(outcome)

        executor = Executor(desk.board, Places(4, 0), on_end, 0)

        async def quick() -> int:
            return 5

        try:
            run = desk.take(grant(task="quick"), quick)
            executor.start(run)
            await soon(lambda: run.ended)
            await asyncio.sleep(0)
        finally:
            signal.signal(CUT_SIGNAL, before)
        assert [one.result for one in outcomes] == ["5"]

    async def test_cut_between_two_steps_its_code_is_over_before_its_end_is_told(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The signal comes when the mark is set and the coroutine not entered yet: it would stay where it waits."""
        desk = Desk(slots=4)
        asyncio.get_running_loop().set_task_factory(TaskFactory(desk.board))
        seen: list[str] = []
        executor = Executor(desk.board, Places(4, 0), lambda _, outcome: seen.append(f"told {outcome}"), 0)

        async def waits() -> None:
            try:
                await asyncio.sleep(0)
                seen.append("went on")
            finally:
                seen.append("left")

        run = desk.take(grant(task="waits"), waits)
        executor.start(run)
        await asyncio.sleep(0)

        def cut(steps: Steps, value: object) -> None:
            raise Cut

        with monkeypatch.context() as patch:
            patch.setattr(Steps, "send", cut)
            run.flag("lease_lost")
            await soon(lambda: run.ended)
        assert seen == ["left", "told None"]


def test_job_stopped_and_the_cut_are_two_things() -> None:
    """A handler may catch the first to clean up; the second names nothing that is public."""
    assert not issubclass(Cut, JobStopped)
