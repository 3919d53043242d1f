"""`stillhere worker`: how the command line becomes settings. Real workers have their tests beside the runtime's."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest

from stillhere.worker.settings import WorkerSettings
from tests.cli.conftest import Cli


@pytest.fixture
def started(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> list[WorkerSettings]:
    """What the supervisor was started with."""
    seen: list[WorkerSettings] = []

    def run(settings: WorkerSettings) -> int:
        seen.append(settings)
        return 70

    stand_in = types.ModuleType("stillhere.worker.supervisor.main")
    stand_in.__dict__["run"] = run
    monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    return seen


def test_the_defaults_are_the_settings_own(cli: Cli, started: list[WorkerSettings]) -> None:
    assert cli("worker", "proj.jobs:app", place=False).exit_code == 70, "the supervisor's exit code is the program's"
    assert started == [WorkerSettings(app="proj.jobs:app")]
    assert "proj" not in sys.modules, "the supervisor's process never imports user code"


def test_every_option(cli: Cli, started: list[WorkerSettings]) -> None:
    words = "-p 6 -c 2 -q billing -q default:3 --lease 1m --grace 90s --overflow 0 --long-after 0 --burst --name web.1"
    words += " --solo 9 --max-jobs 500 --max-memory 1.5G --retire-grace 2m"
    cli("--url", "redis://h", "--log", "json", "-v", "worker", "x", *words.split(), place=False)
    assert started == [
        WorkerSettings(
            app="x",
            processes=6,
            slots=2,
            queues={"billing": 1, "default": 3},
            lease_ms=60_000,
            grace_ms=90_000,
            overflow=0,
            long_after_ms=0,
            burst=True,
            name="web.1",
            solo=9,
            max_jobs=500,
            max_memory=3 << 29,
            retire_grace_ms=120_000,
            url="redis://h",
            log="json",
            log_level="debug",
        )
    ]


def test_by_the_environment(cli: Cli, started: list[WorkerSettings]) -> None:
    environ = {
        "STILLHERE_APP": "from.env:app",
        "STILLHERE_WORKER_LEASE": "45s",
        "STILLHERE_WORKER_QUEUE": "billing default:3",
        "STILLHERE_WORKER_SLOTS": "4",
        "STILLHERE_WORKER_BURST": "1",
        "STILLHERE_LOG_LEVEL": "warning",
    }
    cli("worker", "--lease", "50s", environ=environ, place=False)
    (settings,) = started
    assert (settings.app, settings.lease_ms, settings.slots, settings.burst) == ("from.env:app", 50_000, 4, True)
    assert settings.queues == {"billing": 1, "default": 3}
    assert settings.log_level == "warning"
    assert settings.url is None, "what the app says comes before the environment, and only a child can know that"


def test_by_the_project(cli: Cli, started: list[WorkerSettings], tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.stillhere]\napp = "proj.jobs:app"\n')
    cli("worker", place=False)
    assert started[0].app == "proj.jobs:app"


def test_no_app(cli: Cli, started: list[WorkerSettings]) -> None:
    assert "Which app? stillhere worker pkg.module:app" in cli.fails(64, "worker", place=False)
    assert not started


def test_a_wrong_app_is_one_line_and_exit_code_78(tmp_path: Path) -> None:
    environ = {"PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src"), "STILLHERE_URL": "redis://127.0.0.1:1"}
    command = [sys.executable, "-m", "stillhere", "worker", "proj.jobs:app"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environ, timeout=60, check=False)
    assert done.returncode == 78
    assert f"No module named 'proj' in {tmp_path}: start from the project's root." in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--lease", "1ms"], "--lease 1ms: a lease is from 500ms to 1d long."),
        (["--lease", "10 min"], "lease='10 min': write 10m, 90s, 1h30m or a number of seconds."),
        (["-q", "a:0"], "'a:0': a weight is a whole number from 1 to 1000."),
        (["-q", "a b"], "a name is text without spaces"),
        (["-c", "0"], "0 is not in the range"),
        (["--max-memory", "much"], "'much': write 512M, 2G or a number of bytes."),
        (["--max-memory", "1,5G"], "'1,5G': write 512M, 2G or a number of bytes."),
        (["--max-memory", "-1"], "'-1': write 512M, 2G or a number of bytes."),
        (["--max-memory", "512"], "--max-memory 512: a process needs 64M or more. Write 512M, 2G; 0: no limit."),
        (["--max-jobs", "-1"], "-1 is not in the range"),
        (["--retire-grace", "soon"], "retire_grace='soon': write 10m"),
        (["--name", "a-b"], "--name 'a-b': letters, digits, '.' and '_', at most 64."),
    ],
)
def test_what_is_wrong(cli: Cli, started: list[WorkerSettings], words: list[str], says: str) -> None:
    assert says in " ".join(cli.fails(64, "worker", "x", *words, place=False).split())
    assert not started


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("67108864", 1 << 26), ("512M", 1 << 29), ("2g", 2 << 30), ("1.5 GiB", 3 << 29), ("65536kb", 1 << 26)],
)
def test_sizes_are_read(cli: Cli, started: list[WorkerSettings], text: str, size: int) -> None:
    cli("worker", "x", "--max-memory", text, place=False)
    assert started[0].max_memory == size
