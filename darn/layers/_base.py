"""The protocol of a layer, and the chain rule shared by all autoregressive ones."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from darn.gradients import Estimator, bernoulli
from darn.nn import AbstractMap, Decide, Dense, softplus
from darn.random import uniform


def bits_log_prob(y: Float[Array, " n"], a: Float[Array, " n"]) -> Float[Array, ""]:
    """sum_j log p(y_j) for bits with logits `a`; linear in y, so intensities in [0,1] are welcome."""
    return jnp.sum(y * a - softplus(a))


def given_context(n_c: int, n: int, key: PRNGKeyArray | None) -> Dense | None:
    """The fully connected U of a layer under n_c units; None where there is no context."""
    if not n_c:
        return None
    if key is None:
        raise ValueError("fresh weights need a key")
    return Dense(n_c, n, bias=False, key=key)


def plus_context(a: Array, U: AbstractMap | None, c: Array | None) -> Array:
    """a + U c where there is a context, else `a`."""
    if U is None:
        return a
    if c is None:
        raise ValueError("this layer was built with a context: pass one")
    add = U(c)
    if add.shape != a.shape:  # never broadcast: a map of one output would be added to every unit
        raise ValueError(f"the context makes {add.shape[0]} numbers for {a.shape[0]} units")
    return a + add


class AbstractBinaryLayer(eqx.Module):
    """A distribution over y in {0,1}^n given a context c (None for a prior). One example at a time."""

    n: eqx.AbstractVar[int]

    @abc.abstractmethod
    def log_prob(self, y: Float[Array, " n"], c: Array | None = None, *, key: PRNGKeyArray | None = None) -> Array:
        """log p(y | c) in nats. With a `key` a layer may return an unbiased one-sample estimate, for training."""

    @abc.abstractmethod
    def sample(self, c: Array | None = None, *, key: PRNGKeyArray, bit: Estimator = bernoulli) -> Array:
        """y ~ p(. | c); gradients flow through `bit`."""

    @abc.abstractmethod
    def most_probable(self, c: Array | None = None) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Each unit at its more probable value given the units before it, and its probability of being on."""

    @property
    def width(self) -> int:
        """Floats of the widest array that scoring one row takes: how many rows fit into memory follows from it."""
        return self.n

    def with_bias(self, mean: Float[Array, " n"]) -> "AbstractBinaryLayer":
        """The same layer, its units' biases set so that it starts from the given mean activities."""
        a = jnp.log(mean) - jnp.log1p(-mean)
        return eqx.tree_at(lambda layer: layer.b, self, jnp.asarray(a, jnp.float32))  # type: ignore[attr-defined]


class AbstractAutoregressive(AbstractBinaryLayer):
    """Chain rule, Eq. (1), over a running state: read a logit, write a bit."""

    @abc.abstractmethod
    def logits(self, y: Float[Array, " n"], c: Array | None = None) -> Float[Array, " n"]:
        """The logit of p(y_j = 1 | y_1..j-1, c) for all j at once, y being given."""

    @abc.abstractmethod
    def start(self, c: Array | None = None) -> Any:
        """The state before any unit is known."""

    @abc.abstractmethod
    def read(self, state: Any, j) -> Float[Array, ""]:
        """The logit of unit j; units before it have been written."""

    @abc.abstractmethod
    def write(self, state: Any, j, y_j) -> Any:
        """The state once unit j is known."""

    def chain(self, decide: Decide, carry: Any, c: Array | None = None) -> tuple[Float[Array, " n"], Any]:
        """Decides the units in order: (y, carry). Sampler and decoder differ in `decide` alone."""

        def unit(state_carry, j):
            state, carry = state_carry
            carry, y_j = decide(carry, j, self.read(state, j))
            return (self.write(state, j, y_j), carry), y_j

        (_, carry), y = lax.scan(unit, (self.start(c), carry), jnp.arange(self.n))
        return y, carry

    def log_prob(self, y, c=None, *, key=None):
        return bits_log_prob(y, self.logits(y, c))

    def sample(self, c=None, *, key, bit=bernoulli):
        u = uniform(key, self.n)
        return self.chain(lambda carry, j, a: (carry, bit(a, u[j])), None, c)[0]

    def most_probable(self, c=None):
        def decide(a, j, a_j):
            return a.at[j].set(a_j), (a_j > 0).astype(a.dtype)

        y, a = self.chain(decide, jnp.zeros(self.n), c)
        return y, jax.nn.sigmoid(a)
