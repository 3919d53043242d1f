"""From a name such as ``proj.jobs:app`` to the App object, and from nothing to that name.

Two programs call this: the command line, for verbs that need the app's address or tasks, and the worker child, which
gets the name from its supervisor. It needs the standard library only, and it never imports `stillhere.app`: a module
that holds an App has imported it already, so the class is looked up among the modules that are there.

Each step that can fail has words of its own: the module is not there (and from where it was looked for), the module
raised (the user's own traceback, with our frames and the import system's cut off), there is no App in it, there are
several. A mistake that stillhere itself has found in the user's module, a task defined twice for example, is passed on
as its plain text and the place. All are `ConfigurationError`.

Importing a user's module runs the user's code. What it leaves behind when it fails half-way (threads, open files) is
not undone; callers end the process.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NamedTuple

from stillhere.domain.errors import ConfigurationError, StillhereError

PROJECT_FILE = "pyproject.toml"

_WORD = r"[^\W\d]\w*"
_PATH = re.compile(rf"({_WORD}(?:\.{_WORD})*)(?::({_WORD}(?:\.{_WORD})*))?")
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep  # noqa: PTH100, PTH120 - compared with frames' file names
_IMPORT_SYSTEM = ("<frozen importlib", os.path.dirname(importlib.__file__) + os.sep)  # noqa: PTH120 - as above


class AppPath(NamedTuple):
    """The name of an app, and where it was set, in words that can stand after "from"."""

    path: str
    origin: str


def find_app_path(flag: str | None, environ: Mapping[str, str], start: Path | None = None) -> AppPath | None:
    """The app that the user has named: on the command line, in ``STILLHERE_APP``, or in the project's file."""
    if flag:
        return AppPath(flag, "the command line")
    if named := environ.get("STILLHERE_APP", "").strip():
        return AppPath(named, "STILLHERE_APP")
    file = find_project_file(start or Path.cwd())
    in_project = None if file is None else _app_in_project(file)
    return AppPath(in_project, f"[tool.stillhere] in {file}") if in_project else None


def find_project_file(start: Path) -> Path | None:
    """The nearest pyproject.toml, here or above."""
    start = start.absolute()
    candidates = (directory / PROJECT_FILE for directory in (start, *start.parents))
    return next((file for file in candidates if file.is_file()), None)


def load_app(path: str) -> Any:
    """Import the module and return its App; raises `ConfigurationError` with the step that failed.

    The working directory, and the project's root where that is another one, come first on ``sys.path``, and stay there:
    the user's code may import more of itself later.
    """
    module_name, attribute = _parse(path)
    _extend_search_path()
    module = _import(module_name)
    app_class = _app_class()
    found = {} if app_class is None else _apps_in(module, app_class)
    if attribute is not None:
        return _named(module, attribute, app_class, found)
    if not found:
        raise ConfigurationError(
            f"{module_name} holds no App: write app = App() in it, or name another module. {_from(module)}"
        )
    if len(found) > 1:
        choices = " or ".join(f"{module_name}:{name}" for name in found)
        raise ConfigurationError(f"{module_name} holds {len(found)} Apps; say which: {choices}.")
    return next(iter(found.values()))


def load_tasks(app: Any) -> None:
    """Import the modules of ``App(include=[...])``; errors in the same words as those of `load_app`."""
    try:
        app.load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - they are the user's modules: they may raise anything
        text = _mistake(error) or _own_traceback("A module of App(include=[...])", error)
        raise ConfigurationError(text) from None


# ------------------------------------------------------------------------------------------------------------- steps


def _parse(path: str) -> tuple[str, str | None]:
    match = _PATH.fullmatch(path)
    if match is not None:
        return match[1], match[2]
    hint = ""
    if "/" in path or path.endswith(".py"):
        plain = path.partition(":")[0].removeprefix("./").removesuffix(".py").strip("/").replace("/", ".")
        hint = f" It is a module's name, not a file's: did you mean {plain!r}?" if _PATH.fullmatch(plain) else ""
    raise ConfigurationError(f"{path!r} does not name an app: write pkg.module or pkg.module:app.{hint}")


