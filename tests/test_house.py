"""The rules of the house, as tests: what a reader may rely on in every file, and what must be the same in three places.

Imports between the floors are the import linter's work (`make check`); here it is only tested that its contract names
every part of the package. Banned words are written as patterns that do not match themselves.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.draw import BEGIN, END, LIFECYCLE, drawn

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src" / "stillhere"
FOLDERS = ("src", "tests", "docs", "benchmarks", "examples", ".ci")
TEXT = {"", ".py", ".pyi", ".md", ".toml", ".lua", ".sql", ".yaml", ".yml", ".json", ".txt", ".sh", ".html", ".css"}

MAX_LINES = 400
NUMBERS = range(1, 16)
NOT_YET_TESTABLE = {15: "healing an empty queue is not built yet; nothing re-enqueues at all"}

BANNED = {
    r"\b(TO[D]O|FI[X]ME|X[X]X|HA[C]K)\b": "unfinished work",
    r"(?<![\w.])/wor[k]/|/tmp/brie[f]|\.librar[y]\b": "a path of one machine",
    r"(?i)\bissue\s*#?\d+": "an issue number; say what, not where it was asked",
    r"(?i)\b(the|my|this) brie[f]\b": "the project speaks of itself alone",
    r"\b(DESIG[N]|PROTOCO[L]|PROCESSE[S]|BRIE[F]|CONTRAC[T]|AP[I])\.md\b": "a text that is not in the repository",
    r"(?i)pypi\.or[g]|pythonhosted\.or[g]|registry\.npmj[s]|deb\.debian\.or[g]|/opt/pyp[i]": "a registry's address",
}


def python_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def texts() -> Iterator[Path]:
    for path in sorted(ROOT.iterdir()):
        if path.is_file() and path.suffix in TEXT and path.name != ".git":
            yield path
    for name in FOLDERS:
        for path in sorted((ROOT / name).rglob("*")):
            hidden = any(part == "__pycache__" or part.startswith(".") for part in path.relative_to(ROOT).parts[1:])
            if path.is_file() and path.suffix in TEXT and not hidden:
                yield path


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


class TestFiles:
    def test_the_walk_finds_the_tree(self) -> None:
        found = {name_of(path) for path in texts()}
        assert {"Makefile", "pyproject.toml", ".ci/run", "src/stillhere/domain/lease.py", "docs/guarantees.md"} <= found

    def test_no_source_file_is_long(self) -> None:
        sources = [path for path in SRC.rglob("*") if path.suffix in {".py", ".lua", ".sql"}]
        long = {name_of(path): lines for path in sources if (lines := len(path.read_text().splitlines())) > MAX_LINES}
        assert not long, f"over {MAX_LINES} lines: one idea a file"

    def test_every_module_says_what_it_is(self) -> None:
        files = [
            path
            for folder in (SRC, ROOT / "tests", ROOT / "benchmarks", ROOT / "docs")
            for path in python_files(folder)
        ]
        silent = [
            name_of(path)
            for path in files
            if "typing" not in path.parts and not ast.get_docstring(ast.parse(path.read_text()))
        ]
        assert not silent, "no module docstring"

    def test_no_banned_words(self) -> None:
        found = []
        for path in texts():
            for number, line in enumerate(path.read_text().splitlines(), 1):
                found += [
                    f"{name_of(path)}:{number}: {match[0]!r}: {why}"
                    for pattern, why in BANNED.items()
                    if (match := re.search(pattern, line))
                ]
        assert not found, "\n".join(found)

    @pytest.mark.parametrize(
        "line",
        ["# TO" + "DO: later", "see /wor" + "k/main", "as issue" + " 2 asks", "PROTOCO" + "L.md F6", "pypi.or" + "g"],
    )
    def test_the_banned_words_are_seen(self, line: str) -> None:
        assert any(re.search(pattern, line) for pattern in BANNED)

    @pytest.mark.parametrize(
        "line", ["src/stillhere/worker/board.py", "see docs/api.md", "issues are welcome", "brief"]
    )
    def test_innocent_words_are_left_alone(self, line: str) -> None:
        assert not any(re.search(pattern, line) for pattern in BANNED)


class TestFloors:
    def layers(self) -> set[str]:
        config = (ROOT / "pyproject.toml").read_text()
        contract = next(c for c in tomllib.loads(config)["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
        return {part for layer in contract["layers"] for part in re.findall(r"\w+", layer)}

    def test_every_part_of_the_package_has_its_floor(self) -> None:
        parts = {path.stem for path in SRC.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
        assert parts - {"__init__"} <= self.layers(), "name it in the layers of pyproject.toml"

    def test_the_domain_stands_on_the_standard_library_and_msgspec(self) -> None:
        allowed = sys.stdlib_module_names | {"msgspec", "stillhere"}
        foreign = []
        for path in python_files(SRC / "domain"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                foreign += [f"{name_of(path)}: {name}" for name in names if name.split(".")[0] not in allowed]
        assert not foreign


class TestGuarantees:
    def in_port(self) -> dict[int, str]:
        text = ast.get_docstring(ast.parse((SRC / "ports" / "backend.py").read_text())) or ""
        return {int(number): word for number, word in re.findall(r"^G(\d+)\s+(\w+)", text, re.MULTILINE)}

    def in_docs(self) -> dict[int, str]:
        text = (ROOT / "docs" / "guarantees.md").read_text()
        return {int(number): word for number, word in re.findall(r"^## G(\d+) (\w+)", text, re.MULTILINE)}

    def in_tests(self) -> set[int]:
        """Return the numbers that tests against a store or a worker bear: pure arithmetic alone shows no guarantee."""
        pure = (ROOT / "tests" / "unit", ROOT / "tests" / "model" / "test_lease_simulation.py")
        numbers = set()
        for path in python_files(ROOT / "tests"):
            if not any(path.is_relative_to(p) for p in pure):
                numbers |= {int(n) for n in re.findall(r"def test_(?:\w*_)?g(\d+)_", path.read_text())}
        return numbers

    def test_docs_and_port_promise_the_same(self) -> None:
        assert self.in_docs() == self.in_port()
        assert list(self.in_docs()) == list(NUMBERS)

    def test_each_guarantee_is_shown_by_a_test_of_its_number(self) -> None:
        missing = set(NUMBERS) - self.in_tests() - set(NOT_YET_TESTABLE)
        assert not missing, f"no test against a store or worker bears {sorted(f'g{n}_' for n in missing)} in its name"

    def test_no_test_bears_a_number_that_is_not_promised(self) -> None:
        assert self.in_tests() <= set(NUMBERS)
        assert not self.in_tests() & set(NOT_YET_TESTABLE), "testable now: take it off the list"


class TestScripts:
    scripts = sorted(SRC.rglob("*.lua"))

    @pytest.mark.parametrize("path", scripts, ids=lambda path: path.name)
    def test_every_script_has_its_header(self, path: Path) -> None:
        head = path.read_text().splitlines()
        if path.name.startswith("_"):
            assert head[0].startswith("-- "), "a shared part says in its first line what it is"
            return
        comments = "\n".join(line for line in head if line.startswith("--"))
        for field in ("reply", "guarantees"):  # a script without arguments of its own has no `args`
            assert re.search(rf"^-- {field}:", comments, re.MULTILINE), f"{name_of(path)} has no `-- {field}:`"
        named = re.search(r"^-- guarantees:(.*)$", comments, re.MULTILINE)
        numbers = {int(n) for n in re.findall(r"\bG(\d+)\b", named[1] if named else "")}
        assert numbers <= set(NUMBERS)


class TestDocs:
    def test_the_lifecycle_diagram_is_not_stale(self) -> None:
        text = LIFECYCLE.read_text()
        assert BEGIN in text
        assert END in text
        assert drawn(text) == text, "run `make docs`"

    def test_every_link_between_the_pages_leads_somewhere(self) -> None:
        link = re.compile(r"\]\((?!https?:|#|mailto:)([^)#]+)")
        pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
        links = [(page, target) for page in pages for target in link.findall(page.read_text())]
        broken = [f"{name_of(page)}: {target}" for page, target in links if not (page.parent / target).exists()]
        assert not broken
