"""JSON of any origin as typed values: bounded in size and depth, every value checked against its type."""

import difflib
import json
import reprlib
import types
import typing
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from typing import Any

from darn.errors import FormatError, InputError

MAX_DEPTH = 64  # lists and objects inside each other
LARGEST = 2**63 - 1  # of whole numbers

_NAMES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    tuple: "a list",
    list: "a list",
}
_NAMES |= {dict: "an object"}

Check = Callable[[Any], None]


class FieldError(InputError):
    """A field is wrong; `fields` are the fields that the message names."""

    def __init__(self, message: str, *fields: str):
        super().__init__(message)
        self.fields = fields


def parse(text: str | bytes, what: str, most: int) -> Any:
    """The value of a JSON text that is not trusted.

    Args:
        text: The JSON.
        what: What it is, to begin a sentence with.
        most: The largest length, in bytes or characters.

    Returns:
        What `json.loads` gives.

    Raises:
        FormatError: It is too long, not valid JSON, or nested deeper than `MAX_DEPTH`.
    """
    if len(text) > most:
        raise FormatError(f"{what} is longer than {most:,} bytes")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise FormatError(f"{what} is not valid JSON") from e
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [v for v in level if isinstance(v, dict | list)]
        if not level:
            return value
        level = [inner for v in level for inner in (v.values() if isinstance(v, dict) else v)]
    raise FormatError(f"{what} is nested more than {MAX_DEPTH} deep")


def optional(kind: Any) -> tuple[Any, bool]:
    """(the type without None, whether None is allowed) of an annotation."""
    if isinstance(kind, types.UnionType):
        rest = [k for k in typing.get_args(kind) if k is not types.NoneType]
        return typing.Union[tuple(rest)], len(rest) < len(typing.get_args(kind))  # noqa: UP007  (of a list)
    return kind, False


def decode(annotation: Any, value: Any, name: str, *, check: Check | None = None, strict: bool = True) -> Any:
    """The JSON value as an instance of a type.

    Args:
        annotation: A dataclass, bool, int, float, str, Any, `tuple[T, ...]`, `tuple[A, B]`, `list[T]`, `dict[str, T]`,
            or a union.
        value: What `parse` gave.
        name: What the value is called in messages.
        check: Called with every instance of a dataclass.
        strict: Whether a field that a dataclass does not have is an error; it is left out otherwise.

    Returns:
        The instance; fields that a dataclass has and the value does not take their defaults.

    Raises:
        FieldError: The value is of another type, or has a field that the dataclass does not have.
    """
    again = lambda annotation, value, name: decode(annotation, value, name, check=check, strict=strict)  # noqa: E731
    kind, may_be_none = optional(annotation)
    if kind is Any or (value is None and may_be_none):
        return value
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Union:
        plain = next((k for k in inner if (typing.get_origin(k) is tuple) == isinstance(value, list | tuple)), inner[0])
        return again(plain, value, name)
    if is_dataclass(kind):
        return _decode_fields(kind, value, name, again, check, strict)
    if origin is list and isinstance(value, list):
        return [again(inner[0], v, name) for v in value]
    if origin is tuple and isinstance(value, list | tuple):
        each = inner[:1] * len(value) if inner[1:] == (...,) else inner
        if len(each) != len(value):
            raise FieldError(f"{name} must have {len(each)} entries, not {len(value)}", name)
        return tuple(again(k, v, name) for k, v in zip(each, value))
    if origin is dict and isinstance(value, dict):
        return {k: again(inner[1], v, name) for k, v in value.items()}
    return _decode_plain(origin or kind, value, name)


def _decode_plain(kind: type, value: Any, name: str) -> Any:
    """A bool, int, float or str. True is not a number here, and an integer is accepted for a float."""
    if kind is float and type(value) is int and abs(value) <= LARGEST:
        return float(value)
    if type(value) is not kind:
        raise FieldError(f"{name} must be {_NAMES[kind]}, not {shown(value)}", name)
    if kind is int and abs(value) > LARGEST:
        raise FieldError(f"{name} must be at most {LARGEST}", name)
    return value


@lru_cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _decode_fields(kind: Any, value: Any, name: str, again, check: Check | None, strict: bool) -> Any:
    if not isinstance(value, dict):
        raise FieldError(f"{name} must be an object with named fields, not {shown(value)}", name)
    known = {f.name: f for f in fields(kind) if f.init}
    for key in value if strict else ():
        if key not in known:
            near = difflib.get_close_matches(key[:60], known, n=1)
            hint = f"did you mean {near[0]}?" if near else "it may be from a newer darn, so upgrade darn"
            raise FieldError(f"{name} has an unknown field {shown(key)}: {hint}", name)
    for key, f in known.items():
        if key not in value and f.default is MISSING and f.default_factory is MISSING:
            raise FieldError(f"{name} has no field {key}", name)
    made = kind(**{key: again(_hints(kind)[key], v, key) for key, v in value.items() if key in known})
    if check is not None:
        check(made)
    return made


def shown(value: Any) -> str:
    """A value of a file in at most 60 characters, however deep it is."""
    return reprlib.repr(value)[:60]
