"""Bits-back coding of rows with a stack, layer by layer, many rows side by side.

To push x: pop h from q(h|x), which takes bits off the stack; push x under p(x|h) and h under p(h). To pop x, the same
backwards: the bits that chose h come back. The net length is log q(h|x) - log p(x,h), Eq. (15). With several layers
and nearest parents the layers take turns (Bit-Swap: few bits need to be there at the start); with skip connections all
of q is popped first.

Rows are coded side by side, unit after unit, so that an autoregressive layer is decoded for all of them at once.
"""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darn.batching import chunks, pad_rows
from darn.codec._ans import Ans
from darn.codec._fixed_point import dtype_of
from darn.layers import CERTAIN, Factorial, LinearAutoregressive, OneHot
from darn.model import Stack
from darn.nn import CausalDense, CausalLocal

BATCH = 512  # rows evaluated by one program
BLOCK = 32  # units whose logits are kept up to date together while one is decided after the other

Rows = np.ndarray  # (rows, units) uint8
# logits of one unit, of all rows -> their bits
Decide = Callable[[np.ndarray], np.ndarray]


def _layer(stack: Stack, side: str, l: int) -> Any:
    return (stack.decoder if side == "p" else stack.encoder)[l].layer


def _context(stack: Stack, side: str, l: int, x, h):
    return stack.above(l, h) if side == "p" else stack.below(l, x, h)


def _over_rows(f, n: int, *inputs):
    """f of each of n rows of bits; the results' rows last, since units are coded one after the other."""
    return jax.vmap(f, out_axes=-1, axis_size=n)(*inputs)  # a prior has rows, but no inputs that would tell how many


@eqx.filter_jit
def _logits(stack: Stack, side: str, l: int, n: int, y, x, h):
    """All logits of conditional l, its own y being given."""
    dtype = dtype_of(stack)

    def one(y, x, h):
        layer, c = _layer(stack, side, l), _context(stack, side, l, x, h)
        return layer.logits(c) if isinstance(layer, Factorial) else layer.logits(y, c)

    return _over_rows(one, n, *jax.tree.map(lambda v: v.astype(dtype), (y, x, h)))


@eqx.filter_jit
def _start(stack: Stack, side: str, l: int, n: int, x, h):
    """The state of an autoregressive conditional before its first unit."""
    dtype = dtype_of(stack)
    x, h = jax.tree.map(lambda v: v.astype(dtype), (x, h))
    return _over_rows(lambda x, h: _layer(stack, side, l).start(_context(stack, side, l, x, h)), n, x, h)


@eqx.filter_jit
def _read(layer, state, j):
    return jax.vmap(lambda s: layer.read(s, j), in_axes=-1)(state)


@eqx.filter_jit
def _write(layer, state, j, bits):
    bits = bits.astype(jax.tree.leaves(state)[0].dtype)
    return jax.vmap(lambda s, y: layer.write(s, j, y), in_axes=-1, out_axes=-1)(state, bits)


