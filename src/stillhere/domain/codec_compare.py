"""Is what came back the very value that was given: same exact types, same values, all the way down.

The codec asks this once for each call that it cannot settle by the types of its leaves. `difference` answers None or
the first place where the two part, with both sides, so that the error can say what *would* come back. It trusts no
``__eq__`` of containers, because ``True == 1 == 1.0`` and a subclass equals its base; it walks, and compares leaves by
exact type.

Two differences are stated in the documentation and allowed: an int under a ``float`` annotation arrives as the equal
float, and an aware datetime keeps its instant and offset but not the name of its zone. Everything else is reported.

Walking is slow for large plain containers, so `identical` asks ``marshal`` first where the annotation is plain: its
bytes differ as soon as a type, the sign of a zero or the order of a dict differs, it refuses subclasses, and nothing
of it is ever stored. It would take any buffer for ``bytes``, hence `is_plain` admits no annotation that can produce
one.
"""

from __future__ import annotations

import dataclasses
import marshal
import math
import types
import typing
from collections.abc import Callable, Iterable
from datetime import datetime, time
from decimal import Decimal
from typing import Any, NamedTuple

_PLAIN_LEAVES = frozenset({str, int, float, bool, type(None), None, Any})
_PLAIN_CONTAINERS = frozenset({list, dict, tuple, set, frozenset})
_MISSING = object()
_MARSHAL_VERSION = 2
"""The newest version without references between equal objects: those depend on identity, not on value."""


class Difference(NamedTuple):
    """The first place where two values part: a path such as ``[3].name``, and both sides."""

    path: str
    given: object
    back: object


Value = Any
"""A user's value: any type is right here, that is what this module is about."""

Encode = Callable[[Value], Value]


def is_plain(annotation: object) -> bool:
    """Whether values under this annotation are made of JSON's own Python types only, so that `marshal` may judge."""
    if isinstance(annotation, type) or annotation in (None, Any):
        return annotation in _PLAIN_LEAVES or annotation in _PLAIN_CONTAINERS
    origin = typing.get_origin(annotation)
    if origin in _PLAIN_CONTAINERS or origin in (typing.Union, types.UnionType):
        return all(argument is Ellipsis or is_plain(argument) for argument in typing.get_args(annotation))
    return False


def identical(given: Value, back: Value) -> bool:
    """Whether two values under a plain annotation are the same; False may also mean: not told, so walk."""
    try:
        return marshal.dumps(given, _MARSHAL_VERSION) == marshal.dumps(back, _MARSHAL_VERSION)
    except ValueError:
        return False  # not marshal's: a subclass, or nested too deep


def difference(given: Value, back: Value, encode: Encode | None = None, path: str = "") -> Difference | None:
    """The first difference between `given` and `back`, or None. `encode` makes foreign types comparable."""
    kind = type(given)
    if kind is not type(back):
        if kind is int and type(back) is float and given == back:
            return None  # an int under a float annotation, and equal
        return Difference(path, given, back)
    walk = _WALKS.get(kind)
    if walk is not None:
        return walk(given, back, encode, path)
    names = field_names(kind)
    if names is not None:
        return _fields(given, back, names, encode, path)
    if isinstance(given, tuple):
        return _sequence(given, back, encode, path)  # a NamedTuple
    return None if _equal(given, back, encode) else Difference(path, given, back)


def field_names(kind: type) -> Iterable[str] | None:
    """Names of what makes up a value of a class: dataclass, msgspec Struct, attrs or pydantic; None for others."""
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    names = getattr(kind, "__struct_fields__", None)
    if names is not None:
        return typing.cast("Iterable[str]", names)
    attributes = getattr(kind, "__attrs_attrs__", None)
    if attributes is not None:
        return [attribute.name for attribute in attributes]
    if hasattr(kind, "__pydantic_validator__"):
        return ("__dict__", "__pydantic_extra__", "__pydantic_private__")
    return None


