"""Checkpoints: everything that an interrupted run needs to continue as if it had never stopped."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from darn.errors import DarnError
from darn.files import atomic

FORMAT = "darn-checkpoint"


def _names(tree: Any) -> list[str]:
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def save_checkpoint(path: str | Path, tree: Any, host: dict) -> None:
    """Writes the arrays of `tree` and the plain values of `host`, without loss."""
    arrays = {name: np.asarray(leaf) for name, leaf in zip(_names(tree), jax.tree.leaves(tree))}
    with atomic(path) as temporary:
        save_file(arrays, temporary, metadata={"format": FORMAT, "host": json.dumps(host)})


def load_checkpoint(path: str | Path, like: Any) -> tuple[Any, dict]:
    """Reads (tree, host); `like` has the structure and shapes of the tree."""
    try:
        with safe_open(path, framework="np") as f:
            head = f.metadata() or {}
            arrays = {k: f.get_tensor(k) for k in f.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as e:
        raise DarnError(f"{path} is not a readable checkpoint: start the run again from the beginning") from e
    leaves, structure = jax.tree.flatten(like)
    names = _names(like)
    fits = head.get("format") == FORMAT and set(names) == set(arrays)
    if not fits or any(arrays[k].shape != np.shape(v) for k, v in zip(names, leaves)):
        raise DarnError(f"{path} is the checkpoint of another model: resume with the settings it was started with")
    return jax.tree.unflatten(structure, jax.device_put([arrays[k] for k in names])), json.loads(head["host"])


def checkpoint_host(path: str | Path) -> dict:
    """Reads only the plain values of a checkpoint."""
    try:
        with safe_open(path, framework="np") as f:
            return json.loads((f.metadata() or {})["host"])
    except (SafetensorError, OSError, KeyError, ValueError) as e:
        raise DarnError(f"{path} is not a readable checkpoint: start the run again from the beginning") from e
