"""The program as a whole: exit codes, options before and after the verb, the environment, what `--help` imports."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from stillhere import __version__
from stillhere.cli import face, main
from stillhere.cli.environment import ELSEWHERE, option_names
from stillhere.cli.exits import Code, code_of
from stillhere.domain import errors
from tests.cli.conftest import Cli

ROOT = Path(__file__).resolve().parents[2]


def python(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    base = {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=60, env=base | environ, check=False
    )


class TestHelp:
    def test_it_imports_next_to_nothing(self) -> None:
        code = """
import sys, click
before = set(sys.modules)
try:
    from stillhere.cli import main
    main(["--help"])
finally:
    new = set(sys.modules) - before
    print(sorted(name for name in new if "." not in name or name.startswith("stillhere")), file=sys.stderr)
"""
        done = python("-c", code)
        assert done.returncode == 0, done.stderr
        ours = {"stillhere", "stillhere.cli", "stillhere.cli.exits", "stillhere.cli.face", "stillhere.cli.options"}
        imported = set(json.loads(done.stderr.replace("'", '"')))
        assert imported >= ours
        assert {name for name in imported if name.startswith("stillhere")} == ours
        assert not imported & {"msgspec", "redis", "asyncio", "logging", "typing_extensions", "importlib.metadata"}

    def test_every_verb_is_in_it_and_can_be_called(self) -> None:
        text = CliRunner().invoke(main, ["--help"]).output
        for verb, (_, line) in face.VERBS.items():
            assert re.search(rf"^  {verb} +{re.escape(line)}$", text, re.MULTILINE)
            shown = CliRunner().invoke(main, [verb, "--help"])
            assert shown.exit_code == 0
            assert "--url" not in shown.output, "options of all verbs are shown once, in the group's help"

    def test_every_option_has_its_help(self) -> None:
        def walk(command: click.Command, path: str) -> None:
            if isinstance(command, click.Group) and command is not main:
                for name, inner in command.commands.items():
                    walk(inner, f"{path} {name}")
            silent = [
                p.name for p in command.params if isinstance(p, click.Option) and not p.help and p.type.name != "choice"
            ]
            assert not silent, path
            assert command.help, path

        for verb in face.VERBS:
            walk(face.load(verb), verb)

    def test_every_variable_is_named_like_its_option(self) -> None:
        def walk(command: click.Command, path: str) -> None:
            if isinstance(command, click.Group):
                for name, inner in command.commands.items():
                    walk(inner, f"{path} {name}")
            for option in command.params:
                if isinstance(option, click.Option) and option.allow_from_autoenv:
                    longest = max(option.opts, key=len).lstrip("-").replace("-", "_")
                    assert option.name == longest, path

        for verb in face.VERBS:
            walk(face.load(verb), verb)

    def test_version(self) -> None:
        assert CliRunner().invoke(main, ["--version"]).output == f"stillhere {__version__}\n"
        assert python("-m", "stillhere", "--version").stdout == f"stillhere {__version__}\n"


class TestExitCodes:
    def test_0_well(self, cli: Cli) -> None:
        assert cli("jobs").exit_code == 0

    def test_1_the_verdict_is_no(self, cli: Cli) -> None:
        assert cli("show", "unknown-job").exit_code == 1

    @pytest.mark.parametrize(
        "words", [["statsu"], ["jobs", "--limit", "0"], ["--colour"], ["show"], ["enqueue"], ["queue", "halt", "x"]]
    )
    def test_64_usage(self, cli: Cli, words: list[str]) -> None:
        assert cli(*words).exit_code == 64

    def test_64_names_the_nearest_verb(self, cli: Cli) -> None:
        assert "There is no command 'statsu' (did you mean 'status'?)." in cli.fails(64, "statsu")

    def test_69_unreachable_says_which_and_from_where(self, cli: Cli) -> None:
        said = cli.fails(69, "--url", "redis://user:secret@127.0.0.1:1/0", "status", place=False)
        assert "127.0.0.1:1" in said
        assert "from --url." in said
        assert "secret" not in said

    def test_69_by_the_environment(self, cli: Cli) -> None:
        said = cli.fails(69, "status", place=False, environ={"STILLHERE_URL": "redis://127.0.0.1:1/0"})
        assert "from STILLHERE_URL." in said

    def test_69_says_that_nothing_was_sent(self, cli: Cli) -> None:
        said = cli.fails(69, "enqueue", "x", place=False, environ={"STILLHERE_URL": "redis://127.0.0.1:1/0"})
        expected = "Cannot reach redis://127.0.0.1:1/0 (connection refused), from STILLHERE_URL. Nothing was enqueued."
        assert said == f"stillhere: {expected}\n"

    def test_78_a_demo_without_its_server(self, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        from stillhere.cli import demo

        monkeypatch.setattr(demo, "find_spec", lambda _name: None)
        assert "pip install 'stillhere[embedded]'" in cli.fails(78, "demo", place=False)

    def test_77_needs_yes(self, cli: Cli) -> None:
        cli.add()
        assert cli("cancel", "task:ping").exit_code == 77

    @pytest.mark.parametrize("url", ["localhost", "mysql://x", "redis://host:port/0"])
    def test_78_a_bad_url(self, cli: Cli, url: str) -> None:
        cli.fails(78, "--url", url, "status", place=False)

    def test_78_no_store(self, cli: Cli) -> None:
        said = cli.fails(78, "status", place=False)
        assert said.startswith("stillhere: No store is configured. Give --url")

    def test_78_no_such_app(self, cli: Cli, tmp_path: Path) -> None:
        said = cli.fails(78, "--app", "proj.app", "status", place=False)
        assert said == f"stillhere: No module named 'proj' in {tmp_path}: start from the project's root.\n"

    def test_78_a_bad_level(self, cli: Cli) -> None:
        assert "write debug, info" in cli.fails(78, "jobs", environ={"STILLHERE_LOG_LEVEL": "loud"})

    def test_70_a_fault_of_ours_is_named_one(self, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        from stillhere.cli import filters

        def broken(_words: object) -> None:
            message = "oops"
            raise ZeroDivisionError(message)

        monkeypatch.setattr(filters, "parse", broken)
        said = cli.fails(70, "jobs")
        assert said.startswith("stillhere: ZeroDivisionError: oops. This is a fault of stillhere")
        assert "Traceback" not in said
        assert "in broken" in cli.fails(70, "-v", "jobs")

    def test_130_interrupted(self, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        from stillhere.cli import filters

        def interrupted(_words: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(filters, "parse", interrupted)
        assert "interrupted" in cli.fails(130, "jobs")

    def test_every_public_error_has_a_code(self) -> None:
        classes = [
            kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.StillhereError)
        ]
        assert len(classes) > 10
        for kind in classes:
            assert code_of(kind.__new__(kind)) is not None
        assert code_of(errors.StoreFull("full")) is Code.REFUSED
        assert code_of(errors.ArgumentError("bad")) is Code.USAGE
        assert code_of(ZeroDivisionError()) is None

    def test_141_a_reader_that_went_away(self, cli: Cli) -> None:
        for _ in range(50):
            cli.add()
        command = f"{sys.executable} -m stillhere --url '{cli.url}' --namespace {cli.namespace} jobs --json"
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {command} --limit 50 | true"],
            capture_output=True,
            text=True,
            env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
            check=False,
        )
        assert done.returncode == 141, done.stderr
        assert done.stderr == ""


class TestOptionsOfAllVerbs:
    def test_before_or_after_the_verb(self, cli: Cli) -> None:
        before = cli("--json", "jobs")
        after = cli("jobs", "--json")
        assert json.loads(before.stdout) == json.loads(after.stdout) == {"jobs": [], "after": None}

    def test_the_later_one_wins(self, cli: Cli) -> None:
        result = cli("--url", "redis://127.0.0.1:1/0", "jobs", "--url", cli.url, place=False)
        assert result.exit_code == 0

    def test_in_a_group_of_verbs(self, cli: Cli) -> None:
        assert json.loads(cli("dead", "list", "--json").stdout) == {"jobs": [], "after": None}

    def test_json_is_never_mixed_with_log_lines(self, cli: Cli) -> None:
        cli.worker()
        result = cli("--json", "enqueue", "unheard_of", "--id", "x")
        assert json.loads(result.stdout)["id"] == "x"
        assert "no live worker knows" in result.stderr

    def test_json_log_lines(self, cli: Cli) -> None:
        cli.worker()
        result = cli("--log", "json", "enqueue", "unheard_of_either", "--id", "x")
        line = json.loads(result.stderr.splitlines()[0])
        assert line["level"] == "warning"
        assert line["at"].endswith("Z")

    def test_colours_only_on_a_terminal_and_when_wanted(self, cli: Cli) -> None:
        cli.worker()
        cli.dead()
        where = ["--url", cli.url, "--namespace", cli.namespace]
        coloured = CliRunner().invoke(main, [*where, "jobs"], color=True).stdout
        assert "\x1b[31mdead\x1b[0m" in coloured
        assert "\x1b" not in CliRunner().invoke(main, [*where, "--no-color", "jobs"], color=True).stdout
        assert "\x1b" not in CliRunner().invoke(main, [*where, "jobs"], color=True, env={"NO_COLOR": "1"}).stdout
        assert "\x1b" not in cli("jobs").stdout


class TestEnvironment:
    def test_an_option_of_a_verb(self, cli: Cli) -> None:
        for _ in range(3):
            cli.add()
        shown = cli("jobs", "--json", environ={"STILLHERE_JOBS_LIMIT": "2"})
        assert len(json.loads(shown.stdout)["jobs"]) == 2
        shown = cli("dead", "list", environ={"STILLHERE_DEAD_LIST_LIMIT": "none"})
        assert shown.exit_code == 64

    def test_an_option_of_all_verbs(self, cli: Cli) -> None:
        assert json.loads(cli("jobs", environ={"STILLHERE_JSON": "1"}).stdout) == {"jobs": [], "after": None}

    def test_the_flag_wins(self, cli: Cli) -> None:
        cli.add()
        cli.add()
        shown = cli("jobs", "--json", "--limit", "1", environ={"STILLHERE_JOBS_LIMIT": "2"})
        assert len(json.loads(shown.stdout)["jobs"]) == 1

    def test_one_that_nothing_reads_is_a_warning_with_the_nearest_name(self, cli: Cli) -> None:
        result = cli("jobs", environ={"STILLHERE_WORKER_LEES": "3s"})
        assert result.exit_code == 0
        said = (
            "stillhere: STILLHERE_WORKER_LEES is set, but nothing reads it (did you mean 'STILLHERE_WORKER_LEASE'?).\n"
        )
        assert result.stderr == said

    @pytest.mark.parametrize(
        "name", ["STILLHERE_NAMESPACE", "STILLHERE_WORKER_LEASE", "STILLHERE_DEAD_LIST_LIMIT", "STILLHERE_VERBOSE"]
    )
    def test_those_that_are_read_are_no_warning(self, cli: Cli, name: str) -> None:
        value = {"STILLHERE_VERBOSE": "0", "STILLHERE_NAMESPACE": "x"}.get(name, "5")
        assert "nothing reads" not in cli("config", environ={name: value}).stderr

    def test_a_name_with_version_is_no_command(self, cli: Cli) -> None:
        assert cli.well("jobs", environ={"STILLHERE_VERSION": "1.2"}) == "no jobs\n"

    def test_every_variable_that_the_code_reads_is_known(self) -> None:
        known = {f"STILLHERE_{name}" for name in ELSEWHERE} | set(option_names())
        known |= {f"STILLHERE_{name}" for name in ("JSON", "LOG", "NO_COLOR", "VERBOSE")}
        read = set()
        for path in (ROOT / "src").rglob("*.py"):
            text = path.read_text()
            read |= set(re.findall(r"environ(?:\.get\(|\[)\"(STILLHERE_\w+)\"", text))
        assert read >= {"STILLHERE_URL", "STILLHERE_APP"}
        assert read <= known


APP = "from stillhere import App\napp = App({})\n"


class TestPlace:
    """Which store: --url, the app, STILLHERE_URL, an embedded store that is there."""

    def config(self, cli: Cli, *words: str, **environ: str) -> dict[str, dict[str, str]]:
        result = cli("config", "--json", *words, place=False, environ=environ)
        assert result.exit_code == 0, result.output
        found: dict[str, dict[str, str]] = json.loads(result.stdout)
        return found

    def test_the_flag_is_first_and_imports_no_app(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "pyproject.toml").write_text('tool.stillhere.app = "not.there"')
        shown = self.config(cli, "--url", "redis://:pw@h/1", STILLHERE_URL="redis://other")
        assert shown["url"] == {"value": "redis://:***@h/1", "origin": "--url"}
        assert shown["app"]["origin"] == "not asked: --url"

    def test_then_what_the_app_says(self, cli: Cli, tmp_path: Path) -> None:
        name = f"proj_{cli.namespace}_a"
        (tmp_path / f"{name}.py").write_text(APP.format("'redis://from-app', namespace='shop'"))
        shown = self.config(cli, STILLHERE_APP=name, STILLHERE_URL="redis://from-env", STILLHERE_NAMESPACE="env")
        assert shown["url"] == {"value": "redis://from-app", "origin": f"App(url=...) in {name}"}
        assert shown["namespace"] == {"value": "shop", "origin": f"App(namespace=...) in {name}"}
        assert shown["app"] == {"value": name, "origin": "STILLHERE_APP"}

    def test_then_the_environment(self, cli: Cli, tmp_path: Path) -> None:
        name = f"proj_{cli.namespace}_b"
        (tmp_path / f"{name}.py").write_text(APP.format(""))
        (tmp_path / "pyproject.toml").write_text(f'tool.stillhere.app = "{name}:app"')
        shown = self.config(cli, STILLHERE_URL="redis://from-env", STILLHERE_NAMESPACE="env")
        assert shown["url"] == {"value": "redis://from-env", "origin": "STILLHERE_URL"}
        assert shown["namespace"] == {"value": "env", "origin": "STILLHERE_NAMESPACE"}
        assert shown["app"]["value"] == f"{name}:app"
        assert shown["app"]["origin"].startswith("[tool.stillhere] in ")

    def test_then_an_embedded_store_that_is_there(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / ".stillhere").mkdir(mode=0o700)
        shown = self.config(cli)
        store = tmp_path / ".stillhere"
        assert shown["url"] == {"value": f"embedded://{store}", "origin": f"the embedded store in {store}"}

    def test_a_command_that_looks_makes_none(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "pyproject.toml").write_text("")
        cli.fails(78, "status", place=False)
        assert not (tmp_path / ".stillhere").exists()

    def test_enqueue_makes_one_in_the_project(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "pyproject.toml").write_text("")
        result = cli("enqueue", "hello", place=False)
        assert result.exit_code == 0, result.output
        assert "embedded store in" in result.stderr
        assert cli("show", result.stdout.strip(), place=False).exit_code == 0

    def test_the_namespace_flag(self, cli: Cli) -> None:
        shown = self.config(cli, "--url", "redis://h", "--namespace", "n", STILLHERE_NAMESPACE="env")
        assert shown["namespace"] == {"value": "n", "origin": "--namespace"}

    def test_worker_options_and_those_of_others(self, cli: Cli) -> None:
        shown = self.config(
            cli,
            "--url",
            "redis://h",
            STILLHERE_WORKER_LEASE="1m30s",
            STILLHERE_STATUS_INTERVAL="2s",
            STILLHERE_LOG="json",
        )
        assert shown["worker lease"] == {"value": "1m30s", "origin": "STILLHERE_WORKER_LEASE"}
        assert shown["worker processes"] == {"value": "1", "origin": "default"}
        assert shown["status interval"] == {"value": "2s", "origin": "STILLHERE_STATUS_INTERVAL"}
        assert shown["log"] == {"value": "json", "origin": "STILLHERE_LOG"}

    def test_it_shows_the_rest_when_the_app_is_broken(self, cli: Cli) -> None:
        result = cli("config", "--app", "no.such", place=False)
        assert result.exit_code == 78
        assert "No module named 'no'" in result.stderr
        assert "worker lease" in result.stdout
