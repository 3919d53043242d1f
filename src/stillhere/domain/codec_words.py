"""What the codec says when it refuses: which value, what would become of it, and the cure.

The texts are our own: msgspec's speak of decoders, and call an integer of thirty digits a float. No text shows a
user's strings, because errors end in logs; numbers and times are shown where the number *is* the trouble.

`culprit` and `at_path` look into a value to find the part that made the trouble. They run only after a refusal, so
they may be slow; what they cannot find they leave out, and the message names the argument alone.
"""

from __future__ import annotations

import enum
import inspect
import re
import typing
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from stillhere.domain.codec_compare import Value, field_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stillhere.domain.codec_compare import Difference

_SHOWN = (int, float, Decimal, date, time, timedelta)
_PATH = re.compile(r" - at `(?:key in )?\$(?P<path>[^`]*)`")
_MISMATCH = re.compile(r"Expected `[^`]*`, got |Invalid ")
_STEP = re.compile(r"\[(\d+)\]|\.(\w+)")
_LOOKED_AT = 50


class Subject(NamedTuple):
    """What a message is about: the task, what to call the value, and the annotation it stands under."""

    task: str
    label: str
    """``argument 'when'``, ``the result``, ``the checkpoint``."""
    name: str = ""
    """The parameter's name; empty for results and checkpoints."""
    annotation: Value = inspect.Parameter.empty
    """`inspect.Parameter.empty` when there is none."""


def spell_type(annotation: Value) -> str:
    """An annotation as a person writes it: ``list[int]``, ``datetime``, ``int | None``."""
    if annotation is type(None) or annotation is None:
        return "None"
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__qualname__.rpartition("<locals>.")[2]
    text = re.sub(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_<])", "", inspect.formatannotation(annotation))
    return text.replace("<locals>.", "").replace("NoneType", "None")


def changed(subject: Subject, found: Difference, value: Value) -> str:
    """The value can be written, but another one would be read."""
    given, back = type(found.given), type(found.back)
    cure = _annotate(subject, value)
    here = f"{subject.task}: {subject.label}"
    bare = subject.annotation in (inspect.Parameter.empty, Any)
    if given is back or " key " in found.path:
        other = f"Pass what {_holder(subject)} can hold, or change the annotation."
        return f"{here}{_would_change(found)}. {cure if bare and given is not back else other}"
    if bare:
        missing = "has no annotation" if subject.annotation is inspect.Parameter.empty else "is annotated Any"
        if not found.path:
            return f"{here} {missing} and would come back as {back.__name__}. {cure}"
        part = f"{subject.name or subject.label}{found.path}"
        return f"{here} {missing}, and {part} would come back as {back.__name__}, not {given.__name__}. {cure}"
    instead = "Pass .value" if issubclass(given, enum.Enum) else f"Pass {_a(back)}"
    if isinstance(found.given, int) and back is float and given is int:
        return f"{here}{_would_change(found)}. Pass a number that a float can hold, or annotate it int."
    return f"{here}{found.path} would come back as {back.__name__}, not {given.__name__}. {instead}, or a{cure[1:]}"


def not_storable(subject: Subject, value: Value, encodes: Callable[[Value], bool]) -> str:
    """The value, or a part of it, is of a type that JSON has no place for."""
    path, part = culprit(value, encodes)
    here = f"{subject.task}: {subject.label}{path}"
    what = f"{here} is {_a(type(part))}, which cannot be stored."
    if isinstance(part, PurePath):
        return f"{what} Pass str(path), or teach the app: App(codecs={{Path: (str, Path)}})."
    if isinstance(part, dict):
        return f"{here} is a dict with keys that JSON cannot carry. Use text, numbers, UUIDs, dates or enums as keys."
    if type(part).__module__ in _STANDARD:
        kind = type(part).__name__
        return f"{what} Convert it first, or teach the app: App(codecs={{{kind}: (to_json, from_json)}})."
    return f"{what} Pass its primary key and load it in the task."


def not_allowed(subject: Subject, value: Value, error: Exception) -> str:
    """The annotation refuses the value: found at the call, where it would have failed in the worker."""
    path, part = at_path(value, str(error))
    annotation = spell_type(subject.annotation)
    here = f"{subject.task}: {subject.label}{path}"
    if "[...]" in str(error):  # somewhere in a dict or set: the decoder does not say where
        said = reason(error, with_path=False)
        return f"{here} holds what its annotation {annotation} does not allow ({said}). Pass that, or change it."
    if _MISMATCH.match(str(error)) and type(part).__name__ != annotation:
        where = f"is annotated {annotation}" if not path else f"the annotation {annotation} does not allow that"
        return f"{here} is {_a(type(part))}, but {where}. Pass what the annotation says, or change it."
    said = reason(error, with_path=False)
    return f"{here} does not fit its annotation: {said}. Pass what the annotation says, or change it."


def reason(error: Exception, *, with_path: bool = True) -> str:
    """What a library says, as a part of a sentence of ours."""
    text = str(error) if with_path else _PATH.sub("", str(error))
    text = text.replace("`", "").rstrip(".") or type(error).__name__
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]  # JSON stays JSON


def broken(subject: Subject, error: Exception) -> str:
    """Something else went wrong while the value was written or read: circular, too deep, the user's own code."""
    if isinstance(error, RecursionError):
        return f"{subject.task}: {subject.label} refers to itself or is nested too deep. Pass a flat reference."
    return f"{subject.task}: {subject.label} cannot be stored and read back ({type(error).__name__}: {error})."


