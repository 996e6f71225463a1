"""The twin's logits and walks for many rows at once, in batches whose size does not change a bit."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np

from darn.batching import join, map_rows, stream_rows
from darn.codec import _choice
from darn.codec._twin import alone, dtype_of
from darn.devices import everywhere
from darn.layers import AbstractBinaryLayer
from darn.model import Stack
from darn.nn import AbstractBlockwise, Decide, Host

BATCH = 512  # rows evaluated by one program
PROGRAM = 1 << 28  # products that cost about as much as starting one more program
WALK = 1024  # rows that a walk keeps on an accelerator; elsewhere BATCH

Bits = np.ndarray  # (rows, units) uint8
# (units, their logits of all rows) -> the bits of these units; see `darn.nn.Decide`
Choose = Callable[[Any, np.ndarray], np.ndarray]
# (a, W) -> the bits of units whose logits are a + W y; see `Ans.pop_linear`
ChooseLinear = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class _Linear(AbstractBlockwise):
    """Decides units one by one, or a block of linear units at once."""

    decide: Decide
    choose: ChooseLinear

    def __call__(self, carry, units, a):
        return self.decide(carry, units, a)

    def linear(self, carry, start, a, W):
        assert carry == start  # in order, as `decide` checks
        return self.choose(a, W), carry + len(W)


def _layer(stack: Stack, side: str, l: int) -> AbstractBinaryLayer:
    return (stack.decoder if side == "p" else stack.encoder)[l].layer


def _context(stack: Stack, side: str, l: int, x, h):
    return stack.above(l, h) if side == "p" else stack.below(l, x, h)


def _over_rows(f, stack: Stack, numbers, inputs, *others):
    """f of each row of others and bits; rows are the last axis of the results: units are coded one by one."""
    inputs = jax.tree.map(lambda v: v.astype(dtype_of(stack)), inputs)
    # A prior has no inputs that would give the number of rows.
    return jax.vmap(f, out_axes=-1, axis_size=len(numbers))(*others, *inputs)


@eqx.filter_jit
def _logits(stack: Stack, side: str, l: int, order, numbers, *inputs):
    """All logits of conditional l in one order, for a known y."""

    def one(y, x, h):
        return _layer(stack, side, l).logits(y, _context(stack, side, l, x, h), order=order)

    return _over_rows(one, stack, numbers, inputs)


@eqx.filter_jit
def _start(stack: Stack, side: str, l: int, numbers, order, *inputs):
    """The state of conditional l before its first unit; `order` is None, or has each row's own."""

    def one(order, x, h):
        return _layer(stack, side, l).start(_context(stack, side, l, x, h), order=0 if order is None else order)

    return _over_rows(one, stack, numbers, inputs, order)


def _sequences(layer: AbstractBinaryLayer) -> np.ndarray | None:
    found = np.stack([np.asarray(layer.sequence(k)) for k in range(layer.n_orders)])
    return None if len(found) == 1 and np.array_equal(found[0], np.arange(layer.n)) else found


