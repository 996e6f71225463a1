"""What lies between the convolutions of a gated net: sums, elu, gates and residual streams, in floats or in integers.

In integers, everything is a multiple of 2^-step and clipped, so that the range of a deep net does not grow from block
to block: every sum of products is exact on any device, and what follows it rounds to the same number everywhere.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from darn.errors import DarnError
from darn.nn._fixed_point import NOT_FINITE, Arithmetic, Inputs
from darn.nn._tables import activation_table

_FLAT = 12  # a sigmoid is constant beyond this
_MOST = 1 << 10  # what a term of a sum is clipped to: in the worst case, far beyond what there is, it would be more


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

    def stream(self, x: Array) -> Array:
        """The values of a residual stream."""
        return x


@dataclass(frozen=True)
class Integers:
    """In multiples of powers of two; see `Arithmetic`."""

    step: int  # fractional bits of sums and streams
    reach: int  # of the streams and of elu
    bits: int  # fractional bits of elu
    gate_bits: int  # fractional bits of a gate

    @staticmethod
    def of(arithmetic: Arithmetic) -> "Integers":
        """Such that the product of a value and its gate is exact."""
        step, reach = 10, 32
        spare = arithmetic.bits - step - reach.bit_length()
        return Integers(step, reach, arithmetic.table_bits, min(spare, arithmetic.table_bits + 3))

    def activations(self, n: int) -> Inputs:
        """What elu returns, as inputs of a sum."""
        return Inputs(n, self.bits, float(self.reach))

    def bias(self, b: Array, arithmetic: Arithmetic) -> Array:
        """Biases as terms of `total`."""
        exact = np.asarray(b, np.float64)
        if not np.isfinite(exact).all():
            raise DarnError(NOT_FINITE)
        whole = np.rint(np.ldexp(np.clip(exact, -_MOST, _MOST), self.step))
        return jax.device_put(np.ldexp(whole, -self.step).astype(arithmetic.dtype))

    def elu(self, x):
        return _looked_up("elu", x, self.step, self.reach, self.bits)

    def gate(self, a):
        value, door = jnp.split(a, 2, axis=-1)
        door = _looked_up("sigmoid", door, self.step, _FLAT, self.gate_bits)
        return self._rounded(jnp.clip(value, -self.reach, self.reach) * door)

    def total(self, first, *terms):
        total = self._rounded(first)
        for term in terms:
            total = total + self._rounded(term)
        return total

    def stream(self, x):
        return jnp.clip(x, -self.reach, self.reach)

    def _rounded(self, x):
        return jnp.clip(jnp.round(x * (1 << self.step)) / (1 << self.step), -_MOST, _MOST)


def _looked_up(name: str, x, step: int, reach: int, bits: int):
    side = reach << step
    table = jnp.asarray(np.asarray(activation_table(name, step, reach, bits), x.dtype))
    return table[jnp.clip(jnp.round(x * (1 << step)), -side, side).astype(jnp.int32) + side]


FLOATS = Floats()