def too_big(what: str, size: int, limit: int, most: str, verb: str) -> str:
    """More than a store should carry; `most` names the biggest part."""
    part = f", most of it {most!r}" if most else ""
    return f"{what} {_bytes(size)} (limit {_bytes(limit)}){part}. Store the data elsewhere and {verb} a reference."


def unusable(owner: str, annotation: Value, error: Exception) -> str:
    """The annotation itself cannot be served, whatever the value."""
    text = spell_type(annotation)
    if "union" in str(error):
        return (
            f"{owner} {text}: JSON cannot tell these types apart. "
            "Use one of them, or tagged Structs (class A(msgspec.Struct, tag=True))."
        )
    return f"{owner} {text}, which cannot be stored ({reason(error)}). Use a type that JSON can carry."


def unresolved(task: str, parameter: str, error: Exception) -> str:
    """An annotation that exists only for the type checker."""
    return (
        f"{task}: the annotation of {parameter!r} cannot be resolved ({type(error).__name__}: {error}). "
        "If it is imported under TYPE_CHECKING only, import it for the program too."
    )


def culprit(value: Value, encodes: Callable[[Value], bool], path: str = "") -> tuple[str, Value]:
    """The innermost part of `value` that cannot be written, with the path to it."""
    try:
        for step, part in _parts(value):
            if not encodes(part):
                return culprit(part, encodes, path + step)
    except RecursionError:
        pass
    return path, value


def at_path(value: Value, message: str) -> tuple[str, Value]:
    """The part of `value` that a decoder's message points at, as far as its path can be followed."""
    match = _PATH.search(message)
    steps = _STEP.finditer(match["path"]) if match and "..." not in match["path"] else ()
    path, part = "", value
    for step in steps:
        try:
            part = part[int(step[1])] if step[1] else _member(part, step[2])
        except (LookupError, TypeError, AttributeError):
            break
        path += step[0] if step[1] or not isinstance(part, dict) else f".{step[2]}"
    return path, part


def infer(value: Value) -> str:
    """An annotation, as text, under which `value` would come back the same, as far as a look at it can tell."""
    kind = type(value)
    if kind in (list, set, frozenset) and value:
        return f"{kind.__name__}[{_common(iter(value))}]"
    if kind is tuple and value:
        inner = _common(iter(value))
        return f"tuple[{', '.join(map(infer, value))}]" if inner == "Any" else f"tuple[{inner}, ...]"
    if kind is dict and value:
        return f"dict[{_common(iter(value))}, {_common(iter(value.values()))}]"
    return spell_type(kind)


def _annotate(subject: Subject, value: Value) -> str:
    wanted = infer(value)
    if not subject.name:
        return "Annotate the return type: -> " + wanted + "." if subject.label == "the result" else _IN_A_CLASS
    if "Any" in wanted:
        return f"Annotate it with a dataclass or a TypedDict that names the type of each part ({subject.name})."
    return f"Annotate it: {subject.name}: {wanted}."


_IN_A_CLASS = "Annotate its parts: keep them in a dataclass and restore that class."


def _common(values: Iterator[Value]) -> str:
    seen = list(dict.fromkeys(infer(value) for value, _ in zip(values, range(_LOOKED_AT), strict=False)))
    if len(seen) == 2 and "None" in seen:
        seen.sort(key="None".__eq__)
        return " | ".join(seen)
    return seen[0] if len(seen) == 1 else "Any"


def _would_change(found: Difference) -> str:
    path = found.path.partition(" key ")[0]
    if " key " in found.path:
        return f"{path} has a key that would come back as {_a(type(found.back))}, not {_a(type(found.given))}"
    if isinstance(found.given, _SHOWN) and isinstance(found.back, _SHOWN):
        spell = repr if str(found.given) == str(found.back) else str
        return f"{path} would come back as {_short(spell(found.back))} instead of {_short(spell(found.given))}"
    return f"{path} would come back changed or without some of its parts"


def _holder(subject: Subject) -> str:
    if subject.annotation is inspect.Parameter.empty:
        return "JSON"
    return f"the annotation {spell_type(subject.annotation)}"


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def _parts(value: Value) -> Iterator[tuple[str, Value]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield f"[{key!r}]", part
    elif isinstance(value, (list, tuple, set, frozenset)):
        for index, part in enumerate(value):
            yield f"[{index}]", part
    else:
        for name in field_names(type(value)) or ():
            part = getattr(value, name, None)
            yield ("" if name.startswith("__") else f".{name}"), part


def _member(value: Value, name: str) -> Value:
    return value[name] if isinstance(value, dict) else getattr(value, name)


def _a(kind: type) -> str:
    if kind is type(None):
        return "None"
    name = kind.__name__
    return f"an {name}" if name[:1].lower() in "aeio" else f"a {name}"


def _bytes(size: int) -> str:
    for unit, factor in (("MB", 1_000_000), ("kB", 1_000)):
        if size >= factor:
            return f"{size / factor:.1f}".removesuffix(".0") + f" {unit}"
    return f"{size} B"


_STANDARD = frozenset({"builtins", "collections", "pathlib", "ipaddress", "fractions", "array", "datetime", "zoneinfo"})
