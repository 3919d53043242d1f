"""Deaths: noticed at once, offspring first, verdicts from the board, released, replaced (G14, G7)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.supervisor.kit import Worker, cores_are_files, since
from tests.support.procs import alive, eventually, kill, state

Play = Callable[..., Worker]


def test_g14_a_killed_child_is_released_at_once_and_replaced(play: Play) -> None:
    worker = play("steady:lonely")
    ran = worker.event("runs")
    kill([ran["pid"]])
    killed = since(0)
    ends = {end["queue"]: end for end in worker.ends()}
    assert ends["default"]["at"] / 1e9 - killed < 0.3
    assert set(ends) == {"default", "mail"}
    assert {end["worker"] for end in ends.values()} == {ran["worker"]}
    assert ends["default"]["verdicts"] == {"lonely": "culprit"}
    assert ends["mail"]["verdicts"] == {}
    assert ends["default"]["reason"] == "killed by SIGKILL"
    assert ends["default"]["force"] is True
    assert ends["default"]["thread"] == "stillhere-undertaker"
    again = worker.event("runs", count=2)
    assert again["worker"] != ran["worker"], "no id is ever used twice"
    assert (again["at"] / 1e9 - killed) < 5, "a child that ran jobs is replaced without a delay"


def test_g14_what_it_had_answered_goes_in_front_of_its_end(play: Play) -> None:
    worker = play("steady:lonely")
    ran = worker.event("runs")
    kill([ran["pid"]])
    worker.ends()
    (last_word,) = worker.verbs("Renew", thread="stillhere-undertaker", queue="mail")
    assert (last_word["worker"], last_word["answered"]) == (ran["worker"], 7)


def test_g7_several_that_ran_are_suspects_and_the_others_bystanders(play: Play) -> None:
    worker = play("mixed")
    ran = worker.event("runs")
    os.kill(ran["pid"], signal.SIGSEGV)
    ends = {end["queue"]: end["verdicts"] for end in worker.ends()}
    assert ends == {
        "default": {"started-a": "suspect", "ended": "bystander"},
        "mail": {"started-b": "suspect", "held": "bystander"},
    }
    assert worker.ends()[0]["reason"] == "killed by SIGSEGV"


def test_g7_a_handler_that_ends_the_process_with_zero_is_no_orderly_end(play: Play) -> None:
    worker = play("leaves_in_mid_run", burst=True)
    end = next(end for end in worker.ends() if end["queue"] == "default")
    assert (end["verdicts"], end["reason"]) == ({"quitter": "culprit"}, "exit code 0")
    assert worker.event("go", count=2), "and a burst is not over"


def test_g14_a_child_that_hangs_at_its_exit_is_killed(play: Play) -> None:
    worker = play("hangs_at_exit")
    exits = worker.event("exits")
    end = worker.ends()[-1]
    assert 1.9 < (end["at"] - exits["at"]) / 1e9 < 2.5
    assert end["reason"] == "killed by its supervisor: it hangs at its exit"
    assert not alive(exits["pid"])
    renewed = [renew["at"] for renew in worker.verbs("Renew", worker=exits["worker"], thread="stillhere-beater")]
    assert all(at < exits["at"] + 0.1e9 for at in renewed), "nobody vouches for the phase EXIT"


def test_g14_a_child_whose_main_thread_has_left_is_killed(play: Play) -> None:
    worker = play("loses_its_main_thread")
    exits = worker.event("exits")
    end = worker.ends()[-1]
    assert 0.9 < (end["at"] - exits["at"]) / 1e9 < 1.8
    assert end["reason"] == "killed by its supervisor: its main thread has left"


def test_g13_nothing_is_released_while_offspring_of_the_dead_still_writes(play: Play, tmp_path: Path) -> None:
    worker = play("has_offspring")
    ran = worker.event("runs")
    kill([ran["pid"]])
    end = worker.ends()[-1]
    files = sorted(tmp_path.glob("*.offspring"))
    assert [path.stem for path in files] == ["daemon", "fork", "plain", "session"]
    last = {path.stem: max(int(line) for line in path.read_text().split("\n")[:-1]) for path in files}
    assert all(at < end["at"] for at in last.values()), last
    assert (end["at"] - max(last.values())) / 1e9 < 0.3


def test_g13_a_living_neighbours_offspring_is_left_alone(play: Play, tmp_path: Path) -> None:
    worker = play("has_offspring", processes=2)
    first, second = worker.event("runs", 1), worker.event("runs", 2)
    kill([first["pid"]])
    worker.ends()
    sizes = [path.stat().st_size for path in tmp_path.glob("*.offspring")]
    eventually(lambda: all(p.stat().st_size > s for p, s in zip(tmp_path.glob("*.offspring"), sizes, strict=True)), 5)
    assert alive(second["pid"])


def test_orphans_that_end_leave_no_zombies(play: Play) -> None:
    worker = play("leaves_orphans")
    child = worker.event("orphaned")["pid"]
    eventually(lambda: mine(worker.pid) == [child], 10, what=lambda: mine(worker.pid))
    assert worker.running


def mine(pid: int) -> list[int]:
    """Every child of a process, dead ones too."""
    found = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [one for one in found if parent(one) == pid]


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.mark.skipif(not cores_are_files(), reason="core dumps here do not go to a file")
def test_g14_a_core_dump_does_not_hold_up_the_release(play: Play) -> None:
    worker = play("dumps_core:800")
    dies = worker.event("dies")
    end = worker.ends()[-1]
    assert (end["at"] - dies["at"]) / 1e9 < 1.0, "of a dump that takes up to two seconds"
    assert end["reason"] == "killed by SIGSEGV"
    eventually(lambda: state(dies["pid"]) == "", 30, what="reaped once the dump is written")
    for core in worker.home.glob("core*"):
        core.unlink()


def test_g14_a_renewal_that_hangs_does_not_hold_up_a_release(play: Play) -> None:
    worker = play("steady:job", processes=2, lease_ms=10_000)
    first = worker.event("runs", 2)
    worker.mood(hang=["Tick"])  # the next tick hangs for T/8
    eventually(lambda: worker.verbs("Tick", hung=True), 5)
    kill([first["pid"]])
    killed = since(0)
    assert worker.ends()[0]["at"] / 1e9 - killed < 0.3


def test_g14_a_release_that_hangs_is_tried_again_soon(play: Play) -> None:
    worker = play("steady:job", lease_ms=30_000)
    ran = worker.event("runs")
    worker.mood(hang=["End"])  # also what keeps the connection warm: a short wait at worst
    kill([ran["pid"]])
    killed = since(0)
    eventually(lambda: worker.verbs("End", hung=True), 5)
    worker.mood()
    ends = eventually(lambda: [end for end in worker.verbs("End") if "hung" not in end], 5)
    assert ends[0]["at"] / 1e9 - killed < 0.9, "the first try is short"


def test_a_child_that_dies_with_nothing_done_is_replaced_later_and_later(play: Play) -> None:
    worker = play("dies_after_hello")
    worker.event("go", count=3)
    first, second, third = (event["at"] for event in worker.events("go")[:3])
    assert (third - second) > (second - first) * 1.2


def test_solo_children_that_die_at_once_are_no_hot_loop(play: Play) -> None:
    worker = play("solo_breaks")
    worker.event("runs")
    worker.mood(suspects=2)
    eventually(lambda: len(solos(worker)) >= 2, 10)
    begun = since(0)
    eventually(lambda: since(0) > begun + 1.5, 5)
    assert len(solos(worker)) <= 8, "they come with the back-off, not with each tick"


def test_suspects_get_solo_children_up_to_the_limit(play: Play) -> None:
    worker = play("steady")
    worker.event("runs")
    worker.mood(suspects=5)
    eventually(lambda: len(solos(worker)) >= 2, 10)
    eventually(lambda: len(worker.events("runs")) >= 3, 10)
    assert len(solos(worker)) == 2, "as many as --solo says, and no more for the same suspects"


def solos(worker: Worker) -> list[object]:
    """The solo children that were started."""
    return [event for event in worker.events("start") if event["lanes"] == "solo"]