def _fields(given: Value, back: Value, names: Iterable[str], encode: Encode | None, path: str) -> Difference | None:
    for name in names:
        ours, theirs = getattr(given, name, _MISSING), getattr(back, name, _MISSING)
        step = path if name.startswith("__") else f"{path}.{name}"
        found = difference(ours, theirs, encode, step)
        if found is not None:
            return found
    return None


def _sequence(given: Value, back: Value, encode: Encode | None, path: str) -> Difference | None:
    if len(given) != len(back):
        return Difference(path, given, back)
    for index, (ours, theirs) in enumerate(zip(given, back, strict=True)):
        found = difference(ours, theirs, encode, f"{path}[{index}]")
        if found is not None:
            return found
    return None


def _mapping(given: Value, back: Value, encode: Encode | None, path: str) -> Difference | None:
    if len(given) != len(back):
        return Difference(path, given, back)
    for (key, ours), (their_key, theirs) in zip(given.items(), back.items(), strict=True):
        if difference(key, their_key, encode) is not None:
            return Difference(f"{path} key {key!r}", key, their_key)
        found = difference(ours, theirs, encode, f"{path}[{key!r}]")
        if found is not None:
            return found
    return None


def _set(given: Value, back: Value, encode: Encode | None, path: str) -> Difference | None:
    if len(given) != len(back):
        return Difference(path, given, back)
    theirs = {element: element for element in back}
    for element in given:
        twin = theirs.get(element, _MISSING)
        if twin is _MISSING or difference(element, twin, encode) is not None:
            return Difference(path, given, back)
    return None


def _float(given: float, back: float, _encode: Encode | None, path: str) -> Difference | None:
    same = given == back and math.copysign(1.0, given) == math.copysign(1.0, back)
    return None if same or (given != given and back != back) else Difference(path, given, back)  # noqa: PLR0124 (NaN)


def _decimal(given: Decimal, back: Decimal, _encode: Encode | None, path: str) -> Difference | None:
    return None if given.as_tuple() == back.as_tuple() else Difference(path, given, back)


def _datetime(given: datetime, back: datetime, _encode: Encode | None, path: str) -> Difference | None:
    same = given.utcoffset() == back.utcoffset() and given.replace(tzinfo=None) == back.replace(tzinfo=None)
    if given.tzinfo is None or back.tzinfo is None:  # without an offset only `fold` tells the two hours apart
        same = same and given.tzinfo is back.tzinfo and given.fold == back.fold
    return None if same else Difference(path, given, back)


def _time(given: time, back: time, _encode: Encode | None, path: str) -> Difference | None:
    same = (
        given.utcoffset() == back.utcoffset()
        and given.replace(tzinfo=None) == back.replace(tzinfo=None)
        and (given.tzinfo is None) == (back.tzinfo is None)
        and given.fold == back.fold
    )
    return None if same else Difference(path, given, back)


def _leaf(given: object, back: object, _encode: Encode | None, path: str) -> Difference | None:
    return None if given == back else Difference(path, given, back)


def _equal(given: Value, back: Value, encode: Encode | None) -> bool:
    """Compare values of a class we know nothing of: by its own `==`, or by what its codec makes of both.

    A class without ``__eq__`` compares by identity and an array answers with an array; for those two the encoded
    forms decide, which is the best that anybody can ask of them.
    """
    kind: Value = type(given)
    if given is back:
        return True
    if kind.__eq__ is not object.__eq__:
        answer = given == back
        if isinstance(answer, bool):
            return answer
    if encode is None:
        return False
    return difference(encode(given), encode(back)) is None


_Walk = Callable[[Any, Any, Encode | None, str], Difference | None]
_WALKS: dict[type, _Walk] = {
    dict: _mapping,
    list: _sequence,
    tuple: _sequence,
    set: _set,
    frozenset: _set,
    float: _float,
    Decimal: _decimal,
    datetime: _datetime,
    time: _time,
    **dict.fromkeys((str, int, bool, bytes, bytearray, memoryview, type(None)), _leaf),
}
