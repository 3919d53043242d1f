"""What the first hour's mistakes are answered with: the texts, word for word.

A message is one sentence on what, one on why or where, one on what to do next. These tests hold the texts, so that a
change of one is seen by whoever reviews it.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import logging
import warnings
from collections.abc import Iterator
from typing import Any, cast

import pytest

from stillhere import (
    App,
    ArgumentError,
    Blueprint,
    ConfigurationError,
    NoCurrentJob,
    ResultNotKept,
    StoreFull,
    StoreUnavailable,
    UnknownOption,
    WrongDoor,
    current_job,
    current_job_sync,
)
from stillhere.domain.states import State
from stillhere.ports.backend import Enqueue, Enqueued, Look
from stillhere.ports.inspector import Queues, QueueStatus, Status, WorkerRecord, Workers
from tests.unit.fakes import FakeStore, install, record

app = App("redis://user:secret@localhost:6379/0")


@app.task
async def fetch_ads(domain: str, depth: int = 1) -> int:
    return len(domain) * depth


@app.task(retention=0)
def send_mail(to: str) -> None: ...


class User:
    """Stands for an object of an ORM."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeStore]:
    yield from install(monkeypatch)
    app.close()


def text(caught: pytest.ExceptionInfo[BaseException]) -> str:
    return str(caught.value)


def test_01_enqueue_without_a_loop() -> None:
    with pytest.raises(WrongDoor) as caught:
        fetch_ads.enqueue("x")  # type: ignore[unused-coroutine]
    assert text(caught) == (
        "fetch_ads.enqueue() was called without a running event loop, so nothing was sent. "
        "Use fetch_ads.enqueue_sync(...) here."
    )


async def test_01b_enqueue_sync_inside_a_loop() -> None:
    with pytest.raises(WrongDoor) as caught:
        fetch_ads.enqueue_sync("x")
    assert text(caught) == (
        "fetch_ads.enqueue_sync() was called inside a running event loop, which it would block; nothing was sent. "
        "Use await fetch_ads.enqueue(...) here."
    )


async def test_01c_the_same_doors_for_many() -> None:
    with pytest.raises(WrongDoor, match=r"^app\.enqueue_many_sync\(\) was called inside a running event loop"):
        app.enqueue_many_sync([])


def test_01d_the_same_doors_for_many() -> None:
    with pytest.raises(WrongDoor, match=r"^app\.enqueue_many\(\) was called without a running event loop"):
        app.enqueue_many([])  # type: ignore[unused-coroutine]


async def test_02_a_forgotten_await() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fetch_ads.enqueue("x")  # type: ignore[unused-coroutine]
        gc.collect()
    assert [str(warning.message) for warning in caught] == ["coroutine 'fetch_ads.enqueue' was never awaited"]


async def test_03_a_task_is_its_function_and_options_are_for_enqueueing() -> None:
    assert await fetch_ads("abc", depth=2) == 6
    with pytest.raises(TypeError) as caught:
        cast("Any", fetch_ads.options(delay="1m"))("x")
    assert text(caught) == "options apply to .enqueue(); to run it here call fetch_ads(...)."


