"""A walk along the visible layer's chain that draws only what conditions allow.

A variable is a few adjacent units that spell one of some values. A condition gives every value of a variable a weight:
the probability that the value meets it. At a variable under a condition, only values that can meet it are drawn. The
probability of meeting it, given all that was drawn before, is multiplied into the row's weight. So the mean weight is
the probability of the conditions, and rows drawn by their weights follow the conditional distribution.

How a value's probability is found before its units are drawn: the logits along a few paths through its variable's
values give the probabilities of all of them (one path for a one-hot variable). If there are too many paths, units are
drawn one by one, towards values that meet the condition, in proportion to how many of them each bit leaves.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.nn import log_sigmoid, logsumexp

MOST_PATHS = 64  # through a variable's values, to find their probabilities before one is drawn
NEVER = -1e9  # the log of a weight of 0


class Variable(NamedTuple):
    """Adjacent units that spell one value, and the weight of each value."""

    start: int  # the first unit
    codes: np.ndarray  # (values, units) of 0 and 1
    weights: np.ndarray  # (values,) the probability that each value meets the condition, in [0, 1]

    @property
    def units(self) -> slice:
        return slice(self.start, self.start + self.codes.shape[1])

    @property
    def conditioned(self) -> bool:
        return bool((self.weights != 1).any())

    def only(self, weights: np.ndarray) -> "Variable":
        """The same variable with other weights.

        Args:
            weights: of each value.

        Returns:
            The new variable.
        """
        return self._replace(weights=np.asarray(weights, np.float64))


class Ahead(NamedTuple):
    """Variables whose values' probabilities are found before one is drawn, padded to one size. The last is none."""

    start: np.ndarray  # (k,) the first unit
    size: np.ndarray  # (k,) the number of units
    paths: np.ndarray  # (k, paths, units) of 0 and 1
    where: np.ndarray  # (k, values, units) the path on which a unit's logit is; -1 if its bit is certain
    codes: np.ndarray  # (k, values, units) of the values that can meet the condition
    log_a: np.ndarray  # (k, values) the logs of their weights


class Tables(NamedTuple):
    """The conditions for a walk. Node 0 is of units that are free."""

    root: np.ndarray  # (n + 1,) the node at the first unit of a variable, -1 inside of one
    next: np.ndarray  # (nodes, 2) the node after a bit
    gain: np.ndarray  # (nodes, 2) the log of how much more of the condition a bit leaves possible
    ahead: Ahead

    @property
    def width(self) -> int:
        """How many rows are computed at once for each one that is drawn."""
        return 1 + self.ahead.paths.shape[1]


def make_tables(variables: Sequence[Variable], n: int, most: int | None = None) -> tuple[Tables, bool]:
    """The tables, and whether the weight of every variable is settled before its units are drawn.

    `most`: paths through a variable's values that may be looked along.
    """
    most = MOST_PATHS if most is None else most
    root = np.full(n + 1, -1)
    root[n] = 0
    nodes: list[tuple[list[int], list[float]]] = [([0, 0], [0.0, 0.0])]
    ahead, settled = [], True
    for v in variables:
        root[v.start] = 0
        if not v.conditioned:
            continue
        can = v.weights > 0
        if v.codes.shape[1] > 1 and not _is_branch(v):
            paths, where = _paths(v.codes, can)
            if len(paths) <= most:
                ahead.append((v.start, paths, where, v.codes[can], np.log(v.weights[can])))
                continue
            settled = False
        root[v.start] = _grow(nodes, v.codes, v.weights)
    size = _rounded(len(nodes), 64)
    nodes += [nodes[0]] * (size - len(nodes))
    after, gain = (np.array([node[i] for node in nodes]) for i in (0, 1))
    return Tables(root, after, gain.astype(np.float32), _padded(ahead)), settled


def _rounded(n: int, least: int = 1) -> int:
    """n rounded up, so that there are few sizes: programs are then found in the cache."""
    return max(1 << (n - 1).bit_length(), least)


