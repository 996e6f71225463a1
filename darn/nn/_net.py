"""A sequence of maps: the deterministic layers between two stochastic ones."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from darn.nn._activation import ACTIVATIONS
from darn.nn._base import AbstractMap, Work
from darn.nn._dense import Dense
from darn.nn._registry import register


@register("net")
class Net(AbstractMap):
    """d = f_k(...f_1(c)), Eq. (9) with any number of layers.

    Args:
        maps: applied one after the other.
    """

    maps: tuple[AbstractMap, ...]

    @staticmethod
    def dense(n_in: int, widths: Sequence[int], activation: str = "tanh", *, key: PRNGKeyArray) -> "Net":
        """Fully connected layers of the given sizes, with the nonlinearity after each.

        Args:
            n_in: inputs.
            widths: outputs of each map.
            activation: a name of `darn.nn.ACTIVATIONS`.
            key: of the initial weights.

        Returns:
            The net.
        """
        act = ACTIVATIONS[activation]
        sizes = [n_in, *widths]
        keys = jax.random.split(key, len(widths))
        pairs = [(Dense(m, n, key=k), act()) for m, n, k in zip(sizes[:-1], sizes[1:], keys)]
        return Net(tuple(f for pair in pairs for f in pair))

    @property
    def row_floats(self):
        return max((f.row_floats for f in self.maps), default=0)

    def __call__(self, c):
        for f in self.maps:
            c = f(c)
        return c

    def quantised(self, inputs, arithmetic):
        maps = []
        for f in self.maps:
            f, inputs = f.quantised(inputs, arithmetic)
            maps.append(f)
        return Net(tuple(maps)), inputs

    def work(self, v):
        total = Work()
        for f in self.maps:
            total += f.work(v)
            v = np.asarray(f(jnp.asarray(v, jnp.float32)))
        return total