@pytest.mark.parametrize("name", ["delay", "apply_async", "send", "defer"])
def test_04_the_words_of_other_libraries(name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(fetch_ads, name)
    assert text(caught) == (
        f"Task has no {name}(). Use .enqueue() / .enqueue_sync(); a delay is .options(delay='10m')."
    )


def test_06_a_url_that_is_none() -> None:
    with pytest.raises(ConfigurationError) as caught:
        App("localhost:6379")
    assert text(caught) == "url='localhost:6379': write redis://host:6379/0, unix:///path or embedded://."


async def test_07_the_store_is_down(store: FakeStore) -> None:
    refused = StoreUnavailable("Cannot reach redis://user:***@localhost:6379/0 (connection refused).", sent=False)
    store.reply[Enqueue] = refused
    with pytest.raises(StoreUnavailable) as caught:
        await fetch_ads.enqueue("x")
    assert text(caught) == (
        "Cannot reach redis://user:***@localhost:6379/0 (connection refused), from App(url=...). Nothing was enqueued."
    )


def test_07b_the_store_is_down_and_the_url_comes_from_the_environment(
    store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STILLHERE_URL", "redis://localhost:6379/0")
    by_environment = App()

    @by_environment.task
    def ping() -> None: ...

    store.reply[Enqueue] = StoreUnavailable("Cannot reach redis://localhost:6379/0 (connection refused).", sent=False)
    with pytest.raises(StoreUnavailable) as caught:
        ping.enqueue_sync()
    assert text(caught) == (
        "Cannot reach redis://localhost:6379/0 (connection refused), from STILLHERE_URL. Nothing was enqueued."
    )


async def test_07c_no_answer_in_time_is_not_no(store: FakeStore) -> None:
    store.reply[Enqueue] = StoreUnavailable("redis://localhost:6379/0 did not answer within 5 s.")
    with pytest.raises(StoreUnavailable) as caught:
        await fetch_ads.options(id="my-id").enqueue("x")
    assert text(caught) == (
        "redis://localhost:6379/0 did not answer within 5 s, from App(url=...). "
        "Job my-id may have been enqueued all the same; the same id again makes no second job."
    )


async def test_07d_the_store_is_full(store: FakeStore) -> None:
    store.reply[Enqueue] = StoreFull("redis://localhost:6379/0 is at its memory limit and takes no new job.")
    with pytest.raises(StoreFull) as caught:
        await fetch_ads.enqueue("x")
    assert text(caught) == (
        "redis://localhost:6379/0 is at its memory limit and takes no new job. Nothing was enqueued."
    )


async def test_09_nobody_knows_the_task(store: FakeStore, caplog: pytest.LogCaptureFixture) -> None:
    def unknown(verb: Enqueue) -> list[Enqueued]:
        return [Enqueued(id=job.id, created=True, state=State.READY, known=False) for job in verb.jobs]

    store.reply[Enqueue] = unknown
    store.reply[Workers] = [WorkerRecord(id="w1", queue="mail", lease_ms=1, left_ms=1, seen=1, tasks=["ping"])]
    mail = fetch_ads.options(id="j1", queue="mail")
    await mail.enqueue("x")
    await mail.enqueue("x")
    assert caplog.messages == [
        "Job j1 sent, but no live worker knows 'fetch_ads' (known: ping). Is its module in App(include=[...])?"
    ], "once, not for every job"


def test_11_a_name_that_is_taken() -> None:
    with pytest.raises(
        ConfigurationError, match=r"^Task 'fetch_ads' is defined twice: .*:\d+ and .*:\d+\. Give one a name=\.$"
    ):

        @app.task(name="fetch_ads")
        def other() -> None: ...


def test_12_a_method() -> None:
    with pytest.raises((ConfigurationError, RuntimeError)) as caught:

        class Service:
            @app.task
            def run(self) -> None: ...

    error = caught.value if isinstance(caught.value, ConfigurationError) else caught.value.__cause__
    assert str(error) == (
        "test_12_a_method.<locals>.Service.run is a method: a job carries no self. "
        "Use a function, or put @staticmethod above @app.task."
    )


def test_12b_an_attribute_that_names_a_task_is_fine() -> None:
    class Service:
        job = fetch_ads

        @staticmethod
        @app.task(name="static_run")
        def run(n: int) -> int:
            return n + 1

    assert Service.job is fetch_ads
    assert Service.run(1) == 2


def test_13_wrong_arguments() -> None:
    with pytest.raises(ArgumentError) as caught:
        cast("Any", fetch_ads).prepare("x", dept=2)
    assert text(caught) == (
        "fetch_ads(domain: str, depth: int = 1): unexpected argument 'dept' (did you mean 'depth'?). "
        "Nothing was enqueued."
    )


def test_14_an_object_that_cannot_be_stored() -> None:
    with pytest.raises(ArgumentError) as caught:
        cast("Any", bare_task).prepare(user=User())
    assert text(caught) == (
        "bare_task: argument 'user' is a User, which cannot be stored. Pass its primary key and load it in the task."
    )


def test_15_a_value_that_would_change() -> None:
    with pytest.raises(ArgumentError) as caught:
        cast("Any", bare_task).prepare(user=dt.datetime(2026, 12, 1, tzinfo=dt.UTC))
    assert text(caught) == (
        "bare_task: argument 'user' has no annotation and would come back as str. Annotate it: user: datetime."
    )


def test_16_too_much() -> None:
    with pytest.raises(ArgumentError) as caught:
        cast("Any", bare_task).prepare(user=["x" * 1_000] * 3_200)
    assert text(caught) == (
        "bare_task: arguments are 3.2 MB (limit 1 MB), most of it 'user'. "
        "Store the data elsewhere and pass a reference."
    )


def test_17_a_time_without_a_zone() -> None:
    with pytest.raises(ConfigurationError) as caught:
        fetch_ads.options(at=dt.datetime(2026, 12, 1, 3, 0))  # noqa: DTZ001 - that is what is refused
    assert text(caught) == "fetch_ads.options: at=2026-12-01 03:00 has no time zone. Add tzinfo, or use delay=."


def test_18_a_bad_duration() -> None:
    with pytest.raises(ConfigurationError) as caught:
        fetch_ads.options(delay="10 min")
    assert text(caught) == "fetch_ads.options: delay='10 min': write 10m, 90s, 1h30m or a number of seconds."


def test_18b_milliseconds_by_habit() -> None:
    with pytest.raises(ConfigurationError) as caught:
        fetch_ads.options(delay=10_000_000)
    assert text(caught) == (
        "fetch_ads.options: delay=10000000: numbers are seconds, and this one is over 30 days; "
        "did you mean '2h46m40s'? If you do mean so long, write it as a text: '60d'."
    )


def test_19_a_result_that_nobody_keeps(store: FakeStore) -> None:
    handle = send_mail.enqueue_sync("you")
    store.reply[Look] = record(send_mail.prepare("you").record, State.RUNNING)
    with pytest.raises(ResultNotKept) as caught:
        handle.result()
    assert text(caught) == "send_mail keeps no result (retention=0)."


def test_19b_waiting_where_nobody_works(
    store: FakeStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1_000, 2))
    monkeypatch.setattr("stillhere.handle.time.monotonic", lambda: float(next(clock)))
    monkeypatch.setattr("stillhere.link.time.sleep", lambda _seconds: None)
    store.reply[Look] = record("j1", queue="billing")
    store.reply[Queues] = ["billing", "default"]
    store.reply[Status] = lambda verb: QueueStatus(queue=verb.queue, workers=int(verb.queue == "default"))
    caplog.set_level(logging.WARNING, "stillhere")
    with pytest.raises(TimeoutError) as caught:
        app.handle_sync("j1").result(timeout=20)
    assert caplog.messages == ["still waiting for j1: no worker listens to queue 'billing' (workers: default)."]
    assert text(caught) == "Job j1 (fetch) is still ready after 20; it goes on."


@pytest.mark.parametrize("ask", [current_job, current_job_sync])
def test_20_no_job_is_running_here(ask: Any) -> None:
    with pytest.raises(NoCurrentJob) as caught:
        ask()
    assert text(caught) == (
        "No job is running here. In a unit test use stillhere.testing.job_context(); "
        "in a def task call current_job_sync()."
    )


def test_options_that_do_not_exist() -> None:
    with pytest.raises(UnknownOption) as caught:
        cast("Any", app.task)(max_attempt=3)
    assert text(caught) == "@app.task: unknown option 'max_attempt' (did you mean 'max_attempts'?)."
    with pytest.raises(UnknownOption) as caught:
        cast("Any", fetch_ads.options)(dely=3)
    assert text(caught) == "fetch_ads.options: unknown option 'dely' (did you mean 'delay'?)."


def test_a_blueprint_without_an_app() -> None:
    lonely = Blueprint("lonely")

    @lonely.task
    def work() -> None: ...

    with pytest.raises(ConfigurationError) as caught:
        work.enqueue_sync()
    assert text(caught) == "Blueprint('lonely') is in no app, so nothing can be sent: call app.include(...) first."


def test_state_outside_a_worker() -> None:
    with pytest.raises(ConfigurationError) as caught:
        app.state  # noqa: B018 - reading it is the point
    assert text(caught) == (
        "app.state is there only inside a worker, while the lifespan of App(lifespan=...) runs. "
        "In a test enter it yourself: async with app.lifespan(): ..."
    )


@app.task
def bare_task(user):  # type: ignore[no-untyped-def] # noqa: ANN001
    return user


def test_the_message_tests_do_not_need_a_loop() -> None:
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
