"""Matrix products in half precision, for a GPU that weighs many codes."""

from typing import TypeVar

import jax
import jax.numpy as jnp

from darn.nn._base import replaced
from darn.nn._causal import CausalDense
from darn.nn._dense import Dense

T = TypeVar("T")


def halved(tree: T) -> T:
    """The same maps and layers, with the weights of fully connected maps in half precision.

    Their products take half-precision inputs, keep float32 sums, and give half-precision results, which halves the
    bytes that a GPU moves. Half precision has the ten bits of TF32, a GPU's default for float32 products.

    Args:
        tree: any pytree of maps and layers.

    Returns:
        The tree.
    """

    def dense(m):
        return isinstance(m, Dense | CausalDense)

    def half(m):
        return replaced(m, W=m.W.astype(jnp.float16)) if dense(m) else m

    return jax.tree.map(half, tree, is_leaf=dense)