class Evaluator:
    """The twin's logits for any number of rows, at most `batch` at a time; the batch size does not change them."""

    def __init__(self, twin: Stack, batch: int | None = None):
        self.twin = twin
        self._accelerated = accelerated = jax.default_backend() != "cpu"

        def within(floats: int, most: int) -> int:
            return max(min(batch or most, floats // twin.row_floats), 1)

        # A layer of many floats a row fills a processor with few rows; in a walk, which takes a cell at a time, it
        # needs more.
        self.batch = within(1 << (27 if accelerated else 22), BATCH)
        self._walked = within(1 << (31 if accelerated else 25), WALK if accelerated else BATCH)
        weights = sum(w.size for w in jax.tree.leaves(eqx.filter(twin, eqx.is_inexact_array)))
        # A block begins with a dozen groups of few rows: padding all of them takes half as long again as the others. On
        # an accelerator it takes a second, and the program of a smaller size far longer to compile.
        self._few = -(-self.batch // 8) if self.batch * weights > PROGRAM and not accelerated else 0
        layers = [*((("p", l), part.layer) for l, part in enumerate(twin.decoder))]
        layers += [(("q", k), part.layer) for k, part in enumerate(twin.encoder)]
        # Each conditional has a float type of its own, and programs that know of no other.
        parts = {place: alone(twin, *place) for place, _ in layers}
        self._dtypes = {place: dtype_of(part) for place, part in parts.items()}
        self._spread = {}
        for place, part in parts.items():
            with self.exactly(*place):
                self._spread[place] = everywhere(part)
        # (orders, units) in the sequence in which they are decided, of layers that do not simply go from first to last.
        self.sequences = {place: found for place, layer in layers if (found := _sequences(layer)) is not None}

    @contextlib.contextmanager
    def exactly(self, side: str, l: int) -> Iterator[None]:
        """In which a conditional's programs run: no TF32 on an accelerator, and float64 if its twin uses it."""
        with jax.default_matmul_precision("highest"), jax.enable_x64(self._dtypes[side, l] == "float64"):
            yield

    def _size(self, rows: int) -> int:
        """Rows of the program that evaluates so many."""
        return self._few if rows <= self._few else self.batch

    def _walk_size(self, rows: int) -> int:
        """Rows that a walk of these rows is padded to: few sizes, since each has programs of its own."""
        size = self._walked
        if self._accelerated:  # where more rows take hardly longer
            return size
        while size // 8 >= rows and size * self.twin.row_floats > 1 << 22:
            size = -(-size // 8)
        return size

    def layer(self, side: str, l: int) -> AbstractBinaryLayer:
        """The twin's layer."""
        return _layer(self.twin, side, l)

    def logits(
        self, side: str, l: int, y: Bits, x: Bits | None, h: tuple[Bits, ...], order: int | None = None
    ) -> np.ndarray:
        """(units, rows): the logits of p(y|h) or q(y|x,h) for a known y, of a layer with several orders in one."""
        with self.exactly(side, l):
            number = 0 if order is None else np.asarray(order, np.int32)  # an array: one program for all orders
            program = partial(_logits, self._spread[side, l], side, l, number)
            return map_rows(program, len(y), self._size(len(y)), y, x, h, out_axis=-1, numbered=True)

    def walk(
        self,
        side: str,
        l: int,
        rows: int,
        x: Bits | None,
        h: tuple[Bits, ...],
        choose: Choose,
        orders: np.ndarray | None = None,
        choose_linear: ChooseLinear | None = None,
        state: Any = None,
    ) -> Bits:
        """(rows, units): y, decided along the layer's chain for all rows at once, each in its own order.

        `choose_linear` chooses a block of units at once, where a layer has linear blocks; `state` is the layer's state
        before its first unit, where it is known already.
        """
        layer = self.layer(side, l)
        units = None if orders is None else self.sequences[side, l][orders].T

        def decide(decided, here, a):
            # The bits popped here were pushed all at once, in the order of the units.
            count = 1
            if units is not None:
                in_order = bool((here == units[decided]).all())
            elif np.ndim(here):
                count, in_order = len(here), np.array_equal(here, np.arange(decided, decided + len(here)))
            else:
                in_order = here == decided
            if not in_order:
                raise TypeError(f"on the host, {type(layer).__name__}.walk must decide the units in order")
            return decided + count, choose(here, a)

        with self.exactly(side, l):
            if state is None:
                orders = None if orders is None else orders.astype(np.int32)
                program = partial(_start, self._spread[side, l], side, l)
                state = map_rows(program, rows, self._size(rows), orders, x, h, out_axis=-1, numbered=True)
            own = decide if choose_linear is None else _Linear(decide, choose_linear)
            y, _ = layer.walk(state, own, 0, Host(self._walk_size(rows)))
        return np.ascontiguousarray(y.T, dtype=np.uint8)

    def first_states(self, x: Bits) -> Iterator[Any]:
        """The states of q(h^1|x) before its first unit, batch by batch."""
        program = partial(_start, self._spread["q", 0], "q", 0)
        return stream_rows(program, self._size(len(x)), [(None, x, ())], out_axis=-1, numbered=True)

    def lengths(
        self, side: str, l: int, y: Bits, x, h, mask: Bits | None = None
    ) -> tuple[list[np.ndarray], np.ndarray]:
        """Returns (the logits in each of the layer's orders, the lengths of y in them: see `_choice.lengths`)."""
        K = self.layer(side, l).n_orders
        each = [self.logits(side, l, y, x, h, None if K == 1 else k) for k in range(K)]
        there = None if mask is None else mask.T
        return each, np.stack([_choice.lengths(y.T, a, there) for a in each])


class FirstStates:
    """The states of q(h^1|x) before its first unit, for the rows of a block.

    They depend on x alone, so a batch of them is computed while earlier rows are coded.
    """

    def __init__(self, evaluate: Evaluator, x: Bits):
        self._exactly, self._batches = partial(evaluate.exactly, "q", 0), evaluate.first_states(x)
        self._held, self._end = [], 0  # states in parts, and the row after the last of them

    def take(self, first: int, count: int) -> Any:
        """The states of `count` rows, as a copy; `first` must not decrease from call to call."""
        while self._end < first + count:
            with self._exactly():
                self._held.append(next(self._batches))
            self._end += _rows(self._held[-1])
        held = join(self._held, axis=-1)
        done = first - (self._end - _rows(held))
        self._held = [jax.tree.map(lambda v: v[..., done:], held)]
        return jax.tree.map(lambda v: v[..., :count].copy(), self._held[0])


def _rows(state: Any) -> int:
    return jax.tree.leaves(state)[0].shape[-1]