def _padded(ahead: list[tuple]) -> Ahead:
    k = len(ahead) + 1
    most = lambda part, axis: max((a[part].shape[axis] for a in ahead), default=1)  # noqa: E731
    paths, units, values = _rounded(most(1, 0)), _rounded(most(1, 1), 16), _rounded(most(3, 0), 16)
    found = Ahead(
        np.zeros(k, int),
        np.zeros(k, int),
        np.zeros((k, paths, units), np.float32),
        np.full((k, values, units), -1),
        np.zeros((k, values, units), np.float32),
        np.full((k, values), NEVER, np.float32),
    )
    found.log_a[:, 0] = 0  # of the last, which adds nothing
    for i, (start, paths, where, codes, log_a) in enumerate(ahead):
        found.start[i], found.size[i] = start, codes.shape[1]
        for whole, part in zip(found[2:], (paths, where, codes, log_a)):
            whole[i][tuple(slice(s) for s in part.shape)] = part
    return found


def _is_branch(v: Variable) -> bool:
    """Whether the values that meet the condition are all those that begin with some bits, alike."""
    can = v.weights > 0
    same = (v.codes[can] == v.codes[can][:1]).all(axis=0)
    shared = len(same) if same.all() else int(np.argmin(same))
    begins = (v.codes[:, :shared] == v.codes[can][0, :shared]).all(axis=1)
    return bool((begins == can).all() and len(set(v.weights[can].tolist())) == 1)


