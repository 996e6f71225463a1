"""Independent units given the context."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from darn.gradients import bernoulli
from darn.layers._base import AbstractBinaryLayer, given_context, plus_context
from darn.nn import AbstractMap, register, softplus
from darn.random import uniform


@register("factorial")
class Factorial(AbstractBinaryLayer):
    """p(y | c) = prod_j sigma(b_j + U_j c): Eq. (6). The only layer whose y may be intensities in [0,1]."""

    b: Float[Array, " n"]
    U: AbstractMap | None
    n: int = eqx.field(static=True)

    def __init__(self, n: int, n_c: int = 0, *, U: AbstractMap | None = None, key: PRNGKeyArray | None = None):
        self.n = n
        self.b = jnp.zeros(n)
        self.U = U if U is not None else given_context(n_c, n, key)

    @property
    def width(self):
        return max(self.n, 0 if self.U is None else self.U.width)

    def logits(self, c=None):
        """The logits of all units; there is no y to wait for."""
        return plus_context(self.b, self.U, c)

    def log_prob(self, y, c=None, *, key=None):
        # `bits_log_prob` as a dot product: scoring many rows under many codes is then one matrix product, in full
        # precision, since it would else be the one place where an accelerator's short float32 shows in the result.
        a = self.logits(c)
        return jnp.dot(y, a, precision=lax.Precision.HIGHEST) - jnp.sum(softplus(a))

    def entropy(self, c=None):
        """-E[log p(y | c)] in nats, in closed form."""
        a = self.logits(c)
        return jnp.sum(softplus(a) - a * jax.nn.sigmoid(a))

    def sample(self, c=None, *, key, bit=bernoulli):
        return bit(self.logits(c), uniform(key, self.n))

    def most_probable(self, c=None):
        a = self.logits(c)
        return (a > 0).astype(a.dtype), jax.nn.sigmoid(a)
