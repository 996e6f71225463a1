"""Numbers among the units: variables with means that follow from the numbers and units before them."""

from collections.abc import Sequence
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from darn.errors import DarnError
from darn.layers._base import AbstractBinaryLayer
from darn.layers._context import context_field, context_map, plus_context
from darn.nn import COMPILED, NOT_FINITE, AbstractMap, CausalDense, register, rounded

GRID = 10  # edges are multiples of 2^-GRID
LARGEST = 30  # a precision is below exp(LARGEST)
MOST_BITS = 12  # of a word that is a number
_STEP_BITS, _REACH = 9, 12  # of the integer twin's table: multiples of 2^-9 up to 12
_PRECISION = Context(prec=30)  # of tables: decimal arithmetic is the same on every machine

# A number: its first unit, how many bits spell it, and the unit that says whether it is given, or -1.
Word = tuple[int, int, int]


class _Units(NamedTuple):
    """What the units are, as constants: (n + 1,) each, the last for entries that stand for no unit."""

    owner: np.ndarray  # the number that the unit is a bit of; else one beyond the last number
    flag: np.ndarray  # the number that the unit says is given; likewise
    last: np.ndarray  # whether the unit is the last bit of its number


class _Bits(NamedTuple):
    """The bits of all numbers, as constants: (bits,) each."""

    unit: np.ndarray
    owner: np.ndarray
    place: np.ndarray  # the cells that the bit is worth
    depth: np.ndarray  # bits of the number before it
    first: np.ndarray  # the first bit of the same number


class Tables(NamedTuple):
    """Of every node of a number's binary tree, (numbers, nodes): at a mean m the log-odds of its upper half, less those
    of a standard logistic variable, are base + softplus(low - m) - softplus(high - m)."""

    base: Any
    low: Any
    high: Any
    softplus: Any = None  # a table of log(1 + exp(-x)), in the integer twin


