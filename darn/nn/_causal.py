"""The fully connected causal map: a strictly lower-triangular matrix."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from darn.nn._base import AbstractCausalMap
from darn.nn._registry import register, tuning_field


@register("causal-dense")
class CausalDense(AbstractCausalMap):
    """W y with W strictly lower-triangular: row j is W_j of Eq. (2), the weights to unit j from units 1..j-1.

    Args:
        n: units.
        block: units decided together, which changes the speed alone; None chooses by device.
    """

    W: Float[Array, "n n"]
    n: int = eqx.field(static=True)
    block: int | None = tuning_field(default=None)  # units per block; None chooses by device

    def __init__(self, n: int, *, block: int | None = None):
        self.W = jnp.zeros((n, n))  # units are independent at first
        self.n = n
        self.block = block

    def weights(self):
        return jnp.tril(self.W, -1)

    def __call__(self, y):
        return self.weights() @ y

    def outgoing(self, j):
        return jnp.where(jnp.arange(self.n) > j, self.W[:, j], 0)

    def fan_out(self):
        return np.arange(self.n - 1, -1, -1)

    def walk(self, a, decide, carry, turns):
        # In blocks: one matrix product for everything before a block, then the block's own small triangle unit by unit.
        W, size = turns.xp.tril(turns.array(self.W), -1), min(self.block or turns.block(), self.n)

        def one_block(carry, y, start, width):
            rows = turns.take(W, start, width)
            before = turns.take(a, start, width) + turns.product(rows, y, start)
            bits, carry = turns.linear(decide, carry, start, before, turns.take(rows, start, width, axis=1))
            return carry, turns.put(y, bits, start)

        def whole_block(state, k):
            carry, y = state
            return one_block(carry, y, k * size, size), None

        carry, y = turns.scan(whole_block, (carry, turns.xp.zeros_like(a)), self.n // size)[0]
        if self.n % size:  # the shorter last block is not padded, which would decide units that do not exist
            carry, y = one_block(carry, y, self.n // size * size, self.n % size)
        return y, carry
