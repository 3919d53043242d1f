"""Commands that look: jobs, show, status, queue list, and the filters they share."""

from __future__ import annotations

import json

import pytest

from stillhere.domain.job import OutcomeKind, Verdict
from stillhere.ports.backend import Checkpoint, Claim, End, Progress, ProgressItem, Renew
from tests.cli.conftest import Cli


class TestJobs:
    def test_an_empty_store(self, cli: Cli) -> None:
        assert cli.well("jobs") == "no jobs\n"
        assert cli.json("jobs") == {"jobs": [], "after": None}

    def test_a_list_is_aligned_and_names_what_is_needed(self, cli: Cli) -> None:
        job = cli.add("fetch_ads")
        cli.add("x", delay_ms=7_200_000)
        lines = cli.well("jobs").splitlines()
        assert lines[0].split() == ["ID", "TASK", "QUEUE", "STATE", "AGE", "FAILED"]
        line = next(line for line in lines if job[-12:] in line)
        assert line.split()[:4] == [job[-12:], "fetch_ads", "default", "ready"]
        assert line.index("default") == lines[0].index("QUEUE")
        assert any("due in 2 h" in line or "due in 120 min" in line for line in lines)

    @pytest.mark.parametrize(
        ("word", "expected"),
        [
            ("task:fetch", {"a"}),
            ("queue:billing", {"b"}),
            ("state:scheduled", {"c"}),
            ("worker:w1", {"d"}),
            ("error:boom", {"e"}),
            ("age:>1h", set()),
            ("id:", {"f"}),
        ],
    )
    def test_each_filter_word(self, cli: Cli, word: str, expected: set[str]) -> None:
        cli.worker()
        dead = cli.dead()
        running = cli.add()
        assert cli.grant()
        names = {
            dead: "e",
            running: "d",
            cli.add("fetch"): "a",
            cli.add(queue="billing"): "b",
            cli.add(delay_ms=3_600_000): "c",
        }
        plain = cli.add()
        names[plain] = "f"
        found = cli.json("jobs", f"id:{plain[-8:]}" if word == "id:" else word)["jobs"]
        assert {names[job["id"]] for job in found} == expected

    def test_words_are_joined_by_and(self, cli: Cli) -> None:
        cli.add("a", queue="one")
        cli.add("a", queue="two")
        cli.add("b", queue="one")
        assert len(cli.json("jobs", "task:a", "queue:one")["jobs"]) == 1

    def test_pages_hold_each_job_once_over_all_queues(self, cli: Cli) -> None:
        ids = {cli.add(queue=queue) for queue in ("a", "b", "c") for _ in range(5)}
        seen: list[str] = []
        after: list[str] = []
        for _ in range(20):
            page = cli.json("jobs", "--limit", "4", *after)
            assert len(page["jobs"]) <= 4
            seen += [job["id"] for job in page["jobs"]]
            if page["after"] is None:
                break
            after = ["--after", page["after"]]
        assert sorted(seen) == sorted(ids)

    def test_the_next_page_is_told_on_stderr(self, cli: Cli) -> None:
        for queue in ("a", "b"):
            cli.add(queue=queue)
        result = cli("jobs", "--limit", "1")
        assert result.stderr.startswith("more: --after ")

    @pytest.mark.parametrize(
        ("words", "says"),
        [
            (["fetch"], "'fetch' is no filter"),
            (["colour:red"], "'colour:red' is no filter"),
            (["task:"], "'task:' is no filter"),
            (["state:done"], "the states are scheduled, ready, running, succeeded, dead, cancelled."),
            (["age:<2h"], "only older ones can be chosen: age:>2h."),
            (["age:soon"], "age='soon': write 10m, 90s, 1h30m or a number of seconds."),
            (["task:a", "task:b"], "task: is given twice"),
            (["--after", "x"], "give the cursor that the last call printed"),
        ],
    )
    def test_words_that_are_no_filter(self, cli: Cli, words: list[str], says: str) -> None:
        assert says in cli.fails(64, "jobs", *words)