@register("numbers")  # its name in model files
class Numbers(AbstractBinaryLayer):
    """p(y | c) of `layer`, where some words of bits number the cells of ordered values.

    The cells lie on an axis, divided by `edges`. A value of number g has a logistic distribution there, with precision
    k_g and mean mu_g = W_g z + V_g y + U_g c + b_g, of the numbers z (the middles of their cells) and the other units
    before it. A bit halves the cells that the bits before it leave; the log-odds of the logistic distribution, less
    those at mean 0 and precision 1, are added to the logit of the bit.

    Bits say badly that a few cells mean something of their own, such as the capital gains above 7,000. So every cell v
    of a number g may have a few factors A_gv, and B_j times their sum over the numbers before unit j is added to its
    logit.
    """

    layer: AbstractBinaryLayer
    W: CausalDense
    V: Float[Array, "n numbers"]
    U: AbstractMap | None = context_field()
    b: Float[Array, " numbers"]
    log_k: Float[Array, " numbers"]
    edges: Int[Array, "numbers _"]
    tables: Tables | None  # of the integer twin, where k is 1
    words: tuple[Word, ...] = eqx.field(static=True)
    n: int = eqx.field(static=True)
    A: Float[Array, "numbers cells factors"] | None = None
    B: Float[Array, "n factors"] | None = None
    by_name: ClassVar[bool] = False  # it wraps another layer, if the data are a table

    def __init__(
        self,
        layer: AbstractBinaryLayer,
        words: Sequence[Word],
        edges,
        n_c: int = 0,
        *,
        factors: int = 0,
        key: PRNGKeyArray,
    ):
        """Numbers that do not depend on each other, nor on the context.

        Args:
            layer: gives every bit its logit, to which the numbers add.
            words: where each number is; see `Word`.
            edges: of each number, those of its cells, from below, as multiples of 2^-GRID.
            n_c: units of the context.
            factors: of every cell; 0: units know a cell by its bits only.
            key: of the weights B.
        """
        self.layer, self.n = layer, layer.n
        self.words = tuple((int(a), int(b), int(flag)) for a, b, flag in words)
        longest = 1 + max(1 << bits for _, bits, _ in self.words)
        self.edges = jnp.asarray([[*e, *[e[-1]] * (longest - len(e))] for e in edges], jnp.int32)
        count = len(self.words)
        self.W, self.V = CausalDense(count), jnp.zeros((layer.n, count))
        U = context_map(n_c, count, jax.random.key(0))
        self.U = None if U is None else eqx.tree_at(lambda m: m.W, U, jnp.zeros_like(U.W))  # independent at first
        self.b, self.log_k, self.tables = jnp.zeros(count), jnp.zeros(count), None
        if factors:
            self.A = jnp.zeros((count, max(len(e) - 1 for e in edges), factors))
            self.B = jax.random.normal(key, (layer.n, factors)) * 0.1

    def __check_init__(self):
        if self.layer.n != self.n or self.layer.n_orders > 1:
            raise ValueError("numbers need a layer of as many units, with one order")
        at = 0
        for first, bits, flag in self.words:
            if not (at <= first and 0 < bits <= MOST_BITS and flag in (-1, first - 1) and flag < first):
                raise ValueError("the words of numbers must be apart and in order")
            at = first + bits
        longest = 1 + max((1 << bits for _, bits, _ in self.words), default=0)
        if at > self.n or len(self.words) != self.W.n or self.edges.shape[1] != longest:
            raise ValueError("the words, edges and weights of numbers do not fit each other")
        shapes = [v if v is None else v.shape for v in (self.A, self.B)]
        if shapes != [None, None]:
            (count, _, factors), of_units = shapes
            if count != len(self.words) or of_units != (self.n, factors):
                raise ValueError("the factors of numbers do not fit their words")

    # ---------------------------------------------------------------- constants

    def _units(self) -> _Units:
        none = len(self.words)
        owner, flag, last = np.full(self.n + 1, none), np.full(self.n + 1, none), np.zeros(self.n + 1, bool)
        for g, (first, bits, given) in enumerate(self.words):
            owner[first : first + bits] = g
            last[first + bits - 1] = True
            if given >= 0:
                flag[given] = g
        return _Units(owner, flag, last)

    def _bits(self) -> _Bits:
        found, k = [], 0
        for g, (first, bits, _) in enumerate(self.words):
            found += [(first + d, g, 1 << (bits - 1 - d), d, k) for d in range(bits)]
            k += bits
        return _Bits(*np.array(found).T)

    def _halves(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The edges below, within and above every node, (numbers, nodes); a tree's nodes are in the order of a heap."""
        nodes = (1 << max(bits for _, bits, _ in self.words)) - 1
        depth = np.floor(np.log2(np.arange(1, nodes + 1))).astype(int)
        prefix = np.arange(1, nodes + 1) - (1 << depth)
        bits = np.array([bits for _, bits, _ in self.words])[:, None]
        size = np.where(depth < bits, 1 << np.maximum(bits - depth, 0), 0)
        low = np.where(size > 0, prefix * size, 0)
        return low, low + size // 2, low + size

    def _free(self):
        """The weights V that are in use: of units before a number that belong to no number."""
        first = np.array([first for first, _, _ in self.words])
        free = self._units().owner[:-1, None] == len(self.words)
        return jnp.where(free & (np.arange(self.n)[:, None] < first), self.V, 0)

    def _made(self) -> Tables:
        if self.tables is not None:
            return self.tables
        k, axis = self._k()[:, None], self._axis(self.edges)
        low, middle, high = (jnp.take_along_axis(axis, v, 1) for v in self._halves())
        base = _log_odds(k * (middle - low), k * (high - middle)) - _log_odds(middle - low, high - middle)
        at_0 = _softplus(jnp, low, None) - _softplus(jnp, high, None)
        open_ = (middle > low) & (high > middle)
        return Tables(jnp.where(open_, base - at_0, 0), jnp.where(open_, k * low, 0), jnp.where(open_, k * high, 0))

    def _middles(self):
        """Of every cell, (numbers, cells)."""
        return self._axis(self.edges[:, 1:] + self.edges[:, :-1]) / 2

    def _axis(self, edges):
        return edges.astype(self.b.dtype) / (1 << GRID)

    def _k(self):
        """Precisions; the weights of an integer twin contain them."""
        return jnp.ones_like(self.b) if self.tables is not None else jnp.exp(self.log_k)

    # ---------------------------------------------------------------- the distribution

    def logits(self, y, c=None, *, order=0):
        bits = self._bits()
        worth = jnp.where(y[bits.unit] > 0.5, bits.place, 0)
        total = jnp.concatenate([jnp.zeros(1, worth.dtype), jnp.cumsum(worth)])
        node = (total[:-1] - total[bits.first]) // (2 * bits.place) + ((1 << bits.depth) - 1)
        ends = np.append(np.flatnonzero(bits.depth == 0), len(bits.unit))
        cell = (total[ends[1:]] - total[ends[:-1]])[:, None]
        z = jnp.take_along_axis(jnp.asarray(self._middles(), y.dtype), cell, 1)[:, 0]
        flags = np.array([flag for _, _, flag in self.words])
        given = (flags < 0) | (y[flags] > 0.5)
        z = jnp.where(given, z, 0)
        mean = plus_context(self.b, self.U, c) + self.W(z) + self._free().T @ y
        mean = self._k() * mean
        added = _added(jnp, self._made(), bits.owner, node, mean[bits.owner])
        a = self.layer.logits(y, c).at[bits.unit].add(added)
        if self.A is None or self.B is None:
            return a
        own = jnp.take_along_axis(self.A, jnp.minimum(cell, self.A.shape[1] - 1)[..., None], 1)[:, 0]
        total = jnp.cumsum(jnp.where(given[:, None], own, 0), axis=0)
        before = np.searchsorted([first + bits for first, bits, _ in self.words], np.arange(self.n), side="right")
        told = jnp.concatenate([jnp.zeros_like(total[:1]), total])[before]
        return a + jax.vmap(jnp.dot)(self.B, told)  # a fused sum is miscompiled, as in NADE

    def start(self, c=None, *, order=0):
        return self.layer.start(c), self._k() * plus_context(self.b, self.U, c)

    def walk(self, state, decide, carry, turns=COMPILED):
        xp = turns.xp
        inner, mean = state
        tables = Tables(*(None if v is None else turns.array(v) for v in self._made()))
        owner, flag, last = (xp.asarray(v) for v in self._units())
        k = self._k()
        pad = lambda v: xp.concatenate([v, xp.zeros((1, *v.shape[1:]), v.dtype)])  # noqa: E731
        W = pad(turns.array(self.W.weights() * k[:, None]).T)
        V = pad(turns.array(self._free() * k[None]))
        middles = turns.array(self._middles())
        A, B = (None if v is None else turns.array(v) for v in (self.A, self.B))
        sizes = xp.asarray([*((1 << bits) - 1 for _, bits, _ in self.words), 0])
        count, rows = len(self.words), turns.rows(state)
        over = (slice(None), *[None] * len(rows))

        def one(seen, j, a):
            (mean, node, given, factors), carry = seen
            g, f = owner[j], flag[j]
            own = xp.minimum(g, count - 1)
            at = xp.minimum(node[g], tables.base.shape[1] - 1)
            added = _added(xp, tables, own, at, mean[own])
            a = xp.where(g < count, a + added, a).astype(a.dtype)
            carry, y = decide(carry, j, a if B is None else (a + (B[j][over] * factors).sum(0)).astype(a.dtype))
            bit = xp.asarray(y > 0.5)
            # Units of no number share a node, which would outgrow its type.
            node = turns.put(node, xp.where(g < count, 2 * node[g] + 1 + bit.astype(node.dtype), 0)[None], g)
            given = turns.put(given, (bit | (f == count))[None], f)
            cell = xp.clip(node[g] - sizes[g], 0, middles.shape[1] - 1)
            whole = last[j] & given[own]
            z = xp.where(whole, middles[own, cell], xp.zeros_like(mean[own]))
            if A is not None:
                told = xp.moveaxis(A[own, xp.minimum(cell, A.shape[1] - 1)], -1, 0)
                factors = factors + xp.where(whole, told, xp.zeros_like(told))
            return ((mean + V[j][over] * bit.astype(mean.dtype) + W[g][over] * z, node, given, factors), carry), y

        def within(seen, units, a):
            """The units of a block one after another, since each must know the ones before it in its number."""
            if not np.ndim(units):
                return one(seen, units, a)
            return turns.scan(lambda seen, i: one(seen, units[i], a[i]), seen, len(units))

        factors = None if A is None else xp.zeros((A.shape[2], *rows), A.dtype)
        seen = mean, xp.zeros((count + 1, *rows), np.int32), xp.ones((count + 1, *rows), bool), factors
        y, (_, carry) = self.layer.walk(inner, within, (seen, carry), turns)
        return y, carry

    # ---------------------------------------------------------------- building, compressing, counting

    @property
    def title(self):
        return self.layer.title

    @property
    def row_floats(self):
        return self.layer.row_floats

    @property
    def clips(self):
        return self.layer.clips

    def work(self, y, c):
        return self.layer.work(y, c)

    def with_bias(self, mean: Float[Array, " n"]) -> "Numbers":
        return eqx.tree_at(lambda m: m.layer, self, self.layer.with_bias(mean))

    def quantised(self, c, arithmetic):
        layer = self.layer.quantised(c, arithmetic)
        logs = np.asarray(self.log_k, np.float64)
        if not (np.abs(logs) < LARGEST).all():
            raise DarnError(NOT_FINITE)
        k = [_PRECISION.exp(Decimal(v)) for v in logs.tolist()]
        weight = np.array([float(v) for v in k], np.float64)
        scaled = lambda w: np.asarray(w, np.float64) * weight[:, None]  # noqa: E731
        U = None if self.U is None else jax.tree.map(scaled, self.U)
        W = eqx.tree_at(lambda m: m.W, self.W, scaled(self.W.W))
        V = scaled(np.asarray(self._free()).T).T
        parts = W, V, U, np.asarray(self.b, np.float64) * weight
        most = float(np.abs(np.asarray(self.edges)).max()) / (1 << GRID)

        def sums(sizes):
            W, V, U, b = sizes
            return plus_context(b, U, c.largest) + W(jnp.full(W.n, most)) + V.sum(0)

        (W, V, U, b), _ = rounded(parts, sums, max(c.grid, GRID + 1), arithmetic)
        tables = _exact_tables(np.asarray(self.edges), self._halves(), k, arithmetic)
        fields = lambda m: (m.layer, m.W, m.V, m.U, m.b, m.tables)  # noqa: E731
        twin = eqx.tree_at(fields, self, (layer, W, V, U, b, tables), is_leaf=lambda v: v is None)
        if self.A is None:
            return twin
        return eqx.tree_at(lambda m: (m.A, m.B), twin, self._quantised_factors(arithmetic))

    def _quantised_factors(self, arithmetic):
        """A as tables, and B on the finest grid on which their products have exact sums."""
        scale = 1 << arithmetic.table_bits
        A = np.rint(np.asarray(self.A, np.float64) * scale) / scale
        if not np.isfinite(A).all():
            raise DarnError(NOT_FINITE)
        most = jnp.asarray(np.abs(A).max(1, initial=0).sum(0))
        B, _ = rounded(self.B, lambda B: B @ most.astype(B.dtype), arithmetic.table_bits, arithmetic)
        return jnp.asarray(A, arithmetic.dtype), B


def _softplus(xp, x, table):
    """log(1 + exp(x)), with the help of a table of log(1 + exp(-x)) if there is one."""
    if table is None:
        return xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x)))
    i = xp.minimum(xp.rint(xp.abs(x) * (1 << _STEP_BITS)), len(table) - 1).astype(np.int32)
    return xp.maximum(x, 0) + table[i]


