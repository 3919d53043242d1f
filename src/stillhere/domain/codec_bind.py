"""From a call to a record and back: the signature's side of the codec.

`Binder` is made once per task from the function's signature and resolved annotations. A record is a msgspec Struct
with a field per parameter, `OMITTED` where nothing was given; it is what the codec writes and reads.

A plain signature binds in C: the Struct is called like the function. Signatures with keyword-only or positional-only
parameters, ``*rest`` or ``**extra`` go through `inspect.Signature.bind`, which is slower and knows everything; their
fields have names of their own (``p0``, ``p1``), renamed to the parameters' in the text.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any

import msgspec

from stillhere.domain import codec_words
from stillhere.domain.codec_compare import Value
from stillhere.domain.errors import ArgumentError, ConfigurationError

OMITTED: Value = object()
"""Stands in a record for an argument that was not given."""

Args = tuple[Value, ...]
Kwargs = Mapping[str, Value]


class Binder:
    """One task's signature; raises `ConfigurationError` when an annotation cannot be resolved."""

    def __init__(self, fn: Callable[..., Any], task: str, scope: Mapping[str, Any] | None) -> None:
        self.task = task
        self.signature = inspect.signature(fn)
        self.hints = _resolve(fn, task, scope)
        parameters = list(self.signature.parameters.values())
        self._rest = next((p.name for p in parameters if p.kind is Parameter.VAR_POSITIONAL), None)
        self.extra_name = next((p.name for p in parameters if p.kind is Parameter.VAR_KEYWORD), None)
        self._named = [p for p in parameters if p.name != self.extra_name]
        self.names = [p.name for p in self._named]
        self.annotations = [_annotation(p, self.hints) for p in self._named]
        self.simple = self.extra_name is None and all(
            p.kind is Parameter.POSITIONAL_OR_KEYWORD and not p.name.startswith("__") for p in self._named
        )
        self._fields = self.names if self.simple else [f"p{index}" for index in range(len(self.names))]
        self.record = self._make_record()

    @property
    def extra_annotation(self) -> Value:
        """The type of all keys of ``**extra`` together."""
        annotation = self.hints.get(self.extra_name or "", Any)
        if _is_unpack(annotation):
            return typing.get_args(annotation)[0]  # a TypedDict
        return dict.__class_getitem__((str, Any if isinstance(annotation, typing.ParamSpecKwargs) else annotation))

    def given_annotation(self, name: str) -> Value:
        """The annotation of a parameter as resolved; `inspect.Parameter.empty` when the user wrote none."""
        return self.hints.get(name, Parameter.empty)

    def bind(self, args: Args, kwargs: Kwargs) -> tuple[msgspec.Struct, dict[str, Value]]:
        """The record of a call and what ``**extra`` takes; raises `ArgumentError` when the call does not fit."""
        try:
            if self.simple:
                return self.record(*args, **kwargs), {}
            given = self.signature.bind(*args, **kwargs).arguments
        except TypeError:
            raise ArgumentError(self._misfit(args, kwargs)) from None
        extra = {} if self.extra_name is None else given.get(self.extra_name, {})
        twice = next((name for name in extra if name in self.names), None)
        if twice is not None:
            raise ArgumentError(f"{self.task}: {twice!r} is given twice, as a parameter and in **{self.extra_name}.")
        values = (given.get(name, OMITTED) for name in self.names)
        return self.record(**dict(zip(self._fields, values, strict=True))), extra

    def bind_all(self, args: Args, kwargs: Kwargs) -> dict[str, Value]:
        """Every argument by name, defaults filled in: what a function of the arguments may ask for."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError:
            raise ArgumentError(self._misfit(args, kwargs)) from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def given(self, record: msgspec.Struct) -> dict[str, Value]:
        """The named arguments of a record that were given, by name."""
        values = zip(self.names, msgspec.structs.astuple(record), strict=True)
        return {name: value for name, value in values if value is not OMITTED}

    def unbind(self, record: msgspec.Struct, extra: dict[str, Value]) -> tuple[Args, dict[str, Value]]:
        """How the function is to be called; raises `ArgumentError` for a gap that no Python call could have made."""
        given = self.given(record)
        if self.simple:
            return (), given
        rest = given.pop(self._rest, ()) if self._rest is not None else ()
        args: list[Value] = []
        missing = ""
        for parameter in self._named:
            if not _positional(parameter, with_rest=bool(rest)):
                continue
            name = parameter.name
            if name not in given:
                missing = missing or name
            elif missing:
                raise ArgumentError(f"{self.task}: the stored arguments hold {name!r} but not {missing!r}.")
            else:
                args.append(given.pop(name))
        if rest and missing:
            raise ArgumentError(f"{self.task}: the stored arguments hold {self._rest!r} but not {missing!r}.")
        return (*args, *rest), {**given, **extra}

    def text(self) -> str:
        """The task and its parameters as the user wrote them: ``fetch(domain: str, depth: int = 1)``."""
        parameters = [
            p if p.annotation is Parameter.empty else p.replace(annotation=_Spelled(self.given_annotation(p.name)))
            for p in self.signature.parameters.values()
        ]
        return self.task + str(self.signature.replace(parameters=parameters, return_annotation=Parameter.empty))

    def _make_record(self) -> type[msgspec.Struct]:
        specs: list[Any] = []
        for field, parameter, annotation in zip(self._fields, self._named, self.annotations, strict=True):
            optional = parameter.default is not Parameter.empty or parameter.kind is Parameter.VAR_POSITIONAL
            specs.append((field, annotation, OMITTED) if optional else (field, annotation))
        return msgspec.defstruct(
            "Arguments",
            specs,
            kw_only=not self.simple,
            omit_defaults=True,
            forbid_unknown_fields=True,
            rename=None if self.simple else dict(zip(self._fields, self.names, strict=True)),
        )

    def _misfit(self, args: Args, kwargs: Kwargs) -> str:
        unknown = next((name for name in kwargs if name not in self.names), None)
        if unknown is not None and self.extra_name is None:
            from difflib import get_close_matches  # noqa: PLC0415 - only when something is wrong

            near = get_close_matches(unknown, self.names, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            return f"{self.text()}: unexpected argument {unknown!r}{hint}. Nothing was enqueued."
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            return f"{self.text()}: {error}. Nothing was enqueued."
        return f"{self.text()}: these arguments do not fit. Nothing was enqueued."


class _Spelled:
    """An annotation that prints as a person writes it, inside `inspect.Signature`'s own layout."""

    def __init__(self, annotation: Value) -> None:
        self._annotation = annotation

    def __repr__(self) -> str:
        return codec_words.spell_type(self._annotation)


