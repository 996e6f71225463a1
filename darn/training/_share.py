"""Training spread over a mesh: which rows of a batch a device has, and what it adds up with the others."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from darn.devices import AXIS, ROWS, WHOLE, size_of
from darn.training._rows import DeviceRows


def divided(shape: tuple[int, ...], n: int) -> PartitionSpec:
    """How n devices divide an array of weights: along its largest axis that can be divided evenly, if there is any."""
    fitting = [axis for axis, size in enumerate(shape) if size and size % n == 0]
    if not fitting:
        return WHOLE
    return PartitionSpec(*[None] * max(fitting, key=lambda axis: shape[axis]), AXIS)


class Share:
    """One device's part of every batch: consecutive rows, as many on each device. Without a mesh, all of it.

    All methods but `over` are for use inside the program that `over` makes. Where a batch cannot be divided evenly, its
    last rows are repeated with weight 0.
    """

    def __init__(self, mesh: Mesh | None):
        self.mesh, self.n = mesh, size_of(mesh)

    def over(self, f: Callable, n_shared: int, state: Any = WHOLE, found: Any = WHOLE) -> Callable:
        """f(state, hyper, rows, ...) on every device, each with its own part of the rows.

        Args:
            f: what to call.
            n_shared: how many more arguments there are.
            state: how the first argument is divided, see `divided`.
            found: how the result is.
        """
        if self.mesh is None:
            return f
        specs = (state, WHOLE, ROWS, *[WHOLE] * n_shared)
        # Unchecked: JAX would otherwise add up the gradient of every array in an all-reduce of its own.
        return jax.shard_map(f, mesh=self.mesh, in_specs=specs, out_specs=found, check_vma=False)

    def whole(self, tree: Any, specs: Any) -> Any:
        """The whole arrays, of which each device has the part that `specs` say."""
        gather = lambda v, spec: lax.all_gather(v, AXIS, axis=len(spec) - 1, tiled=True)  # noqa: E731
        return jax.tree.map(lambda v, spec: gather(v, spec) if spec else v, tree, specs)

    def own(self, tree: Any, specs: Any) -> Any:
        """This device's part of whole arrays."""

        def one(v, spec):
            if not spec:
                return v
            size = v.shape[len(spec) - 1] // self.n
            return lax.dynamic_slice_in_dim(v, lax.axis_index(AXIS) * size, size, len(spec) - 1)

        return jax.tree.map(one, tree, specs)

    def each(self, count: int) -> int:
        """How many of a batch's rows a device has."""
        return -(-count // self.n)

    def of(self, v: Array, axis: int = 0) -> Array:
        """This device's part of an array along the axis of its rows."""
        if self.mesh is None:
            return v
        count = v.shape[axis]
        each = self.each(count)
        at = jnp.minimum(lax.axis_index(AXIS) * each + jnp.arange(each), count - 1)
        return jnp.take(v, at, axis=axis)

    def weight(self, count: int) -> Float[Array, " B"] | None:
        """1 for each of this device's rows of a batch of `count`, 0 for a repeated one; None if there are none."""
        each = self.each(count)
        if each * self.n == count:
            return None
        return (lax.axis_index(AXIS) * each + jnp.arange(each) < count).astype(jnp.float32)

    def scale(self, count: int) -> float:
        """The factor of means over this device's rows, with `weight`, for their mean over devices to be that of all."""
        return self.each(count) * self.n / count

    def mean(self, tree: Any) -> Any:
        """The mean over devices of every number, by one all-reduce of all of them together."""
        if self.mesh is None:
            return tree
        flat, back = ravel_pytree(tree)
        return back(lax.psum(flat, AXIS) / self.n)

    def fetch(self, rows: DeviceRows, index: Int[Array, "*B"]) -> tuple[DeviceRows, Int[Array, "*B"]]:
        """The rows of all devices with these numbers, as (rows, their places in them).

        Every device's rows go round once, and each device keeps what it needs: no device ever holds all of them.
        """
        if self.mesh is None:
            return rows, index
        wanted, me = index.reshape(-1), lax.axis_index(AXIS)
        stored = rows.values.shape[0]
        passing = (rows.values, rows.context, rows.weight)
        found = jax.tree.map(lambda v: jnp.zeros((wanted.size, *v.shape[1:]), v.dtype), passing)

        def visit(turn, carry):
            passing, found = carry
            at = wanted - (me + turn) % self.n * stored
            here = (at >= 0) & (at < stored)
            at = jnp.clip(at, 0, stored - 1)

            def kept(new, old):
                return jnp.where(here.reshape(-1, *[1] * (new.ndim - 1)), new[at], old)

            found = jax.tree.map(kept, passing, found)
            return lax.ppermute(passing, AXIS, [(i, (i - 1) % self.n) for i in range(self.n)]), found

        values, context, weight = lax.fori_loop(0, self.n, visit, (passing, found))[1]
        here = dataclasses.replace(rows, values=values, context=context, weight=weight)
        return here, jnp.arange(wanted.size).reshape(index.shape)
