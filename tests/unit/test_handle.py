"""Handles: what they answer for every state of a job, how they wait, and where they look for it."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import Iterator
from typing import Any

import pytest

from stillhere import App, ArgumentError, JobCancelled, JobFailed, JobNotFound, ResultNotKept
from stillhere.domain.info import JobError, Progress, info_of
from stillhere.domain.states import State
from stillhere.ports.backend import Cancel, Cancelled, Look, Retried, Retry
from stillhere.ports.inspector import Queues, QueueStatus, Status, WorkerRecord, Workers
from tests.unit.fakes import MANY, FakeStore, install, record

app = App("redis://localhost")
DAY = dt.date(2026, 12, 1)


@app.task(queue="slow")
async def fetch(domain: str) -> dt.date:
    return DAY


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeStore]:
    monkeypatch.setattr("stillhere.link.time.sleep", lambda _seconds: None)
    yield from install(monkeypatch)
    app.close()


@pytest.fixture
def slow_clock(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """Two seconds pass with every look at the clock; returns what was logged meanwhile."""
    clock = iter(range(0, 1_000, 2))
    monkeypatch.setattr("stillhere.handle.time.monotonic", lambda: float(next(clock)))
    return caplog


def ended(state: State, **fields: Any) -> Any:
    return record("j1", state, queue="slow", **fields)


def error(**fields: Any) -> str:
    return json.dumps({"type": "ValueError", "message": "bad", "traceback": "tb"} | fields)


class TestResult:
    def test_it_is_decoded_by_the_task_s_return_annotation(self, store: FakeStore) -> None:
        store.reply[Look] = ended(State.SUCCEEDED, result='"2026-12-01"')
        assert app.handle_sync("j1", fetch).result() == DAY
        assert app.handle_sync("j1").result() == "2026-12-01", "without the task it is plain JSON"

    async def test_it_waits_until_the_job_has_ended(self, store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
        pauses: list[float] = []
        sleep = asyncio.sleep

        async def note(seconds: float) -> None:
            pauses.append(seconds)
            await sleep(0)

        monkeypatch.setattr(asyncio, "sleep", note)
        waiting = [ended(State.READY)] * 3 + [ended(State.RUNNING)] * 30
        store.reply[Look] = [MANY, *waiting, ended(State.SUCCEEDED, result="null")]
        assert await app.handle("j1").result() is None
        assert pauses[0] == 0.01
        assert pauses == sorted(pauses)
        assert max(pauses) == 0.25

    def test_no_time_asks_once(self, store: FakeStore) -> None:
        store.reply[Look] = ended(State.RUNNING)
        with pytest.raises(TimeoutError, match=r"^Job j1 \(fetch\) is still running after 0; it goes on\.$"):
            app.handle_sync("j1", fetch).result(timeout=0)
        assert len(store.asked_for(Look)) == 1

    def test_a_dead_job_tells_its_last_error(self, store: FakeStore) -> None:
        store.reply[Look] = ended(State.DEAD, reason="failed", error=error(), failures=5)
        with pytest.raises(JobFailed, match=r"^ValueError: bad$") as caught:
            app.handle_sync("j1", fetch).result()
        assert (caught.value.error_type, caught.value.message, caught.value.traceback) == ("ValueError", "bad", "tb")
        assert caught.value.info.failures == 5

    def test_a_job_whose_worker_kept_dying_tells_how(self, store: FakeStore) -> None:
        text = error(type="WorkerDied", message="", traceback="", exit="SIGSEGV")
        store.reply[Look] = ended(State.DEAD, reason="lost", error=text, losses=4)
        with pytest.raises(JobFailed, match=r"^WorkerDied: its worker died: SIGSEGV$"):
            app.handle_sync("j1", fetch).result()

    def test_a_dead_job_without_an_error_is_dead_all_the_same(self, store: FakeStore) -> None:
        store.reply[Look] = ended(State.DEAD, reason="undecodable", error="no json")
        with pytest.raises(JobFailed, match=r"^Dead: undecodable$"):
            app.handle_sync("j1", fetch).result()

    def test_a_cancelled_job_tells_why(self, store: FakeStore) -> None:
        store.reply[Look] = ended(State.CANCELLED, reason="no such user")
        with pytest.raises(JobCancelled, match=r"^no such user$") as caught:
            app.handle_sync("j1", fetch).result()
        assert caught.value.info.state is State.CANCELLED

    def test_a_result_that_was_not_stored_tells_why(self, store: FakeStore) -> None:
        store.reply[Look] = ended(State.SUCCEEDED, reason="result_error", error=error(message="the result is 3 MB"))
        with pytest.raises(ResultNotKept, match=r"^the result is 3 MB$"):
            app.handle_sync("j1", fetch).result()
        store.reply[Look] = ended(State.SUCCEEDED)
        with pytest.raises(ResultNotKept, match=r"^The result of job j1 \(fetch\) is not kept any more\.$"):
            app.handle_sync("j1", fetch).result()

    @pytest.mark.parametrize("state", [State.SCHEDULED, State.READY, State.RUNNING, State.SUCCEEDED])
    def test_where_nothing_is_kept_it_does_not_wait(self, store: FakeStore, state: State) -> None:
        store.reply[Look] = ended(state, retention_ms=0)
        with pytest.raises(ResultNotKept, match=r"^fetch keeps no result \(retention=0\)\.$"):
            app.handle_sync("j1").result()

    def test_a_failure_is_told_even_where_nothing_is_kept(self, store: FakeStore) -> None:
        store.reply[Look] = ended(State.DEAD, retention_ms=0, error=error())
        with pytest.raises(JobFailed):
            app.handle_sync("j1").result()

    def test_a_result_of_another_type_is_an_argument_error(self, store: FakeStore) -> None:
        store.reply[Look] = ended(State.SUCCEEDED, result="5")
        with pytest.raises(ArgumentError, match="the stored result cannot be read as date"):
            app.handle_sync("j1", fetch).result()

    def test_a_timeout_that_is_none(self) -> None:
        with pytest.raises(ValueError, match=r"^timeout='1 min': write 10m"):
            app.handle_sync("j1").result(timeout="1 min")


class TestLook:
    def test_the_queue_is_learnt_and_not_asked_again(self, store: FakeStore) -> None:
        store.reply[Queues] = ["default", "slow", "other"]
        store.reply[Look] = lambda verb: ended(State.READY) if verb.queue == "slow" else None
        handle = app.handle_sync("j1")
        handle.info()
        handle.info()
        assert [verb.queue for verb in store.asked_for(Look)] == ["default", "slow", "other", "slow"]

    def test_the_task_s_own_queue_is_tried_first(self, store: FakeStore) -> None:
        store.reply[Queues] = ["slow", "other"]
        store.reply[Look] = lambda verb: record("j1", queue="other") if verb.queue == "other" else None
        assert app.handle_sync("j1", fetch).info().queue == "other"
        assert [verb.queue for verb in store.asked_for(Look)] == ["slow", "other"]

    @pytest.mark.parametrize("queues", [[], ["default"]])
    def test_an_unknown_job_says_so(self, store: FakeStore, queues: list[str]) -> None:
        store.reply[Queues], store.reply[Look] = queues, None
        with pytest.raises(JobNotFound, match=r"^Job j1 is unknown here: never enqueued in this store") as caught:
            app.handle_sync("j1").info()
        assert caught.value.job_id == "j1"


class TestChange:
    async def test_cancel_and_retry_say_whether_they_changed_something(self, store: FakeStore) -> None:
        store.reply[Look] = ended(State.RUNNING)
        store.reply[Cancel] = [
            MANY,
            Cancelled(changed=True, state=State.RUNNING),
            Cancelled(changed=False, state=State.RUNNING),
        ]
        store.reply[Retry] = Retried(changed=True, state=State.DEAD)
        handle = app.handle("j1", fetch)
        assert [await handle.cancel(), await handle.cancel(), await handle.retry()] == [True, False, True]
        assert {verb.queue for verb in store.asked} == {"slow"}

    async def test_watch_yields_each_change_once_and_ends_with_the_job(
        self, store: FakeStore, monkeypatch: Any
    ) -> None:
        sleep = asyncio.sleep
        monkeypatch.setattr(asyncio, "sleep", lambda _seconds: sleep(0))
        story = [ended(State.READY)] * 2 + [ended(State.RUNNING)] * 2 + [ended(State.SUCCEEDED, result="1")]
        store.reply[Look] = [MANY, *story]
        assert [info.state async for info in app.handle("j1", fetch).watch()] == ["ready", "running", "succeeded"]

    def test_the_blocking_handle_does_the_same(self, store: FakeStore) -> None:
        store.reply[Look] = [MANY, ended(State.READY), ended(State.RUNNING), ended(State.RUNNING), ended(State.DEAD)]
        assert [info.state for info in app.handle_sync("j1", fetch).watch()] == ["ready", "running", "dead"]
        assert app.handle_sync("j1", fetch).wait().is_final


class TestExplain:
    @pytest.mark.parametrize(
        ("status", "reason", "words"),
        [
            (QueueStatus(queue="slow", paused=True), None, "still waiting for j1: queue 'slow' is paused."),
            (
                QueueStatus(queue="slow"),
                None,
                "still waiting for j1: no worker listens to queue 'slow' (no worker at all is running).",
            ),
            (
                QueueStatus(queue="slow", workers=1),
                "unknown_task",
                "still waiting for j1: no live worker knows 'fetch' (known: other, ping).",
            ),
            (QueueStatus(queue="slow", workers=1), None, None),
        ],
    )
    def test_a_long_wait_says_why_when_there_is_something_to_say(
        self, store: FakeStore, slow_clock: Any, status: QueueStatus, reason: str | None, words: str | None
    ) -> None:
        store.reply[Look] = ended(State.READY, reason=reason)
        store.reply[Status], store.reply[Queues] = status, []
        store.reply[Workers] = [
            WorkerRecord(id=f"w{n}", queue="slow", lease_ms=1, left_ms=1, seen=1, tasks=tasks)
            for n, tasks in enumerate((["ping"], ["ping", "other"]))
        ]
        with pytest.raises(TimeoutError):
            app.handle_sync("j1", fetch).wait(timeout=30)
        assert slow_clock.messages == ([words] if words else [])

    def test_a_job_that_runs_needs_no_explanation(self, store: FakeStore, slow_clock: Any) -> None:
        store.reply[Look] = ended(State.RUNNING)
        with pytest.raises(TimeoutError):
            app.handle_sync("j1", fetch).wait(timeout=30)
        assert slow_clock.messages == []


class TestInfo:
    def test_it_opens_what_the_record_holds(self) -> None:
        one = info_of(
            record(
                "j1",
                State.RUNNING,
                created=1_796_126_400_000,
                failures=2,
                priority=9,
                progress='{"done":3,"total":10,"note":"pages","at":1796126400500}',
                error=error(exit="SIGKILL"),
            )
        )
        assert one.created == dt.datetime(2026, 12, 1, 12, tzinfo=dt.UTC)
        assert one.progress == Progress(3, 10, "pages", dt.datetime(2026, 12, 1, 12, 0, 0, 500_000, tzinfo=dt.UTC))
        assert one.error == JobError("ValueError", "bad", "tb", "SIGKILL")
        assert (one.attempt, one.priority, one.is_final, one.started) == (3, "low", False, None)

    @pytest.mark.parametrize("text", ["", "no json", "[1]", "5", '{"other":1}'])
    def test_what_somebody_else_wrote_there_does_no_harm(self, text: str) -> None:
        assert info_of(record("j1", progress=text, error=text)).progress is None
