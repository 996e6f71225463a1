"""Deciding units one after another: a walk is written once and runs compiled or on the host.

Compiled, a walk is for one row, and `jax.vmap` extends it to many: sampling, completion and training use this. On the
host, it is for all rows at once, along the last axis of NumPy arrays, and bits may come from anywhere: the decoder of a
compressed file pops them from a stack that a compiled program cannot reach.
"""

import abc
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from darn.batching import chunks, cut

# (carry, units, a) -> (carry, bits): chooses the bits of some units from their logits `a`. A sampler compares with
# uniform numbers; a decoder pops the bits from a file. `units` is one number, or an array if several units are decided
# together; the number n, one beyond the last unit, stands for no unit, and its bit is discarded.
Decide = Callable[[Any, Any, Any], tuple[Any, Any]]


class AbstractBlockwise(abc.ABC):
    """A `Decide` on the host that can also decide a block of linear units faster than one by one."""

    @abc.abstractmethod
    def __call__(self, carry: Any, units: Any, a: Any) -> tuple[Any, Any]: ...

    @abc.abstractmethod
    def linear(self, carry: Any, start: int, a: Any, W: Any) -> tuple[Any, Any]:
        """As `AbstractTurns.linear`."""


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
    def hold(self, rows: Any) -> Any:
        """Arrays over rows, as `call` takes them; bits become floats."""

    @abc.abstractmethod
    def call(self, f: Callable, module: Any, index: Any, *held: Any) -> Any:
        """f(module, index, *held) of every row, as `call` takes it again; on the host it is a compiled program.

        `f` is a function at the top of a file, since a program belongs to its function; `index` holds whole numbers,
        the same for all rows.
        """

    @abc.abstractmethod
    def fetch(self, held: Any) -> Any:
        """An array over rows that `call` returned."""

    def linear(self, decide: Decide, carry: Any, start: Any, a: Any, W: Any) -> tuple[Any, Any]:
        """(y, carry) of a block of units, the first of which is `start`: their logits are a + W y.

        W is strictly lower-triangular.
        """

        def one_unit(state, i):
            carry, a = state
            carry, bit = decide(carry, start + i, a[i])
            return (carry, self.spread(a, W[:, i], bit, i)), bit

        (carry, _), y = self.written_out(one_unit, (carry, a), len(W))
        return y, carry

    def one_by_one(self, layer: Any, state: Any, decide: Decide, carry: Any) -> tuple[Any, Any]:
        """(y, carry) by the layer's own `read` and `write`, unit by unit."""

        def unit(state_carry, j):
            state, carry = state_carry
            carry, y_j = decide(carry, j, self.fetch(self.call(_read, layer, j, state)))
            return (self.call(_write, layer, j, state, self.hold(y_j)), carry), y_j

        (_, carry), y = self.scan(unit, (self.hold(state), carry), layer.n)
        return y, carry


def _read(layer, j, state):
    return layer.read(state, j)


def _write(layer, j, state, y_j):
    return layer.write(state, j, y_j)


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

    def hold(self, rows):
        return rows

    def call(self, f, module, index, *held):
        return f(module, index, *held)

    def fetch(self, held):
        return held


class Host(AbstractTurns):
    """In NumPy, for all rows at once; arrays are changed in place. Units are decided in the order of their numbers.

    Sums are in a different order than in a compiled program: only weights on a grid, such as those of an integer twin,
    give the same numbers both ways.
    """

    xp = np

    def __init__(self, at_once: int = 512):
        self.at_once = at_once  # rows per call of the compiled parts of the walk
        self._programs: dict[tuple[Callable, int], tuple[Any, Any, Any]] = {}

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

    def linear(self, decide, carry, start, a, W):
        if isinstance(decide, AbstractBlockwise):
            return decide.linear(carry, start, a, W)
        return super().linear(decide, carry, start, a, W)

    def rows(self, state):
        return jax.tree.leaves(state)[0].shape[-1:]

    def hold(self, rows):
        n_rows = jax.tree.leaves(rows)[0].shape[-1]
        parts = list(chunks(n_rows, self.at_once))
        padded = (cut(rows, *part, self.at_once, axis=-1) for part in parts)
        return _Held([jax.device_put(jax.tree.map(_rows_first, own)) for own in padded], [n for _, n in parts])

    def call(self, f, module, index, *held):
        # One program for all parts. Their results stay on the device.
        index = jax.tree.map(lambda i: np.asarray(i, np.int32), index)
        program, weights = self._program(f, module)
        return _Held([program(weights, index, own) for own in zip(*(v.parts for v in held))], held[0].counts)

    def _program(self, f, module):
        # Found once a walk: taking a large module apart takes as long as many a step.
        if (f, id(module)) not in self._programs:
            leaves, tree = jax.tree.flatten(module)
            arrays = [leaf for leaf in leaves if _is_array(leaf)]
            others = tuple(None if _is_array(leaf) else leaf for leaf in leaves)
            self._programs[f, id(module)] = _over_rows(f, tree, others), arrays, module
        return self._programs[f, id(module)][:2]

    def fetch(self, held):
        parts = zip(held.parts, held.counts)
        return np.concatenate([np.moveaxis(np.asarray(own)[:n], 0, -1) for own, n in parts], axis=-1)


class _Held:
    """Values of rows on the device: in parts of equal size, padded, with the number of rows in each."""

    def __init__(self, parts: list[Any], counts: list[int]):
        self.parts, self.counts = parts, counts

    def __iter__(self) -> Iterator["_Held"]:
        """The parts of a tuple."""
        return (_Held(list(own), self.counts) for own in zip(*self.parts))


def _rows_first(v: np.ndarray) -> np.ndarray:
    v = np.ascontiguousarray(np.moveaxis(v, -1, 0))
    return v.astype(jax.dtypes.canonicalize_dtype(float)) if v.dtype == np.uint8 else v


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray)


@lru_cache(maxsize=256)
def _over_rows(f: Callable, tree: Any, others: tuple):
    """The program of `Host.call`, for a module of given structure, with None in place of arrays."""

    @jax.jit
    def program(arrays, index, rows):
        own = iter(arrays)
        module = jax.tree.unflatten(tree, [next(own) if leaf is None else leaf for leaf in others])
        return jax.vmap(lambda *own: f(module, index, *own))(*rows)

    return program


COMPILED = Compiled()


def unrolled() -> bool:
    """Whether the loop over a block is unrolled: on an accelerator it becomes one fused kernel instead of several per
    unit. On a CPU a loop is as fast, and compiles in a second where 32 unrolled units take ten."""
    return jax.default_backend() != "cpu"
