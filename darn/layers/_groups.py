"""Groups of units that spell one value each, one-hot or as a binary word, on top of any layer of bits."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from darn.layers._base import AbstractBinaryLayer
from darn.nn import COMPILED, register

CERTAIN = 1e4  # a logit at which a bit is certain: exp(-1e4) is 0 in any float we use, and so is its gradient
MOST_BITS = 40  # of a word

# A number: so many units of which exactly one is on, or a free bit if it is 1. A pair (largest, optional): a word of
# bits, the highest first, with a value from 0 to `largest`; if `optional`, a bit before it says whether there is a
# value, and without one the word is 0.
Group = int | tuple[int, bool]


class _Rules(NamedTuple):
    """What each unit's group allows, (n,) each.

    The units of a group follow a path, bit by bit: of a one-hot group that none is on, of a word its largest value.
    A unit that leaves the path decides what the rest of the group may be: anything, or off.
    """

    group: np.ndarray  # the unit's group
    path: np.ndarray  # its bit along the path
    closes: np.ndarray  # whether all later units of the group are off, once this one has left the path
    off: np.ndarray  # on the path, the unit must be off
    on: np.ndarray  # on the path, the unit must be on


@register("one-hot")  # its name in model files
class Groups(AbstractBinaryLayer):
    """p(y | c) of `layer`, with units that their group already determines taken as certain.

    So each group is one variable of several values, written as a chain of binary choices. Rows that spell no value have
    probability 0, and the probabilities of the others sum to one.

    Args:
        layer: the distribution before the rule.
        groups: of adjacent units: a number of one-hot units, or the rule of a binary word.
    """

    layer: AbstractBinaryLayer
    groups: tuple[Group, ...] = eqx.field(static=True)  # of adjacent units, n in all
    n: int = eqx.field(static=True)
    by_name: ClassVar[bool] = False  # it wraps another layer, if the data are a table

    def __init__(self, layer: AbstractBinaryLayer, groups: Sequence[Group]):
        self.layer = layer
        self.groups = tuple(int(g) if np.ndim(g) == 0 else tuple(g) for g in groups)  # type: ignore[arg-type]
        self.n = layer.n

    def __check_init__(self):
        if not all(_is_group(g) for g in self.groups):
            raise ValueError("a group is a positive size, or the largest value of a word and whether it is optional")
        fits = self.layer.n == self.n and self.layer.n_orders == 1
        if not fits or sum(map(group_size, self.groups)) != self.n:
            raise ValueError("the sizes of groups must sum to the units of a layer with one order")

    def rules(self) -> _Rules:
        """What each unit's group allows."""
        parts = [_group_rules(g) for g in self.groups]
        group = np.repeat(np.arange(len(parts)), [len(p[0]) for p in parts])
        return _Rules(group, *(np.concatenate(column) for column in zip(*parts)))

    def _starts(self) -> np.ndarray:
        """The first unit of each unit's group, (n,)."""
        sizes = [group_size(g) for g in self.groups]
        return np.repeat(np.cumsum(sizes) - sizes, sizes)

    def logits(self, y, c=None, *, order=0):
        rules, starts = self.rules(), self._starts()
        path, closes = (jnp.asarray(v, y.dtype) for v in (rules.path, rules.closes))
        leaves = path + (1 - 2 * path) * y  # 1 where y is not on the path
        left, closed = (_before(v, starts) > 0.5 for v in (leaves, leaves * closes))
        return _settled(jnp, self.layer.logits(y, c), left, closed, rules.off, rules.on)

    def start(self, c=None, *, order=0):
        return self.layer.start(c)

    def walk(self, state, decide, carry, turns=COMPILED):
        # One extra group, for entries that stand for no unit.
        spare = _Rules(*(np.array([v]) for v in (len(self.groups), False, False, False, False)))
        group, path, closes, off, on = (
            turns.xp.asarray(np.concatenate(v)) for v in zip(self.rules(), spare, strict=True)
        )

        def one(seen_carry, j, a):
            (left, closed), carry = seen_carry
            g = group[j]
            carry, y = decide(carry, j, _settled(turns.xp, a, left[g], closed[g], off[j], on[j]))
            leaves = (y > 0.5) != path[j]
            left, closed = (
                turns.put(old, (old[g] | new)[None], g) for old, new in ((left, leaves), (closed, leaves & closes[j]))
            )
            return ((left, closed), carry), y

        def within(seen_carry, units, a):
            """The units of a block one after another, since each must know the ones before it in its group."""
            if not np.ndim(units):
                return one(seen_carry, units, a)
            step = lambda state, i: one(state, units[i], a[i])  # noqa: E731
            return turns.scan(step, seen_carry, len(units))

        none = lambda: turns.xp.zeros((len(self.groups) + 1, *turns.rows(state)), bool)  # noqa: E731
        y, (_, carry) = self.layer.walk(state, within, ((none(), none()), carry), turns)
        return y, carry

    def separates(self, missing):
        if not self.layer.independent:
            return super().separates(missing)
        ends = np.cumsum([group_size(g) for g in self.groups])
        parts = np.split(missing, ends[:-1], axis=1)
        return all((part.all(axis=1) | ~part.any(axis=1)).all() for part in parts)

    @property
    def title(self):
        return self.layer.title

    @property
    def row_floats(self):
        return self.layer.row_floats

    @property
    def clips(self):
        return self.layer.clips

    def quantised(self, c, arithmetic):
        return Groups(self.layer.quantised(c, arithmetic), self.groups)  # certain bits are certain in any arithmetic

    def work(self, y, c):
        return self.layer.work(y, c)

    def with_bias(self, mean: Float[Array, " n"]) -> "Groups":
        # The probability of a unit, given that its group leaves it a choice. Of a one-hot group that is exact; along a
        # word the means do not say how its bits go together, and it is as if they were independent.
        rules, starts = self.rules(), self._starts()
        word = np.array([not isinstance(g, int) for g in self.groups])[rules.group]
        follows = jnp.where(jnp.asarray(word & rules.path), jnp.maximum(mean, 1e-6), 1.0)
        spelled = jnp.where(jnp.asarray(rules.closes[starts] & ~rules.closes), mean[starts], 1.0)
        on_path = jnp.exp(_before(jnp.log(follows), starts))
        free = jnp.where(jnp.asarray(rules.path), spelled, spelled - on_path)
        free = jnp.where(jnp.asarray(word), free, 1 - _before(mean, starts))
        p = jnp.clip(mean / jnp.maximum(free, 1e-6), 1e-3, 1 - 1e-3)
        return eqx.tree_at(lambda m: m.layer, self, self.layer.with_bias(p))


