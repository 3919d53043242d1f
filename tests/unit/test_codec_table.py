"""The codec, value by value: what is carried, in which spelling, and what is refused with which words."""

import dataclasses
import datetime as dt
import enum
import math
import typing
import uuid
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict, cast
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest

from stillhere.domain.codec import Hooks
from stillhere.domain.codec_args import CallCodec
from stillhere.domain.codec_compare import difference
from stillhere.domain.errors import ArgumentError, ConfigurationError

BARE = object()
UTC = dt.UTC
NAN, INF = math.nan, math.inf


class Color(enum.Enum):
    RED = "r"


class Shade(enum.StrEnum):
    DARK = "d"


class Level(enum.IntEnum):
    LOW = 1


class Right(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass
class Base:
    a: int


@dataclasses.dataclass
class Child(Base):
    b: int = 1


@dataclasses.dataclass
class Rich:
    when: dt.datetime
    key: uuid.UUID
    price: Decimal
    tags: set[str]
    inner: list[Base]


class Point(NamedTuple):
    x: int
    y: float


class Shape(TypedDict):
    a: int
    b: NotRequired[str]


class Box(msgspec.Struct):
    w: int
    h: int = 1


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    name: str


class Model(pydantic.BaseModel):
    a: int
    when: dt.datetime
    f: float = 1.0
    inner: "Model | None" = None


class OwnStr(str):
    __slots__ = ()


class OwnInt(int):
    pass


class OwnDict(dict[Any, Any]):
    pass


class OwnList(list[Any]):
    pass


class Plain:
    """A class that no codec knows."""


def codec(annotation: Any, codecs: Any = None) -> CallCodec:
    def task(x: Any) -> None: ...

    task.__annotations__ = {} if annotation is BARE else {"x": annotation}
    return CallCodec(task, "task", Hooks(codecs))


def there_and_back(annotation: Any, value: Any, codecs: Any = None) -> Any:
    one = codec(annotation, codecs)
    raw = one.encode_call((value,), {})
    args, kwargs = one.decode_call(raw)
    assert args == ()
    return kwargs["x"]


NOON = dt.datetime(2026, 12, 1, 12, 0, 0, 123456)  # noqa: DTZ001 - naive on purpose


def named(item: Any) -> str:
    """A short name for a row of a table: the same in every process, so that runs can share the tests out."""
    return str(getattr(item, "__name__", type(item).__name__))


CARRIED: list[tuple[Any, Any]] = [
    (type(None), None),
    (bool, True),
    (str, ""),
    (str, "\x00 é 𝄞 \N{PILE OF POO} \u2028"),
    (str, "\ud800 half"),
    (dict[str, str], {"\udfff": "\ud800"}),
    (bytes, b"\x00\xff"),
    (bytearray, bytearray(b"\x00\xff")),
    (int, 2**53 + 1),
    (int, -(2**63)),
    (int, 2**64),
    (int, 10**30),
    (int, 10**4000),
    (float, 0.1),
    (float, -0.0),
    (float, 5e-324),
    (float, 1.7976931348623157e308),
    (float, NAN),
    (float, -INF),
    (list[float], [1.0, NAN, INF]),
    (dict[str, Any], {"a": NAN, "b": [INF]}),
    (BARE, NAN),
    (BARE, {"a": [1, "x", None, True, 1.5, -0.0]}),
    (Any, {"deep": {"deeper": [{}]}}),
    (BARE, 10**30),
    (dt.datetime, NOON),
    (dt.datetime, NOON.replace(tzinfo=UTC)),
    (dt.datetime, NOON.replace(tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30)))),
    (dt.date, dt.date(2026, 12, 1)),
    (dt.time, dt.time(1, 2, 3, 4)),
    (dt.time, dt.time(1, 2, tzinfo=UTC)),
    (dt.timedelta, dt.timedelta(days=-1, microseconds=1)),
    (uuid.UUID, uuid.UUID(int=7)),
    (Decimal, Decimal("1E+5")),
    (Decimal, Decimal("0.10")),
    (Decimal, Decimal("NaN")),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (tuple, (1, "a")),
    (list, [1, "a"]),
    (Sequence[int], [1, 2]),
    (Mapping[str, int], {"a": 1}),
    (Iterable[int], [1, 2]),
    (object, {"a": 1}),
    (Color, Color.RED),
    (Shade, Shade.DARK),
    (Level, Level.LOW),
    (Right, Right.READ | Right.WRITE),
    (Base, Base(1)),
    (Child, Child(1, 2)),
    (Rich, Rich(NOON, uuid.UUID(int=1), Decimal("1.50"), {"a"}, [Base(1)])),
    (Box, Box(1)),
    (Cat | Dog, Dog("Rex")),
    (list[Cat | Dog], [Cat(9), Dog("Rex")]),
    (Point, Point(1, 2.5)),
    (Shape, {"a": 1}),
    (Model, Model(a=1, when=NOON)),
    (Model, Model(a=1, when=NOON, f=NAN, inner=Model(a=2, when=NOON))),
    (list[Model], [Model(a=1, when=NOON)]),
    (Literal["a", 1], 1),
    (Literal["a", 1], "a"),
    (int | None, None),
    (int | float, 3),
    (int | float, 3.0),
    (str | int | None, 3),
    (Annotated[int, msgspec.Meta(ge=0)], 0),
    (Annotated[list[int], []], [1]),
    (dict[int, str], {1: "a"}),
    (dict[uuid.UUID, int], {uuid.UUID(int=1): 1}),
    (dict[dt.date, int], {dt.date(2026, 1, 1): 1}),
    (dict[Shade, int], {Shade.DARK: 1}),
    (dict[bytes, int], {b"\xff": 1}),
    (dict[str, list[tuple[int, dt.date]]], {"a": [(1, dt.date(2026, 1, 1))]}),
    (typing.TypeVar("T"), [1, "a"]),
]