def _positional(parameter: Parameter, *, with_rest: bool) -> bool:
    """Whether it must be passed by position: always, or because ``*rest`` follows it."""
    if parameter.kind is Parameter.POSITIONAL_ONLY:
        return True
    return with_rest and parameter.kind is Parameter.POSITIONAL_OR_KEYWORD


def _annotation(parameter: Parameter, hints: Mapping[str, Value]) -> Value:
    annotation = hints.get(parameter.name, Any)
    if isinstance(annotation, typing.ParamSpecArgs):
        annotation = Any
    if parameter.kind is not Parameter.VAR_POSITIONAL:
        return annotation
    if _is_unpack(annotation):
        return typing.get_args(annotation)[0]
    return tuple.__class_getitem__((annotation, ...))


def _is_unpack(annotation: Value) -> bool:
    origin: Value = typing.get_origin(annotation)
    return origin is typing.Unpack


def _resolve(fn: Callable[..., Any], task: str, scope: Mapping[str, Any] | None) -> dict[str, Value]:
    """The function's annotations as types; a local function also sees the names around it, in `scope`."""
    local = None if scope is None else dict(scope)
    try:
        return typing.get_type_hints(fn, localns=local, include_extras=True)
    except Exception as error:
        inner = inspect.unwrap(fn)
        world = getattr(inner, "__globals__", {})
        for name, annotation in getattr(inner, "__annotations__", {}).items():
            holder = type("Holder", (), {"__annotations__": {name: annotation}})
            try:
                typing.get_type_hints(holder, globalns=world, localns=local or world)
            except Exception as alone:  # noqa: BLE001 - evaluating an annotation runs the users' code
                raise ConfigurationError(codec_words.unresolved(task, name, alone)) from error
        raise ConfigurationError(codec_words.unresolved(task, getattr(error, "name", "?"), error)) from error
