"""The codec's one promise, searched for a hole: the same value by exact type and value, or an `ArgumentError`.

The judge is written apart from the codec's own comparison: it spells a value out as a nested tuple of type names and
exact contents, so that the two can only agree on "the same" when it is.
"""

import dataclasses
import datetime as dt
import enum
import math
import uuid
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from stillhere.domain.codec_args import CallCodec
from stillhere.domain.codec_compare import difference
from stillhere.domain.errors import ArgumentError

ALLOWED = "allowed"


class Color(enum.Enum):
    RED = "r"


class Shade(enum.StrEnum):
    DARK = "d"


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Base:
    a: Any
    b: float = 1.0


@dataclasses.dataclass
class Child(Base):
    c: int = 0


class Box(msgspec.Struct):
    w: int
    inner: Any = None


class Point(NamedTuple):
    x: int
    y: float


class Shape(TypedDict):
    a: int


ANNOTATIONS: list[Any] = [
    None, bool, int, float, str, bytes, bytearray, Any, object, dt.datetime, dt.date, dt.time, dt.timedelta, uuid.UUID,
    Decimal, list, dict, tuple, set, frozenset, list[int], list[float], list[Any], list[bytes], dict[str, int],
    dict[int, str], dict[str, Any], dict[float, int], dict[dt.date, Any], set[int], set[float], frozenset[str],
    tuple[int, str], tuple[float, ...], int | None, int | float, str | None, bool | int, Color, Shade, Level, Base,
    Child, Box, Point, Shape, Literal["a", 1], list[Base], dict[str, list[tuple[int, ...]]], Base | None,
]  # fmt: skip


def as_view(raw: bytes) -> Any:
    """The same bytes behind a view, which JSON writes as if they were bytes."""
    return memoryview(raw)


