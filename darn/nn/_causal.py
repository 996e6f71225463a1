"""Fully connected causal map: a strictly lower-triangular matrix."""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from darn.nn._base import AbstractCausalMap


class CausalDense(AbstractCausalMap):
    """W y with W strictly lower-triangular: row j holds W_j of Eq. (2), the weights onto unit j from 1..j-1."""

    W: Float[Array, "n n"]
    n: int = eqx.field(static=True)
    block: int = eqx.field(static=True, default=32)

    def __init__(self, n: int, *, block: int = 32):
        self.W = jnp.zeros((n, n))  # all units independent to begin with
        self.n = n
        self.block = min(block, n)

    def weights(self):
        return jnp.tril(self.W, -1)

    def __call__(self, y):
        return self.weights() @ y

    def outgoing(self, j):
        return jnp.where(jnp.arange(self.n) > j, self.W[:, j], 0)

    def chain(self, a, decide, carry):
        # In blocks: one matrix product brings in all that precedes a block, then its own small triangle is walked
        # unit by unit. On an accelerator the walk is one fused kernel per block instead of one per unit.
        W, size = self.weights(), self.block
        n_blocks = self.n // size

        def walk(carry, y, start, a, triangle, width):
            bits = []
            for i in range(width):
                carry, bit = decide(carry, start + i, a[i])
                bits.append(bit)
                a = a + triangle[:, i] * bit
            return carry, lax.dynamic_update_slice_in_dim(y, jnp.stack(bits), start, axis=0)

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