@pytest.mark.parametrize(("annotation", "value"), CARRIED, ids=named)
def test_it_arrives_as_it_was_given(annotation: Any, value: Any) -> None:
    back = there_and_back(annotation, value)
    assert type(back) is type(value)
    assert difference(value, back) is None


def test_ordinary_values_use_plain_json_and_only_the_others_python_s() -> None:
    assert codec(BARE).encode_call(("é",), {}) == '{"x":"é"}'
    assert codec(BARE).encode_call((NAN,), {}) == '{"x":NaN}'
    assert codec(str).encode_call(("\ud800é",), {}) == '{"x":"\\ud800\\u00e9"}'


def test_a_zone_s_name_becomes_its_offset() -> None:
    given = dt.datetime(2026, 7, 1, tzinfo=ZoneInfo("Europe/Berlin"))
    back = there_and_back(dt.datetime, given)
    assert back == given
    assert back.utcoffset() == dt.timedelta(hours=2)


def test_the_second_of_two_equal_hours_keeps_its_offset_when_the_zone_is_known() -> None:
    given = dt.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)
    assert there_and_back(dt.datetime, given).utcoffset() == dt.timedelta(hours=1)


def test_an_int_for_a_float_arrives_as_the_equal_float() -> None:
    back = there_and_back(float, 3)
    assert (type(back), back) == (float, 3.0)
    assert there_and_back(list[float], [1, 2.5]) == [1.0, 2.5]


REFUSED: list[tuple[Any, Any, str]] = [
    (int, True, "is a bool, but is annotated int."),
    (bool, 1, "is an int, but is annotated bool."),
    (int, 3.0, "is a float, but is annotated int."),
    (float, Decimal("1.5"), "is a Decimal, but is annotated float."),
    (dt.date, NOON, "is a datetime, but is annotated date."),
    (str, 10**30, "is an int, but is annotated str."),
    (float, 2**53 + 1, "would come back as 9007199254740992.0 instead of 9007199254740993."),
    (float, 10**400, "does not fit its annotation: number out of range."),
    (int, 10**5000, "cannot be stored and read back (ValueError: Exceeds the limit (4300 digits)"),
    (Any, NOON, "is annotated Any and would come back as str. Annotate it: x: datetime."),
    (BARE, (1, 2), "has no annotation and would come back as list. Annotate it: x: tuple[int, ...]."),
    (BARE, (1, "a"), "has no annotation and would come back as list. Annotate it: x: tuple[int, str]."),
    (BARE, {1, 2}, "has no annotation and would come back as list. Annotate it: x: set[int]."),
    (BARE, b"a", "has no annotation and would come back as str. Annotate it: x: bytes."),
    (BARE, uuid.UUID(int=1), "has no annotation and would come back as str. Annotate it: x: UUID."),
    (BARE, Color.RED, "has no annotation and would come back as str. Annotate it: x: Color."),
    (BARE, Base(1), "has no annotation and would come back as dict. Annotate it: x: Base."),
    (
        BARE,
        {"a": [NOON]},
        "has no annotation, and x['a'][0] would come back as str, not datetime. Annotate it: x: dict",
    ),
    (BARE, {1: "a"}, "has a key that would come back as a str, not an int. Annotate it: x: dict[int, str]."),
    (BARE, {1: "a", "1": "b"}, "would come back changed or without some of its parts."),
    (dict[str, int], {"a": 1, 2: 3}, "has a key"),
    (dict[str, int], {"a": "b"}, "holds what its annotation dict[str, int] does not allow (expected int, got str)."),
    (Base, Child(1), "would come back as Base, not Child. Pass a Base, or annotate it: x: Child."),
    (Shape, {"a": 1, "c": 2}, "would come back changed or without some of its parts."),
    (str, Shade.DARK, "would come back as str, not Shade. Pass .value, or annotate it: x: Shade."),
    (int, Level.LOW, "would come back as int, not Level. Pass .value, or annotate it: x: Level."),
    (list[int], (1, 2), "would come back as list, not tuple. Pass a list, or annotate it: x: tuple[int, ...]."),
    (Sequence[int], (1, 2), "would come back as list, not tuple."),
    (Iterable[int], (1, 2), "would come back as list, not tuple."),
    (bytes, bytearray(b"a"), "would come back as bytes, not bytearray."),
    (list[bytes], [bytearray(b"a")], "[0] would come back as bytes, not bytearray."),
    (bytes, memoryview(b"a"), "would come back as bytes, not memoryview."),
    (list[int], [1, "a"], "[1] is a str, but the annotation list[int] does not allow that."),
    (Base, Base(cast("int", "a")), ".a is a str, but the annotation Base does not allow that."),
    (Annotated[int, msgspec.Meta(ge=0)], -1, "does not fit its annotation: expected int >= 0."),
    (str, OwnStr("a"), "is an OwnStr, which cannot be stored."),
    (int, OwnInt(1), "is an OwnInt, which cannot be stored."),
    (dict[str, int], OwnDict(a=1), "would come back as dict, not OwnDict."),
    (list[int], OwnList([1]), "would come back as list, not OwnList."),
    (dict[str, int], OrderedDict(a=1), "would come back as dict, not OrderedDict."),
    (dict[str, int], Counter("a"), "would come back as dict, not Counter."),
    (BARE, deque([1]), "is a deque, which cannot be stored. Convert it first, or teach the app"),
    (BARE, 1j, "is a complex, which cannot be stored. Convert it first, or teach the app"),
    (BARE, range(3), "is a range, which cannot be stored. Convert it first, or teach the app"),
    (Fraction, Fraction(1, 3), "is a Fraction, which cannot be stored. Convert it first, or teach the app"),
    (Path, Path("a"), "is a PosixPath, which cannot be stored. Pass str(path), or teach the app: App(codecs="),
    (BARE, object(), "is an object, which cannot be stored. Convert it first, or teach the app"),
    (Plain, Plain(), "is a Plain, which cannot be stored. Pass its primary key and load it in the task."),
    (BARE, [{"u": Plain()}], "[0]['u'] is a Plain, which cannot be stored. Pass its primary key"),
    (BARE, {(1, 2): 3}, "is a dict with keys that JSON cannot carry."),
    (BARE, ..., "is an ellipsis, which cannot be stored."),
    (BARE, len, "is a builtin_function_or_method, which cannot be stored."),
    (dt.datetime, NOON.replace(fold=1), "would come back as datetime.datetime("),
    (dt.datetime, NOON.replace(tzinfo=dt.timezone(dt.timedelta(seconds=61))), "would come back as 2026-12-01 12:00"),
    (dt.time, dt.time(1, tzinfo=ZoneInfo("Europe/Berlin")), "would come back as"),
    (None, 1, "is an int, but is annotated None."),
]


