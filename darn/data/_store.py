"""The folder of published sets: one packed npz each, checked when read, downloaded if missing."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import platformdirs

from darn.data import _arrays, _download
from darn.data._raw import Part, Raw
from darn.data._upstream import KNOWN, Known
from darn.errors import DarnError
from darn.files import read_bytes


def data_dir() -> Path:
    """The folder in the environment variable DARN_DATA, by default `darn` in the user's cache."""
    try:
        if named := os.environ.get("DARN_DATA"):
            return Path(named).expanduser()
        return platformdirs.user_cache_path("darn", appauthor=False)
    except RuntimeError as e:
        raise DarnError("there is no home folder for data: set DARN_DATA to the full path of a folder") from e


def set_path(name: str) -> Path:
    return data_dir() / KNOWN[name].folder / f"{name}.npz"


def read_known(name: str, *, download: bool = True) -> tuple[dict[str, np.ndarray], str]:
    """The arrays of a published set as stored, and the sha256 of their file."""
    known, path = KNOWN[name], set_path(name)
    try:
        data = read_bytes(path)
    except DarnError as e:
        if not isinstance(e.__cause__, FileNotFoundError | NotADirectoryError):
            raise
        if not download:
            raise DarnError(
                f"{name} is not at {path}: allow the download, or set DARN_DATA to a folder that has it"
            ) from None
        _download.download(name, known, path)
        data = read_bytes(path)
    sha256 = hashlib.sha256(data).hexdigest()
    try:
        arrays = _arrays.open_arrays(data, str(path))
    except DarnError:
        arrays = {}
    if sha256 != known.sha256 and not is_set(known, arrays):
        raise DarnError(
            f"{path} is not the {name} set or is damaged (wrong checksum, sha256 {sha256[:12]}...): delete "
            "it to download it again"
        )
    return arrays, sha256


def is_set(known: Known, arrays: dict[str, np.ndarray]) -> bool:
    """Checks that the arrays have the set's form and its rows."""
    grey = known.form == "idx"
    rows = {"train": known.rows[0] + known.rows[1], "test": known.rows[2]} if grey else None
    rows = rows or dict(zip(("train", "valid", "test"), known.rows))
    width = known.n if grey else -(-known.n // 8)
    for split, count in rows.items():
        a = arrays.get(split)
        if a is None or a.dtype != np.uint8 or a.shape != (count, width):
            return False
        y = arrays.get(f"{split}_label")
        if grey != (y is not None) or (y is not None and y.shape != (count,)):
            return False
    return _download.is_content(known, arrays)


def raw_mnist(arrays: dict[str, np.ndarray], sha256: str) -> Raw:
    """Grey MNIST with the last 10000 training images as valid, as usual."""
    X, y = arrays["train"], arrays["train_label"].astype(np.int64)
    k = KNOWN["mnist"].rows[0]
    parts = {
        "train": Part(X[:k], labels=y[:k]),
        "valid": Part(X[k:], labels=y[k:]),
        "test": Part(arrays["test"], labels=arrays["test_label"].astype(np.int64)),
    }
    return Raw("mnist", parts, shape=(28, 28), sha256=sha256, source=KNOWN["mnist"].about)