offsets = st.builds(lambda s: dt.timezone(dt.timedelta(seconds=s)), st.integers(-86_399, 86_399))
zones = st.none() | st.just(dt.UTC) | offsets
texts = st.text(max_size=4) | st.text(st.characters(categories=["Cs", "Lu", "Nd"]), max_size=3)
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(2**70), 2**70), st.floats(), texts, st.binary(max_size=4),
    st.builds(bytearray, st.binary(max_size=4)), st.binary(max_size=2).map(as_view),
    st.datetimes(timezones=zones, allow_imaginary=True), st.dates(), st.times(timezones=st.none() | st.just(dt.UTC)),
    st.timedeltas(), st.uuids(), st.decimals(), st.sampled_from([*Color, *Shade, *Level, 1j, range(2), object(), ...]),
)  # fmt: skip
keys = st.one_of(
    texts, st.integers(-3, 3), st.booleans(), st.none(), st.floats(), st.dates(), st.sampled_from([*Shade, b"k"])
)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Containers of values."""
    return st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3),
        st.sets(keys, max_size=3),
        st.frozensets(keys, max_size=3),
        st.builds(Base, inner, st.floats()),
        st.builds(Child, inner, st.floats(), st.integers()),
        st.builds(Box, st.integers(), inner),
        st.builds(Point, st.integers(), st.floats()),
        st.fixed_dictionaries({"a": st.integers()}, optional={"z": inner}),
    )


values = st.recursive(leaves, nested, max_leaves=6)


def spelled(value: Any) -> Any:  # noqa: C901, PLR0911 - one case per type is the clearest
    """The value as a nested tuple that holds every type name and every bit that must survive."""
    kind = type(value).__name__
    match value:
        case float():
            return ("float", "nan" if math.isnan(value) else value.hex())
        case Decimal():
            return ("Decimal", value.as_tuple())
        case dt.datetime():
            return (
                "datetime",
                value.replace(tzinfo=None, fold=0).isoformat(),
                value.utcoffset(),
                value.fold * (not value.tzinfo),
            )
        case dt.time():
            return ("time", value.isoformat(), value.fold)
        case enum.Enum():
            return (kind, value.name)
        case dict():
            return (kind, tuple((spelled(k), spelled(v)) for k, v in value.items()))
        case set() | frozenset():
            return (kind, frozenset(map(spelled, value)))
        case list() | tuple():
            return (kind, tuple(map(spelled, value)))
        case Base():
            return (kind, spelled(vars(value)))
        case Box():
            return (kind, spelled(msgspec.structs.asdict(value)))
        case bytearray() | memoryview():
            return (kind, bytes(value))
        case _:
            return (kind, value)


def floats_allowed(value: Any) -> Any:
    """As `spelled`, with every int that a float holds exactly written as that float: the stated exception."""
    one = spelled(value)
    return _ints_as_floats(one)


def _ints_as_floats(one: Any) -> Any:
    if isinstance(one, frozenset):
        return frozenset(map(_ints_as_floats, one))
    if not isinstance(one, tuple):
        return one
    if len(one) == 2 and one[0] == "int" and isinstance(one[1], int):
        try:
            return ("float", float(one[1]).hex()) if float(one[1]) == one[1] else one
        except OverflowError:
            return one
    return tuple(map(_ints_as_floats, one))


def task(x: Any) -> None:
    """A task whose annotation is set before its codec is built."""


def codec_for(annotation: Any) -> CallCodec:
    task.__annotations__ = {"x": annotation, "return": None}
    return CallCodec(task, "task")


CODECS = [codec_for(annotation) for annotation in ANNOTATIONS]


@settings(max_examples=1_500)
@given(st.sampled_from(CODECS), values)
def test_the_same_by_type_and_value_or_an_argument_error(codec: CallCodec, value: Any) -> None:
    try:
        raw = codec.encode_call((value,), {})
    except ArgumentError:
        return
    raw.encode()  # it is text that any store can keep
    back = codec.decode_call(raw)[1]["x"]
    assert spelled(back) == spelled(value) or floats_allowed(back) == floats_allowed(value)


@settings(max_examples=500)
@given(values)
def test_a_checkpoint_comes_back_from_its_own_type_or_is_refused(value: Any) -> None:
    codec = CODECS[0]
    try:
        raw = codec.encode_checkpoint(value)
    except ArgumentError:
        return
    back = codec.restore(type(value), raw)
    assert spelled(back) == spelled(value) or floats_allowed(back) == floats_allowed(value)


@settings(max_examples=500)
@given(values, values)
def test_the_comparison_agrees_with_the_judge(one: Any, other: Any) -> None:
    assert (
        (difference(one, one) is None)
        or spelled(one) != spelled(one)
        or isinstance(one, (set, frozenset, dict, object))
    )
    if difference(one, other) is None:
        assert floats_allowed(one) == floats_allowed(other)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300)
@given(plain)
def test_whatever_json_itself_can_say_is_never_refused(value: Any) -> None:
    codec = CODECS[ANNOTATIONS.index(Any)]
    back = codec.decode_call(codec.encode_call((value,), {}))[1]["x"]
    assert spelled(back) == spelled(value)


@settings(max_examples=300)
@given(
    st.lists(plain, max_size=3), st.dictionaries(st.from_regex(r"[a-z]{1,3}", fullmatch=True), plain, max_size=3), plain
)
def test_any_shape_of_call_is_rebuilt(rest: list[Any], extra: dict[str, Any], flag: Any) -> None:
    def call(first: Any, /, second: Any, *rest: Any, flag: Any = None, **extra: Any) -> Any:
        return first, second, rest, flag, extra

    codec = CallCodec(call, "call")
    given_args, given_kwargs = (
        (1, "two", *rest),
        {"flag": flag, **{f"x_{name}": value for name, value in extra.items()}},
    )
    args, kwargs = codec.decode_call(codec.encode_call(given_args, given_kwargs))
    assert spelled(call(*args, **kwargs)) == spelled(call(*given_args, **given_kwargs))
