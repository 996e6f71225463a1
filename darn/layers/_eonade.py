"""EoNADE: one NADE trained on all orders of the units; its probabilities are averaged over K of them."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.nn import logsumexp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from darn.layers._base import AbstractBinaryLayer
from darn.layers._nade import NADE
from darn.layers._orders import check_orders
from darn.nn import COMPILED, register, softplus
from darn.random import permutation


@register("eonade")
class EoNADE(AbstractBinaryLayer):
    """p(y | c) = (1/K) sum_k NADE(y in order k | c), Uria et al. (2013).

    The K orders are drawn once and stored: `log_prob` averages over them and `sample` draws one of them, so both refer
    to the same distribution. Probabilities are averaged, not logits, which would not give a distribution.
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
        check_orders(self.orders)

    @classmethod
    def make(cls, n, n_c, options, *, key):
        return cls(n, n_c, n_hidden=options["n_nade"], n_orderings=options["n_orderings"], key=key)

    @property
    def n_orders(self):
        return len(self.orders)

    @property
    def trains_by_estimate(self):
        return True

    def start(self, c=None, *, order=0):
        """The order, and the NADE in that order with the context folded into its biases."""
        places = self.orders[order]
        return places, self.core.given(c).reordered(places)

    def logits(self, y, c=None, *, order=0):
        places, core = self.start(c, order=order)
        a = core.logits(y[places])
        return jnp.zeros_like(a).at[places].set(a)

    def walk(self, state, decide, carry, turns=COMPILED):
        places, core = state
        y, carry = core.walk(core.start(), lambda carry, j, a: decide(carry, places[j], a), carry, turns)
        return jnp.zeros_like(y).at[places].set(y), carry

    def log_prob(self, y, c=None):
        core = self.core.given(c)  # once for all orders
        by_order = lax.map(lambda order: core.reordered(order).log_prob(y[order]), self.orders)
        return logsumexp(by_order) - jnp.log(len(self.orders))

    def training_log_prob(self, y: Float[Array, " n"], c=None, *, key):
        """An unbiased estimate of the mean over all n! orders of log p(y | c) in that order."""
        # The first d-1 units of a random order are given, and each of the others is predicted from these alone. With d
        # uniform in 1..n, n/(n-d+1) times the sum is on average the log-probability in a random order.
        k_order, k_split = jax.random.split(key)
        rank = permutation(k_order, self.n)
        d = jax.random.randint(k_split, (), 1, self.n + 1)
        known = (rank < d - 1).astype(y.dtype)
        running, b = self.core.start(c)
        assert self.core.M is not None
        hidden = self.core.hidden(running + (known * y) @ self.core.V + known @ self.core.M)
        a = b + self.core.R @ hidden
        return self.n / (self.n - d + 1) * jnp.sum((1 - known) * (y * a - softplus(a)))

    @property
    def row_floats(self):
        return self.core.row_floats

    def with_bias(self, mean):
        return eqx.tree_at(lambda m: m.core, self, self.core.with_bias(mean))

    def work(self, y, c):
        return self.core.work(y, c)  # the same in every order