class Evaluator:
    """The twin's logits for any number of rows, `batch` at a time: its size changes no bit of them."""

    def __init__(self, twin: Stack, batch: int = BATCH):
        self.twin, self.batch = twin, batch
        self._dtype, self._causal = dtype_of(twin), {}

    @contextlib.contextmanager
    def _exactly(self) -> Iterator[None]:
        # No TF32 on an accelerator, and float64 where the twin is in it.
        with jax.default_matmul_precision("highest"), jax.enable_x64(self._dtype == "float64"):
            yield

    def _chunked(self, f, rows: int, *trees) -> list:
        """[(f of a chunk of rows, padded to one size; how many of them count), ...]."""
        out = []
        for start, count in chunks(rows, self.batch):
            cut = jax.tree.map(lambda v, s=start, n=count: pad_rows(v[s : s + n], self.batch), trees)
            out.append((f(*cut), count))
        return out

    def logits(self, side: str, l: int, y: Rows, x: Rows | None, h: tuple[Rows, ...]) -> np.ndarray:
        """(units, rows): the logits of p(y|h) or q(y|x,h), y being known."""
        factorial = isinstance(_layer(self.twin, side, l), Factorial)
        inputs = (None if factorial else y, x, h)
        with self._exactly():
            return _joined(self._chunked(partial(_logits, self.twin, side, l, self.batch), len(y), *inputs))

    def walk(self, side: str, l: int, rows: int, x: Rows | None, h: tuple[Rows, ...], decide: Decide) -> Rows:
        """(rows, units): y decided unit by unit, for all rows at once."""
        layer = _layer(self.twin, side, l)
        if isinstance(layer, Factorial):
            blank = np.zeros((rows, layer.n), np.uint8)
            return np.ascontiguousarray(decide(self.logits(side, l, blank, x, h)).T)
        with self._exactly():
            states = self._chunked(partial(_start, self.twin, side, l, self.batch), rows, x, h)
            bare = layer.layer if isinstance(layer, OneHot) else layer
            if isinstance(bare, LinearAutoregressive) and isinstance(bare.W, CausalDense | CausalLocal):
                if isinstance(layer, OneHot):
                    states, decide = [(own, count) for (own, _), count in states], _settled(layer, decide)
                W = self._weights(side, l, bare.W)
                if isinstance(bare.W, CausalLocal):
                    return _walk_grid(W, bare.W.grid, _joined(states), decide)
                return _walk_triangle(W, _joined(states), decide)
            y = np.empty((rows, layer.n), np.uint8)
            for j in range(layer.n):
                here = jnp.asarray(j)
                y[:, j] = decide(_joined([(_read(layer, state, here), count) for state, count in states]))
                bits = self._chunked(lambda v: v, rows, y[:, j])
                states = [(_write(layer, s, here, v), count) for (s, count), (v, _) in zip(states, bits)]
        return y

    def _weights(self, side: str, l: int, W: CausalDense | CausalLocal) -> np.ndarray:
        if (side, l) not in self._causal:
            self._causal[side, l] = np.asarray(W.weights())
        return self._causal[side, l]


def _joined(parts: list) -> np.ndarray:
    """The results of all chunks side by side, without the padding."""
    arrays = [np.asarray(v)[..., :count] for v, count in parts]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=-1)


def _settled(layer: OneHot, decide: Decide) -> Decide:
    """`decide`, told the logits of a `OneHot` layer where it is given those of the layer inside, unit after unit."""
    units, on = zip(*layer.places()[1:]), np.zeros(0, bool)

    def each(a: np.ndarray) -> np.ndarray:
        nonlocal on
        first, last = next(units)
        on = np.zeros(a.shape, bool) if first else on
        bits = decide(np.where(on, -CERTAIN, CERTAIN if last else a).astype(a.dtype))
        on = on | (bits > 0)
        return bits

    return each


def _walk_triangle(W: np.ndarray, a: np.ndarray, decide: Decide) -> Rows:
    """`CausalDense.chain` from outside: what precedes a block by one product, its own triangle unit by unit.

    On the host, where the bits are: its sums are exact, so that they are those of the layer's own `logits`.
    """
    n, rows = a.shape
    y, bits = np.zeros((n, rows), a.dtype), np.empty((n, rows), np.uint8)
    for start in range(0, n, BLOCK):
        end = min(start + BLOCK, n)
        block = a[start:end] + W[start:end, :start] @ y[:start]
        for i in range(start, end):
            bits[i] = decide(block[i - start])
            y[i] = bits[i]
            block[i - start + 1 :] += W[i + 1 : end, i, None] * y[i][None]
    return np.ascontiguousarray(bits.T)


def _walk_grid(W: np.ndarray, grid: tuple[int, int, int], a: np.ndarray, decide: Decide) -> Rows:
    """The like over a grid, W being `CausalLocal.weights()`: a unit that is on adds its weights to the window of units
    that see it, and in most rows most units are off."""
    P, Q, reach, k, C, _ = W.shape
    (H, V, _), r, (_, rows) = grid, k // 2, a.shape
    down, aside = np.arange(reach), np.arange(-r, r + 1)
    place = r - down[:, None], r - aside[None]  # where the window of a cell `down` and `aside` has this one
    onto = {
        (p, q): W[((p + down) % P)[:, None], ((q + aside) % Q)[None], *place] for p in range(P) for q in range(Q)
    }  # (down, aside, from channel, to channel)
    edge = np.zeros((H + r, V + 2 * r, C, rows), a.dtype)  # logits, and room for what falls beyond the edges
    edge[:H, r : r + V] = a.reshape(H, V, C, rows)
    bits = np.empty((H, V, C, rows), np.uint8)
    for i, j in np.ndindex(H, V):
        weights, window = onto[i % P, j % Q], edge[i : i + reach, j : j + k]
        for f in range(C):
            bits[i, j, f] = decide(edge[i, j + r, f])
            on = np.flatnonzero(bits[i, j, f])
            if len(on):
                window[..., on] += weights[:, :, f, :, None]
    return np.ascontiguousarray(bits.reshape(-1, rows).T)


