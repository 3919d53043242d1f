"""What the kernel tells about memory: where its count of kills stands, and which death it explains."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stillhere.worker.clock import boottime_ns
from stillhere.worker.processes import resident_bytes
from stillhere.worker.supervisor.memory import LATELY_S, OomKills
from tests.supervisor.kit import Worker, since
from tests.support.procs import alive, eventually, kill

Play = Callable[..., Worker]

VMSTAT = "proc/vmstat"
V2 = "0::/unit.slice/it.service"
V1 = "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/"


class Root:
    """A machine's /proc and /sys, as far as they matter here."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, text: str) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def killed(self, count: int, name: str = VMSTAT) -> None:
        """So many processes have been killed for want of memory since the machine started."""
        self.write(name, f"nr_free_pages 12\noom 9\noom_kill {count}\noom_group_kill 99\n")


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path / "root")


class TestWhereTheCountStands:
    @pytest.mark.parametrize(
        ("groups", "counter"),
        [
            pytest.param(V2, "sys/fs/cgroup/unit.slice/it.service/memory.events", id="v2"),
            pytest.param(V2, "sys/fs/cgroup/memory.events", id="v2-seen-from-a-container"),
            pytest.param(V1, "sys/fs/cgroup/memory/docker/abc/memory.oom_control", id="v1"),
            pytest.param(V1, "sys/fs/cgroup/memory/memory.oom_control", id="v1-seen-from-a-container"),
            pytest.param(V1, VMSTAT, id="no-group-counts"),
            pytest.param("", VMSTAT, id="no-groups"),
        ],
    )
    def test_the_own_groups_count_else_the_machines(self, root: Root, groups: str, counter: str) -> None:
        root.write("proc/self/cgroup", groups)
        root.killed(3)
        root.killed(7, counter)
        kills = OomKills(root.path)
        assert not kills.explain(1)
        root.killed(8, counter)
        assert kills.explain(2)

    def test_another_groups_kills_are_not_ours(self, root: Root) -> None:
        root.write("proc/self/cgroup", V2)
        root.killed(0, "sys/fs/cgroup/unit.slice/it.service/memory.events")
        kills = OomKills(root.path)
        root.killed(1, "sys/fs/cgroup/memory.events")
        root.killed(1)
        assert not kills.explain(1)

    def test_without_a_counter_nobody_is_out_of_memory(self, root: Root) -> None:
        kills = OomKills(root.path)
        assert not kills.explain(1)
        root.write(VMSTAT, "oom_kill many\n")
        assert not kills.explain(2)


class TestWhichDeathItExplains:
    def test_one_death_for_each(self, root: Root) -> None:
        root.killed(0)
        kills = OomKills(root.path)
        root.killed(2)
        assert [kills.explain(1) for _ in range(3)] == [True, True, False]

    def test_one_that_was_noticed_before_the_death(self, root: Root) -> None:
        root.killed(0)
        kills = OomKills(root.path)
        root.killed(1)
        kills.look(10)
        kills.look(11)
        assert kills.explain(10 + LATELY_S)
        assert not kills.explain(10 + LATELY_S)

    def test_one_that_no_death_followed_is_forgotten(self, root: Root) -> None:
        root.killed(0)
        kills = OomKills(root.path)
        root.killed(1)
        kills.look(10)
        assert not kills.explain(10.1 + LATELY_S)

    def test_a_count_that_falls_is_no_kill(self, root: Root) -> None:
        """The process was moved to another group, or the count is another one's now."""
        root.killed(5)
        kills = OomKills(root.path)
        root.killed(2)
        assert not kills.explain(1)
        root.killed(3)
        assert kills.explain(2)


class TestInTheSupervisor:
    def test_the_reason_names_it_once_and_the_loop_names_nobody(self, play: Play) -> None:
        worker = play("in_a_step")
        ran = worker.event("runs")
        Root(worker.home / "root").killed(1)
        kill([ran["pid"]])
        (end,) = [end for end in worker.ends() if end["queue"] == "default"]
        assert end["reason"] == "killed by SIGKILL (out of memory)"
        assert end["verdicts"] == {"stepping": "suspect", "waiting": "suspect"}, "the kernel chose, not the job"
        again = worker.event("runs", count=2)
        kill([again["pid"]])
        (end,) = [end for end in worker.ends(2) if end["worker"] == again["worker"] and end["queue"] == "default"]
        assert end["reason"] == "killed by SIGKILL"
        assert end["verdicts"] == {"stepping": "suspect", "waiting": "beside"}

    def test_another_end_at_the_same_time_is_not_explained_by_it(self, play: Play) -> None:
        worker = play("in_a_step:3")
        worker.event("runs")
        Root(worker.home / "root").killed(1)
        (worker.home / "now").touch()
        (end,) = [end for end in worker.ends() if end["queue"] == "default"]
        assert end["reason"] == "exit code 3"
        assert end["verdicts"] == {"stepping": "culprit", "waiting": "bystander"}

    def test_a_rise_long_before_does_not_explain_it(self, play: Play) -> None:
        worker = play("in_a_step")
        ran = worker.event("runs")
        Root(worker.home / "root").killed(1)
        at = boottime_ns()
        eventually(lambda: since(at) > LATELY_S + 1, 10)
        kill([ran["pid"]])
        assert worker.ends()[0]["reason"] == "killed by SIGKILL"

    def test_a_child_with_too_much_takes_no_more_jobs_and_is_replaced(self, play: Play) -> None:
        worker = play("holds:230", max_memory=200 << 20)
        first = worker.event("runs")
        worker.event("start", count=2)
        told = worker.event("told")
        assert told["pid"] == first["pid"]
        assert re.fullmatch(r"it has 2[34]\d MiB of memory, more than --max-memory 200 MiB", told["why"])
        assert alive(first["pid"])
        assert worker.verbs("End") == []

    def test_a_child_with_far_too_much_is_killed_and_what_ran_alone_is_charged(self, play: Play) -> None:
        worker = play("holds:300", max_memory=200 << 20)
        ran = worker.event("runs")
        end = next(end for end in worker.ends() if end["queue"] == "default")
        assert end["worker"] == ran["worker"]
        assert end["verdicts"] == {"eater": "culprit"}
        words = r"killed by its supervisor: it has 3[0-2]\d MiB of memory, more than --max-memory 200 MiB"
        assert re.fullmatch(words, end["reason"])


class TestResidentBytes:
    def test_of_a_process(self) -> None:
        code = "import sys; held = b'x' * (64 << 20); print(flush=True); sys.stdin.read()"
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with child:
            assert child.stdout is not None
            child.stdout.readline()
            assert 64 << 20 < resident_bytes(child.pid) < 256 << 20

    def test_of_none(self) -> None:
        child = subprocess.Popen([sys.executable, "-c", "pass"])
        child.wait()
        assert resident_bytes(child.pid) == 0
        assert resident_bytes(os.getpid()) > 0
