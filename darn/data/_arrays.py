"""NumPy files: one array (.npy), or several (.npz) by split, plain or packed eight bits to a byte."""

from __future__ import annotations

import io
import math
import os
import re
import tokenize
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np

from darn.data._check import matrix
from darn.data._limits import check_unpacked
from darn.data._raw import SPLITS, WHOLE, Part, Raw
from darn.data._rows import as_context
from darn.errors import DarnError
from darn.files import open_input, read_bytes

BROKEN = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
    SyntaxError,
    TypeError,
    OverflowError,
    RuntimeError,
    RecursionError,
    tokenize.TokenError,
)
SUFFIXES = (".npy", ".npz")
_LONGEST = 2**48  # of an axis: an array without bytes may claim any


def open_arrays(data: bytes, what: str) -> dict[str, np.ndarray]:
    """All arrays of a .npy (under the one name "all") or .npz; never unpickles, which could run code."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy warns about headers written by Python 2
            if not data.startswith(b"PK"):
                _check_header(io.BytesIO(data), len(data))
                return {WHOLE: np.asarray(np.load(io.BytesIO(data), allow_pickle=False))}
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                members = archive.infolist()
                check_unpacked(sum(m.file_size for m in members), len(data), what)
                for m in members:
                    with archive.open(m) as f:
                        _check_header(f, m.file_size)
            found = np.load(io.BytesIO(data), allow_pickle=False)
            return {k: found[k] for k in found.files}
    except BROKEN as e:
        if "allow_pickle" in str(e):
            raise DarnError(f"{what} holds Python objects, or is not a NumPy file: save it as numbers.") from None
        raise DarnError(f"{what} is not a readable NumPy file; it may be truncated or damaged: {flat(e)}.") from None


def _check_header(f: IO[bytes], size: int) -> None:
    """Refuses an array whose header promises other than what follows it; raises ValueError."""
    version = np.lib.format.read_magic(f)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(f)
    if dtype.hasobject:
        raise ValueError("Python objects need allow_pickle")
    declared, held = math.prod(shape) * dtype.itemsize, size - f.tell()
    if declared != held or max(shape, default=0) > _LONGEST:
        raise ValueError(f"the header says {declared} bytes of array, but there are {held}")


def read_array(path: str | Path) -> np.ndarray:
    """The array of a .npy, unchecked, including NaN."""
    return open_arrays(read_bytes(path), str(path))[WHOLE]


def map_array(path: Path) -> np.ndarray:
    """A memory-mapped .npy."""
    try:
        with open_input(path) as f:
            _check_header(f, os.fstat(f.fileno()).st_size)
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except BROKEN as e:
        raise DarnError(f"{path} is not a readable NumPy file; it may be truncated or damaged: {flat(e)}.") from None


def flat(e: Exception) -> str:
    return " ".join(str(e).split()).rstrip(".")[:120] or type(e).__name__


def role(key: str) -> tuple[str, str]:
    """Returns (split, kind) of an array's name: train, train_data, X_train; train_label, y_train; train_context."""
    words = [w for w in re.split(r"[_\W]+", key.lower()) if w]
    kind = "X"
    for names, named in ((("label", "labels", "y", "target"), "labels"), (("context",), "context")):
        if any(w in names for w in words):
            kind = named
    alias = {"val": "valid", "validation": "valid", "tr": "train", "te": "test"}
    splits = {alias.get(w, w) for w in words} & {"train", "valid", "test"}
    return (splits.pop() if len(splits) == 1 else WHOLE), kind


def read_arrays(path: Path, data: bytes, what: str, only: str | None = None) -> Raw:
    """Reads a .npy, or a .npz by the names of its arrays; packed sets also store `n`, the number of columns.

    `only` names a single array to read, if it is not named after a split.
    """
    arrays = open_arrays(data, what)
    n = arrays.pop("n", None)
    if only is not None and only not in SPLITS:
        if only not in arrays:
            raise DarnError(f"{what} holds no array {only!r}: choose one of {', '.join(sorted(arrays))}.")
        arrays = {WHOLE: arrays[only]}
    taken: dict[str, dict[str, np.ndarray]] = {}
    for key, a in arrays.items():
        split, kind = role(key)
        if kind in taken.setdefault(split, {}):
            held = ", ".join(sorted(arrays))
            raise DarnError(f"{what} holds the arrays {held}: keep one, or name them train, valid and test.")
        taken[split][kind] = a
    named = [s for s in taken if "X" in taken[s]]
    if not named or (WHOLE in named and len(named) > 1):
        held = ", ".join(sorted(arrays)) or "nothing"
        raise DarnError(f"{what} holds {held}: name its arrays train, valid and test, or keep a single one.")
    parts, shapes = {}, set()
    for split in named:
        label = what if split == WHOLE else f"{what} ({split})"
        context, y = taken[split].get("context"), taken[split].get("labels")
        X, shape = matrix(unpack(taken[split]["X"], n, label), label)
        shapes.add(shape)
        context = None if context is None else as_context(context, f"the context of {label}")
        parts[split] = Part(X, context, y[:, 0] if y is not None and y.ndim == 2 and y.shape[1] == 1 else y)
    widths = {s: p.X.shape[1] for s, p in parts.items()}
    if len(set(widths.values())) > 1:
        said = ", ".join(f"{s} {w}" for s, w in widths.items())
        raise DarnError(f"{what} has splits of different widths ({said} columns): give all the same columns.")
    return Raw(what, parts, shape=shapes.pop() if len(shapes) == 1 else None, source=f"arrays of {path.name}")


def unpack(X: np.ndarray, n, what: str) -> np.ndarray:
    """Undoes np.packbits if `n` is given and rows have ceil(n / 8) bytes."""
    if n is None or X.dtype != np.uint8 or X.ndim != 2:
        return X
    if n.shape != () or n.dtype.kind not in "iu" or int(n) < 1:
        raise DarnError(
            f"{what}: `n` beside the arrays is kept for the number of columns, one whole number: rename it."
        )
    n = int(n)
    if X.shape[1] == -(-n // 8):
        if n % 8 and (X[:, -1] & (0xFF >> (n % 8))).any():
            raise DarnError(f"{what} has bits set beyond its {n} columns: the file is damaged or `n` is wrong.")
        return np.unpackbits(X, axis=1, count=n)
    if X.shape[1] != n:
        raise DarnError(f"{what} has rows of {X.shape[1]} bytes, not of {n} columns, packed or plain: change `n`.")
    return X
