"""Independent units given the context."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from darn.gradients import bernoulli
from darn.layers._base import AbstractBinaryLayer, Linear, bias_field
from darn.layers._context import context_field, context_map, context_matrix, context_work, plus_context
from darn.nn import COMPILED, AbstractMap, register, rounded, softplus
from darn.random import uniform


@register("factorial")
class Factorial(AbstractBinaryLayer):
    """p(y | c) = prod_j sigma(b_j + U_j c): Eq. (6). The only layer whose y may be intensities in [0,1].

    Args:
        n: units.
        n_c: units of the context; 0 for none.
        U: the map from the context, instead of a fully connected one.
        key: of the initial weights.
    """

    b: Float[Array, " n"] = bias_field()
    U: AbstractMap | None = context_field()
    n: int = eqx.field(static=True)

    def __init__(self, n: int, n_c: int = 0, *, U: AbstractMap | None = None, key: PRNGKeyArray | None = None):
        self.n = n
        self.b = jnp.zeros(n)
        self.U = U if U is not None else context_map(n_c, n, key)

    @property
    def independent(self):
        return True

    def logits(self, y, c=None, *, order=0):
        return self.start(c)

    def start(self, c=None, *, order=0):
        return plus_context(self.b, self.U, c)

    def walk(self, state, decide, carry, turns=COMPILED):
        carry, y = decide(carry, turns.xp.arange(self.n), state)  # one block
        return y, carry

    def log_prob(self, y, c=None):
        # `bits_log_prob` as a dot product: scoring many rows under many codes is then one matrix product. In full
        # precision, since this is the one place where an accelerator's reduced float32 would show in the result.
        a = self.start(c)
        return jnp.dot(y, a, precision=lax.Precision.HIGHEST) - jnp.sum(softplus(a))

    def log_prob_of(self, y, known, c=None):
        # As `log_prob`: many rows under many codes are two matrix products.
        a, known = self.start(c), known.astype(y.dtype)
        dot = partial(jnp.dot, precision=lax.Precision.HIGHEST)
        return dot(y * known, a) - dot(known, softplus(a))

    def sample(self, c=None, *, key, bit=bernoulli):
        return bit(self.start(c), uniform(key, self.n))

    def entropy(self, c=None):
        a = self.start(c)
        return jnp.sum(softplus(a) - a * jax.nn.sigmoid(a))

    def separates(self, missing):
        return True

    @property
    def row_floats(self):
        return max(self.n, 0 if self.U is None else self.U.row_floats)

    def quantised(self, c, arithmetic):
        return rounded(self, lambda sizes: eqx.filter_jit(sizes.start)(c.largest), c.grid, arithmetic)[0]

    def work(self, y, c):
        return context_work(self.U, c)

    def linear(self):
        return Linear(*context_matrix(self.b, self.U), None)
