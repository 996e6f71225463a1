"""One-hot groups: categorical variables on top of any layer of bits."""

from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from darn.layers._base import AbstractBinaryLayer
from darn.nn import COMPILED, register

CERTAIN = 1e4  # a logit at which a bit is certain: exp(-1e4) is 0 in any float we use, and so is its gradient


@register("one-hot")
class OneHot(AbstractBinaryLayer):
    """p(y | c) of `layer`, with units that their group already determines taken as certain.

    `groups` are the sizes of adjacent groups, n in all. In a group of two or more units exactly one is on: once one is
    on, the rest are off, and if none is on before the last, the last one is. So each group is a categorical variable,
    written as a chain of binary choices. Rows that violate the constraint have probability 0, and the probabilities of
    the valid rows sum to one. A group of one is a free bit.
    """

    layer: AbstractBinaryLayer
    groups: tuple[int, ...] = eqx.field(static=True)
    n: int = eqx.field(static=True)
    by_name: ClassVar[bool] = False  # it wraps another layer, if the data are a table of categories

    def __init__(self, layer: AbstractBinaryLayer, groups: Sequence[int]):
        self.layer = layer
        self.groups = tuple(int(g) for g in groups)
        self.n = layer.n

    def __check_init__(self):
        fits = self.layer.n == self.n and self.layer.n_orders == 1
        if not fits or sum(self.groups) != self.n or min(self.groups) < 1:
            raise ValueError("groups must be positive sizes that sum to the units of a layer with one order")

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns (the group of each unit, whether it is the last of a group of two or more)."""
        sizes = np.array(self.groups)
        group = np.repeat(np.arange(len(sizes)), sizes)
        last = np.zeros(self.n, bool)
        last[np.cumsum(sizes) - 1] = True
        return group, last & (sizes[group] > 1)

    def logits(self, y, c=None, *, order=0):
        group, last = self.places()
        before = np.tril(group[:, None] == group[None], -1).astype(np.float32)
        on = jnp.asarray(before, y.dtype) @ y
        return _settled(jnp, self.layer.logits(y, c), on > 0.5, jnp.asarray(last))

    def start(self, c=None, *, order=0):
        return self.layer.start(c)

    def walk(self, state, decide, carry, turns=COMPILED):
        # One extra group, for entries that stand for no unit.
        group, last = (
            turns.xp.asarray(np.append(v, more)) for v, more in zip(self.places(), (len(self.groups), False))
        )

        def one(taken_carry, j, a):
            taken, carry = taken_carry
            known = _settled(turns.xp, a, taken[group[j]], last[j])
            carry, y = decide(carry, j, known)
            return (turns.put(taken, (taken[group[j]] | (y > 0.5))[None], group[j]), carry), y

        def within(taken_carry, units, a):
            """The units of a block one after another, since each must know the ones before it in its group."""
            if not np.ndim(units):
                return one(taken_carry, units, a)
            step = lambda state, i: one(state, units[i], a[i])  # noqa: E731
            return turns.scan(step, taken_carry, len(units))

        taken = turns.xp.zeros((len(self.groups) + 1, *turns.rows(state)), bool)
        y, (_, carry) = self.layer.walk(state, within, (taken, carry), turns)
        return y, carry

    def separates(self, missing):
        if not self.layer.independent:
            return super().separates(missing)
        ends = np.cumsum(self.groups)
        parts = [missing[:, end - size : end] for end, size in zip(ends, self.groups)]
        return all((part.all(axis=1) | ~part.any(axis=1)).all() for part in parts)

    @property
    def row_floats(self):
        return self.layer.row_floats

    def quantised(self, c, arithmetic):
        return OneHot(self.layer.quantised(c, arithmetic), self.groups)  # certain bits are certain in any arithmetic

    def work(self, y, c):
        return self.layer.work(y, c)

    def with_bias(self, mean: Float[Array, " n"]) -> "OneHot":
        # The probability of a unit given that none before it in the group is on.
        group = self.places()[0]
        before = np.tril(group[:, None] == group[None], -1).astype(np.float32)
        left = jnp.maximum(1 - jnp.asarray(before) @ mean, 1e-6)
        return eqx.tree_at(lambda m: m.layer, self, self.layer.with_bias(jnp.clip(mean / left, 1e-3, 1 - 1e-3)))


def _settled(xp, a, taken, last):
    """The logits with +-CERTAIN where the group leaves no choice."""
    return xp.where(taken, -CERTAIN, xp.where(last, CERTAIN, a)).astype(a.dtype)