def _added(xp, tables: Tables, number, node, mean):
    """The log-odds that are added to a bit's logit."""
    low, high = tables.low[number, node], tables.high[number, node]
    curve = _softplus(xp, low - mean, tables.softplus) - _softplus(xp, high - mean, tables.softplus)
    return tables.base[number, node] + xp.where(low < high, curve, 0)


def _log_odds(lower, upper):
    """log(exp(upper) - 1) - log(1 - exp(-lower)) of widths, 0 where one of them is 0."""
    open_ = (lower > 0) & (upper > 0)
    lower, upper = jnp.where(open_, lower, 1.0), jnp.where(open_, upper, 1.0)
    return jnp.where(open_, upper + jnp.log(-jnp.expm1(-upper)) - jnp.log(-jnp.expm1(-lower)), 0)


# ---------------------------------------------------------------- the integer twin's tables


def _exact_tables(edges: np.ndarray, halves, k: Sequence[Decimal], arithmetic) -> Tables:
    """The tables for these precisions, the same on every machine."""
    bits = arithmetic.table_bits + 2
    nodes: list[list[list[float]]] = [[], [], []]
    with localcontext(_PRECISION):
        for own, precision, *places in zip(edges.tolist(), k, *(v.tolist() for v in halves), strict=True):
            found = [_node(precision, *(own[i] for i in place)) for place in zip(*places)]
            for out, column in zip(nodes, zip(*found)):
                out.append([_rounded(v, bits) for v in column])
    base, low, high = (np.array(v) for v in nodes)
    return Tables(*(jnp.asarray(v, arithmetic.dtype) for v in (base, low, high, _softplus_table(bits))))


