"""EoNADE: one NADE trained on every order of the units, and the mean of its probabilities over K of them."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.nn import logsumexp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from darn.gradients import bernoulli
from darn.layers._base import AbstractBinaryLayer
from darn.layers._nade import NADE
from darn.nn import register, softplus
from darn.random import permutation


@register("eonade")
class EoNADE(AbstractBinaryLayer):
    """p(y | c) = (1/K) sum_k NADE(y in order k | c), Uria et al. (2013).

    The K orders are drawn once and stored: `log_prob` averages over them and `sample` draws one of them, so both
    speak of one distribution. It is probabilities that are averaged; a mean of logits would not be a density.
    """

    core: NADE
    orders: Int[Array, "K n"]
    n: int = eqx.field(static=True)

    def __init__(
        self,
        n: int,
        n_c: int = 0,
        *,
        n_hidden: Sequence[int] = (500,),
        n_orderings: int = 16,
        activation: str = "relu",
        key: PRNGKeyArray,
    ):
        k_core, k_orders = jax.random.split(key)
        self.n = n
        self.core = NADE(n, n_c, n_hidden=n_hidden, activation=activation, masked=True, key=k_core)
        keys = jax.random.split(k_orders, n_orderings)
        self.orders = jax.vmap(lambda k: jax.random.permutation(k, n))(keys)

    def __check_init__(self):
        if isinstance(self.orders, Tracer):  # made inside a compiled program
            return
        if (np.sort(self.orders, axis=1) != np.arange(self.n)).any():
            raise ValueError("an order names every unit once")

    def log_prob(self, y, c=None, *, key=None):
        """The mean over the K stored orders; with a `key`, the training estimate from one random split of one order."""
        if key is not None:
            return self._one_split(y, c, key)
        core = self.core.given(c)
        by_order = lax.map(lambda order: core.reordered(order).log_prob(y[order]), self.orders)
        return logsumexp(by_order) - jnp.log(len(self.orders))

    def _one_split(self, y: Float[Array, " n"], c, key) -> Float[Array, ""]:
        # The first d-1 units of a random order are given, and every other one is predicted from these alone: with
        # d uniform in 1..n, n/(n-d+1) times the sum is in the mean the log-probability under a random order.
        k_order, k_split = jax.random.split(key)
        rank = permutation(k_order, self.n)
        d = jax.random.randint(k_split, (), 1, self.n + 1)
        known = (rank < d - 1).astype(y.dtype)
        running, b = self.core.start(c)
        assert self.core.M is not None
        hidden = self.core.hidden(running + (known * y) @ self.core.V + known @ self.core.M)
        a = b + self.core.R @ hidden
        return self.n / (self.n - d + 1) * jnp.sum((1 - known) * (y * a - softplus(a)))

    def sample(self, c=None, *, key, bit=bernoulli):
        k_order, k_bits = jax.random.split(key)
        order = self.orders[jax.random.randint(k_order, (), 0, len(self.orders))]
        y = self.core.given(c).reordered(order).sample(key=k_bits, bit=bit)
        return jnp.zeros_like(y).at[order].set(y)

    def most_probable(self, c=None):
        order = self.orders[0]  # any one will do: the most probable path is a picture, not a probability
        y, p = self.core.given(c).reordered(order).most_probable()
        return jnp.zeros_like(y).at[order].set(y), jnp.zeros_like(p).at[order].set(p)

    @property
    def width(self):
        return self.core.width

    def with_bias(self, mean):
        return eqx.tree_at(lambda m: m.core, self, self.core.with_bias(mean))