def group_size(group: Group) -> int:
    """The number of units of a group."""
    return group if isinstance(group, int) else group[0].bit_length() + group[1]


def _is_group(g) -> bool:
    if type(g) is int:
        return g > 0
    fits = isinstance(g, tuple) and len(g) == 2 and type(g[0]) is int and type(g[1]) is bool
    return fits and 0 <= g[0] < 1 << MOST_BITS and group_size(g) > 0


def _group_rules(g: Group) -> tuple[np.ndarray, ...]:
    """(path, closes, off, on) of one group's units."""
    return _one_hot_rules(g) if isinstance(g, int) else _word_rules(*g)


def _one_hot_rules(size: int) -> tuple[np.ndarray, ...]:
    no, last = np.zeros(size, bool), np.arange(size) == size - 1
    return no, np.full(size, size > 1), no, last & (size > 1)


def _word_rules(largest: int, optional: bool) -> tuple[np.ndarray, ...]:
    bits = largest.bit_length()
    path = np.array([True] * optional + [bool(largest >> i & 1) for i in range(bits - 1, -1, -1)])
    closes = np.arange(len(path)) == 0 if optional else np.zeros(len(path), bool)
    return path, closes, ~path, np.zeros(len(path), bool)


def _before(v, starts):
    """The sum of v over the earlier units of each unit's group."""
    total = jnp.concatenate([jnp.zeros(1, v.dtype), jnp.cumsum(v)])
    return total[:-1] - total[starts]


def _settled(xp, a, left, closed, off, on):
    """The logits with +-CERTAIN where the group leaves no choice."""
    return xp.where(closed | (~left & off), -CERTAIN, xp.where(~left & on, CERTAIN, a)).astype(a.dtype)
