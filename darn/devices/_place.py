"""Arrays on the mesh."""

from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from darn.devices._mesh import WHOLE, row_mesh


def placed(tree: Any, mesh: Mesh | None, how: Any) -> Any:
    """The arrays of a pytree on the mesh, as they are without one. Each process transfers what its own devices hold.

    Args:
        tree: of arrays that every process has.
        mesh: the devices.
        how: `ROWS` for arrays divided along the first axis, `WHOLE`, or a pytree of such, one for each array.
    """
    if mesh is None:
        return tree

    def one(v, spec):
        sharding = NamedSharding(mesh, spec)
        if jax.process_count() == 1:
            return jax.device_put(v, sharding)
        host = np.asarray(v)
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

    specs = jax.tree.map(lambda _: how, tree) if isinstance(how, PartitionSpec) else how
    return jax.tree.map(one, tree, specs)


def whole(tree: Any, mesh: Mesh | None) -> Any:
    """Arrays on the mesh, divided or not, as NumPy arrays; all processes call it together."""
    if mesh is None or jax.process_count() == 1:
        return jax.tree.map(np.asarray, tree)
    return jax.tree.map(lambda v: np.asarray(v if v.is_fully_replicated else _gather(mesh)(v)), tree)


@lru_cache
def _gather(mesh: Mesh) -> Any:
    return jax.jit(lambda v: v, out_shardings=NamedSharding(mesh, WHOLE))


def everywhere(model: Any) -> Any:
    """A model whose weights are on every device that row by row work is spread over."""
    return placed(model, row_mesh(), WHOLE)


def host() -> jax.Device | None:
    """The processor as a device of JAX, for small programs beside those of a GPU; None if JAX was started without."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


def on_one(tree: Any, mesh: Mesh | None) -> Any:
    """Arrays on the mesh, divided or not, on the default device alone; all processes call it together."""
    return tree if mesh is None else jax.device_put(whole(tree, mesh))
