"""Commands that change something: cancel, retry, dead, queue pause and resume, wait, enqueue."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from stillhere.domain.job import OutcomeKind
from tests.cli.conftest import Cli


def states(cli: Cli) -> dict[str, str]:
    return {job["id"]: job["state"] for job in cli.json("jobs")["jobs"]}


class TestCancel:
    def test_by_id_or_tail(self, cli: Cli) -> None:
        one, two = cli.add(), cli.add()
        assert cli.well("cancel", one, two[-8:]).count("cancelled") == 2
        assert set(states(cli).values()) == {"cancelled"}

    def test_the_reason_is_kept(self, cli: Cli) -> None:
        job = cli.add()
        cli.well("cancel", job, "--reason", "wrong customer")
        assert "state      cancelled (wrong customer)" in cli.well("show", job)

    def test_again_changes_nothing(self, cli: Cli) -> None:
        job = cli.add()
        cli.well("cancel", job)
        assert "has ended already: cancelled 0.0 s ago" in cli.fails(1, "cancel", job)

    def test_a_running_one_is_told(self, cli: Cli) -> None:
        cli.worker()
        job = cli.add()
        cli.grant()
        assert cli.well("cancel", job) == f"{job} cancelled: told to its worker w1\n"
        assert "asked to stop" in cli.well("show", job)
        assert "is being cancelled already; it runs on w1" in cli.fails(1, "cancel", job)

    def test_a_filter_needs_yes(self, cli: Cli) -> None:
        jobs = [cli.add("a") for _ in range(3)] + [cli.add("a", delay_ms=60_000)]
        other = cli.add("b")
        said = cli.fails(77, "cancel", "task:a")
        assert "cancel: 4 jobs match (task:a). Nothing was done; repeat it with --yes." in said
        assert "cancelled" not in states(cli).values()
        assert cli.well("cancel", "task:a", "--yes").startswith("4 of 4 cancelled")
        after = states(cli)
        assert {after[job] for job in jobs} == {"cancelled"}
        assert after[other] == "ready"

    def test_many_pages(self, cli: Cli) -> None:
        for _ in range(450):
            cli.add()
        assert cli.well("cancel", "queue:default", "--yes").startswith("450 of 450")

    def test_a_filter_that_nothing_matches(self, cli: Cli) -> None:
        result = cli("cancel", "task:none", "--yes")
        assert (result.exit_code, result.stdout) == (1, "no jobs match\n")

    def test_json(self, cli: Cli) -> None:
        job = cli.add()
        assert cli.json("cancel", job) == [{"id": job, "queue": "default", "changed": True, "state": "ready"}]
        assert cli.json("cancel", job, code=1)[0]["changed"] is False

    def test_nothing_given(self, cli: Cli) -> None:
        assert "Give the ID of a job, or filter words." in cli.fails(64, "cancel")

    def test_ids_and_filters_do_not_mix(self, cli: Cli) -> None:
        assert "Give ids or filter words, not both" in cli.fails(64, "cancel", "abcdef", "task:a")

    def test_an_id_with_a_colon_is_an_id(self, cli: Cli) -> None:
        cli.add(id="report:2026-12")
        cli.well("cancel", "report:2026-12")

    def test_two_queues(self, cli: Cli) -> None:
        assert "are two queues" in cli.fails(64, "cancel", "queue:a", "-q", "b")


class TestRetry:
    def test_a_dead_letter(self, cli: Cli) -> None:
        cli.worker()
        job = cli.dead()
        assert cli.well("retry", job) == f"{job} ready again\n"
        assert states(cli) == {job: "ready"}

    def test_a_back_off(self, cli: Cli) -> None:
        cli.worker()
        job = cli.add()
        (grant,) = cli.grant()
        cli.settle(grant, OutcomeKind.RETRY, delay_ms=3_600_000, reason="retry")
        assert "due in" in cli.well("show", job)
        cli.well("retry", job)
        assert states(cli) == {job: "ready"}

    def test_not_a_running_one(self, cli: Cli) -> None:
        cli.worker()
        job = cli.add()
        cli.grant()
        assert "is running since 0.0 s on w1; cancel it first" in cli.fails(1, "retry", job)

    def test_not_one_that_succeeded(self, cli: Cli) -> None:
        cli.worker()
        job = cli.add()
        (grant,) = cli.grant()
        cli.settle(grant, OutcomeKind.SUCCEEDED)
        assert "has succeeded; a retry is for a job that failed" in cli.fails(1, "retry", job)

    def test_by_filter(self, cli: Cli) -> None:
        cli.worker()
        dead = [cli.dead(message="timed out"), cli.dead(message="timed out"), cli.dead(message="other")]
        assert cli.well("retry", "error:timed", "--yes").startswith("2 of 2")
        assert states(cli)[dead[2]] == "dead"


class TestDead:
    def test_list_holds_the_dead_and_why(self, cli: Cli) -> None:
        cli.worker()
        job = cli.dead(message="no route to host")
        cli.add()
        listed = cli.well("dead", "list")
        assert "ValueError: no route to host" in listed
        assert [one["id"] for one in cli.json("dead", "list")["jobs"]] == [job]

    def test_show(self, cli: Cli) -> None:
        cli.worker()
        job, other = cli.dead(), cli.add()
        assert "ValueError: boom" in cli.well("dead", "show", job[-8:])
        assert f"job {other} is ready, not dead" in cli.fails(1, "dead", "show", other)

    def test_retry_all_needs_yes(self, cli: Cli) -> None:
        cli.worker()
        jobs = [cli.dead() for _ in range(3)]
        assert "retry: 3 jobs match. Nothing was done" in cli.fails(77, "dead", "retry")
        assert cli.well("dead", "retry", "--yes").startswith("3 of 3 ready again")
        assert states(cli) == dict.fromkeys(jobs, "ready")

    def test_purge(self, cli: Cli) -> None:
        cli.worker(tasks=("a", "b"))
        one, two = cli.dead("a"), cli.dead("b")
        cli.fails(77, "dead", "purge", "task:a")
        cli.well("dead", "purge", "task:a", "--yes")
        assert states(cli) == {two: "dead"}
        cli.well("dead", "purge", two)
        assert states(cli) == {}
        assert "There is no job" in cli.fails(1, "dead", "purge", one)

    def test_purge_takes_only_the_dead(self, cli: Cli) -> None:
        job = cli.add()
        assert "is ready, not dead; only a dead letter can be purged" in cli.fails(1, "dead", "purge", job)
        assert "dead letters are dead" in cli.fails(64, "dead", "purge", "state:ready", "--yes")

    def test_none_is_a_no(self, cli: Cli) -> None:
        cli.fails(1, "dead", "purge", "--yes")


class TestQueue:
    def test_pause_and_resume(self, cli: Cli) -> None:
        cli.add()
        assert cli.well("queue", "pause", "default") == "queue default paused\n"
        assert "is paused already" in cli.fails(1, "queue", "pause", "default")
        cli.worker()
        assert cli.grant() == []
        assert cli.json("queue", "resume", "default") == {"queue": "default", "paused": False, "changed": True}
        assert len(cli.grant()) == 1

    def test_a_name_that_was_never_used(self, cli: Cli) -> None:
        assert "is the name right?" in cli.well("queue", "pause", "defualt")

    def test_a_name_that_cannot_be(self, cli: Cli) -> None:
        assert "a name is text without spaces" in cli.fails(64, "queue", "pause", "a b")


class TestWait:
    def test_an_empty_store_is_empty(self, cli: Cli) -> None:
        cli.well("wait", "--empty")
        assert cli.json("wait", "--empty", "-q", "default") == {"empty": True}

    def test_time_is_up(self, cli: Cli) -> None:
        cli.add()
        said = cli.fails(1, "wait", "--empty", "--timeout", "50ms")
        assert "not empty after 50ms: default has 1 ready, 0 running, 0 scheduled" in said

    def test_only_one_queue(self, cli: Cli) -> None:
        cli.add(queue="other")
        cli.well("wait", "--empty", "-q", "default", "--timeout", "1s")

    def test_until_the_last_has_ended(self, cli: Cli) -> None:
        cli.worker()
        cli.add()
        (grant,) = cli.grant()
        timer = threading.Timer(0.2, cli.settle, (grant, OutcomeKind.SUCCEEDED))
        timer.start()
        start = time.monotonic()
        cli.well("wait", "--empty", "--timeout", "10s")
        assert time.monotonic() - start > 0.15
        timer.join()

    def test_for_a_job(self, cli: Cli) -> None:
        cli.worker()
        job = cli.add()
        (grant,) = cli.grant()
        cli.settle(grant, OutcomeKind.SUCCEEDED, result="[1,2]")
        assert cli.well("wait", job) == "[1,2]\n"

    def test_for_a_job_that_dies(self, cli: Cli) -> None:
        cli.worker()
        job = cli.dead()
        assert "is dead: ValueError: boom" in cli.fails(1, "wait", job)
        assert cli.json("wait", job, code=1)["state"] == "dead"

    def test_for_a_job_that_does_not_end(self, cli: Cli) -> None:
        job = cli.add()
        assert f"Job {job} (ping) is still ready after 50ms; it goes on." in cli.fails(
            1, "wait", job, "--timeout", "50ms"
        )

    @pytest.mark.parametrize("words", [[], ["abcdef", "--empty"]])
    def test_one_or_the_other(self, cli: Cli, words: list[str]) -> None:
        assert "Give the ID of a job, or --empty: one of them." in cli.fails(64, "wait", *words)


APP = """
from stillhere import App
app = App({url!r}, namespace={namespace!r})

