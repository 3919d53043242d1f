"""A task's whole wire side: its arguments, its result and its checkpoints, as text and back.

`CallCodec` is made from the function, once, at the first job sent or run. Arguments are stored by name, so the text is
readable, does not depend on order, and outlives a new parameter with a default. An omitted argument is not stored: the
default of the program that *runs* the job holds. ``*rest`` is an array under its own name; the keys of ``**extra``
stand beside the other arguments.

Calls whose arguments are all exact leaves (a str for ``str``, an int for ``int``) skip the proof, because JSON carries
those as they are; everything else takes the whole way of `codec.ValueCodec`.
"""

# ruff: noqa: BLE001 - the users' own classes run inside encode and decode, and may raise anything

from __future__ import annotations

import inspect
import json
import math
from typing import TYPE_CHECKING, Any, cast

import msgspec

from stillhere.domain import codec_compare, codec_words
from stillhere.domain.codec import ARGS_LIMIT, CHECKPOINT_LIMIT, NO_HOOKS, RESULT_LIMIT, Hooks, Unfaithful, ValueCodec
from stillhere.domain.codec_bind import OMITTED, Args, Binder, Kwargs
from stillhere.domain.codec_words import Subject
from stillhere.domain.errors import ArgumentError, CheckpointUnreadable, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stillhere.domain.codec_compare import Difference, Value

_LEAVES = frozenset({str, int, float, bool, bytes, type(None)})


