"""The fully connected map."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from darn.nn._base import AbstractMap, product_work
from darn.nn._registry import register


@register("dense")
class Dense(AbstractMap):
    """W c, or W c + b with a bias.

    Args:
        n_in: inputs.
        n_out: outputs.
        bias: whether to add a bias.
        key: of the initial weights.
    """

    W: Float[Array, "n_out n_in"]
    b: Float[Array, " n_out"] | None

    def __init__(self, n_in: int, n_out: int, *, bias: bool = True, key: PRNGKeyArray):
        # The paper does not state its initialisation. A variance of 1/n_in keeps tanh units in their linear range for
        # inputs of at most unit size.
        self.W = jax.random.normal(key, (n_out, n_in)) / n_in**0.5
        self.b = jnp.zeros(n_out) if bias else None

    def __call__(self, c):
        out = c @ self.W.T  # not W @ c: the rows of a batch then stay rows, and XLA transposes no large array
        return out if self.b is None else out + self.b

    def mirrored(self, *, channels: int = 1, bias: bool = True, key: PRNGKeyArray) -> "Dense":
        """The map in the opposite direction, with weights of its own and `channels` outputs for every input of this.

        Args:
            channels: output channels; a dense map has one only.
            bias: whether it adds a bias.
            key: of the weights.

        Returns:
            The new map.
        """
        return Dense(self.W.shape[0], self.W.shape[1] * channels, bias=bias, key=key)

    def work(self, v):
        return product_work(v, self.W.shape[0])

    def matrix(self):
        return np.asarray(self.W), None if self.b is None else np.asarray(self.b)