class TestShow:
    def test_a_running_job(self, cli: Cli) -> None:
        cli.worker()
        job = cli.add(args='{"domain":"example.com"}', headers={"trace": "1"})
        (grant,) = cli.grant()
        value = json.dumps({"done": 871, "total": 1742, "note": "halfway"})
        item = ProgressItem(job=job, token=grant.token, number=1, value=value)
        cli.call(Progress(queue="default", worker="w1", items=[item]))
        cli.call(Checkpoint(queue="default", worker="w1", job=job, token=grant.token, number=1, value="871"))
        text = cli.well("show", job)
        assert f"state      running for 0.0 s on w1, token {grant.token}" in text
        assert "progress   871 of 1742 (50 %) halfway, 0.0 s ago" in text
        assert "checkpoint 871" in text
        assert 'args       {"domain":"example.com"}' in text
        assert "counters   never failed (of 5 allowed, unless its task says otherwise)" in text

    def test_deaths_beside_a_likelier_cause_are_told_apart(self, cli: Cli) -> None:
        cli.worker()
        job = cli.add()
        cli.grant()
        cli.call(Renew(queue="default", worker="w1", answered=1))
        verdicts = {job: Verdict.BESIDE}
        cli.call(End(queue="default", worker="w1", reason="SIGKILL", force=True, verdicts=verdicts))
        cli.worker()
        text = cli.well("show", job)
        assert "was beside a likelier cause when the worker died once, not charged" in text
        assert "in all" not in text

    def test_a_job_that_killed_its_workers(self, cli: Cli) -> None:
        job = cli.add(max_losses=1)
        stack = 'File "jobs.py", line 12 in crash\nFile "jobs.py", line 40 in fetch \x1b[2J'
        verdicts = (Verdict.SUSPECT, Verdict.BESIDE, Verdict.VANISHED, Verdict.CULPRIT, Verdict.CULPRIT)
        reasons = ("exit code 3", "killed by SIGKILL", "lease ended", "killed by SIGKILL", "killed by SIGSEGV")
        for number, (verdict, reason) in enumerate(zip(verdicts, reasons, strict=True)):
            cli.worker(name=f"w{number}")
            (grant,) = cli.call(Claim(queue="default", worker=f"w{number}", n=1, slots=1, lanes="both")).jobs
            assert grant.id == job
            cli.call(Renew(queue="default", worker=f"w{number}", answered=1))
            blamed, detail = {job: verdict}, {job: stack} if number == 4 else {}
            end = End(queue="default", worker=f"w{number}", reason=reason, force=True, verdicts=blamed, details=detail)
            cli.call(end)
        for text in (cli.well("show", job), cli.well("dead", "show", job)):
            assert "state      dead (lost): too many of its runs ended with their worker\n" in text
            assert "killed its worker twice (more than 1 make it dead)\n" in text
            assert "was a suspect when a worker died once, not charged\n" in text
            assert "error      worker died: killed by SIGSEGV\n" in text
            code, runs = text.split("\ncode ")[1].split("\nruns ")
            assert [line.strip() for line in code.splitlines()] == [
                "where it was when its worker died, innermost call first:",
                'File "jobs.py", line 12 in crash',
                'File "jobs.py", line 40 in fetch ?[2J',
            ]
            assert [line.split("  ")[-1] for line in runs.splitlines()[1:]] == [
                "its worker died, it or another job was the cause: exit code 3",
                "its worker died, another job was the likelier cause: killed by SIGKILL",
                "its worker vanished, nobody saw how",
                "its worker died, and it was the cause: killed by SIGKILL",
                "dead: killed by SIGSEGV",
            ]
        assert "worker died: killed by SIGSEGV" in cli.well("dead", "list")
        assert [run.get("exit") for run in cli.json("dead", "show", job)["runs"]] == list(reasons[:-1])

    def test_a_dead_one_with_its_traceback(self, cli: Cli) -> None:
        cli.worker()
        text = cli.well("show", cli.dead(message="it went wrong"))
        assert "state      dead (failed)" in text
        assert "error      ValueError: it went wrong" in text
        assert "             line 1" in text

    def test_json_has_the_wire_names_and_opened_values(self, cli: Cli) -> None:
        cli.worker()
        job = cli.add(args='{"n":1}')
        (grant,) = cli.grant()
        cli.settle(grant, OutcomeKind.SUCCEEDED, result='{"sum":3}')
        shown = cli.json("show", job)
        assert shown["id"] == job
        assert shown["state"] == "succeeded"
        assert shown["args"] == {"n": 1}
        assert shown["result"] == {"sum": 3}
        assert shown["created"].endswith("Z")
        assert shown["ended"] >= shown["created"]

    def test_runs_are_listed(self, cli: Cli) -> None:
        cli.worker()
        job = cli.add()
        for _ in range(2):
            (grant,) = cli.grant()
            cli.settle(grant, OutcomeKind.INTERRUPTED)
        text = cli.well("show", job)
        assert "handed back by a stopping worker twice, not charged" in text
        assert text.count("interrupted") == 2
        runs = cli.json("show", job)["runs"]
        assert [run["worker"] for run in runs] == ["w1", "w1"]
        assert runs[0]["start"].endswith("Z")

    def test_the_run_that_was_the_end_is_listed_too(self, cli: Cli) -> None:
        cli.worker()
        job = cli.add()
        for kind in (OutcomeKind.INTERRUPTED, OutcomeKind.DEAD):
            (grant,) = cli.grant()
            cli.settle(grant, kind)
        (runs,) = cli.well("show", job).split("TOKEN")[1:]
        assert [line.split()[-1] for line in runs.splitlines()[1:3]] == ["interrupted", "dead"]

    def test_by_a_tail(self, cli: Cli) -> None:
        job = cli.add()
        cli.add(queue="other")
        assert cli.json("show", job[-6:])["id"] == job

    def test_a_tail_that_several_have(self, cli: Cli) -> None:
        cli.add(id="one-abcdef")
        cli.add(id="two-abcdef", queue="other")
        said = cli.fails(64, "show", "abcdef")
        assert "'abcdef' fits one-abcdef (default), two-abcdef (other): give more of the id." in said

    def test_one_id_in_two_queues(self, cli: Cli) -> None:
        cli.add(id="nightly", queue="a")
        cli.add(id="nightly", queue="b")
        assert "fits nightly (a), nightly (b): give --queue." in cli.fails(64, "show", "nightly")
        assert cli.json("show", "nightly", "-q", "b")["queue"] == "b"

    def test_an_exact_id_needs_no_length_and_goes_before_tails(self, cli: Cli) -> None:
        cli.add(id="a")
        cli.add(id="x-aaaaaa")
        cli.add(id="aaaaaa")
        assert cli.json("show", "a")["id"] == "a"
        assert cli.json("show", "aaaaaa")["id"] == "aaaaaa"

    def test_none(self, cli: Cli) -> None:
        cli.add()
        assert "There is no job 'abcdef'" in cli.fails(1, "show", "abcdef")
        assert "(a tail needs 6 characters or more)" in cli.fails(1, "show", "abc")