class CallCodec:
    """The codec of one task; building it raises `ConfigurationError` when an annotation cannot be served."""

    def __init__(
        self, fn: Callable[..., Any], task: str, hooks: Hooks = NO_HOOKS, scope: Mapping[str, Any] | None = None
    ) -> None:
        self.task = task
        self.binder = binder = Binder(fn, task, scope)
        self._hooks = hooks
        self._values: dict[Value, ValueCodec] = {}
        for name, annotation in zip(binder.names, binder.annotations, strict=True):
            self._value_codec(annotation, name)
        self._record = _RecordCodec(binder.record, binder.annotations, hooks)
        self._extra: ValueCodec | None = None
        if binder.extra_name is not None:
            self._extra = self._value_codec(binder.extra_annotation, binder.extra_name)
        self._leaves = [a for a in binder.annotations if isinstance(a, type) and a in _LEAVES]
        self._fast = binder.simple and len(self._leaves) == len(binder.names)
        self._returns = binder.given_annotation("return")
        self._result_annotation = Any if self._returns is inspect.Parameter.empty else self._returns

    # ------------------------------------------------------------------------------------------------- arguments

    def encode_call(self, args: Args, kwargs: Kwargs) -> str:
        """The stored text of one call; raises `ArgumentError` when it would not arrive as it was given."""
        if self._fast:
            quick = self._encode_leaves(args, kwargs)
            if quick is not None:
                return quick
        record, extra = self.binder.bind(args, kwargs)
        try:
            raw = self._record.encode(record)
            if self._extra is not None and extra:
                raw = _splice(raw, self._extra.encode(extra))
        except Exception as error:
            raise self._refusal(record, extra, error) from None
        if len(raw) > ARGS_LIMIT:
            raise ArgumentError(self._oversize(record, extra, len(raw)))
        return raw.decode()

    def decode_call(self, raw: str) -> tuple[Args, dict[str, Value]]:
        """Positional and keyword arguments of a stored text; raises `ArgumentError` when it does not fit the task."""
        try:
            named, extra = self._split(raw)
            record = self._record.decode(named)
            return self.binder.unbind(record, {} if self._extra is None else self._extra.decode(extra))
        except ArgumentError:
            raise
        except Exception as error:
            text = f"{self.task}: the stored arguments do not fit {self.binder.text()}: {codec_words.reason(error)}."
            raise ArgumentError(text) from None

    def unique_digest(self, args: Args, kwargs: Kwargs) -> str:
        """A short text that two calls share when their arguments are equal, whatever the order of keys and sets."""
        from hashlib import sha256  # noqa: PLC0415 - only for tasks that ask for it

        record, extra = self.binder.bind(args, kwargs)
        given = self.binder.given(record) | extra
        builtins = msgspec.to_builtins(given, str_keys=True, enc_hook=self._hooks.encode, order="deterministic")
        return sha256(json.dumps(builtins, sort_keys=True).encode()).hexdigest()[:32]

    # ---------------------------------------------------------------------------------- results and checkpoints

    def encode_result(self, value: Value) -> str:
        """The stored text of a return value; an `ArgumentError` here leaves the job succeeded, without a result."""
        subject = Subject(self.task, "the result", annotation=self._returns)
        raw = self._encode_value(subject, value, self._result_annotation)
        if len(raw) > RESULT_LIMIT:
            text = codec_words.too_big(f"{self.task}: the result is", len(raw), RESULT_LIMIT, "", "return")
            raise ArgumentError(text)
        return raw.decode()

    def decode_result(self, raw: str) -> Value:
        """The return value of a stored text, by the task's return annotation; raises `ArgumentError`."""
        try:
            return self._value_codec(self._result_annotation).decode(raw)
        except Exception as error:
            kind = codec_words.spell_type(self._result_annotation)
            text = f"{self.task}: the stored result cannot be read as {kind}: {codec_words.reason(error)}."
            raise ArgumentError(text) from None

    def encode_checkpoint(self, value: Value) -> str:
        """The stored text of a checkpoint, proven to come back the same from ``restore(type(value))``."""
        raw = self._encode_value(Subject(self.task, "the checkpoint"), value, type(value))
        if len(raw) > CHECKPOINT_LIMIT:
            text = codec_words.too_big(f"{self.task}: the checkpoint is", len(raw), CHECKPOINT_LIMIT, "", "keep")
            raise ArgumentError(text)
        return raw.decode()

    def restore(self, kind: Value, raw: str) -> Value:
        """The checkpoint as `kind`; raises `CheckpointUnreadable` when the stored text does not fit it."""
        codec = self._value_codec(kind)
        try:
            return codec.decode(raw)
        except Exception as error:
            text = f"{self.task}: the stored checkpoint cannot be read as {codec_words.spell_type(kind)}"
            raise CheckpointUnreadable(f"{text}: {codec_words.reason(error)}.") from None

    # --------------------------------------------------------------------------------------------------- within

    def _encode_leaves(self, args: Args, kwargs: Kwargs) -> str | None:
        """The fast way; None: it is not for this call, take the whole way, which also finds the words."""
        try:
            record = self.binder.record(*args, **kwargs)
            for leaf, value in zip(self._leaves, msgspec.structs.astuple(record), strict=True):
                if type(value) is leaf:
                    if leaf is float and not math.isfinite(cast("float", value)):
                        return None
                elif value is not OMITTED:
                    return None
            raw = self._record.write(record)
        except (TypeError, ValueError):  # it does not bind, or holds a lone surrogate or an int too long for text
            return None
        return raw.decode() if len(raw) <= ARGS_LIMIT else None

    def _split(self, raw: str) -> tuple[bytes | str, bytes]:
        """The text of the named arguments, and the text of those that ``**extra`` takes."""
        if self._extra is None:
            return raw, b"{}"
        parts: dict[str, Any]
        write: Callable[[Any], bytes]
        try:
            parts, write = msgspec.json.decode(raw, type=dict[str, msgspec.Raw]), msgspec.json.encode
        except (msgspec.DecodeError, UnicodeError):
            parts, write = json.loads(raw), _dump
        names = set(self.binder.names)
        named = write({name: part for name, part in parts.items() if name in names})
        return named, write({name: part for name, part in parts.items() if name not in names})

    def _value_codec(self, annotation: Value, parameter: str = "") -> ValueCodec:
        owner = f"{self.task}: {parameter!r} is annotated" if parameter else f"{self.task}: asked for"
        try:
            codec = self._values.get(annotation)
        except TypeError:  # an annotation that cannot be hashed (Annotated with a list): built each time
            return ValueCodec(annotation, self._hooks, owner)
        if codec is None:
            codec = self._values[annotation] = ValueCodec(annotation, self._hooks, owner)
        return codec

    def _encode_value(self, subject: Subject, value: Value, annotation: Value) -> bytes:
        try:
            return self._value_codec(annotation).encode(value)
        except ConfigurationError as error:
            raise ArgumentError(str(error)) from None
        except Exception as error:
            raise ArgumentError(self._words(subject, value, error)) from None

    # ---------------------------------------------------------------------------------------------------- words

    def _refusal(self, record: msgspec.Struct, extra: dict[str, Value], error: Exception) -> ArgumentError:
        """Which argument it was: each is tried alone, since the whole record's error may name none."""
        given = self.binder.given(record)
        annotations = dict(zip(self.binder.names, self.binder.annotations, strict=True))
        for name, value in (given | extra).items():
            source = name if name in given else self.binder.extra_name or ""
            try:
                if name in given:
                    self._value_codec(annotations[name]).encode(value)
                elif self._extra is not None:
                    self._extra.encode({name: value})
            except Exception as alone:
                subject = Subject(self.task, f"argument {name!r}", name, self.binder.given_annotation(source))
                return ArgumentError(self._words(subject, value, alone))
        return ArgumentError(self._words(Subject(self.task, "the call"), extra, error))

    def _words(self, subject: Subject, value: Value, error: Exception) -> str:
        if isinstance(error, Unfaithful):
            return codec_words.changed(subject, error.difference, value)
        if isinstance(error, msgspec.ValidationError):
            return codec_words.not_allowed(subject, value, error)
        if isinstance(error, TypeError) and not self._encodes(value):
            return codec_words.not_storable(subject, value, self._encodes)
        return codec_words.broken(subject, error)

    def _encodes(self, value: Value) -> bool:
        try:
            msgspec.to_builtins(value, str_keys=True, enc_hook=self._hooks.encode)
        except Exception:
            return False
        return True

    def _oversize(self, record: msgspec.Struct, extra: dict[str, Value], size: int) -> str:
        given = self.binder.given(record) | extra
        sizes = {
            n: len(_dump(msgspec.to_builtins(v, str_keys=True, enc_hook=self._hooks.encode))) for n, v in given.items()
        }
        biggest = max(sizes, key=sizes.__getitem__)
        return codec_words.too_big(f"{self.task}: arguments are", size, ARGS_LIMIT, biggest, "pass")


class _RecordCodec(ValueCodec):
    """As its base, for the record of a call: field by field, so that plain fields keep the fast comparison."""

    __slots__ = ("_plains",)

    def __init__(self, record: type[msgspec.Struct], annotations: list[Value], hooks: Hooks) -> None:
        super().__init__(record, hooks)
        self._plains = [codec_compare.is_plain(annotation) for annotation in annotations]

    def difference(self, value: Value, back: Value) -> Difference | None:
        """The first difference of two records."""
        sides = zip(self._plains, msgspec.structs.astuple(value), msgspec.structs.astuple(back), strict=True)
        for plain, given, returned in sides:
            if given is returned or (plain and codec_compare.identical(given, returned)):
                continue
            found = codec_compare.difference(given, returned, self._hooks.encode)
            if found is not None:
                return found
        return None


def _splice(left: bytes, right: bytes) -> bytes:
    """Two JSON objects as one."""
    return right if left == b"{}" else left[:-1] + b"," + right[1:]


def _dump(value: Value) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
