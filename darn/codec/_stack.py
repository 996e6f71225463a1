"""Bits-back coding of rows with a model, layer by layer, many rows at once.

To push x: pop h from q(h|x), which takes bits off the stack; push x under p(x|h) and h under p(h). To pop x, do the
reverse: the bits that chose h are pushed back. The net length is log q(h|x) - log p(x,h), Eq. (15). With several layers
and nearest parents, pops and pushes alternate (Bit-Swap: few initial bits are needed); with skip connections all of q
is popped first.

Each unit is coded for all rows before the next one, so that an autoregressive layer decodes all rows at once.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np

from darn.batching import map_rows
from darn.codec import _choice
from darn.codec._ans import Ans
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
            with self._exactly(*place):
                self._spread[place] = everywhere(part)
        # (orders, units) in the sequence in which they are decided, of layers that do not simply go from first to last.
        self.sequences = {place: found for place, layer in layers if (found := _sequences(layer)) is not None}

    @contextlib.contextmanager
    def _exactly(self, side: str, l: int) -> Iterator[None]:
        # No TF32 on an accelerator, and float64 if the conditional's twin uses it.
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
        with self._exactly(side, l):
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
    ) -> Bits:
        """(rows, units): y, decided along the layer's chain for all rows at once, each in its own order.

        `choose_linear` chooses a block of units at once, where a layer has linear blocks.
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

        with self._exactly(side, l):
            program = partial(_start, self._spread[side, l], side, l)
            orders = None if orders is None else orders.astype(np.int32)
            state = map_rows(program, rows, self._size(rows), orders, x, h, out_axis=-1, numbered=True)
            own = decide if choose_linear is None else _Linear(decide, choose_linear)
            y, _ = layer.walk(state, own, 0, Host(self._walk_size(rows)))
        return np.ascontiguousarray(y.T, dtype=np.uint8)

    def lengths(
        self, side: str, l: int, y: Bits, x, h, mask: Bits | None = None
    ) -> tuple[list[np.ndarray], np.ndarray]:
        """Returns (the logits in each of the layer's orders, the lengths of y in them: see `_choice.lengths`)."""
        K = self.layer(side, l).n_orders
        each = [self.logits(side, l, y, x, h, None if K == 1 else k) for k in range(K)]
        there = None if mask is None else mask.T
        return each, np.stack([_choice.lengths(y.T, a, there) for a in each])


class Lengths:
    """Bits spent on each decoder layer and recovered from each encoder layer."""

    def __init__(self, n_layers: int):
        self.p, self.q = np.zeros(n_layers + 1), np.zeros(n_layers)

    def __iadd__(self, other: "Lengths") -> "Lengths":
        self.p, self.q = self.p + other.p, self.q + other.q
        return self


