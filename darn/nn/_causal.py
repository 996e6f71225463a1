"""Fully connected causal map: a strictly lower-triangular matrix."""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from darn.nn._base import AbstractCausalMap
from darn.nn._registry import register, tuning_field
from darn.nn._turns import in_turn, unrolled


@register("causal-dense")
class CausalDense(AbstractCausalMap):
    """W y with W strictly lower-triangular: row j holds W_j of Eq. (2), the weights onto unit j from 1..j-1."""

    W: Float[Array, "n n"]
    n: int = eqx.field(static=True)
    block: int | None = tuning_field(default=None)  # None: as many units as suit the machine

    def __init__(self, n: int, *, block: int | None = None):
        self.W = jnp.zeros((n, n))  # all units independent to begin with
        self.n = n
        self.block = block

    def weights(self):
        return jnp.tril(self.W, -1)

    def __call__(self, y):
        return self.weights() @ y

    def outgoing(self, j):
        return jnp.where(jnp.arange(self.n) > j, self.W[:, j], 0)

    def chain(self, a, decide, carry):
        # In blocks: one matrix product brings in all that precedes a block, then its own small triangle is walked
        # unit by unit.
        W, size = self.weights(), min(self.block or (32 if unrolled() else 16), self.n)
        n_blocks = self.n // size

        def walk(carry, y, start, a, triangle, width):
            def one_unit(state, i):
                carry, a = state
                carry, bit = decide(carry, start + i, a[i])
                return (carry, a + triangle[:, i] * bit), bit

            (carry, _), bits = in_turn(one_unit, (carry, a), width)
            return carry, lax.dynamic_update_slice_in_dim(y, bits, start, axis=0)

        def one_block(state, k):
            carry, y = state
            start = k * size
            rows = lax.dynamic_slice_in_dim(W, start, size, axis=0)
            before = lax.dynamic_slice_in_dim(a, start, size) + rows @ y
            triangle = lax.dynamic_slice_in_dim(rows, start, size, axis=1)
            return walk(carry, y, start, before, triangle, size), None

        (carry, y), _ = lax.scan(one_block, (carry, jnp.zeros_like(a)), jnp.arange(n_blocks))
        start, width = n_blocks * size, self.n % size
        if width:  # the ragged last block has a shape of its own: padding would decide units that do not exist
            rows = W[start:]
            carry, y = walk(carry, y, start, a[start:] + rows @ y, rows[:, start:], width)
        return y, carry
