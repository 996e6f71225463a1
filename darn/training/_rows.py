"""Rows on the device, and the batches that a training step sees."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, Float, Int, PRNGKeyArray, UInt8

from darn.data import Moves
from darn.devices import ROWS
from darn.training._moves import moved

HALF_A_LEVEL = 0.5 / 255  # grey levels are stored in bytes, so one at the threshold may be rounded to below it


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
    """A split as stored on the device: bits packed eight to a byte, or intensities of one byte each.

    On a mesh, each device stores a part of consecutive rows, the last of them padded.
    """

    values: Array
    context: Array | None
    n: int = eqx.field(static=True)
    grey: bool = eqx.field(static=True)
    weight: Array | None = None
    count: int = eqx.field(static=True, default=0)  # rows, without padding
    moves: Moves | None = eqx.field(static=True, default=None)

    @staticmethod
    def put(rows, mesh: Mesh | None = None, *, mean_weight: float | None = None) -> "DeviceRows":
        """From a `darn.data.Rows`; on a mesh, a process transfers only the rows of its own devices.

        `mean_weight` is that of all rows, if these are a part of them.
        """
        put = jax.device_put if mesh is None else partial(_divided, mesh=mesh)
        context = None if rows.context is None else put(np.asarray(rows.context))
        weight = None if rows.weights is None else put(relative(rows.weights, mean_weight))
        return DeviceRows(put(rows.values), context, rows.n, rows.grey, weight, len(rows), rows.moves)

    def __len__(self) -> int:
        return self.count

    def batch(self, index: Int[Array, " B"], keys: PRNGKeyArray, uniform: Float[Array, "B n"] | None = None) -> Batch:
        """The rows at `index`, unpacked and moved; uniform numbers make intensities bits (dynamic binarisation)."""
        values, moves = self.values[index], self.moves
        x = values.astype(jnp.float32) / 255 if self.grey else _unpacked(values, self.n)
        if moves is not None:
            x = jax.vmap(partial(moved, moves=moves, grey=self.grey))(x, keys)
            if moves.threshold is not None:
                x = (x >= moves.threshold - HALF_A_LEVEL).astype(jnp.float32)
        if self.grey and uniform is not None:
            x = (uniform < x).astype(jnp.float32)
        context, weight = (None if a is None else a[index] for a in (self.context, self.weight))
        return Batch(x, context, keys, weight)


def on_devices(rows: Any, mesh: Mesh | None = None) -> Any:
    """A split as `Loop` takes it: `DeviceRows`, or a `darn.data.PackedRows` as it is."""
    return rows if rows.in_parts else DeviceRows.put(rows, mesh)


def relative(weights: np.ndarray, mean: float | None = None) -> np.ndarray:
    """Row weights with a mean of 1, so that their scale does not change the step size."""
    mean = np.mean(weights, dtype=np.float64) if mean is None else mean
    return (weights.astype(np.float64) / mean).astype(np.float32)


def _divided(values: np.ndarray, mesh: Mesh) -> Array:
    """Rows divided over the mesh, as many on each device: the last one is repeated as often as it takes."""
    total = -(-len(values) // mesh.size) * mesh.size

    def part(index: Any) -> np.ndarray:
        start, stop, _ = index[0].indices(total)
        return values[np.minimum(np.arange(start, stop), len(values) - 1)]

    return jax.make_array_from_callback((total, *values.shape[1:]), NamedSharding(mesh, ROWS), part)


def mean_of_rows(value: Float[Array, " B"], weight: Float[Array, " B"] | None, scale: float = 1.0) -> Float[Array, ""]:
    """The mean over a batch. Weights are divided by the number of rows, not by their sum, which varies by batch."""
    mean = jnp.mean(value if weight is None else weight * value, axis=0)
    return mean if scale == 1 else scale * mean
