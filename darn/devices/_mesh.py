"""The mesh: which devices a piece of work is spread over.

It has one axis, `data`: rows are divided over it, weights are on every device, unless a training is to divide them as
well. It is built when it is needed.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from functools import lru_cache
from typing import Literal

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, PartitionSpec

from darn.errors import DarnError, InputTypeError

AXIS = "data"
ROWS = PartitionSpec(AXIS)  # divided along the first axis
WHOLE = PartitionSpec()  # the same on every device

Devices = int | Literal["all"] | None

_chosen: ContextVar[Devices] = ContextVar("devices", default=None)
_shard: ContextVar[bool] = ContextVar("shard_weights", default=False)


def use(devices: Devices, *, shard_weights: bool = False) -> None:
    """Spreads the work of this thread over several devices from now on.

    Args:
        devices: how many devices of each process, or "all"; None for one, and for training by several processes all.
        shard_weights: whether training also divides weights and the optimiser's state over them.

    Raises:
        DarnError: if there are not so many.
    """
    if devices is not None and devices != "all" and not isinstance(devices, int):
        raise InputTypeError(f"devices is a number, or all, not {devices!r}")
    found = jax.local_device_count() if devices not in (None, "all", 1) else 1
    if isinstance(devices, int) and not 1 <= devices <= found:
        there = "is 1 device" if found == 1 else f"are {found} devices"
        raise DarnError(f"there {there} here, not {devices}: choose at most {found}, or all")
    _chosen.set(devices)
    _shard.set(shard_weights)


@contextlib.contextmanager
def using(devices: Devices, *, shard_weights: bool | None = None) -> Iterator[None]:
    """Within the block, work is spread over several devices: `use`, until the block ends; None changes nothing.

    Args:
        devices: as for `use`.
        shard_weights: as for `use`.
    """
    before = _chosen.get(), _shard.get()
    sharded = before[1] if shard_weights is None else shard_weights
    if devices is not None:
        use(devices, shard_weights=sharded)
    _shard.set(sharded)
    try:
        yield
    finally:
        _chosen.set(before[0])
        _shard.set(before[1])


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


def weights_are_sharded() -> bool:
    """Whether training divides weights over its devices."""
    return _shard.get()


def size_of(mesh: Mesh | None) -> int:
    """The number of devices."""
    return 1 if mesh is None else mesh.size
