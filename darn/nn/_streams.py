"""What lies between the convolutions of a gated net: sums, elu, gates and residual streams, in floats or in integers.

In integers, everything is a multiple of 2^-step and clipped, so that the range of a deep net does not grow from block
to block: every sum of products is exact on any device, and what follows it rounds to the same number everywhere.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from darn.errors import DarnError
from darn.nn._fixed_point import NOT_FINITE, Arithmetic, Inputs, rounded_outputs
from darn.nn._tables import activation_table

_FLAT = 12  # a sigmoid is constant beyond this
_MOST = 1 << 12  # what a term of a sum is clipped to: in the worst case, far beyond what there is, it would be more


@dataclass(frozen=True)
class Floats:
    """In the floats of training."""

    def elu(self, x: Array) -> Array:
        """x, or exp(x) - 1 where it is negative."""
        return jax.nn.elu(x)

    def gate(self, a: Float[Array, "*cells C_twice"]) -> Float[Array, "*cells C"]:
        """One half of the channels, gated by the other."""
        value, door = jnp.split(a, 2, axis=-1)
        return value * jax.nn.sigmoid(door)

    def total(self, first: Array, *terms: Array) -> Array:
        """The sum of some products and biases."""
        for term in terms:
            first = first + term
        return first

    def product(self, x: Float[Array, "*cells C"], W: Float[Array, "C F"]) -> Float[Array, "*cells F"]:
        """The product of activations, from `elu`, with weights."""
        return x @ W

    def weighed(self, x: Float[Array, "*cells C"], w: Float[Array, "*#cells C"]) -> Float[Array, "*cells"]:
        """The sum of activations, each with its weight."""
        return jnp.sum(x * w, axis=-1)

    def stream(self, x: Array) -> Array:
        """The values of a residual stream."""
        return x


@dataclass(frozen=True)
class Integers:
    """In multiples of powers of two; see `Arithmetic`.

    Streams reach far, and a sum over hundreds of channels would leave few bits for the weights. So an activation has
    two digits, a multiple of 2^coarse and the rest, and their sums of products are exact one by one.
    """

    step: int = 10  # fractional bits of sums and streams
    reach: int = 1024  # of the streams, and of elu
    coarse: int = 3
    bits: int = 6  # fractional bits of elu
    door: int = 12  # fractional bits of a gate

    @staticmethod
    def of(arithmetic: Arithmetic) -> "Integers":
        """For floats of a given size."""
        return Integers(bits=arithmetic.table_bits)

    def weights(self, W: Array, arithmetic: Arithmetic) -> Array:
        """The weights of `product`; the last axis runs over its outputs."""
        high = Inputs(W.shape[0], -self.coarse, float(self.reach))
        low = Inputs(W.shape[0], self.bits, 2.0 ** (self.coarse - 1))
        return rounded_outputs(W, (high, low), arithmetic)

    def bias(self, b: Array, arithmetic: Arithmetic) -> Array:
        """Biases as terms of `total`."""
        exact = np.asarray(b, np.float64)
        if not np.isfinite(exact).all():
            raise DarnError(NOT_FINITE)
        whole = np.rint(np.ldexp(np.clip(exact, -_MOST, _MOST), self.step))
        return jax.device_put(np.ldexp(whole, -self.step).astype(arithmetic.dtype))

    def product(self, x, W):
        high, low = jnp.matmul(jnp.stack(self._digits(x)), W, precision=lax.Precision.HIGHEST)
        return self.total(high, low)

    def weighed(self, x, w):
        return self.total(*(jnp.sum(digit * w, axis=-1) for digit in self._digits(x)))

    def _digits(self, x):
        high = jnp.round(x * 2.0**-self.coarse) * (1 << self.coarse)
        return high, x - high

    def elu(self, x):
        unit, side = 1 << self.bits, _FLAT << self.step
        table = _constant("elu", self.step, self.bits, x.dtype)
        low = table[jnp.clip(jnp.round(x * (1 << self.step)), -side, 0).astype(jnp.int32) + side]
        return jnp.where(x > 0, jnp.round(jnp.minimum(x, self.reach) * unit) / unit, low)

    def gate(self, a):
        value, door = jnp.split(a, 2, axis=-1)
        side = _FLAT << self.step
        table = _constant("sigmoid", self.step, self.door, a.dtype)
        door = table[jnp.clip(jnp.round(door * (1 << self.step)), -side, side).astype(jnp.int32) + side]
        value = jnp.clip(value, -self.reach, self.reach)
        whole = jnp.round(value)  # two digits again: the product of all bits would have too many
        return self.total(whole * door, (value - whole) * door)

    def total(self, first, *terms):
        total = self._rounded(first)
        for term in terms:
            total = total + self._rounded(term)
        return total

    def stream(self, x):
        return jnp.clip(x, -self.reach, self.reach)

    def _rounded(self, x):
        return jnp.clip(jnp.round(x * (1 << self.step)) / (1 << self.step), -_MOST, _MOST)


def _constant(name: str, step: int, bits: int, dtype) -> Array:
    return jnp.asarray(np.asarray(activation_table(name, step, _FLAT, bits), dtype))


FLOATS = Floats()
