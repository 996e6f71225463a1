"""Deciding units one after another: a walk is written once and runs compiled or on the host.

Compiled, a walk is for one row, and `jax.vmap` extends it to many: sampling, completion and training use this. On the
host, it is for all rows at once, along the last axis of NumPy arrays, and bits may come from anywhere: the decoder of a
compressed file pops them from a stack that a compiled program cannot reach.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from darn.batching import chunks, cut

# (carry, units, a) -> (carry, bits): chooses the bits of some units from their logits `a`. A sampler compares with
# uniform numbers; a decoder pops the bits from a file. `units` is one number, or an array if several units are decided
# together; the number n, one beyond the last unit, stands for no unit, and its bit is discarded.
Decide = Callable[[Any, Any, Any], tuple[Any, Any]]


class AbstractTurns(abc.ABC):
    """How a walk runs: its loops, and the array operations that differ between NumPy and JAX."""

    xp: Any  # the array module

    @abc.abstractmethod
    def block(self) -> int:
        """The number of units in a block of a blocked walk."""

    @abc.abstractmethod
    def array(self, x) -> Any:
        """Weights as an array of this kind of walk."""

    @abc.abstractmethod
    def scan(self, step: Callable, state: Any, n: int) -> tuple[Any, Any]:
        """(state, stacked outputs) of `step(state, i) -> (state, output)` for i = 0 .. n - 1, as a loop."""

    @abc.abstractmethod
    def written_out(self, step: Callable, state: Any, n: int) -> tuple[Any, Any]:
        """Like `scan`, for the few steps inside a block, which are unrolled into one kernel on an accelerator."""

    @abc.abstractmethod
    def take(self, x, start, size: int, axis: int = 0) -> Any:
        """x[start : start + size] along `axis`."""

    @abc.abstractmethod
    def put(self, x, values, start) -> Any:
        """x with `values` at x[start : start + len(values)]."""

    @abc.abstractmethod
    def product(self, W, y, known) -> Any:
        """W y, where the first `known` entries of y are known and the others are 0."""

    @abc.abstractmethod
    def spread(self, a, w, bit, i) -> Any:
        """a + w bit for the units after unit i of a block; the other entries do not matter."""

    @abc.abstractmethod
    def rows(self, state: Any) -> tuple[int, ...]:
        """The trailing shape of arrays over rows: () compiled, (number of rows,) on the host."""

    @abc.abstractmethod
    def one_by_one(self, layer: Any, state: Any, decide: Decide, carry: Any) -> tuple[Any, Any]:
        """(y, carry) by the layer's own `read` and `write`, unit by unit."""


class Compiled(AbstractTurns):
    """Inside a compiled program, for one row."""

    xp = jnp

    def block(self):
        return 32 if unrolled() else 16

    def array(self, x):
        return x

    def scan(self, step, state, n):
        return lax.scan(step, state, jnp.arange(n))

    def written_out(self, step, state, n):
        if not unrolled():
            return lax.scan(step, state, jnp.arange(n))
        out = []
        for i in range(n):
            state, y = step(state, i)
            out.append(y)
        return state, jnp.stack(out)

    def take(self, x, start, size, axis=0):
        return lax.dynamic_slice_in_dim(x, start, size, axis=axis)

    def put(self, x, values, start):
        return lax.dynamic_update_slice_in_dim(x, values, start, axis=0)

    def product(self, W, y, known):
        return W @ y  # of fixed size: unknown entries are 0

    def spread(self, a, w, bit, i):
        return a + w * bit

    def rows(self, state):
        return ()

    def one_by_one(self, layer, state, decide, carry):
        def unit(state_carry, j):
            state, carry = state_carry
            carry, y_j = decide(carry, j, layer.read(state, j))
            return (layer.write(state, j, y_j), carry), y_j

        (_, carry), y = self.scan(unit, (state, carry), layer.n)
        return y, carry


class Host(AbstractTurns):
    """In NumPy, for all rows at once; arrays are changed in place. Units are decided in the order of their numbers.

    Sums are in a different order than in a compiled program: only weights on a grid, such as those of an integer twin,
    give the same numbers both ways.
    """

    xp = np

    def __init__(self, at_once: int = 512):
        self.at_once = at_once  # rows per call of the compiled parts of the walk

    def block(self):
        return 32

    def array(self, x):
        return np.asarray(x)

    def scan(self, step, state, n):
        out = []
        for i in range(n):
            state, y = step(state, i)
            out.append(y)
        return state, None if out[0] is None else np.stack(out)

    written_out = scan

    def take(self, x, start, size, axis=0):
        return x[(slice(None),) * axis + (slice(start, start + size),)]

    def put(self, x, values, start):
        x[start : start + len(values)] = values
        return x

    def product(self, W, y, known):
        return W[:, :known] @ y[:known]

    def spread(self, a, w, bit, i):
        a[i + 1 :] += w[i + 1 :, None] * bit.astype(a.dtype)  # mixed types would be slow
        return a

    def rows(self, state):
        return jax.tree.leaves(state)[0].shape[-1:]

    def one_by_one(self, layer, state, decide, carry):
        # `read` and `write` are compiled for a fixed number of rows, and their states stay on the device.
        (n_rows,) = self.rows(state)
        parts = list(chunks(n_rows, self.at_once))
        states = [cut(state, *part, self.at_once, axis=-1) for part in parts]
        y = np.empty((layer.n, n_rows), jax.tree.leaves(state)[0].dtype)
        for j in range(layer.n):
            here = jnp.asarray(j)
            read = [np.asarray(_read(layer, own, here))[:count] for own, (_, count) in zip(states, parts)]
            carry, y[j] = decide(carry, j, np.concatenate(read))
            bits = [cut(y[j], *part, self.at_once) for part in parts]
            states = [_write(layer, own, here, bit) for own, bit in zip(states, bits)]
        return y, carry


@eqx.filter_jit
def _read(layer, state, j):
    return jax.vmap(lambda s: layer.read(s, j), in_axes=-1)(state)


@eqx.filter_jit
def _write(layer, state, j, bits):
    return jax.vmap(lambda s, y: layer.write(s, j, y), in_axes=-1, out_axes=-1)(state, bits)


COMPILED = Compiled()


def unrolled() -> bool:
    """Whether the loop over a block is unrolled: on an accelerator it becomes one fused kernel instead of several per
    unit. On a CPU a loop is as fast, and compiles in a second where 32 unrolled units take ten."""
    return jax.default_backend() != "cpu"