class TestStatus:
    def test_an_empty_store(self, cli: Cli) -> None:
        assert cli.well("status").startswith("no queues")
        assert cli.json("status")["queues"] == []

    def test_figures(self, cli: Cli) -> None:
        cli.worker()
        cli.dead()
        cli.add()
        cli.grant()
        cli.add()
        cli.add(delay_ms=60_000)
        head, line, *rest = cli.well("status").splitlines()
        assert head.split() == ["QUEUE", "READY", "RUNNING", "SCHEDULED", "DEAD", "WORKERS", "OLDEST"]
        assert line.split()[:6] == ["default", "1", "1", "1", "1", "1"]
        assert rest[1].split()[0] == "WORKER"
        assert rest[2].split()[:4] == ["w1", "here", rest[2].split()[2], "1"]

    def test_json(self, cli: Cli) -> None:
        cli.worker()
        cli.add()
        shown = cli.json("status")
        assert shown["queues"][0]["ready"] == 1
        assert shown["workers"][0]["id"] == "w1"
        assert shown["workers"][0]["seen"].endswith("Z")

    def test_what_is_out_of_the_ordinary(self, cli: Cli) -> None:
        cli.add()
        assert "no worker" in cli.well("status")
        cli.worker()
        cli.add("nobody_knows_me")
        cli.grant(slots=5)
        assert "1 that no live worker knows (nobody_knows_me)" in cli.well("status")
        cli.well("queue", "pause", "default")
        assert "paused; 1 that no live" in cli.well("status")

    def test_one_queue(self, cli: Cli) -> None:
        cli.add(queue="a")
        cli.add(queue="b")
        assert [one["queue"] for one in cli.json("status", "-q", "b")["queues"]] == ["b"]