class StackCodec:
    """Pushes rows onto a stack of bits and pops them."""

    def __init__(self, twin: Stack, batch: int | None = None):
        self.twin, self.evaluate = twin, Evaluator(twin, batch)
        self.takes_bits = bool(twin.n_layers or self.evaluate.sequences)  # off the stack

    # One conditional, given the layers known so far; `h` begins at h^1 for both p and q.

    def _push(
        self, ans: Ans, side: str, l: int, y: Bits, x, h, mask: Bits | None = None, *, bits_back: bool = True
    ) -> float:
        sequences = self.evaluate.sequences.get((side, l))
        if sequences is None:
            a = self.evaluate.logits(side, l, y, x, h)
            return ans.push(y.T, a) if mask is None else ans.push(y.T[mask.T], a[mask.T])
        # The order is popped from its posterior; without bits back it is the most probable one.
        (each, lengths), cost = self.evaluate.lengths(side, l, y, x, h, mask), 0.0
        if bits_back:
            orders, cost = ans.pop_choices(_choice.posterior(lengths))
            ans.note()
        else:
            orders = lengths.argmin(axis=0)
        units = sequences[orders]
        a = np.stack([each[k][own, i] for i, (k, own) in enumerate(zip(orders, units))], axis=1)
        bits = np.take_along_axis(y, units, axis=1).T
        there = ... if mask is None else np.take_along_axis(mask, units, axis=1).T
        cost = ans.push(bits[there], a[there]) - cost
        return cost + ans.push_choices(orders, _choice.uniform(len(y), len(sequences)))

    def _pop(
        self, ans: Ans, side: str, l: int, rows: int, x, h, mask: Bits | None = None, *, bits_back: bool = True
    ) -> tuple[Bits, float]:
        sequences, orders, total = self.evaluate.sequences.get((side, l)), None, 0.0
        if sequences is not None:
            orders, total = ans.pop_choices(_choice.uniform(rows, len(sequences)))

        def choose(units, a):
            nonlocal total
            if mask is None:
                bits, cost = ans.pop(a)
            else:
                there = mask.T[units] if orders is None else mask[np.arange(rows), units]
                bits = np.zeros(a.shape, np.uint8)
                bits[there], cost = ans.pop(a[there])
            total += cost
            return bits

        def choose_linear(a, W):
            nonlocal total
            bits, cost = ans.pop_linear(a, W)
            total += cost
            return bits

        y = self.evaluate.walk(side, l, rows, x, h, choose, orders, choose_linear if mask is None else None)
        ans.note()
        if orders is not None and bits_back:
            _, lengths = self.evaluate.lengths(side, l, y, x, h, mask)
            total -= ans.push_choices(orders, _choice.posterior(lengths))
        return y, total

    def most_probable(self, x: Bits) -> tuple[Bits, ...]:
        """The code with every unit of q(h|x) at its more probable value; it takes no bits from the stack."""
        h: tuple[Bits, ...] = ()
        for k in range(self.twin.n_layers):
            orders = np.zeros(len(x), np.int64) if ("q", k) in self.evaluate.sequences else None
            h = (*h, self.evaluate.walk("q", k, len(x), x, h, lambda _, a: (a > 0).astype(np.uint8), orders))
        return h

    def push(self, ans: Ans, x: Bits, mask: Bits | None = None, *, bits_back: bool = True) -> tuple[Lengths, int]:
        """Pushes rows.

        Args:
            ans: the stack of bits.
            x: (rows, n_x).
            mask: (rows, n_x), False for units of x that are not coded; they must be 0.
            bits_back: whether to sample the code from bits on the stack; otherwise it is the most probable one.

        Returns:
            The lengths, and how many bits had to be on the stack.

        Raises:
            Empty: if there were too few bits on the stack, which is then unusable.
        """
        L, found = self.twin.n_layers, Lengths(self.twin.n_layers)
        before = ans.size
        ans.watch()
        h: tuple[Bits, ...] = () if bits_back else self.most_probable(x)
        late = self.twin.skip or not bits_back

        def push(l, h):
            there = None if l else mask
            return self._push(ans, "p", l, (x, *h)[l], None, _given(h, l), there, bits_back=bits_back)

        for k in range(L):
            if bits_back:
                y, found.q[k] = self._pop(ans, "q", k, len(x), x, h)
                h = (*h, y)
            if not late:  # the layer below is no longer needed as a parent
                found.p[k] = push(k, h)
        for l in range(0 if late else L, L + 1):
            found.p[l] = push(l, h)
        return found, before - ans.lowest

    def pop(self, ans: Ans, rows: int, mask: Bits | None = None, *, bits_back: bool = True) -> Bits:
        """The rows that `push` pushed; restores the stack to its state before."""
        L = self.twin.n_layers
        known: tuple[Bits, ...] = ()  # layers l + 1 and up
        early = bits_back and not self.twin.skip
        for l in range(L, -1, -1):
            blank = (np.zeros((rows, 0), np.uint8),) * l
            there = None if l else mask
            y, _ = self._pop(ans, "p", l, rows, None, (*blank, *known), there, bits_back=bits_back)
            known = (y, *known)
            if early and l < L:
                self._give_back(ans, l, (*blank, *known))
        if bits_back and self.twin.skip:
            for k in range(L - 1, -1, -1):
                self._give_back(ans, k, known)
        return known[0]

    def _give_back(self, ans: Ans, k: int, layers: tuple[Bits, ...]) -> None:
        """Pushes h^(k+1) under q, which restores the bits that chose it."""
        self._push(ans, "q", k, layers[k + 1], layers[0], layers[1 : k + 1])


def _given(h: tuple[Bits, ...], l: int) -> tuple[Bits, ...]:
    """h for decoder[l], which sees only the layers above l."""
    return tuple(y if k >= l else y[:, :0] for k, y in enumerate(h))
