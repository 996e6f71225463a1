"""Sums that are exact on any machine: weights on a grid, activations as tables, and the bound that makes it so.

Weights become multiples of 2^-k, and activations tables whose entries are multiples of 2^-t. Then every product is a
multiple of one power of two, and as long as the sum of the absolute products stays below 2^24 (float32) or 2^53
(float64) such units, every partial sum is exact: no order of summation, number of threads, fused multiply-add or device
can change a bit. That bound is checked, in exact arithmetic, as k is chosen: as large as it allows.

Every map and layer makes its own integer twin (`quantised`) from what is here; a twin is of the same class.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darn.errors import DarnError

MOST_BITS = 20  # fractional bits of a weight: more would be finer than the float32 it came from is sure of


@dataclasses.dataclass(frozen=True)
class Arithmetic:
    """A kind of float, and how its bits are shared out."""

    dtype: str
    bits: int  # integers up to 2^bits are exact
    table_bits: int  # t: activations are multiples of 2^-t
    least: int  # fewer fractional bits than this in any weight: take the next arithmetic


# Float32 where it will do: twice as fast, and exact on devices that have no float64 worth the name.
ARITHMETICS = (Arithmetic("float32", 24, 8, 7), Arithmetic("float64", 53, 16, 4))


class Inputs(NamedTuple):
    """What a sum is over: n numbers, multiples of 2^-grid, none larger than `most`."""

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
    """The sums cannot be kept exact with enough bits to the weights."""


def rounded(module: Any, sums: Callable[[Any], jax.Array], grid: int, arithmetic: Arithmetic) -> tuple[Any, Inputs]:
    """(the module with weights that are multiples of 2^-k, what its sums are as inputs of another).

    Args:
        module: any pytree; its float arrays are the weights.
        sums: from the module with the sizes of its weights in their place, the sums of the absolute products, the
            inputs being as large as they get.
        grid: the inputs are multiples of 2^-grid.
        arithmetic: in units of 2^-(grid + k) the sums must stay below 2^arithmetic.bits; k is the largest that lets
            them. `TooCoarse` where that is too small.
    """
    weights, rest = eqx.partition(module, eqx.is_inexact_array)
    if not all(np.isfinite(w).all() for w in jax.tree.leaves(weights)):
        raise DarnError("the model has weights that are not finite numbers: its training went wrong")
    k = MOST_BITS
    while k >= arithmetic.least:
        whole = jax.tree.map(lambda w, k=k: np.rint(np.ldexp(np.asarray(w, np.float64), k)), weights)
        # In whole numbers, so that the sums of the check are exact as well (or far beyond the bound).
        sizes = jax.tree.map(lambda w: jnp.asarray(np.abs(w)), whole)
        found = np.asarray(sums(eqx.combine(sizes, rest)), np.float64)
        most = float(found.max(initial=0))
        excess = int(math.frexp(math.ldexp(most, grid))[1]) - arithmetic.bits
        if excess <= 0:
            values = jax.tree.map(lambda w, k=k: jnp.asarray(np.ldexp(w, -k), arithmetic.dtype), whole)
            return eqx.combine(values, rest), Inputs(found.size, grid + k, math.ldexp(most, -k))
        k -= excess
    raise TooCoarse
