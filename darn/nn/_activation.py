"""Pointwise nonlinearities, as maps without weights, so that a net is a list of maps."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from darn.nn._base import AbstractMap, Logistic, Work
from darn.nn._fixed_point import Inputs
from darn.nn._registry import register
from darn.nn._tables import activation_table

_STEP_BITS, _REACH = 10, 12  # tables cover multiples of 2^-10 up to +-12, where tanh differs from 1 by 2^-33


class Table(AbstractMap):
    """A pointwise function as a lookup table: its argument is rounded to multiples of 2^-10 and clipped."""

    values: Float[Array, " entries"]

    def __call__(self, c):
        side = _REACH << _STEP_BITS
        i = jnp.clip(jnp.round(c * (1 << _STEP_BITS)), -side, side).astype(jnp.int32) + side
        return self.values[i]


class RoundedReLU(AbstractMap):
    """max(c, 0) rounded to multiples of 2^-bits, at most `reach`."""

    bits: int = eqx.field(static=True)
    reach: float = eqx.field(static=True)

    def __call__(self, c):
        unit = 1 << self.bits
        return jnp.round(jnp.clip(c, 0, self.reach) * unit) / unit


def _tabulated(name: str, inputs: Inputs, arithmetic) -> tuple[Table, Inputs]:
    table = activation_table(name, _STEP_BITS, _REACH, arithmetic.table_bits)
    return Table(jnp.asarray(table, arithmetic.dtype)), Inputs(inputs.n, arithmetic.table_bits, 1.0)


@register("tanh")
class Tanh(AbstractMap):
    """d = tanh(c)."""

    logistic = Logistic(2.0, 2.0, -1.0)

    def __call__(self, c):
        return jnp.tanh(c)

    def quantised(self, inputs, arithmetic):
        return _tabulated("tanh", inputs, arithmetic)

    def work(self, v):
        return Work()


@register("relu")
class ReLU(AbstractMap):
    """d = max(c, 0)."""

    def __call__(self, c):
        return jax.nn.relu(c)

    def quantised(self, inputs, arithmetic):
        t = arithmetic.table_bits
        return RoundedReLU(t, arithmetic.reach), Inputs(inputs.n, t, min(inputs.most + 2.0**-t, arithmetic.reach))

    def work(self, v):
        return Work()


@register("sigmoid")
class Sigmoid(AbstractMap):
    """d = 1 / (1 + exp(-c))."""

    logistic = Logistic(1.0, 1.0, 0.0)

    def __call__(self, c):
        return jax.nn.sigmoid(c)

    def quantised(self, inputs, arithmetic):
        return _tabulated("sigmoid", inputs, arithmetic)

    def work(self, v):
        return Work()


ACTIVATIONS: dict[str, type[AbstractMap]] = {"tanh": Tanh, "relu": ReLU, "sigmoid": Sigmoid}


@jax.custom_jvp
def softplus(a):
    """log(1 + exp(a)), safe at any a. jax.nn.softplus is five times slower on a CPU, and this is the hottest loop."""
    return jnp.maximum(a, 0) + jnp.log1p(jnp.exp(-jnp.abs(a)))


softplus.defjvps(lambda da, _, a: jax.nn.sigmoid(a) * da)
