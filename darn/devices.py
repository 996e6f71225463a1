"""The devices that work is spread over, in one process or in several that run together.

There is one mesh with one axis, `data`: rows are divided over it, weights are on every device. It is built when it is
needed. Row by row work uses the devices of its own process; training uses those of all processes.

Several processes (`jax.distributed`) run the same program side by side. Whatever decides what is computed next must be
the same in all of them: the first process decides, and `agreed` tells the others.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Literal

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from darn.errors import DarnError

AXIS = "data"
ROWS = PartitionSpec(AXIS)  # divided along the first axis
WHOLE = PartitionSpec()  # the same on every device

Devices = int | Literal["all"] | None

_chosen: ContextVar[Devices] = ContextVar("devices", default=None)


# ---------------------------------------------------------------- the mesh


def use(devices: Devices) -> None:
    """Spreads the work of this thread over several devices from now on.

    Args:
        devices: how many devices of each process, or "all"; None for one, and for training by several processes all.

    Raises:
        DarnError: if there are not so many.
    """
    found = jax.local_device_count() if devices not in (None, "all", 1) else 1
    if isinstance(devices, int) and not 1 <= devices <= found:
        there = "is 1 device" if found == 1 else f"are {found} devices"
        raise DarnError(f"there {there} here, not {devices}: choose at most {found}, or all")
    _chosen.set(devices)


@contextlib.contextmanager
def using(devices: Devices) -> Iterator[None]:
    """Within the block, work is spread over several devices: `use`, until the block ends; None changes nothing."""
    before = _chosen.get()
    if devices is not None:
        use(devices)
    try:
        yield
    finally:
        _chosen.set(before)


@lru_cache
def _mesh(each: int | Literal["all"], all_processes: bool) -> Mesh | None:
    of: dict[int, list] = {}
    for device in jax.devices() if all_processes else jax.local_devices():
        of.setdefault(device.process_index, []).append(device)
    chosen = [device for i in sorted(of) for device in (of[i] if each == "all" else of[i][:each])]
    return Mesh(np.asarray(chosen), (AXIS,), axis_types=(AxisType.Auto,)) if len(chosen) > 1 else None


def row_mesh() -> Mesh | None:
    """The devices of this process that row by row work is spread over; None for one device, the default."""
    return None if _chosen.get() in (None, 1) else _mesh(_chosen.get() or 1, False)


def training_mesh() -> Mesh | None:
    """The devices of all processes that training is spread over; None for one device."""
    chosen = _chosen.get()
    if jax.process_count() == 1:
        return row_mesh()
    return _mesh("all" if chosen is None else chosen, True)


def size_of(mesh: Mesh | None) -> int:
    """The number of devices."""
    return 1 if mesh is None else mesh.size


# ---------------------------------------------------------------- arrays on the mesh


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


# ---------------------------------------------------------------- several processes


def is_first() -> bool:
    """Whether this process is the one that writes files and prints."""
    return jax.process_index() == 0


def agreed(value: Any) -> Any:
    """The JSON-compatible value of the first process, in every process."""
    if jax.process_count() == 1:
        return value
    return json.loads(_from_first(json.dumps(value).encode() if is_first() else b""))


def _from_first(data: bytes) -> bytes:
    from jax.experimental.multihost_utils import broadcast_one_to_all

    length = int(broadcast_one_to_all(np.asarray(len(data), np.int32)))
    own = np.frombuffer(data, np.uint8) if is_first() else np.zeros(length, np.uint8)
    return np.asarray(broadcast_one_to_all(own)).astype(np.uint8).tobytes()


def agreed_array(value: np.ndarray) -> np.ndarray:
    """The first process's array in every process, bit for bit; all give one of the same shape and type."""
    if jax.process_count() == 1:
        return value
    data = _from_first(np.ascontiguousarray(value).tobytes())
    return np.frombuffer(data, value.dtype).reshape(value.shape)


def gathered(*values: int) -> np.ndarray:
    """(processes, values): the small whole numbers that each process gives."""
    own = np.asarray(values, np.int32)
    if jax.process_count() == 1:
        return own[None]
    from jax.experimental.multihost_utils import process_allgather

    return np.asarray(process_allgather(own))


def first(do: Callable[[], Any]) -> Any:
    """Calls `do` in the first process only; every process gets what it returns, or its DarnError.

    Args:
        do: returns something JSON-compatible.

    Returns:
        What `do` returned.
    """
    if jax.process_count() == 1:
        return do()
    found: dict[str, Any] = {}
    if is_first():
        try:
            found = {"value": do()}
        except DarnError as e:
            agreed({"error": str(e)})
            raise
    found = agreed(found)
    if "error" in found:
        raise DarnError(found["error"])
    return found["value"]


@contextlib.contextmanager
def in_first(context: contextlib.AbstractContextManager) -> Iterator[None]:
    """Enters a context in the first process only; if that fails, it fails in every process."""
    with contextlib.ExitStack() as stack:
        first(lambda: stack.enter_context(context) and None)
        yield


def check_same(parts: dict[str, Any]) -> None:
    """Refuses to start if processes were given different things.

    Args:
        parts: what must be the same, by name: arrays, or anything JSON-compatible.

    Raises:
        DarnError: in every process, with the first name that differs.
    """
    if jax.process_count() == 1:
        return
    found = gathered(*(_digest(v) for v in parts.values()))
    for name, column in zip(parts, found.T):
        other = np.flatnonzero(column != column[0])
        if len(other):
            raise DarnError(
                f"process {other[0]} has other {name} than process 0: start all processes with the same command, "
                "data and versions"
            )


def _digest(value: Any) -> int:
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(value):
        whole = leaf if isinstance(leaf, np.ndarray | jax.Array) else np.frombuffer(repr(leaf).encode(), np.uint8)
        digest.update(np.ascontiguousarray(whole).data)
    return int.from_bytes(digest.digest()[:4], "little", signed=True)
