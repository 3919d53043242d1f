"""Finding an app by its name: every way to be wrong has its own text.

A stand-in for `stillhere.app` is put among the loaded modules, as a user's `from stillhere import App` does.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from stillhere.discovery import AppPath, find_app_path, load_app
from stillhere.domain.errors import ConfigurationError


class App:
    """What the stand-in module calls App."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory; what is imported from it is forgotten afterwards."""
    before = dict(sys.modules)
    stand_in = types.ModuleType("stillhere.app")
    stand_in.__dict__["App"] = App
    monkeypatch.setitem(sys.modules, "stillhere.app", stand_in)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - set(before):
        del sys.modules[name]


IMPORT = "import sys\nApp = sys.modules['stillhere.app'].App\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(IMPORT + text)


def complaint(path: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_app(path)
    return str(caught.value)


class TestLoad:
    def test_by_module_and_attribute(self, project: Path) -> None:
        write(project / "shop" / "jobs.py", "one = App()\ntwo = App()\n")
        assert load_app("shop.jobs:two") is sys.modules["shop.jobs"].two

    def test_by_module_alone_when_it_holds_one(self, project: Path) -> None:
        write(project / "shop.py", "app = App()\nsame = app\nother = 3\n")
        assert load_app("shop") is sys.modules["shop"].app

    def test_from_a_directory_below_the_projects_root(self, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (project / "pyproject.toml").write_text("")
        write(project / "shop.py", "app = App()\n")
        (project / "notes").mkdir()
        monkeypatch.chdir(project / "notes")
        assert isinstance(load_app("shop"), App)

    def test_an_attribute_of_an_attribute(self, project: Path) -> None:
        write(project / "shop.py", "class box:\n    app = App()\n")
        assert isinstance(load_app("shop:box.app"), App)


class TestComplaints:
    def test_no_such_module(self, project: Path) -> None:
        assert complaint("proj.app:app") == f"No module named 'proj' in {project}: start from the project's root."

    def test_no_such_part_of_a_package(self, project: Path) -> None:
        write(project / "proj" / "__init__.py", "")
        assert complaint("proj.app") == f"No module named 'proj.app' in {project}."

    def test_a_module_that_is_no_package(self, project: Path) -> None:
        write(project / "proj.py", "")
        assert complaint("proj.app") == "No module named 'proj.app'; 'proj' is not a package."

    def test_wrong_attribute_names_those_that_are_there(self, project: Path) -> None:
        write(project / "proj.py", "app = App()\n")
        assert complaint("proj:application") == "proj has no attribute 'application'. Apps found there: app."

    def test_attribute_that_is_no_app(self, project: Path) -> None:
        write(project / "proj.py", "app = 'hello'\n")
        assert complaint("proj:app") == "proj:app is not an App but of type str. Apps found there: none."

    def test_no_app(self, project: Path) -> None:
        write(project / "proj.py", "")
        expected = "proj holds no App: write app = App() in it, or name another module. (Imported from {}.)"
        assert complaint("proj") == expected.format(project / "proj.py")

    def test_several_apps(self, project: Path) -> None:
        write(project / "proj.py", "a = App()\nb = App()\n")
        assert complaint("proj") == "proj holds 2 Apps; say which: proj:a or proj:b."

    @pytest.mark.parametrize("path", ["", ":app", "proj:", "proj app", "proj..app", ".proj", "proj:a:b"])
    def test_not_a_name(self, project: Path, path: str) -> None:
        assert complaint(path) == f"{path!r} does not name an app: write pkg.module or pkg.module:app."

    def test_a_files_name(self, project: Path) -> None:
        assert complaint("./proj/jobs.py:app").endswith("did you mean 'proj.jobs'?")

    def test_module_that_raises_shows_the_users_frames_only(self, project: Path) -> None:
        write(project / "proj.py", "def f():\n    return 1 / 0\nf()\n")
        text = complaint("proj")
        assert text.startswith("proj raised while it was imported:\n\nTraceback")
        assert text.endswith("ZeroDivisionError: division by zero")
        assert f'"{project / "proj.py"}", line 5, in <module>' in text
        assert "discovery.py" not in text
        assert "importlib" not in text

    def test_module_that_lacks_another_one_is_a_raise(self, project: Path) -> None:
        write(project / "proj.py", "import no_such_thing_here\n")
        text = complaint("proj")
        assert text.startswith("proj raised while it was imported:")
        assert text.endswith("ModuleNotFoundError: No module named 'no_such_thing_here'")

    def test_syntax_error_shows_the_line(self, project: Path) -> None:
        write(project / "proj.py", "def f(:\n")
        text = complaint("proj")
        assert f'File "{project / "proj.py"}", line 3' in text
        assert "SyntaxError" in text

    def test_module_that_exits(self, project: Path) -> None:
        write(project / "proj.py", "sys.exit('goodbye')\n")
        assert complaint("proj").endswith("SystemExit: goodbye")

    def test_a_mistake_that_we_found_is_its_text_and_place(self, project: Path) -> None:
        write(project / "proj.py", "from stillhere.domain.errors import ConfigurationError as C\nraise C('Twice.')\n")
        assert complaint("proj") == f"Twice. (at {project / 'proj.py'}:4)"

    def test_a_mistake_that_python_has_wrapped(self, project: Path) -> None:
        body = "from stillhere.domain.errors import ConfigurationError as C\nraise RuntimeError from C('Method.')\n"
        write(project / "proj.py", body)
        assert complaint("proj") == f"Method. (at {project / 'proj.py'}:4)"


class TestName:
    def test_the_flag_is_first(self, project: Path) -> None:
        (project / "pyproject.toml").write_text("broken [")
        assert find_app_path("a", {"STILLHERE_APP": "b"}, project) == AppPath("a", "the command line")

    def test_then_the_environment(self, project: Path) -> None:
        (project / "pyproject.toml").write_text('tool.stillhere.app = "c"')
        assert find_app_path(None, {"STILLHERE_APP": "b"}, project) == AppPath("b", "STILLHERE_APP")

    def test_then_the_project(self, project: Path) -> None:
        (project / "pyproject.toml").write_text('tool.stillhere.app = "c"')
        below = project / "deep" / "er"
        below.mkdir(parents=True)
        expected = AppPath("c", f"[tool.stillhere] in {project / 'pyproject.toml'}")
        assert find_app_path(None, {"STILLHERE_APP": " "}, below) == expected

    def test_a_project_that_says_nothing(self, project: Path) -> None:
        (project / "pyproject.toml").write_text("")
        assert find_app_path(None, {}, project) is None

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("broken [", "cannot be read"),
            ('tool.stillhere.url = "redis://"', "may hold only `app`, not url."),
            ("tool.stillhere = 3", "may hold only `app`, not 3."),
            ("tool.stillhere.app = 3", 'write app = "pkg.module:app".'),
        ],
    )
    def test_a_project_file_that_is_wrong(self, project: Path, text: str, says: str) -> None:
        (project / "pyproject.toml").write_text(text)
        with pytest.raises(ConfigurationError, match=str(project / "pyproject.toml")) as caught:
            find_app_path(None, {}, project)
        assert says in str(caught.value)
