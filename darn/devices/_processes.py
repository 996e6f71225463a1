"""Several processes (`jax.distributed`) that run the same program side by side.

Whatever decides what is computed next must be the same in all of them: the first process decides, and `agreed` tells
the others.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from darn.errors import DarnError


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
    for path, leaf in jax.tree.leaves_with_path(value, is_leaf=lambda v: v is None):
        array = leaf if isinstance(leaf, np.ndarray | jax.Array) else np.frombuffer(repr(leaf).encode(), np.uint8)
        digest.update(f"{jax.tree_util.keystr(path)} {array.shape} {array.dtype} ".encode())
        digest.update(np.ascontiguousarray(array).data)
    return int.from_bytes(digest.digest()[:4], "little", signed=True)
