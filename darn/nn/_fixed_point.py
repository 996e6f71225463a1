"""Sums that are exact on every machine: weights on a grid, and activations as tables.

Weights become multiples of 2^-k, and activations become tables with entries that are multiples of 2^-t. Then every
product is a multiple of one power of two, and while the sum of the absolute products stays below 2^24 (float32) or 2^53
(float64) such units, every partial sum is exact: no order of summation, number of threads, fused multiply-add or device
can change a bit. k is the largest number for which this bound holds, checked in exact arithmetic.

Every map and layer builds its own integer twin (`quantised`) from the functions here; a twin has the same class.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darn.errors import DarnError

MOST_BITS = 20  # fractional bits of a weight: more would exceed the precision of the original float32
NOT_FINITE = "the model has weights that are not finite: train it again with a lower learning rate"


@dataclasses.dataclass(frozen=True)
class Arithmetic:
    """A float type, and how its bits are used."""

    dtype: str
    bits: int  # integers up to 2^bits are exact
    table_bits: int  # t: activations are multiples of 2^-t
    least: int  # with fewer fractional bits than this in a weight, the next arithmetic is used
    reach: float = math.inf  # unbounded activations are clipped to this


# Float32 if possible: it is twice as fast, and some devices have no usable float64.
ARITHMETICS = (Arithmetic("float32", 24, 8, 7), Arithmetic("float64", 53, 16, 4))
# For deep nets, where the worst case of a sum grows from layer to layer, far beyond what there ever is.
CLIPPED = (Arithmetic("float32", 24, 5, 6, reach=32.0), Arithmetic("float64", 53, 12, 4, reach=1024.0))


class Inputs(NamedTuple):
    """The inputs of a sum: n numbers, multiples of 2^-grid, none larger than `most`."""

    n: int
    grid: int
    most: float

    @property
    def largest(self) -> jax.Array:
        return jnp.full(self.n, self.most)


def bits(n: int) -> Inputs:
    """n inputs that are 0 or 1."""
    return Inputs(n, 0, 1.0)


class TooCoarse(Exception):
    """Exact sums would leave too few bits for the weights."""


def rounded(module: Any, sums: Callable[[Any], jax.Array], grid: int, arithmetic: Arithmetic) -> tuple[Any, Inputs]:
    """Rounds the weights of a module to multiples of 2^-k, with k as large as exact sums allow.

    Args:
        module: any pytree; its float arrays are the weights.
        sums: takes the module with absolute values in place of its weights; returns the sums of the absolute products
            for the largest possible inputs.
        grid: the inputs are multiples of 2^-grid.
        arithmetic: in units of 2^-(grid + k), the sums must stay below 2^arithmetic.bits.

    Returns:
        The rounded module, and a description of its sums as inputs of the next one.

    Raises:
        TooCoarse: if k would be smaller than `arithmetic.least`.
        DarnError: if a weight is not finite.
    """
    weights, rest = eqx.partition(module, eqx.is_inexact_array)
    if not all(np.isfinite(w).all() for w in jax.tree.leaves(weights)):
        raise DarnError(NOT_FINITE)
    k = MOST_BITS
    while k >= arithmetic.least:
        whole = jax.tree.map(lambda w, k=k: np.rint(np.ldexp(np.asarray(w, np.float64), k)), weights)
        # In integers, so that the sums of this check are exact as well (or far beyond the bound).
        sizes = jax.device_put(jax.tree.map(np.abs, whole))
        found = np.asarray(sums(eqx.combine(sizes, rest)), np.float64)
        most = float(found.max(initial=0))
        excess = int(math.frexp(math.ldexp(most, grid))[1]) - arithmetic.bits
        if excess <= 0:
            values = jax.tree.map(lambda w, k=k: jax.device_put(np.ldexp(w, -k).astype(arithmetic.dtype)), whole)
            return eqx.combine(values, rest), Inputs(found.size, grid + k, math.ldexp(most, -k))
        k -= excess
    raise TooCoarse


def rounded_outputs(W: Any, inputs: Sequence[Inputs], arithmetic: Arithmetic) -> jax.Array:
    """Rounds the weights of a matrix product, for each of its outputs to multiples of a 2^-k of its own.

    Args:
        W: weights whose last axis runs over the outputs; all other axes run over the inputs.
        inputs: grid and range of the inputs; several for as many products with the same weights.
        arithmetic: as in `rounded`.

    Returns:
        The rounded weights.

    Raises:
        TooCoarse: if a k would be smaller than `arithmetic.least`.
        DarnError: if a weight is not finite.
    """
    exact = np.asarray(W, np.float64)
    if not np.isfinite(exact).all():
        raise DarnError(NOT_FINITE)
    k = np.full(exact.shape[-1], MOST_BITS)
    while (k >= arithmetic.least).all():
        whole = np.rint(np.ldexp(exact, k))
        most = np.abs(whole).reshape(-1, len(k)).sum(axis=0) * max(math.ldexp(v.most, v.grid) for v in inputs)
        excess = np.frexp(most)[1] - arithmetic.bits
        if (excess <= 0).all():
            return jax.device_put(np.ldexp(whole, -k).astype(arithmetic.dtype))
        k = k - np.maximum(excess, 0)
    raise TooCoarse
