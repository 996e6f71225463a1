"""Linear autoregression: each unit a logistic regression on the units before it."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from darn.layers._base import AbstractAutoregressive, given_context, plus_context
from darn.nn import AbstractCausalMap, AbstractMap, CausalDense, register


@register("linear")
class LinearAutoregressive(AbstractAutoregressive):
    """p(y_j = 1 | y_1..j-1, c) = sigma(W_j y_1..j-1 + U_j c + b_j): Eqs. (2) and (5). State: the running logits."""

    b: Float[Array, " n"]
    U: AbstractMap | None
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
        self.U = U if U is not None else given_context(n_c, n, key)
        self.W = CausalDense(n) if W is None else W

    @property
    def width(self):
        return max(self.n, self.W.width, 0 if self.U is None else self.U.width)

    def start(self, c=None):
        return plus_context(self.b, self.U, c)

    def logits(self, y, c=None):
        return self.start(c) + self.W(y)

    def read(self, state, j):
        return state[j]

    def write(self, state, j, y_j):
        return state + self.W.outgoing(j) * y_j

    def chain(self, decide, carry, c=None):
        return self.W.chain(self.start(c), decide, carry)  # many units at a time where the map allows it
