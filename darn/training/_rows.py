"""Rows on the device, and the batches that a training step sees."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt8


class Batch(eqx.Module):
    """The rows of one training step."""

    x: Float[Array, "B n_x"]
    context: Float[Array, "B n_context"] | None
    keys: PRNGKeyArray  # one per row, so that a batch split over devices draws the same as on one
    weight: Float[Array, " B"] | None = None  # row weights, 1 on average over all rows
    noise_key: PRNGKeyArray | None = None  # of the weight noise, drawn once per batch


def _unpacked(values: UInt8[Array, "B bytes"], n: int) -> Float[Array, "B n"]:
    """Bits as floats. On a CPU by a lookup table: shifting bits out would take 5% of a training step on MNIST."""
    if jax.default_backend() != "cpu":
        return jnp.unpackbits(values, axis=1, count=n).astype(jnp.float32)
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).astype(np.float32)
    return jnp.asarray(bits)[values].reshape(len(values), -1)[:, :n]


class DeviceRows(eqx.Module):
    """A split as stored on the device: bits packed eight to a byte, or intensities of one byte each."""

    values: Array
    context: Array | None
    n: int = eqx.field(static=True)
    grey: bool = eqx.field(static=True)
    weight: Array | None = None

    @staticmethod
    def put(rows) -> "DeviceRows":
        """From a `darn.data.Rows`."""
        context = None if rows.context is None else jax.device_put(np.asarray(rows.context))
        w = rows.weights
        # Normalised to a mean of 1, so that the scale of the weights does not change the step size.
        weight = None if w is None else jax.device_put((w / np.mean(w, dtype=np.float64)).astype(np.float32))
        return DeviceRows(jax.device_put(rows.values), context, rows.n, rows.grey, weight)

    def __len__(self) -> int:
        return self.values.shape[0]

    def batch(self, index: Int[Array, " B"], keys: PRNGKeyArray, draw_key: PRNGKeyArray | None = None) -> Batch:
        """The rows at `index`, unpacked; with a `draw_key`, intensities become fresh bits (dynamic binarisation)."""
        values = self.values[index]
        if not self.grey:
            x = _unpacked(values, self.n)
        else:
            x = values.astype(jnp.float32) / 255
            if draw_key is not None:
                x = (jax.random.uniform(draw_key, x.shape) < x).astype(jnp.float32)
        context, weight = (None if a is None else a[index] for a in (self.context, self.weight))
        return Batch(x, context, keys, weight)


def mean_of_rows(value: Float[Array, " B"], weight: Float[Array, " B"] | None) -> Float[Array, ""]:
    """The mean over a batch. Weights are divided by the number of rows, not by their sum, which varies by batch."""
    return jnp.mean(value if weight is None else weight * value, axis=0)