def _extend_search_path() -> None:
    cwd = Path.cwd()
    file = find_project_file(cwd)
    roots = [os.fspath(cwd)] if file is None else [os.fspath(cwd), os.fspath(file.parent)]
    sys.path[:0] = [root for root in dict.fromkeys(roots) if root not in sys.path]


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing != name and not name.startswith(f"{missing}."):
            raise ConfigurationError(_own_traceback(name, error)) from None
        if "is not a package" in str(error):
            raise ConfigurationError(f"{error}.") from None
        start = ": start from the project's root" if "." not in missing else ""
        raise ConfigurationError(f"No module named {missing!r} in {Path.cwd()}{start}.") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it is the user's module: it may raise anything
        raise ConfigurationError(_mistake(error) or _own_traceback(name, error)) from None


def _app_class() -> type | None:
    found = getattr(sys.modules.get("stillhere.app"), "App", None)
    return found if isinstance(found, type) else None


def _apps_in(module: ModuleType, app_class: type) -> dict[str, Any]:
    """The module's Apps by name; one that has two names counts once, under the first."""
    found: dict[str, Any] = {}
    for name, value in list(vars(module).items()):
        if isinstance(value, app_class) and not any(value is other for other in found.values()):
            found[name] = value
    return found


def _named(module: ModuleType, attribute: str, app_class: type | None, found: dict[str, Any]) -> Any:
    there = f"Apps found there: {', '.join(found) or 'none'}."
    value: Any = module
    for part in attribute.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise ConfigurationError(f"{module.__name__} has no attribute {attribute!r}. {there}") from None
    if app_class is None or not isinstance(value, app_class):
        kind = type(value).__name__
        raise ConfigurationError(f"{module.__name__}:{attribute} is not an App but of type {kind}. {there}")
    return value


def _from(module: ModuleType) -> str:
    """Which file it was: a module of the same name elsewhere on the path is a common surprise."""
    file = getattr(module, "__file__", None)
    return f"(Imported from {file}.)" if file else "(It is a directory without an __init__.py.)"


def _app_in_project(file: Path) -> str | None:
    import tomllib  # noqa: PLC0415 - most programs are told by a flag or the environment, and never read this file

    try:
        table = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("stillhere", {})
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}.") from None
    if not isinstance(table, dict) or set(table) - {"app"}:
        extra = ", ".join(sorted(set(table) - {"app"})) if isinstance(table, dict) else repr(table)
        raise ConfigurationError(f"[tool.stillhere] in {file} may hold only `app`, not {extra}.")
    app = table.get("app")
    if app is not None and not isinstance(app, str):
        raise ConfigurationError(f'[tool.stillhere] in {file}: write app = "pkg.module:app".')
    return app or None


# ----------------------------------------------------------------------------------------------- what the user did


def _mistake(error: BaseException) -> str:
    """The text of an error of ours inside `error` (Python 3.11 wraps some in a RuntimeError), with the user's line."""
    inner: BaseException | None = error
    while inner is not None and not isinstance(inner, StillhereError):
        inner = inner.__cause__
    if inner is None:
        return ""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if not _is_ours(frame.f_code.co_filename):
            place = f" (at {frame.f_code.co_filename}:{line})"
    return f"{inner}{place}"


def _own_traceback(name: str, error: BaseException) -> str:
    step: TracebackType | None = error.__traceback__
    while step is not None and _is_ours(step.tb_frame.f_code.co_filename):
        step = step.tb_next
    text = "".join(traceback.format_exception(type(error), error, step)).rstrip()
    return f"{name} raised while it was imported:\n\n{text}"


def _is_ours(file: str) -> bool:
    return file.startswith((_OURS, *_IMPORT_SYSTEM)) and not file.startswith(f"{_OURS}demo{os.sep}")