def _node(k: Decimal, low: int, middle: int, high: int) -> tuple[Decimal, Decimal, Decimal]:
    """(base, low, high) of a node between these edges."""
    if not low < middle < high:
        return Decimal(0), Decimal(0), Decimal(0)
    a, b, c = (Decimal(v) / (1 << GRID) for v in (low, middle, high))
    above, below = c - b, b - a
    grown = _log_expm1(k * above) - _log_expm1(k * below) + k * below
    usual = _log_expm1(above) - _log_expm1(below) + below
    at_0 = ((a.exp() + 1) / (c.exp() + 1)).ln()
    return grown - usual - at_0, k * a, k * c


def _log_expm1(x: Decimal) -> Decimal:
    return x + (1 - (-x).exp()).ln()


def _rounded(x: Decimal, bits: int) -> float:
    return float(int((x * (1 << bits)).to_integral_value())) / (1 << bits)


@lru_cache
def _softplus_table(bits: int) -> np.ndarray:
    """log(1 + exp(-i / 2^_STEP_BITS)), the last of them 0."""
    with localcontext(_PRECISION):
        steps = ((1 + (Decimal(-i) / (1 << _STEP_BITS)).exp()).ln() for i in range(_REACH << _STEP_BITS))
        return np.array([*(_rounded(v, bits) for v in steps), 0.0])
