"""Bits-back coding of rows with a model, layer by layer, many rows at once.

To push x: pop h from q(h|x), which takes bits off the stack; push x under p(x|h) and h under p(h). To pop x, do the
reverse: the bits that chose h are pushed back. The net length is log q(h|x) - log p(x,h), Eq. (15). With several layers
and nearest parents, pops and pushes alternate (Bit-Swap: few initial bits are needed); with skip connections all of q
is popped first.

Each unit is coded for all rows before the next one, so that an autoregressive layer decodes all rows at once.
"""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np

from darn.batching import map_rows
from darn.codec._ans import Ans
from darn.codec._twin import dtype_of
from darn.devices import everywhere
from darn.layers import AbstractBinaryLayer
from darn.model import Stack
from darn.nn import Host

BATCH = 512  # rows evaluated by one program

Bits = np.ndarray  # (rows, units) uint8
# (units, their logits of all rows) -> the bits of these units; see `darn.nn.Decide`
Choose = Callable[[Any, np.ndarray], np.ndarray]


def _layer(stack: Stack, side: str, l: int) -> AbstractBinaryLayer:
    return (stack.decoder if side == "p" else stack.encoder)[l].layer


def _context(stack: Stack, side: str, l: int, x, h):
    return stack.above(l, h) if side == "p" else stack.below(l, x, h)


def _over_rows(f, stack: Stack, numbers, inputs):
    """f of each row of bits; rows are the last axis of the results, since units are coded one by one."""
    inputs = jax.tree.map(lambda v: v.astype(dtype_of(stack)), inputs)
    # A prior has no inputs that would give the number of rows.
    return jax.vmap(f, out_axes=-1, axis_size=len(numbers))(*inputs)


@eqx.filter_jit
def _logits(stack: Stack, side: str, l: int, numbers, *inputs):
    """All logits of conditional l, for a known y."""
    return _over_rows(
        lambda y, x, h: _layer(stack, side, l).logits(y, _context(stack, side, l, x, h)), stack, numbers, inputs
    )


@eqx.filter_jit
def _start(stack: Stack, side: str, l: int, numbers, *inputs):
    """The state of conditional l before its first unit."""
    return _over_rows(lambda x, h: _layer(stack, side, l).start(_context(stack, side, l, x, h)), stack, numbers, inputs)


class Evaluator:
    """The twin's logits for any number of rows, `batch` at a time; the batch size does not change them."""

    def __init__(self, twin: Stack, batch: int = BATCH):
        self.twin, self.batch = twin, batch
        self._dtype = dtype_of(twin)
        with self._exactly():
            self._spread = everywhere(twin)

    @contextlib.contextmanager
    def _exactly(self) -> Iterator[None]:
        # No TF32 on an accelerator, and float64 if the twin uses it.
        with jax.default_matmul_precision("highest"), jax.enable_x64(self._dtype == "float64"):
            yield

    def _rows(self, f, side: str, l: int, n: int, *inputs) -> Any:
        """f of n rows; rows are the last axis of the result."""
        program = partial(f, self._spread, side, l)
        return map_rows(program, n, self.batch, *inputs, out_axis=-1, numbered=True)

    def logits(self, side: str, l: int, y: Bits, x: Bits | None, h: tuple[Bits, ...]) -> np.ndarray:
        """(units, rows): the logits of p(y|h) or q(y|x,h) for a known y."""
        with self._exactly():
            return self._rows(_logits, side, l, len(y), y, x, h)

    def walk(self, side: str, l: int, rows: int, x: Bits | None, h: tuple[Bits, ...], choose: Choose) -> Bits:
        """(rows, units): y, decided along the layer's chain for all rows at once."""
        layer = _layer(self.twin, side, l)

        def decide(decided, units, a):
            # The bits popped here were pushed all at once, in the order of the units.
            if np.ndim(units):
                count, in_order = len(units), np.array_equal(units, np.arange(decided, decided + len(units)))
            else:
                count, in_order = 1, units == decided
            if not in_order:
                raise TypeError(f"on the host, {type(layer).__name__}.walk must decide the units in order")
            return decided + count, choose(units, a)

        with self._exactly():
            state = self._rows(_start, side, l, rows, x, h)
            y, _ = layer.walk(state, decide, 0, Host(self.batch))
        return np.ascontiguousarray(y.T, dtype=np.uint8)


class Lengths:
    """Bits spent on each decoder layer and recovered from each encoder layer."""

    def __init__(self, n_layers: int):
        self.p, self.q = np.zeros(n_layers + 1), np.zeros(n_layers)

    def __iadd__(self, other: "Lengths") -> "Lengths":
        self.p, self.q = self.p + other.p, self.q + other.q
        return self


class StackCodec:
    """Pushes rows onto a stack of bits and pops them."""

    def __init__(self, twin: Stack, batch: int = BATCH):
        self.twin, self.evaluate = twin, Evaluator(twin, batch)

    # One conditional, given the layers known so far; `h` begins at h^1 for both p and q.

    def _push(self, ans: Ans, side: str, l: int, y: Bits, x, h, mask: Bits | None = None) -> float:
        a = self.evaluate.logits(side, l, y, x, h)
        return ans.push(y.T, a) if mask is None else ans.push(y.T[mask.T], a[mask.T])

    def _pop(self, ans: Ans, side: str, l: int, rows: int, x, h, mask: Bits | None = None) -> tuple[Bits, float]:
        total = 0.0

        def choose(units, a):
            nonlocal total
            if mask is None:
                bits, cost = ans.pop(a)
            else:
                there, bits = mask.T[units], np.zeros(a.shape, np.uint8)
                bits[there], cost = ans.pop(a[there])
            total += cost
            return bits

        return self.evaluate.walk(side, l, rows, x, h, choose), total

    def most_probable(self, x: Bits) -> tuple[Bits, ...]:
        """The code with every unit of q(h|x) at its more probable value; it takes no bits from the stack."""
        h: tuple[Bits, ...] = ()
        for k in range(self.twin.n_layers):
            h = (*h, self.evaluate.walk("q", k, len(x), x, h, lambda _, a: (a > 0).astype(np.uint8)))
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
        before, need = ans.size, 0
        h: tuple[Bits, ...] = () if bits_back else self.most_probable(x)
        late = self.twin.skip or not bits_back
        for k in range(L):
            if bits_back:
                y, found.q[k] = self._pop(ans, "q", k, len(x), x, h)
                h, need = (*h, y), max(need, before - ans.size)
            if not late:  # the layer below is no longer needed as a parent
                found.p[k] = self._push(ans, "p", k, (x, *h)[k], None, _given(h, k), None if k else mask)
        for l in range(0 if late else L, L + 1):
            found.p[l] = self._push(ans, "p", l, (x, *h)[l], None, _given(h, l), None if l else mask)
        return found, need

    def pop(self, ans: Ans, rows: int, mask: Bits | None = None, *, bits_back: bool = True) -> Bits:
        """The rows that `push` pushed; restores the stack to its state before."""
        L = self.twin.n_layers
        known: tuple[Bits, ...] = ()  # layers l + 1 and up
        early = bits_back and not self.twin.skip
        for l in range(L, -1, -1):
            blank = (np.zeros((rows, 0), np.uint8),) * l
            y, _ = self._pop(ans, "p", l, rows, None, (*blank, *known), None if l else mask)
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
