"""A task's wire side: binding by name, shapes of signatures, results, checkpoints, unique keys, and the limits."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar, Unpack

import pytest

from stillhere.domain.codec_args import CallCodec
from stillhere.domain.errors import ArgumentError, CheckpointUnreadable, ConfigurationError

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTheChecker

P = ParamSpec("P")
R = TypeVar("R")


def fetch(domain: str, depth: int = 1) -> int:
    return len(domain) * depth


class Extras(TypedDict, total=False):
    color: str
    when: dt.date


@dataclass
class Cursor:
    page: int
    when: dt.date


def codec(fn: Callable[..., Any]) -> CallCodec:
    return CallCodec(fn, fn.__name__)


def called(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[str, Any]:
    """Return the stored text, and what the function gets from it."""
    one = codec(fn)
    raw = one.encode_call(args, kwargs)
    back_args, back_kwargs = one.decode_call(raw)
    return raw, fn(*back_args, **back_kwargs)


class TestByName:
    def test_arguments_are_stored_by_name_whatever_the_way_they_came(self) -> None:
        one = codec(fetch)
        assert one.encode_call(("a", 3), {}) == '{"domain":"a","depth":3}'
        assert one.encode_call((), {"depth": 3, "domain": "a"}) == '{"domain":"a","depth":3}'

    def test_a_default_is_not_stored_so_the_worker_s_own_holds(self) -> None:
        assert codec(fetch).encode_call(("a",), {}) == '{"domain":"a"}'

        def later(domain: str, depth: int = 9, extra: str = "new") -> tuple[str, int, str]:
            return domain, depth, extra

        args, kwargs = CallCodec(later, "fetch").decode_call('{"domain":"a"}')
        assert later(*args, **kwargs) == ("a", 9, "new")

    def test_no_arguments_are_an_empty_object(self) -> None:
        def nothing() -> str:
            return "done"

        assert called(nothing) == ("{}", "done")

    @pytest.mark.parametrize(
        ("args", "kwargs", "words"),
        [
            ((), {}, "missing a required argument: 'domain'"),
            (("a", 1, 2), {}, "too many positional arguments"),
            (("a",), {"domain": "b"}, "multiple values for argument 'domain'"),
            (("a",), {"dept": 1}, "unexpected argument 'dept' (did you mean 'depth'?)"),
            (("a",), {"zzz": 1}, "unexpected argument 'zzz'"),
        ],
    )
    def test_a_call_that_does_not_fit_shows_the_signature(self, args: Any, kwargs: Any, words: str) -> None:
        with pytest.raises(ArgumentError) as caught:
            codec(fetch).encode_call(args, kwargs)
        assert str(caught.value) == f"fetch(domain: str, depth: int = 1): {words}. Nothing was enqueued."


class TestShapes:
    def test_rest_is_an_array_and_extra_stands_beside(self) -> None:
        def call(a: int, *rest: float, flag: bool = False, **extra: str) -> Any:
            return a, rest, flag, extra

        assert called(call, 1) == ('{"a":1}', (1, (), False, {}))
        assert called(call, 1, 2.5, float("inf"), flag=True, z="é") == (
            '{"a":1,"rest":[2.5,Infinity],"flag":true,"z":"é"}',
            (1, (2.5, float("inf")), True, {"z": "é"}),
        )

    def test_positional_only_and_keyword_only(self) -> None:
        def call(a: int, b: int = 2, /, *, c: int, d: int = 4) -> Any:
            return a, b, c, d

        assert called(call, 1, c=3) == ('{"a":1,"c":3}', (1, 2, 3, 4))
        with pytest.raises(ArgumentError, match="positional"):
            called(call, a=1, c=3)

    def test_a_gap_that_no_python_call_can_make_is_refused(self) -> None:
        def call(a: int = 1, b: int = 2, /, *rest: int) -> Any:
            return a, b, rest

        with pytest.raises(ArgumentError, match="hold 'b' but not 'a'"):
            codec(call).decode_call('{"b":5}')
        with pytest.raises(ArgumentError, match="hold 'rest' but not 'b'"):
            codec(call).decode_call('{"a":5,"rest":[1]}')

    def test_a_name_given_twice_is_refused(self) -> None:
        def call(a: int, /, **extra: int) -> Any:
            return a, extra

        with pytest.raises(ArgumentError, match=r"'a' is given twice, as a parameter and in \*\*extra"):
            called(call, 1, a=2)

    def test_extra_may_be_a_typed_dict(self) -> None:
        def call(**extra: Unpack[Extras]) -> Any:
            return extra

        assert called(call, when=dt.date(2026, 1, 2))[1] == {"when": dt.date(2026, 1, 2)}
        with pytest.raises(ArgumentError, match="color"):
            called(call, color=5)

    def test_unusual_names_are_carried(self) -> None:
        def call(__a: int, self: str, _b: int = 0, ключ: str = "") -> Any:  # noqa: PLC2401, PYI063 - any identifier is a name
            return __a, self, _b, ключ

        assert called(call, 1, "s", ключ="ä")[1] == (1, "s", 0, "ä")

    def test_a_decorator_that_keeps_its_function_keeps_the_signature(self) -> None:
        def logged(fn: Callable[P, R]) -> Callable[P, R]:
            @functools.wraps(fn)
            def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
                return fn(*args, **kwargs)

            return wrapper

        assert called(logged(fetch), "ab", depth=3) == ('{"domain":"ab","depth":3}', 6)

    def test_a_decorator_that_names_another_signature_has_that_one(self) -> None:
        def with_session(fn: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(fn)
            def wrapper(domain: str) -> Any:
                return fn("session", domain)

            del wrapper.__wrapped__
            return wrapper

        def work(session: str, domain: str) -> Any:
            return session, domain

        assert called(with_session(work), "a") == ('{"domain":"a"}', ("session", "a"))


class TestAnnotations:
    def test_one_that_only_the_checker_knows_is_explained(self) -> None:
        def report(when: OnlyForTheChecker) -> None: ...

        with pytest.raises(ConfigurationError) as caught:
            codec(report)
        assert str(caught.value) == (
            "report: the annotation of 'when' cannot be resolved (NameError: name 'OnlyForTheChecker' is not defined). "
            "If it is imported under TYPE_CHECKING only, import it for the program too."
        )

    def test_a_local_class_is_found_in_the_scope_of_the_function(self) -> None:
        @dataclass
        class Local:
            n: int

        def work(item: Local) -> Local:
            return item

        one = CallCodec(work, "work", scope=locals())
        assert one.decode_call(one.encode_call((Local(1),), {}))[1] == {"item": Local(1)}


class TestStored:
    @pytest.mark.parametrize(
        ("raw", "words"),
        [
            ('{"domain":1}', "expected str, got int - at $.domain"),
            ("{}", "object missing required field domain"),
            ('{"domain":"a","old":1}', "object contains unknown field old"),
            ("[1]", "expected object, got array"),
            ("{", "input data was truncated"),
            ("", "input data was truncated"),
            ('{"domain":"a","depth":NaN}', "JSON is malformed: invalid character (byte 22)"),
        ],
    )
    def test_a_record_that_does_not_fit_is_an_argument_error_in_the_worker(self, raw: str, words: str) -> None:
        with pytest.raises(ArgumentError) as caught:
            codec(fetch).decode_call(raw)
        assert str(caught.value) == (
            f"fetch: the stored arguments do not fit fetch(domain: str, depth: int = 1): {words}."
        )

    def test_other_languages_may_write_ints_for_floats_and_text_for_times(self) -> None:
        def work(x: float, when: dt.datetime, raw: bytes) -> Any:
            return x, when, raw

        args, kwargs = codec(work).decode_call('{"raw":"YQ==","when":"2026-12-01T03:00:00Z","x":3}')
        assert work(*args, **kwargs) == (3.0, dt.datetime(2026, 12, 1, 3, tzinfo=dt.UTC), b"a")


class TestResults:
    def test_a_result_goes_by_the_return_annotation(self) -> None:
        def work() -> tuple[int, dt.date]:
            return 1, dt.date(2026, 1, 1)

        one = codec(work)
        assert one.decode_result(one.encode_result(work())) == work()

    def test_no_annotation_and_no_value_is_null(self) -> None:
        def work():  # type: ignore[no-untyped-def] # noqa: ANN202
            pass

        assert codec(work).encode_result(None) == "null"

    @pytest.mark.parametrize(
        ("annotation", "value", "words"),
        [
            (int, "a", "work: the result is a str, but is annotated int."),
            (None, (1, 2), "work: the result is a tuple, but is annotated None."),
            (
                Any,
                (1, 2),
                "work: the result is annotated Any and would come back as list. Annotate the return type: -> ",
            ),
            (dt.datetime | str, "a", "work: asked for datetime | str: JSON cannot tell these types apart."),
            (str, "x" * 1_000_001, "work: the result is 1 MB (limit 1 MB). Store the data elsewhere and return a"),
        ],
    )
    def test_a_result_that_cannot_be_stored_says_why(self, annotation: Any, value: Any, words: str) -> None:
        def work() -> Any:
            return value

        work.__annotations__["return"] = annotation
        with pytest.raises(ArgumentError) as caught:
            codec(work).encode_result(work())
        assert str(caught.value).startswith(words)

    def test_a_stored_result_of_another_type_is_an_argument_error(self) -> None:
        with pytest.raises(ArgumentError, match="the stored result cannot be read as int"):
            codec(fetch).decode_result('"a"')


class TestCheckpoints:
    def test_a_checkpoint_comes_back_as_the_class_that_is_asked_for(self) -> None:
        one = codec(fetch)
        cursor = Cursor(3, dt.date(2026, 1, 1))
        assert one.restore(Cursor, one.encode_checkpoint(cursor)) == cursor
        assert one.restore(list[int], one.encode_checkpoint([1, 2])) == [1, 2]
        assert one.restore(int | None, one.encode_checkpoint(None)) is None

    def test_one_that_would_change_is_refused_when_it_is_written(self) -> None:
        with pytest.raises(ArgumentError) as caught:
            codec(fetch).encode_checkpoint({"last": dt.date(2026, 1, 1)})
        assert str(caught.value) == (
            "fetch: the checkpoint has no annotation, and the checkpoint['last'] would come back as str, not date. "
            "Annotate its parts: keep them in a dataclass and restore that class."
        )

    def test_one_that_new_code_cannot_read_says_so(self) -> None:
        with pytest.raises(CheckpointUnreadable) as caught:
            codec(fetch).restore(Cursor, "5")
        assert str(caught.value) == "fetch: the stored checkpoint cannot be read as Cursor: expected object, got int."

    def test_it_is_limited_to_64_kb(self) -> None:
        with pytest.raises(ArgumentError) as caught:
            codec(fetch).encode_checkpoint("x" * 70_000)
        assert str(caught.value) == (
            "fetch: the checkpoint is 70 kB (limit 64 kB). Store the data elsewhere and keep a reference."
        )


class TestLimits:
    def test_a_call_over_1_mb_names_its_biggest_argument(self) -> None:
        def load(name: str, rows: list[str]) -> None: ...

        with pytest.raises(ArgumentError) as caught:
            codec(load).encode_call(("a", ["x" * 1_000] * 3_200), {})
        assert str(caught.value) == (
            "load: arguments are 3.2 MB (limit 1 MB), most of it 'rows'. Store the data elsewhere and pass a reference."
        )

    def test_the_fast_way_keeps_to_the_limit_too(self) -> None:
        with pytest.raises(ArgumentError, match="most of it 'domain'"):
            codec(fetch).encode_call(("x" * 1_000_001,), {})


class TestUniqueDigest:
    def test_equal_arguments_have_one_key_whatever_their_order(self) -> None:
        def work(a: dict[str, int], b: set[str], c: int = 0, **extra: Any) -> None: ...

        one = codec(work)
        key = one.unique_digest(({"x": 1, "y": 2}, {"p", "q", "r"}), {"z": 1, "w": [1]})
        assert key == one.unique_digest((), {"w": [1], "z": 1, "b": {"r", "q", "p"}, "a": {"y": 2, "x": 1}})
        assert len(key) == 32

    def test_different_arguments_have_different_keys(self) -> None:
        one = codec(fetch)
        keys = {one.unique_digest(args, {}) for args in [("a",), ("b",), ("a", 1), ("a", 2), ("a\ud800", 2)]}
        assert len(keys) == 5