class Lengths:
    """Bits spent on each decoder layer and got back from each encoder layer."""

    def __init__(self, n_layers: int):
        self.p, self.q = np.zeros(n_layers + 1), np.zeros(n_layers)

    def __iadd__(self, other: "Lengths") -> "Lengths":
        self.p, self.q = self.p + other.p, self.q + other.q
        return self


class StackCodec:
    """Pushes rows onto a stack of bits and pops them again."""

    def __init__(self, twin: Stack, batch: int = BATCH):
        self.twin, self.evaluate = twin, Evaluator(twin, batch)

    # Code of one conditional, given the layers known so far; `h` begins at h^1 in the calls of both sides.

    def _push(self, ans: Ans, side: str, l: int, y: Rows, x, h, mask: Rows | None = None) -> float:
        a = self.evaluate.logits(side, l, y, x, h)
        return ans.push(y.T, a) if mask is None else ans.push(y.T[mask.T], a[mask.T])

    def _pop(self, ans: Ans, side: str, l: int, rows: int, x, h, mask: Rows | None = None) -> tuple[Rows, float]:
        total, unit = 0.0, 0

        def decide(a):
            nonlocal total, unit
            if mask is None:
                bits, cost = ans.pop(a)
            else:
                there = mask.T[unit] if a.ndim == 1 else mask.T
                bits, unit = np.zeros(a.shape, np.uint8), unit + 1
                bits[there], cost = ans.pop(a[there])
            total += cost
            return bits

        return self.evaluate.walk(side, l, rows, x, h, decide), total

    def most_probable(self, x: Rows) -> tuple[Rows, ...]:
        """The code that takes no bits: every unit of q(h|x) at its more probable value."""
        h: tuple[Rows, ...] = ()
        for k in range(self.twin.n_layers):
            h = (*h, self.evaluate.walk("q", k, len(x), x, h, lambda a: (a > 0).astype(np.uint8)))
        return h

    def push(self, ans: Ans, x: Rows, mask: Rows | None = None, *, bits_back: bool = True) -> tuple[Lengths, int]:
        """(lengths, how many bits had to be on the stack). `Empty` where they were not: `ans` is then spoilt.

        `mask`: False for units of x that are not coded; they are 0.
        """
        L, found = self.twin.n_layers, Lengths(self.twin.n_layers)
        before, need = ans.size, 0
        h: tuple[Rows, ...] = () if bits_back else self.most_probable(x)
        late = self.twin.skip or not bits_back
        for k in range(L):
            if bits_back:
                y, found.q[k] = self._pop(ans, "q", k, len(x), x, h)
                h, need = (*h, y), max(need, before - ans.size)
            if not late:  # the layer below has been made use of: it can go
                found.p[k] = self._push(ans, "p", k, (x, *h)[k], None, _given(h, k), None if k else mask)
        for l in range(0 if late else L, L + 1):
            found.p[l] = self._push(ans, "p", l, (x, *h)[l], None, _given(h, l), None if l else mask)
        return found, need

    def pop(self, ans: Ans, rows: int, mask: Rows | None = None, *, bits_back: bool = True) -> Rows:
        """The rows that `push` pushed, the stack being as it was before."""
        L = self.twin.n_layers
        known: tuple[Rows, ...] = ()  # layers l + 1 and up
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

    def _give_back(self, ans: Ans, k: int, layers: tuple[Rows, ...]) -> None:
        """Pushes h^(k+1) under q, the bits that once chose it."""
        self._push(ans, "q", k, layers[k + 1], layers[0], layers[1 : k + 1])


def _given(h: tuple[Rows, ...], l: int) -> tuple[Rows, ...]:
    """h for decoder[l], which sees the layers above l alone."""
    return tuple(y if k >= l else y[:, :0] for k, y in enumerate(h))
