"""Verbs on the wire: a verb becomes the arguments of its script, the script's reply becomes the verb's reply type.

There is no table to keep: the class's name is the script's stem, the script's header names the attributes to send, and
the type in ``Verb[...]`` says what the reply decodes to. Both ways use MessagePack, which the servers' Lua packs and
unpacks in C and msgspec checks against the types of the port while it decodes.

Text that is not UTF-8 cannot come from us, but it can stand in a record that a foreign hand wrote. Such a reply is
decoded a second time, slowly, with the broken bytes replaced: a grant must never be lost over them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Generic, TypeVar, get_args

import msgspec

from stillhere.backends.redis.scripts import Input, Scripts
from stillhere.ports.backend import Verb

R = TypeVar("R")

_encode = msgspec.msgpack.Encoder(
    enc_hook=lambda value: dict(value) if isinstance(value, Mapping) else str(value)
).encode


class Codec(Generic[R]):
    """How one class of verbs travels."""

    def __init__(self, verb: type[Verb[R]], scripts: Scripts) -> None:
        self.script = scripts[verb.__name__.lower()]
        self._reply_type: Any = _reply_type(verb)
        self._decode = msgspec.msgpack.Decoder(self._reply_type).decode

    def arguments(self, verb: Verb[R], namespace: str, now: int | None) -> list[bytes | str]:
        """What comes after EVALSHA and the digest: the one key, the standing inputs, the script's own."""
        name = f"{namespace}:{{{verb.queue}}}" if verb.queue else f"{namespace}:queues"
        own = [_argument(slot, getattr(verb, slot.name)) for slot in self.script.inputs]
        return ["1", name, "" if now is None else str(now), verb.queue, *own]

    def reply(self, raw: bytes) -> R:
        """The verb's reply."""
        try:
            return self._decode(raw)  # type: ignore[no-any-return]  # of the type that the decoder was made for
        except msgspec.DecodeError:
            return msgspec.convert(_unpack(memoryview(raw), 0)[0], self._reply_type)  # type: ignore[no-any-return]


def _reply_type(verb: type[Verb[Any]]) -> object:
    (base,) = verb.__orig_bases__  # type: ignore[attr-defined]  # each verb has the one base `Verb[its reply]`
    return get_args(base)[0]


def _argument(slot: Input, value: Any) -> bytes | str:
    if slot.kind == "list":
        return packed(value)
    if value is None or value is False:
        return ""
    if value is True:
        return "1"
    return clean(value) if isinstance(value, str) else str(value)


def packed(value: object) -> bytes:
    """MessagePack of a value; text that cannot be encoded (half of a surrogate pair) is replaced, never a failure."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_cleaned(msgspec.to_builtins(value)))


def clean(text: str) -> str:
    """The text with what UTF-8 cannot carry replaced."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(name): _cleaned(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cleaned(one) for one in value]
    return value


# --------------------------------------------------------------------------------- the slow way, for foreign bytes

_NUMBERS = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_LENGTHS = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}


def _unpack(raw: memoryview, at: int) -> tuple[Any, int]:
    """One value and the place behind it; only what Lua's packer writes."""
    mark, at = raw[at], at + 1
    if mark < 0x80 or mark >= 0xE0:
        return (mark if mark < 0x80 else mark - 0x100), at
    if mark in _CONSTANTS:
        return _CONSTANTS[mark], at
    if mark in _NUMBERS:
        size = struct.calcsize(_NUMBERS[mark])
        return struct.unpack(_NUMBERS[mark], raw[at : at + size])[0], at + size
    if mark in _LENGTHS:
        size = struct.calcsize(_LENGTHS[mark])
        length, at = struct.unpack(_LENGTHS[mark], raw[at : at + size])[0], at + size
    else:
        length = mark & (0x1F if mark >= 0xA0 else 0x0F)
    if 0xA0 <= mark <= 0xBF or 0xD9 <= mark <= 0xDB:
        return str(raw[at : at + length], "utf-8", "replace"), at + length
    return _unpack_many(raw, at, length, pairs=mark in (0xDE, 0xDF) or mark < 0x90)


def _unpack_many(raw: memoryview, at: int, length: int, *, pairs: bool) -> tuple[Any, int]:
    values: list[Any] = []
    for _ in range(2 * length if pairs else length):
        value, at = _unpack(raw, at)
        values.append(value)
    return (dict(zip(values[::2], values[1::2], strict=True)) if pairs else values), at
