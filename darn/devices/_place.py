"""Arrays on the mesh."""

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from darn.devices._mesh import WHOLE, row_mesh


def placed(tree: Any, mesh: Mesh | None, how: PartitionSpec) -> Any:
    """The arrays of a pytree on the mesh, divided along the first axis (`ROWS`) or whole; as they are without a mesh.

    Each process transfers only what its own devices hold.
    """
    if mesh is None:
        return tree
    sharding = NamedSharding(mesh, how)
    if jax.process_count() == 1:
        return jax.device_put(tree, sharding)

    def one(v):
        host = np.asarray(v)
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

    return jax.tree.map(one, tree)


def everywhere(model: Any) -> Any:
    """A model whose weights are on every device that row by row work is spread over."""
    return placed(model, row_mesh(), WHOLE)


def on_one(tree: Any, mesh: Mesh | None) -> Any:
    """Arrays that every device of the mesh holds, on the default device alone."""
    return tree if mesh is None else jax.device_put(jax.tree.map(np.asarray, tree))
