"""Dataclasses from JSON: every value checked against its field's type, range and choices."""

import dataclasses
import difflib
import reprlib
import types
import typing
from typing import Any

from darn.config import LARGEST
from darn.errors import DarnError

_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", tuple: "a list"}


class FieldError(DarnError):
    """A field of a recipe is wrong; `fields` are the fields that the message names."""

    def __init__(self, message: str, *fields: str):
        super().__init__(message)
        self.fields = fields


def optional(kind: Any) -> tuple[Any, bool]:
    """(the type without None, whether None is allowed) of an annotation."""
    if isinstance(kind, types.UnionType):
        return next(k for k in typing.get_args(kind) if k is not types.NoneType), True
    return kind, False


def decode(annotation: Any, value: Any, name: str) -> Any:
    """The JSON value as an instance of a type.

    Args:
        annotation: A dataclass, bool, int, float, str, `tuple[T, ...]`, or one of these or None.
        value: What `json.loads` gave.
        name: What the value is called in messages.

    Returns:
        The instance; fields that a dataclass has and the value does not take their defaults.

    Raises:
        FieldError: The value is of another type, or has a field that the dataclass does not have.
    """
    kind, may_be_none = optional(annotation)
    if value is None and may_be_none:
        return None
    if dataclasses.is_dataclass(kind):
        return _decode_fields(kind, value, name)
    if typing.get_origin(kind) is tuple:
        if isinstance(value, list | tuple):
            return tuple(decode(typing.get_args(kind)[0], v, name) for v in value)
        raise _mismatch(name, tuple, value)
    return _decode_plain(kind, value, name)


def _decode_plain(kind: type, value: Any, name: str) -> Any:
    """A bool, int, float or str. True is not a number here, and an integer is accepted for a float."""
    if kind is float and type(value) is int and abs(value) <= LARGEST:
        return float(value)
    if type(value) is not kind:
        raise _mismatch(name, kind, value)
    if kind is int and abs(value) > LARGEST:
        raise FieldError(f"{name} must be at most {LARGEST}", name)
    return value


def _decode_fields(kind: Any, value: Any, name: str) -> Any:
    if not isinstance(value, dict):
        raise FieldError(f"{name} must be an object with named fields, not {_shown(value)}", name)
    fields = {f.name: f for f in dataclasses.fields(kind)}
    for key in value:
        if key not in fields:
            near = difflib.get_close_matches(str(key), fields, n=1)
            hint = f"did you mean {near[0]}?" if near else "it may be from a newer darn, so upgrade darn"
            raise FieldError(f"{name} has an unknown field {_shown(key)}: {hint}", name)
    made = kind(**{key: decode(fields[key].type, v, key) for key, v in value.items()})
    check_values(made)
    return made


def check_values(part: Any) -> None:
    """Refuses a value outside the range or the choices of its field.

    Args:
        part: An instance of a dataclass whose fields were made by `darn.config.option`.

    Raises:
        FieldError: With the first wrong value.
    """
    for f in dataclasses.fields(part):
        value, within, choices = getattr(part, f.name), f.metadata.get("within"), f.metadata.get("choices")
        for v in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(v):
                check_values(v)
            elif within is not None and v is not None and v not in within:
                raise FieldError(f"{f.name} must be {within}, not {v}", f.name)
        if choices and value is not None and value not in choices:
            _check_choice(f, str(value), choices)


def _check_choice(f: dataclasses.Field, value: str, choices: tuple[str, ...]) -> None:
    known, advice = choices, ""
    if f.metadata["open_to_layers"]:
        from darn.zoo import layer_names  # only now: it brings in JAX

        known = (*choices, *(n for n in layer_names() if n not in choices))
        if value in known:
            return
        advice = "; a layer of another package has to be imported first"
    near = difflib.get_close_matches(value, known, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise FieldError(f"{f.name} must be one of {', '.join(known)}, not {_shown(value)}{hint}{advice}", f.name)


def _mismatch(name: str, kind: type, value: Any) -> FieldError:
    return FieldError(f"{name} must be {_NAMES[kind]}, not {_shown(value)}", name)


def _shown(value: Any) -> str:
    return reprlib.repr(value)[:60]  # bounded in depth as well
