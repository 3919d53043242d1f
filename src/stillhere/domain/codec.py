"""The faithful codec: a value arrives as it was given, or its sender gets an error and nothing is sent.

JSON is the spelling: people read it in the store at three in the morning, and any language writes it. Alone it changes
values in silence (a tuple becomes a list, NaN becomes null, two keys become one), so `ValueCodec.encode` does at the
call what the worker will do later: encode, decode by the annotation, compare by exact type and value. What differs
gets a second spelling, Python's own JSON, which has NaN, the infinities and lone surrogates; what still differs is an
`ArgumentError`. A reader needs no mark: it tries the first spelling and, when that fails, the second. Records that
foreign producers wrote pass through the same reader.

Values that are not the users' own words never come near: decoding builds only the types that the program's
annotations name. There is no pickle.

This module is imported with the first job that is sent or run, never with ``from stillhere import App``: msgspec costs
more than all the rest of that import.
"""

# ruff: noqa: BLE001 - the users' own classes run inside encode and decode, and may raise anything

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from stillhere.domain import codec_compare, codec_words
from stillhere.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stillhere.domain.codec_compare import Difference, Value

Codec = tuple[Callable[[Any], Any], Callable[[Any], Any]]
"""To something the codec knows, and back: ``App(codecs={Path: (str, Path)})``."""

ARGS_LIMIT = 1_000_000
RESULT_LIMIT = 1_000_000
CHECKPOINT_LIMIT = 64_000
HEADERS_LIMIT = 4_000


class Hooks:
    """What msgspec asks when it meets a type it does not know: the app's codecs, pydantic models, abstract types."""

    def __init__(self, codecs: Mapping[type, Codec] | None = None) -> None:
        self._codecs = dict(codecs or {})

    def encode(self, value: Value) -> Value:
        """Turn a foreign value into one that msgspec knows."""
        codec = self._codec_for(type(value))
        if codec is not None:
            return codec[0](value)
        if hasattr(type(value), "__pydantic_validator__"):
            return value.model_dump(round_trip=True)
        raise TypeError(f"{type(value).__name__} is no type of JSON's")

    def decode(self, annotation: Value, value: Value) -> Value:
        """Build what the annotation names from JSON's types; abstract annotations take the value as it is."""
        origin: Value = typing.get_origin(annotation)
        kind = origin or annotation
        codec = self._codec_for(kind)
        if codec is not None:
            return codec[1](value)
        if hasattr(kind, "__pydantic_validator__"):
            return kind.model_validate_json(json.dumps(value))
        if kind is object or inspect.isabstract(kind):
            return value
        raise TypeError(f"{codec_words.spell_type(annotation)} cannot be built from JSON")

    def _codec_for(self, kind: Value) -> Codec | None:
        """The app's codec of a class or of its nearest base: a PosixPath is written and read as the Path it is."""
        return next((self._codecs[base] for base in getattr(kind, "__mro__", ()) if base in self._codecs), None)


NO_HOOKS = Hooks()


class ValueCodec:
    """Encodes and decodes values of one annotation; `owner` opens the message when the annotation itself is refused."""

    __slots__ = ("_decoder", "_hooks", "_plain", "annotation", "write")

    def __init__(self, annotation: Value, hooks: Hooks = NO_HOOKS, owner: str = "restore") -> None:
        self.annotation = annotation
        self._hooks = hooks
        self._plain = codec_compare.is_plain(annotation)
        self.write = msgspec.json.Encoder(enc_hook=hooks.encode).encode
        """The first spelling, unproven."""
        try:
            self._decoder = msgspec.json.Decoder(annotation, dec_hook=hooks.decode)
        except Exception as error:
            raise ConfigurationError(codec_words.unusable(owner, annotation, error)) from error

    def encode(self, value: Value) -> bytes:
        """The JSON of `value`, proven to come back the same; raises `Unfaithful` with the reason when it does not."""
        try:
            raw = self.write(value)
            found = self.difference(value, self.decode(raw))
            if found is None:
                return raw
        except Exception as error:
            return self._encode_again(value, error)
        return self._encode_again(value, Unfaithful(found))

    def decode(self, raw: bytes | str) -> Value:
        """The value of a stored text, by the annotation; raises msgspec's or the json module's own errors."""
        try:
            return self._decoder.decode(raw)
        except (msgspec.DecodeError, UnicodeError) as error:
            try:
                return msgspec.convert(json.loads(raw), self.annotation, str_keys=True, dec_hook=self._hooks.decode)
            except (ValueError, RecursionError):
                raise error from None  # the first spelling's complaint is the one about the record

    def difference(self, value: Value, back: Value) -> Difference | None:
        """The first difference between a value and what came back."""
        if self._plain and codec_compare.identical(value, back):
            return None
        return codec_compare.difference(value, back, self._hooks.encode)

    def _encode_again(self, value: Value, first: Exception) -> bytes:
        """The second spelling; when it does not hold either, what was wrong with the first is the better story."""
        try:
            builtins = msgspec.to_builtins(value, str_keys=True, enc_hook=self._hooks.encode)
            raw = json.dumps(builtins, separators=(",", ":")).encode()
            found = self.difference(value, self.decode(raw))
        except Exception as error:
            raise (first if isinstance(first, Unfaithful) else error) from None
        if found is not None:
            raise Unfaithful(found)
        return raw


class Unfaithful(Exception):
    """The value would come back as another one; `difference` says where and as what."""

    def __init__(self, difference: Difference) -> None:
        super().__init__(difference)
        self.difference = difference
