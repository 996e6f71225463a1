"""The fully connected causal map: a strictly lower-triangular matrix."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from darn.nn._base import AbstractCausalMap, above_zero, replaced
from darn.nn._registry import register, tuning_field
from darn.nn._turns import COMPILED
from darn.nn._walk_kernel import has_kernel, on_grid, to_grid, walked


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

    def decided(self, s):
        W, scale = on_grid(self.weights())
        return _decided(replaced(self, W=W), to_grid(s, scale))

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


def _plainly(m: CausalDense, s: Array) -> Array:
    with jax.default_matmul_precision("highest"):  # a GPU's default would not be exact
        return m.walk(s, above_zero, None, COMPILED)[0]


@jax.custom_batching.custom_vmap
def _decided(m: CausalDense, s: Float[Array, " n"]) -> Float[Array, " n"]:
    """`CausalDense.decided` of weights and sums on the grid; for many rows by a kernel, where there is one."""
    return _plainly(m, s)


@_decided.def_vmap
def _decided_rows(size, batched, m, s):
    if has_kernel() and batched[1] and not any(jax.tree.leaves(batched[0])):
        return _by_kernel(m.W, s), True
    axes = jax.tree.map(lambda b: 0 if b else None, batched)
    return jax.vmap(_plainly, axes)(m, s), True


@jax.custom_batching.custom_vmap
def _by_kernel(W: Float[Array, "n n"], s: Float[Array, "rows n"]) -> Float[Array, "rows n"]:
    return _divided(W, s)


@_by_kernel.def_vmap
def _more_rows(size, batched, W, s):
    if batched[0]:  # one set of weights after the other
        s = s if batched[1] else jnp.broadcast_to(s, (size, *s.shape))
        return jax.lax.map(lambda own: _by_kernel(*own), (W, s)), True
    return _by_kernel(W, s.reshape(-1, s.shape[-1])).reshape(s.shape), True


@custom_partitioning
def _divided(W: Float[Array, "n n"], s: Float[Array, "rows n"]) -> Float[Array, "rows n"]:
    """On a mesh, each device decides its own rows: XLA cannot look into a kernel, and would give every device all."""
    return walked(W, s)


def _own_rows(mesh, inputs, result):
    rows = NamedSharding(mesh, PartitionSpec(inputs[1].sharding.spec[0] if inputs[1].sharding.spec else None))
    return mesh, walked, rows, (NamedSharding(mesh, PartitionSpec()), rows)


_divided.def_partition(_own_rows, sharding_rule="i j, r j -> r j", need_replication_factors=("i", "j"))
