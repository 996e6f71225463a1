"""Checkpoints: everything that an interrupted run needs to continue as if it had never stopped."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from darn.devices import agreed_array, first
from darn.errors import DarnError
from darn.files import atomic
from darn.jsonable import parse
from darn.model_file import UNREADABLE, check_header, checksum

FORMAT = "darn-checkpoint"
MAX_HOST = 32 << 20  # characters of JSON


def _names(tree: Any) -> list[str]:
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def save_checkpoint(path: str | Path, tree: Any, host: dict) -> None:
    """Writes the arrays of `tree` and the plain values of `host`, without loss, and a checksum of both."""
    arrays = {name: np.asarray(leaf) for name, leaf in zip(_names(tree), jax.tree.leaves(tree))}
    text = json.dumps(host)
    head = {"format": FORMAT, "host": text, "sha256": checksum(FORMAT, text, arrays)}
    with atomic(path) as temporary:
        save_file(arrays, temporary, metadata=head)


def load_checkpoint(path: str | Path, like: Any) -> Any:
    """Reads the tree; `like` has its structure, shapes and types. Only the first process needs the file."""
    leaves, structure = jax.tree.flatten(like)
    names = _names(like)
    arrays = {k: np.empty(np.shape(v), v.dtype) for k, v in zip(names, leaves)}
    first(lambda: arrays.update(_checked(path, names, leaves)))
    return jax.tree.unflatten(structure, jax.device_put([agreed_array(arrays[k]) for k in names]))


def _checked(path: str | Path, names: list[str], leaves: list[Any]) -> dict[str, np.ndarray]:
    head, arrays = _read(path, with_arrays=True)
    fits = set(names) == set(arrays) and all(
        arrays[k].shape == np.shape(v) and arrays[k].dtype == v.dtype for k, v in zip(names, leaves)
    )
    if not fits:
        raise DarnError(f"{path} is the checkpoint of another model: resume with the settings it was started with")
    found = checksum(FORMAT, head["host"], arrays)
    if head.get("sha256") != found:
        raise DarnError(f"{path} does not match its checksum: start the run again from the beginning")
    return arrays


def checkpoint_host(path: str | Path) -> Any:
    """Reads only the plain values of a checkpoint, unchecked, in the first process for all."""
    return first(lambda: _host(path))


def _host(path: str | Path) -> Any:
    head, _ = _read(path, with_arrays=False)
    try:
        return parse(head["host"], "its list of values", MAX_HOST)
    except DarnError as e:
        raise DarnError(f"{path} is not a readable checkpoint ({e}): start the run again from the beginning") from e


def _read(path: str | Path, *, with_arrays: bool) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    try:
        check_header(path)  # and refuses a pipe
        with safe_open(path, framework="np") as f:
            head = f.metadata() or {}
            arrays = {k: f.get_tensor(k) for k in f.keys()} if with_arrays else {}  # noqa: SIM118
    except UNREADABLE as e:
        raise DarnError(f"{path} is not a readable checkpoint: start the run again from the beginning") from e
    if head.get("format") != FORMAT or "host" not in head:
        raise DarnError(f"{path} is not a checkpoint: start the run again from the beginning")
    return head, arrays