def _paths(codes: np.ndarray, can: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Paths of bits on which the logits of all values that can be are found, and where: see `Ahead`."""
    count: dict[bytes, set[int]] = {}
    for code in codes.astype(np.uint8):
        for i in range(codes.shape[1]):
            count.setdefault(code[:i].tobytes(), set()).add(int(code[i]))
    needs = []  # of each value: the units where there was a choice
    for code in codes[can].astype(np.uint8):
        needs.append([i for i in range(codes.shape[1]) if len(count[code[:i].tobytes()]) > 1])
    on: dict[bytes, int] = {}  # the path that goes through these bits
    paths = []
    for k in sorted(range(len(needs)), key=lambda k: -max(needs[k], default=-1)):
        code = codes[can][k].astype(np.uint8)
        if any(code[:i].tobytes() not in on for i in needs[k]):
            paths.append(code)
            for i in range(codes.shape[1]):
                on.setdefault(code[:i].tobytes(), len(paths) - 1)
    where = np.full((int(can.sum()), codes.shape[1]), -1)
    for k, code in enumerate(codes[can].astype(np.uint8)):
        for i in needs[k]:
            where[k, i] = on[code[:i].tobytes()]
    return np.array(paths).reshape(-1, codes.shape[1]), where


def _grow(nodes: list, codes: np.ndarray, weights: np.ndarray) -> int:
    """Adds the nodes of a variable, and returns its first.

    `gain` is the log of G(after the bit) / G(before), where G is the mean weight of the values that begin with these
    bits, and 1 at the first node. The product along a value is its weight.
    """

    def add(inside: np.ndarray, i: int) -> int:
        if i == codes.shape[1]:
            return 0
        number = len(nodes)
        nodes.append(([0, 0], [NEVER, NEVER]))
        mean = weights[inside].mean() if i else 1.0
        for bit in (0, 1):
            under = inside[codes[inside, i] == bit]
            if len(under) and weights[under].any():
                nodes[number][0][bit] = add(under, i + 1)
                nodes[number][1][bit] = float(np.log(weights[under].mean() / mean))
        return number

    return add(np.arange(len(codes)), 0)


def _walk(layer, c, tables, y, known, u, order, scored=None):
    """(y, log weight) of one walk: units that are known keep their values, the others are drawn.

    Where `scored`, the log-probability of a known unit is a part of the weight.
    """
    root, after, gain = (jnp.asarray(v) for v in tables[:3])
    scored = jnp.zeros(layer.n, bool) if scored is None else scored

    def one(carry, j, a):
        node, log_w = carry
        here = jnp.where(root[j] >= 0, root[j], node)
        off, on = log_sigmoid(-a) + gain[here, 0], log_sigmoid(a) + gain[here, 1]
        drawn = (u[j] < jax.nn.sigmoid(on - off)).astype(y.dtype)
        bit = jnp.where(known[j], y[j], drawn)
        worth = jnp.where(scored[j] & (j < layer.n), jnp.where(bit > 0.5, on, off), jnp.logaddexp(off, on))
        log_w = log_w + jnp.where((here > 0) | (scored[j] & (j < layer.n)), worth, 0)
        return (after[here, bit.astype(int)], log_w), bit

    def decide(carry, units, a):
        if not np.ndim(units):
            return one(carry, units, a)
        return lax.scan(lambda carry, ja: one(carry, *ja), carry, (units, a))

    start = jnp.zeros((), after.dtype), jnp.zeros((), y.dtype)
    y, (_, log_w) = layer.chain(decide, start, c, order=order)
    return y, log_w


def held(layer, c, tables: Tables, x, missing, key):
    """Draws the missing units of a row, under conditions on the variables that they belong to.

    Args:
        layer: the visible one.
        c: its context.
        tables: the conditions, without variables that are looked ahead (`make_tables` with `most=0`).
        x: (n,) the row.
        missing: (n,) of bool.
        key: of everything random.

    Returns:
        (the completed row, its log weight: the probability of the observed units and of the conditions).
    """
    k_u, k_order = jax.random.split(key)
    order, _ = layer.draw_order(k_order)
    first = jnp.asarray(tables.root)[:-1] >= 0
    owner = jnp.cumsum(first) - 1
    active = jnp.zeros(layer.n, bool).at[owner].max(missing)[owner]
    root = jnp.where(first & ~active, 0, jnp.asarray(tables.root)[:-1])
    own = tables._replace(root=jnp.append(root, 0))
    return _walk(layer, c, own, x, ~missing, jax.random.uniform(k_u, (layer.n,)), order, ~missing)


def constrained(layer, c, tables: Tables, key, y=None, known=None):
    """Draws one row.

    Args:
        layer: the visible one.
        c: its context.
        tables: the conditions.
        key: of everything random.
        y: (n,) the values of known units, which must be under no condition.
        known: (n,) of bool.

    Returns:
        (a row that meets the conditions, its log weight).
    """
    k_u, k_order, k_ahead = jax.random.split(key, 3)
    u = jax.random.uniform(k_u, (layer.n,))
    order, _ = layer.draw_order(k_order)
    y = jnp.zeros(layer.n) if y is None else y
    known = jnp.zeros(layer.n, bool) if known is None else known
    place = jnp.arange(layer.n)

    def step(carry, turn):
        y, known, log_w, _ = carry
        a, k = turn
        # The walk draws what comes before the variable, which is then known. All walks have the same uniform numbers.
        y, own = _walk(layer, c, tables, y, known, u, order)
        units = a.codes.shape[1]
        inside = (place >= a.start) & (place < a.start + a.size)
        at = jnp.clip(place - a.start, 0, units - 1)
        put = lambda code: jnp.where(inside, code[at], y)  # noqa: E731
        logits = jax.vmap(lambda path: layer.logits(put(path), c, order=order))(a.paths)
        logits = logits[a.where, jnp.minimum(a.start + jnp.arange(units), layer.n - 1)[None]]
        signed = jnp.where(a.codes > 0.5, logits, -logits)
        log_p = jnp.sum(jnp.where(a.where >= 0, log_sigmoid(signed), 0), axis=1) + a.log_a
        y = put(a.codes[jax.random.categorical(k, log_p)])
        return (y, known | (place < a.start + a.size), log_w + logsumexp(log_p), own), None

    ahead = jax.tree.map(jnp.asarray, tables.ahead)
    start = y, known, jnp.zeros(()), jnp.zeros(())
    (y, _, log_w, own), _ = lax.scan(step, start, (ahead, jax.random.split(k_ahead, len(ahead.start))))
    return y, log_w + own
