"""What a function of a model is given, checked to fit the model: rows, observed context, codes."""

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from darn.batching import chunks
from darn.errors import InputError
from darn.model import Stack

AT_ONCE = 1 << 24  # values looked at together


def check_count(name: str, value: Any, least: int) -> None:
    """Refuses what is not a whole number of at least `least`.

    Args:
        name: of the argument, as a sentence begins with it.
        value: that was given.
        least: the smallest number.
    """
    if not isinstance(value, numbers.Integral) or value < least:
        raise InputError(f"{name} must be a whole number, {least} or more, not {value!r}")


def check_width(model: Stack, x: np.ndarray) -> None:
    """Refuses what is not (N, n_x)."""
    if x.ndim != 2 or x.shape[1] != model.n_x:
        raise InputError(f"the rows must have shape (N, {model.n_x}), like the model's own, not {x.shape}")


def given_rows(model: Stack, x, *, bits: bool = False, some: bool = False) -> np.ndarray:
    """Rows for a model, as an array.

    Args:
        model: any stack.
        x: (N, n_x) of 0 and 1, or of intensities from 0 to 1 if the model's visible units are independent.
        bits: whether intensities are refused in any case.
        some: whether there must be at least one row.

    Returns:
        x as a NumPy array.

    Raises:
        InputError: If it is of another shape, or has other values.
    """
    x = np.asarray(x)
    check_width(model, x)
    if some and not len(x):
        raise InputError("there are no rows: give at least one row")
    grey = model.decoder[0].layer.independent and not bits
    if x.dtype.kind not in "biuf" or not _all_legal(x, grey):
        raise InputError(
            "the rows must be 0 and 1, or intensities between them"
            if grey
            else "the rows must be 0 and 1: make them binary first, and fill in missing values (`darn.complete`)"
        )
    return x


def _all_legal(x: np.ndarray, grey: bool) -> bool:
    legal = (lambda v: (v >= 0) & (v <= 1)) if grey else (lambda v: (v == 0) | (v == 1))  # False for NaN
    size = max(AT_ONCE // x.shape[1], 1)
    return all(legal(x[start : start + count]).all() for start, count in chunks(len(x), size))


def given_context(model: Stack, context, n: int) -> np.ndarray | None:
    """The observed context of n rows, as floats.

    Args:
        model: any stack.
        context: (n, n_context), or None for a model without one.
        n: the number of rows.

    Returns:
        The context, or None for a model without one.

    Raises:
        InputError: If it is missing, of another shape, or not finite.
    """
    expected = n, model.n_context
    if context is None:
        if model.n_context:
            raise InputError(f"the model needs a context for its rows: give an array of shape {expected}")
        return None
    context = np.asarray(context, np.float32)
    if context.shape != expected:
        raise InputError(f"the context must have shape {expected} for this model, not {context.shape}")
    if not np.isfinite(context).all():
        raise InputError("the context has values that are infinite or missing: fill them in")
    return context if model.n_context else None


def given_code(model: Stack, h: Sequence, n: int, *, whole: bool = False) -> tuple[np.ndarray, ...]:
    """The topmost hidden layers of n rows.

    Args:
        model: any stack.
        h: (n, units) of each layer, the lowest of them first.
        n: the number of rows.
        whole: whether it must be all layers.

    Returns:
        The layers as NumPy arrays.

    Raises:
        InputError: If they are not the model's.
    """
    h = tuple(np.asarray(y) for y in h)
    if whole and not model.n_layers:
        raise InputError("this model has no hidden layers, so there are no codes")
    first = 0 if whole else max(model.n_layers - len(h), 0)
    expected, found = [(n, units) for units in model.n_h[first:]], [y.shape for y in h]
    if found != expected:
        listed = lambda shapes: ", ".join(map(str, shapes)) or "no layers"  # noqa: E731
        raise InputError(f"the code must have shape {listed(expected)} by layer for this model, not {listed(found)}")
    return h