@pytest.mark.parametrize(("annotation", "value", "words"), REFUSED, ids=named)
def test_it_is_refused_at_the_call_with_these_words(annotation: Any, value: Any, words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        codec(annotation).encode_call((value,), {})
    assert str(caught.value).startswith("task: argument 'x'")
    assert words in str(caught.value)


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ArgumentError, match="refers to itself or is nested too deep"):
        codec(BARE).encode_call((loop,), {})


@pytest.mark.parametrize("annotation", [dt.datetime | str, bytes | str, list[int] | set[int], Box | Base, typing.Never])
def test_an_annotation_that_json_cannot_tell_apart_is_refused_when_the_task_is_first_used(annotation: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^task: 'x' is annotated .*(JSON cannot tell|cannot be stored)"):
        codec(annotation)


class Money:
    """A class of the user's without ``__eq__``."""

    def __init__(self, cents: int) -> None:
        self.cents = cents


def test_an_app_can_teach_the_codec_new_types() -> None:
    codecs = {
        Path: (str, Path),
        Money: (lambda m: m.cents, Money),
        complex: (lambda c: (c.real, c.imag), lambda t: complex(*t)),
    }
    assert there_and_back(Path, Path("/a/b"), codecs) == Path("/a/b")
    assert there_and_back(list[Path | None], [Path("a"), None], codecs) == [Path("a"), None]
    assert there_and_back(Money, Money(5), codecs).cents == 5
    assert there_and_back(complex, 1 + 2j, codecs) == 1 + 2j
    with pytest.raises(ArgumentError, match="has no annotation and would come back as str"):
        there_and_back(BARE, Path("a"), codecs)


def test_a_codec_that_loses_something_is_found_out() -> None:
    lossy = {Fraction: (float, lambda x: Fraction(x).limit_denominator(10))}
    assert there_and_back(Fraction, Fraction(1, 2), lossy) == Fraction(1, 2)
    with pytest.raises(ArgumentError, match="would come back changed"):
        there_and_back(Fraction, Fraction(1, 1000), lossy)


def test_a_codec_that_raises_is_an_argument_error_too() -> None:
    def broken(_value: Any) -> Any:
        raise RuntimeError("not today")

    with pytest.raises(ArgumentError, match="not today"):
        there_and_back(Path, Path("a"), {Path: (broken, Path)})
    with pytest.raises(ArgumentError, match="not today"):
        there_and_back(Path, Path("a"), {Path: (str, broken)})