@app.task(queue="reports", max_attempts=2)
def report(name: str, pages: int = 1, tags: tuple[str, ...] = ()) -> str:
    return name

@app.task(unique=True)
def once(name: str) -> None: ...
"""


@pytest.fixture
def app(cli: Cli, tmp_path: Path) -> str:
    """A module with an app, in the working directory."""
    name = f"proj_{cli.namespace}"
    (tmp_path / f"{name}.py").write_text(APP.format(url=cli.url, namespace=cli.namespace))
    return name


class TestEnqueue:
    def test_without_an_app_values_go_as_they_are(self, cli: Cli) -> None:
        job = cli.well("enqueue", "anything", "name=a b", "n:=3", 'deep:={"x":[1,null]}', "eq=a=b:=c").strip()
        shown = cli.json("show", job)
        assert shown["args"] == {"name": "a b", "n": 3, "deep": {"x": [1, None]}, "eq": "a=b:=c"}
        assert (shown["task"], shown["queue"], shown["state"]) == ("anything", "default", "ready")

    def test_options(self, cli: Cli) -> None:
        words = ["--id", "my.id", "-q", "billing", "--priority", "high", "--delay", "1h", "--max-attempts", "1"]
        cli.well("enqueue", "x", *words, "--unique", "key", "--retention", "2d")
        shown = cli.json("show", "my.id")
        assert (shown["queue"], shown["priority"], shown["state"]) == ("billing", 0, "scheduled")
        assert (shown["unique"], shown["max_attempts"], shown["retention_ms"]) == ("key", 1, 172_800_000)

    def test_at(self, cli: Cli) -> None:
        cli.well("enqueue", "x", "--id", "then", "--at", "2100-01-01T00:00+01:00")
        assert cli.json("show", "then")["due"] == "2099-12-31T23:00:00.000Z"

    def test_json(self, cli: Cli) -> None:
        sent = cli.json("enqueue", "x", "--id", "abc")
        assert sent == {"id": "abc", "created": True, "task": "x", "queue": "default"}
        assert cli.json("enqueue", "x", "--id", "abc")["created"] is False

    def test_what_is_there_already_is_told(self, cli: Cli) -> None:
        cli.well("enqueue", "x", "--unique", "k", "--id", "first")
        result = cli("enqueue", "x", "--unique", "k", "--id", "second")
        assert (result.exit_code, result.stdout) == (0, "first\n")
        assert "it is there already" in result.stderr

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (["x", "plain"], "'plain': write plain=text or plain:=json."),
            (["x", "=v"], "'=v': write key=text or key:=json."),
            (["x", "n:=three"], "'n:=three' is not JSON:"),
            (["x", "n:=NaN"], "For a text write n=..."),
            (["x", "a=1", "a:=2"], "'a' is given twice."),
            (["a b"], "a name is text without spaces"),
            (["x", "--delay", "soon"], "delay='soon': write 10m, 90s, 1h30m or a number of seconds."),
            (["x", "--at", "2026-12-01T03:00"], "has no time zone"),
            (["x", "--at", "noon"], "'noon': write 2026-12-01T03:00Z"),
            (["x", "--delay", "1s", "--at", "2100-01-01T00:00Z"], "two things about one start"),
            (["x", "--id", "a b"], "an id is 1 to 128 of the characters"),
            (["x", "--timeout", "1s"], "--timeout is for --wait."),
            (["x", "--priority", "urgent"], "'urgent' is not one of 'high', 'normal', 'low'"),
        ],
    )
    def test_what_is_wrong(self, cli: Cli, words: list[str], says: str) -> None:
        assert says in " ".join(cli.fails(64, "enqueue", *words).split())
        assert cli.json("jobs")["jobs"] == []

    def test_with_the_app_its_task_decides(self, cli: Cli, app: str) -> None:
        job = cli.well("--app", app, "enqueue", "report", "name=x", 'tags:=["a"]', place=False).strip()
        shown = cli.json("show", job)
        assert (shown["queue"], shown["max_attempts"]) == ("reports", 2)
        assert shown["args"] == {"name": "x", "tags": ["a"]}

    def test_the_tasks_own_unique_rule_holds(self, cli: Cli, app: str) -> None:
        ids = {cli.well("--app", app, "enqueue", "once", "name=x", place=False) for _ in range(2)}
        assert len(ids) == 1

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (["name:=3"], "report: the stored arguments do not fit"),
            ([], "name"),
            (["name=x", "page:=2"], "page"),
        ],
    )
    def test_arguments_that_do_not_fit_are_refused_here(self, cli: Cli, app: str, words: list[str], says: str) -> None:
        said = cli.fails(64, "--app", app, "enqueue", "report", *words, place=False)
        assert says in said
        assert cli.json("jobs")["jobs"] == []

    def test_a_task_that_the_app_does_not_have(self, cli: Cli, app: str) -> None:
        said = cli.fails(64, "--app", app, "enqueue", "reprot", place=False)
        assert f"{app} has no task 'reprot' (did you mean 'report'?). Nothing was enqueued." in said

    def test_a_task_that_no_worker_knows_is_warned_of(self, cli: Cli) -> None:
        cli.worker()
        result = cli("enqueue", "pong_")
        assert result.exit_code == 0
        assert "no live worker knows 'pong_' (known: ping)" in result.stderr

    def test_wait_prints_the_result(self, cli: Cli) -> None:
        cli.worker()

        def serve() -> None:
            while not (granted := cli.grant()):
                time.sleep(0.01)
            cli.settle(granted[0], OutcomeKind.SUCCEEDED, result=json.dumps({"ok": True}))

        thread = threading.Thread(target=serve)
        thread.start()
        result = cli("enqueue", "ping", "--wait", "--timeout", "10s")
        thread.join()
        assert (result.exit_code, result.stdout) == (0, '{"ok": true}\n')
        assert result.stderr.startswith("job ")

    def test_wait_for_one_that_dies(self, cli: Cli) -> None:
        cli.worker()

        def serve() -> None:
            while not (granted := cli.grant()):
                time.sleep(0.01)
            cli.settle(granted[0], OutcomeKind.DEAD, error='{"type":"E","message":"no"}')

        thread = threading.Thread(target=serve)
        thread.start()
        assert "is dead: E: no" in cli.fails(1, "enqueue", "ping", "--wait", "--timeout", "10s")
        thread.join()