class TestStuck:
    def test_an_idle_store_is_well(self, cli: Cli) -> None:
        cli.well("status", "--fail-if-stuck")

    def test_work_that_nobody_takes(self, cli: Cli) -> None:
        cli.add()
        said = cli.fails(1, "status", "--fail-if-stuck", "--stuck-after", "0s")
        assert "queue default: 1 ready" in said
        assert "(no worker)" in said

    def test_young_work_is_no_sign(self, cli: Cli) -> None:
        cli.add()
        cli.well("status", "--fail-if-stuck")

    def test_a_full_queue_that_moves(self, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        cli.worker()
        cli.add()
        (grant,) = cli.grant()
        cli.add()
        import time

        monkeypatch.setattr(time, "sleep", lambda _: cli.settle(grant, OutcomeKind.SUCCEEDED))
        cli.well("status", "--fail-if-stuck", "--stuck-after", "0s")

    def test_a_job_that_started_lately_is_movement(self, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        from stillhere.cli import stuck

        cli.worker()
        cli.add()
        cli.grant()
        cli.add()
        monkeypatch.setattr(stuck, "_waits_long", lambda _one, _bound: True)
        monkeypatch.setattr(stuck, "_BETWEEN_S", 0.0)
        cli.well("status", "--fail-if-stuck")

    def test_long_jobs_everywhere_and_others_wait(self, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        from stillhere.cli import stuck

        cli.worker()
        cli.add()
        cli.grant()
        cli.add()
        monkeypatch.setattr(stuck, "_BETWEEN_S", 0.01)
        said = cli.fails(1, "status", "--fail-if-stuck", "--stuck-after", "0.001")
        assert "(1 workers with 1 jobs)" in said

    def test_a_paused_queue_is_somebodys_will(self, cli: Cli) -> None:
        cli.add()
        cli.well("queue", "pause", "default")
        cli.well("status", "--fail-if-stuck", "--stuck-after", "0s")

    def test_a_task_that_no_worker_knows(self, cli: Cli) -> None:
        cli.worker()
        cli.add("unheard_of")
        cli.grant()
        said = cli.fails(1, "status", "--fail-if-stuck", "--stuck-after", "0s")
        assert "jobs of 'unheard_of' wait for more than 0.0 s; no worker knows it" in said
        cli.well("status", "--fail-if-stuck")


class TestQueueList:
    def test_all_of_them(self, cli: Cli) -> None:
        cli.add(queue="b")
        cli.add(queue="a")
        assert [one["queue"] for one in cli.json("queue", "list")] == ["a", "b"]
        assert cli.well("queue", "list").splitlines()[1].startswith("a ")
