"""Linear autoregression: each unit a logistic regression on the units before it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from darn.layers._base import AbstractBinaryLayer, Linear, bias_field
from darn.layers._context import context_field, context_map, context_matrix, context_work, plus_context
from darn.nn import COMPILED, AbstractCausalMap, AbstractMap, CausalDense, Work, register, rounded
from darn.random import uniform


@register("linear")
class LinearAutoregressive(AbstractBinaryLayer):
    """p(y_j = 1 | y_1..j-1, c) = sigma(W_j y_1..j-1 + U_j c + b_j): Eqs. (2) and (5). State: the running logits.

    Args:
        n: units.
        n_c: units of the context; 0 for none.
        U: the map from the context, instead of a fully connected one.
        W: the autoregressive map, instead of a `CausalDense`.
        key: of the initial weights.
    """

    b: Float[Array, " n"] = bias_field()
    U: AbstractMap | None = context_field()
    W: AbstractCausalMap
    n: int = eqx.field(static=True)

    def __init__(
        self,
        n: int,
        n_c: int = 0,
        *,
        U: AbstractMap | None = None,
        W: AbstractCausalMap | None = None,
        key: PRNGKeyArray | None = None,
    ):
        """Fully connected unless maps are given; with a `CausalLocal` for W this is the layer over a grid."""
        self.n = n
        self.b = jnp.zeros(n)
        self.U = U if U is not None else context_map(n_c, n, key)
        self.W = CausalDense(n) if W is None else W

    def start(self, c=None, *, order=0):
        return plus_context(self.b, self.U, c)

    def logits(self, y, c=None, *, order=0):
        return self.start(c) + self.W(y)

    def walk(self, state, decide, carry, turns=COMPILED):
        return self.W.walk(state, decide, carry, turns)  # many units at a time where the map allows it

    def draw(self, c=None, *, key):
        # u < sigmoid(a) where a > logit(u), which can be part of the logits from the start.
        u = uniform(key, self.n)
        return self.W.decided(self.start(c) - (jnp.log(u) - jnp.log1p(-u)))

    @property
    def row_floats(self):
        return max(self.n, self.W.row_floats, 0 if self.U is None else self.U.row_floats)

    def quantised(self, c, arithmetic):
        sums = lambda sizes: eqx.filter_jit(sizes.logits)(jnp.ones(self.n), c.largest)  # noqa: E731
        return rounded(self, sums, c.grid, arithmetic)[0]

    def work(self, y, c):
        return context_work(self.U, c) + Work(added=int(self.W.fan_out() @ (y != 0)))

    def linear(self):
        W = np.asarray(jax.vmap(self.W.outgoing, out_axes=1)(jnp.arange(self.n)))
        return Linear(*context_matrix(self.b, self.U), W)
