"""A model as JSON and arrays, and back.

A module is {"module": its registered name, "fields": {...}}, an array is {"array": its type, "shape": [...]}, a tuple
is a list, and everything else is a plain value. The name of an array is its path through the fields, such as
decoder.0.layer.b.
"""

import dataclasses
import importlib.metadata
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from darn.errors import DarnError, FormatError, InputTypeError
from darn.model import Stack
from darn.model_file._check import check, trace
from darn.nn import REGISTRY

TYPES = ("float32", "bool", "int8", "int16", "int32", "uint8", "uint16", "uint32")  # of arrays
MAX_STRUCTURE = 4 << 20  # characters of JSON
MOST_WEIGHT = 1e15  # of any array, either sign
MAX_DEPTH = 32  # modules inside modules


def describe(stack: Stack) -> tuple[str, dict[str, np.ndarray]]:
    """Describes a model, without its tuning fields.

    Args:
        stack: any model whose classes are registered.

    Returns:
        The structure as JSON, and the arrays by name, float32 or integers. Models with equal structure and arrays
        compute the same. Fields at their default are left out, so that a class may gain fields.
    """
    arrays: dict[str, np.ndarray] = {}
    return json.dumps(_describe(stack, "", arrays), separators=(",", ":")), arrays


def _describe(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, eqx.Module):
        registered = next((k for k, cls in REGISTRY.items() if cls is type(value)), None)
        if registered is None:
            raise InputTypeError(
                f"{type(value).__name__} has no registered name and cannot be saved: decorate the class with "
                "darn.nn.register"
            )
        inner = {f.name: getattr(value, f.name) for f in _saved_fields(type(value))}
        inner = {k: v for k, v in inner.items() if not _is_default(type(value), k, v)}
        return {"module": registered, "fields": {k: _describe(v, _join(name, k), arrays) for k, v in inner.items()}}
    if isinstance(value, tuple | list):
        return [_describe(v, _join(name, i), arrays) for i, v in enumerate(value)]
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        a = np.asarray(value)
        a = a.astype(np.float32) if np.issubdtype(a.dtype, np.floating) else a
        if a.dtype.name not in TYPES or not a.size:
            raise InputTypeError(f"the array {name} of type {a.dtype.name} and shape {a.shape} cannot be saved")
        arrays[name] = a
        return {"array": a.dtype.name, "shape": list(a.shape)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputTypeError(f"the field {name} is a {type(value).__name__}, which cannot be saved")


def _join(name: str, part: str | int) -> str:
    return f"{name}.{part}" if name else str(part)


def _saved_fields(cls: type) -> list[dataclasses.Field]:
    return [f for f in dataclasses.fields(cls) if not f.metadata.get("tuning")]


def _default(f: dataclasses.Field) -> Any:
    return f.default if f.default_factory is dataclasses.MISSING else f.default_factory()


def _is_default(cls: type, name: str, value: Any) -> bool:
    default = _default(cls.__dataclass_fields__[name])  # type: ignore[attr-defined]
    return (
        type(value) is type(default) and isinstance(value, None | bool | int | float | str | tuple) and value == default
    )


def rebuild(structure: str, arrays: Mapping[str, np.ndarray]) -> Stack:
    """Rebuilds the model that `describe` described; its input is not trusted.

    Args:
        structure: the JSON.
        arrays: exactly the arrays it declares, of the declared shapes; floats of any precision.

    Returns:
        The model, with float32 weights, and tuning fields at their defaults.

    Raises:
        FormatError: if anything is wrong.
    """
    declared = declared_arrays(structure)
    if set(arrays) != set(declared):
        odd = sorted(set(arrays) ^ set(declared))[0]
        raise FormatError(f"the array {odd} is {'missing' if odd in declared else 'not part of the model'}")
    try:
        # In one transfer: `jnp.asarray` would compile a program for every shape.
        ready = jax.device_put({k: _checked(k, a, declared[k]) for k, a in arrays.items()})
        stack = _build(_parse(structure), "", ready)
        if not isinstance(stack, Stack):
            raise FormatError("the outermost module is not a stack")
        check(stack)
        trace(stack)
    except DarnError:
        raise
    except Exception as e:  # any class may fail in any way on sizes that no constructor has checked
        raise FormatError("the sizes of the model's parts do not fit together") from e
    return stack


class Declared(NamedTuple):
    """An array as the structure declares it."""

    dtype: str
    shape: tuple[int, ...]


def declared_arrays(structure: str) -> dict[str, Declared]:
    """The arrays of a structure by name, in order.

    Args:
        structure: the JSON.

    Returns:
        Type and shape of each.
    """
    return dict(_declared(_parse(structure), ""))


def _declared(node: Any, name: str) -> Iterator[tuple[str, Declared]]:
    if isinstance(node, list):
        for i, inner in enumerate(node):
            yield from _declared(inner, _join(name, i))
    elif isinstance(node, dict) and "module" in node:
        for k, inner in node["fields"].items():
            yield from _declared(inner, _join(name, k))
    elif isinstance(node, dict):
        yield name, Declared(node["array"], tuple(node["shape"]))


@lru_cache(maxsize=4)
def _parse(structure: str) -> Any:
    """Parses the JSON and checks the form of every node."""
    if len(structure) > MAX_STRUCTURE:
        raise FormatError(f"the structure is longer than {MAX_STRUCTURE} characters")
    try:
        root = json.loads(structure, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as e:
        raise FormatError("the structure is not valid JSON") from e
    _check_node(root, 0)
    return root


def _unique(pairs: list[tuple[str, Any]]) -> dict:
    if len({k for k, _ in pairs}) != len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def _check_node(node: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise FormatError(f"the structure is nested more than {MAX_DEPTH} deep")
    if isinstance(node, list):
        for inner in node:
            _check_node(inner, depth + 1)
    elif isinstance(node, dict):
        if set(node) == {"module", "fields"} and isinstance(node["module"], str) and isinstance(node["fields"], dict):
            for inner in node["fields"].values():
                _check_node(inner, depth + 1)
        elif not (set(node) == {"array", "shape"} and _is_shape(node["shape"]) and node["array"] in TYPES):
            raise FormatError("a part of the structure is neither a module nor an array")


def _is_shape(shape: Any) -> bool:
    # No model needs an empty array, and its other axes could have any length.
    return isinstance(shape, list) and len(shape) <= 16 and all(type(n) is int and n > 0 for n in shape)


def _checked(name: str, a: np.ndarray, declared: Declared) -> np.ndarray:
    if a.shape != declared.shape:
        raise FormatError(f"the array {name} is of shape {a.shape}, not {declared.shape}")
    if declared.dtype == "float32":
        if not np.issubdtype(a.dtype, np.floating):
            raise FormatError(f"the array {name} is of {a.dtype.name}, not of floats")
        a = a.astype(np.float32)
        if not np.isfinite(a).all():
            raise FormatError(f"the array {name} has values that are not finite")
        if np.abs(a).max(initial=0) > MOST_WEIGHT:
            raise FormatError(f"the array {name} has values beyond {MOST_WEIGHT:g}, whose products are not finite")
    elif a.dtype.name != declared.dtype:
        raise FormatError(f"the array {name} is of {a.dtype.name}, not {declared.dtype}")
    return a


def _build(node: Any, name: str, arrays: Mapping[str, jax.Array]) -> Any:
    if isinstance(node, list):
        return tuple(_build(inner, _join(name, i), arrays) for i, inner in enumerate(node))
    if not isinstance(node, dict):
        return node
    if "array" in node:
        return arrays[name]
    cls, given = _registered(node["module"]), node["fields"]
    fields = {f.name: f for f in _saved_fields(cls)}
    for k in given:
        if k not in fields:
            raise FormatError(f"the class {node['module']} has no field {k}: upgrade darn, unless the file is forged")
    module = object.__new__(cls)
    for f in dataclasses.fields(cls):
        value = _build(given[f.name], _join(name, f.name), arrays) if f.name in given else _default(f)
        if value is dataclasses.MISSING:
            raise FormatError(f"the field {f.name} of a {node['module']} is missing")
        object.__setattr__(module, f.name, value)
    return module


def _registered(name: str) -> type:
    if name not in REGISTRY:
        for plugin in importlib.metadata.entry_points(group="darn"):  # installed packages that register classes
            plugin.load()
    if name not in REGISTRY:
        raise FormatError(
            f"no class is registered as {name!r}: import the package that defines it first (`--import MODULE` on the "
            "command line)"
        )
    return REGISTRY[name]
