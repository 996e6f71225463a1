"""One unit on in every group: categorical variables over any layer of bits."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from darn.layers._base import AbstractAutoregressive
from darn.layers._factorial import Factorial
from darn.nn import register

CERTAIN = 1e4  # a logit at which a bit is sure: exp(-1e4) is 0 in any float we use, and its slope is 0


@register("one-hot")
class OneHot(AbstractAutoregressive):
    """p(y | c) of `layer`, decided unit by unit, with what a group already settles taken as certain.

    `groups` are the sizes of adjacent groups, n in all. In a group of two or more exactly one unit is on: after the
    first one the rest are off, and if none has come the last one is on. So each group is a categorical variable,
    written as the chain of its yes-or-no questions, and rows outside the constraint have probability 0: what is scored
    and what is sampled stay one distribution, which sums to one over the valid rows. A group of one is a free bit.
    """

    layer: AbstractAutoregressive | Factorial
    groups: tuple[int, ...] = eqx.field(static=True)
    n: int = eqx.field(static=True)

    def __init__(self, layer: AbstractAutoregressive | Factorial, groups: Sequence[int]):
        self.layer = layer
        self.groups = tuple(int(g) for g in groups)
        self.n = layer.n

    def __check_init__(self):
        fitting = isinstance(self.layer, AbstractAutoregressive | Factorial) and self.layer.n == self.n
        if not fitting or sum(self.groups) != self.n or min(self.groups) < 1:
            raise ValueError("groups are sizes that sum to the units of a layer that is factorial or autoregressive")

    def places(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(the group of each unit, whether it is its group's first, and whether its last), groups of one apart."""
        sizes = np.array(self.groups)
        group = np.repeat(np.arange(len(sizes)), sizes)
        ends = np.cumsum(sizes)
        first, last = np.zeros(self.n, bool), np.zeros(self.n, bool)
        first[ends - sizes] = True
        last[ends - 1] = True
        return group, first, last & (sizes[group] > 1)

    def _certain(self, a, seen, last):
        """The logits, where the group leaves a choice; certainty where it does not."""
        return jnp.where(seen > 0.5, -CERTAIN, jnp.where(last, CERTAIN, a))

    def logits(self, y, c=None):
        group, _, last = self.places()
        before = np.tril(group[:, None] == group[None], -1).astype(np.float32)
        a = self.layer.logits(c) if isinstance(self.layer, Factorial) else self.layer.logits(y, c)
        return self._certain(a, jnp.asarray(before, y.dtype) @ y, jnp.asarray(last))

    # The running state: the layer's own, and how many units of the present group are on.

    def start(self, c=None):
        own = self.layer.logits(c) if isinstance(self.layer, Factorial) else self.layer.start(c)
        return own, jnp.zeros((), jax.tree.leaves(own)[0].dtype)

    def read(self, state, j):
        _, first, last = map(jnp.asarray, self.places())
        own, on = state
        a = own[j] if isinstance(self.layer, Factorial) else self.layer.read(own, j)
        return self._certain(a, jnp.where(first[j], 0, on), last[j])

    def write(self, state, j, y_j):
        first = jnp.asarray(self.places()[1])
        own, on = state
        own = own if isinstance(self.layer, Factorial) else self.layer.write(own, j, y_j)
        return own, jnp.where(first[j], 0, on) + y_j

    def chain(self, decide, carry, c=None):
        if isinstance(self.layer, Factorial):
            return super().chain(decide, carry, c)
        _, first, last = map(jnp.asarray, self.places())

        def within(on_carry, j, a_j):
            on, carry = on_carry
            on = jnp.where(first[j], 0, on)
            carry, y_j = decide(carry, j, self._certain(a_j, on, last[j]))
            return (on + y_j, carry), y_j

        y, (_, carry) = self.layer.chain(within, (jnp.zeros(()), carry), c)  # as many units at a time as it can
        return y, carry

    @property
    def width(self):
        return self.layer.width

    def with_bias(self, mean: Float[Array, " n"]) -> "OneHot":
        # The chance of a unit given that none before it in the group is on.
        group = self.places()[0]
        before = np.tril(group[:, None] == group[None], -1).astype(np.float32)
        left = jnp.maximum(1 - jnp.asarray(before) @ mean, 1e-6)
        return eqx.tree_at(lambda m: m.layer, self, self.layer.with_bias(jnp.clip(mean / left, 1e-3, 1 - 1e-3)))
