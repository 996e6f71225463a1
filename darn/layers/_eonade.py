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
from darn.layers._orders import check_orders, in_places
from darn.nn import COMPILED, register, replaced, softplus
from darn.random import permutation

_DROPOUT = 0xD209  # separates the key of the dropout from those of the order


@register("eonade")
class EoNADE(AbstractBinaryLayer):
    """p(y | c) = (1/K) sum_k NADE(y in order k | c), Uria et al. (2013).

    The K orders are drawn once and stored: `log_prob` averages over them and `sample` draws one of them, so both refer
    to the same distribution. Probabilities are averaged, not logits, which would not give a distribution.

    Args:
        n: units.
        n_c: units of the context; 0 for none.
        n_hidden: hidden units; more than one number for deeper nets.
        n_orderings: K.
        activation: of the hidden units: a name of `darn.nn.ACTIVATIONS`.
        dropout: the fraction of hidden units left out of a training step.
        key: of the initial weights and the orders.
    """

    core: NADE
    orders: Int[Array, "K n"]
    n: int = eqx.field(static=True)
    rate: float = eqx.field(static=True, default=0.0)  # of dropout in the hidden layers of a training step
    signed: bool = eqx.field(static=True, default=False)  # known units are +1 or -1, which trains better than 1 or 0

    def __init__(
        self,
        n: int,
        n_c: int = 0,
        *,
        n_hidden: Sequence[int] = (500,),
        n_orderings: int = 16,
        activation: str = "relu",
        dropout: float = 0.0,
        key: PRNGKeyArray,
    ):
        k_core, k_orders = jax.random.split(key)
        self.n, self.rate, self.signed = n, float(dropout), True
        self.core = NADE(n, n_c, n_hidden=n_hidden, activation=activation, masked=True, key=k_core)
        keys = jax.random.split(k_orders, n_orderings)
        self.orders = jax.vmap(lambda k: jax.random.permutation(k, n))(keys)

    def __check_init__(self):
        check_orders(self.orders)

    @classmethod
    def make(cls, n, n_c, options, *, key):
        own = {k: options[k] for k in ("n_orderings", "dropout")}
        return cls(n, n_c, n_hidden=options["n_nade"], **own, key=key)

    @property
    def steps(self) -> NADE:
        """The NADE whose running sum takes y V + M from every unit."""
        if not self.signed or self.core.M is None:
            return self.core
        V, M = self.core.V, self.core.M
        return eqx.tree_at(lambda m: (m.V, m.M), self.core, (2 * V, M - V))

    @property
    def n_orders(self):
        return len(self.orders)

    @property
    def trains_by_estimate(self):
        return True

    def start(self, c=None, *, order=0):
        """The order, and the state of the NADE, which takes its units in any order."""
        return jnp.asarray(order), self.steps.start(c)

    def sequence(self, order=0):
        return self.orders[order]

    def logits(self, y, c=None, *, order=0):
        places = self.orders[order]
        a = self.steps.given(c).reordered(places).logits(y[places])
        return jnp.zeros_like(a).at[places].set(a)

    def read(self, state, j):
        """The logit of the j-th unit of the order."""
        order, state = state
        return self.steps.read(state, self.orders[order, j])

    def write(self, state, j, y_j):
        order, state = state
        return order, self.steps.write(state, self.orders[order, j], y_j)

    def walk(self, state, decide, carry, turns=COMPILED):
        walk = lambda own: turns.one_by_one(self, state, own, carry)  # noqa: E731
        return in_places(self.orders, state[0], turns, decide, walk)

    def log_prob(self, y, c=None):
        core = self.steps.given(c)  # once for all orders
        by_order = lax.map(lambda order: core.reordered(order).log_prob(y[order]), self.orders)
        return logsumexp(by_order) - jnp.log(len(self.orders))

    def training_log_prob(self, y: Float[Array, " n"], c=None, *, key):
        """An estimate of the mean over all n! orders of log p(y | c) in that order: unbiased, but for the dropout."""
        return self._estimate(y, c, key, self.rate)

    def validation_log_prob(self, y, c=None, *, key):
        return self._estimate(y, c, key, 0.0)

    def _estimate(self, y, c, key, rate):
        # The first d-1 units of a random order are given, and each of the others is predicted from these alone. With d
        # uniform in 1..n, n/(n-d+1) times the sum is on average the log-probability in a random order.
        k_order, k_split = jax.random.split(key)
        rank = permutation(k_order, self.n)
        d = jax.random.randint(k_split, (), 1, self.n + 1)
        known = (rank < d - 1).astype(y.dtype)
        core = self.steps
        assert core.M is not None
        running, b = core.start(c)
        running = running + (known * y) @ core.V + known @ core.M
        hidden = core.dropped(running, rate, jax.random.fold_in(key, _DROPOUT)) if rate else core.hidden(running)
        a = b + core.R @ hidden
        return self.n / (self.n - d + 1) * jnp.sum((1 - known) * (y * a - softplus(a)))

    def quantised(self, c, arithmetic):
        return replaced(self, core=self.steps.quantised(c, arithmetic), signed=False)

    @property
    def row_floats(self):
        return self.core.row_floats

    def with_bias(self, mean):
        return eqx.tree_at(lambda m: m.core, self, self.core.with_bias(mean))

    def work(self, y, c):
        return self.core.work(y, c)  # the same in every order
