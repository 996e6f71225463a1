"""Checks that a model is valid: types and shapes of all fields, and that the parts fit together."""

import dataclasses
import re
import types
import typing
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import AbstractArray, Shaped, jaxtyped

from darn.errors import FormatError
from darn.model import Stack


def check(tree: Any) -> None:
    """Checks every field of every module inside against its annotation, including shapes.

    The dimensions in a module's jaxtyping annotations must agree with each other and with its integer attributes of the
    same name, and its `__check_init__` must pass.

    Args:
        tree: a module, or a tuple of any depth.

    Raises:
        FormatError: for the first field that does not match its annotation.
    """
    if isinstance(tree, tuple):
        for inner in tree:
            check(inner)
    if not isinstance(tree, eqx.Module):
        return
    cls = type(tree)
    for f in dataclasses.fields(cls):
        check(getattr(tree, f.name))
    hints = _hints(cls)
    with jaxtyped("context"):
        for name in {n for hint in hints.values() for n in _dimensions(hint)}:
            size = getattr(tree, name, None)
            if type(size) is int:  # binds the name to the size, by an array that takes no memory
                assert _fits(np.broadcast_to(np.int8(0), (size,)), Shaped[np.ndarray, name])
        for name, hint in hints.items():
            value = getattr(tree, name)
            if not _fits(value, hint):
                what = f"of shape {value.shape}" if eqx.is_array(value) else f"a {type(value).__name__}"
                raise FormatError(f"the field {name} of a {cls.__name__} is {what}, which does not fit its class")
    for base in reversed(cls.__mro__):
        if "__check_init__" in vars(base):
            base.__check_init__(tree)  # type: ignore[attr-defined]


@lru_cache
def _hints(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {f.name: hints[f.name] for f in dataclasses.fields(cls)}


def _dimensions(hint: Any) -> set[str]:
    """Names of dimensions in an annotation."""
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return set(re.findall(r"[A-Za-z_]\w*", hint.dim_str))
    return {name for inner in typing.get_args(hint) for name in _dimensions(inner)}


def _fits(value: Any, hint: Any) -> bool:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, inner) for inner in args)
    if origin is tuple and isinstance(value, tuple):
        args = args[:1] * len(value) if args[1:] == (...,) else args
        return len(value) == len(args) and all(_fits(v, inner) for v, inner in zip(value, args))
    if hint in (bool, int, str):
        return type(value) is hint
    return isinstance(value, origin or hint)


def trace(stack: Stack) -> None:
    """Traces the scoring of one row without computing anything; parts that do not fit together raise an error.

    Args:
        stack: the model.
    """
    row = lambda n: jax.ShapeDtypeStruct((n,), jnp.float32)  # noqa: E731
    context = row(stack.n_context) if stack.n_context else None
    h = tuple(row(n) for n in stack.n_h)
    score = lambda m, x, h, c: (m.log_p(x, h, c), m.log_q(x, h, c))  # noqa: E731
    for value in eqx.filter_eval_shape(score, stack, row(stack.n_x), h, context):
        if value.shape != ():
            raise FormatError("the model's log-probability of a row is not a scalar")
