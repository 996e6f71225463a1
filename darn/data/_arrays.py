"""NumPy files: one array (.npy), or several (.npz) by split, plain or packed eight bits to a byte."""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from darn.data._check import matrix
from darn.data._labels import take_column
from darn.data._limits import check_unpacked
from darn.data._raw import SPLITS, WHOLE, Part, Raw, RawParts
from darn.data._rows import as_context
from darn.errors import DarnError
from darn.files import open_input

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
PART = 1 << 21  # bytes of a part of an array
_LONGEST = 2**48  # of an axis: an array without bytes may claim any


def open_arrays(data: bytes, what: str) -> dict[str, np.ndarray]:
    """All arrays of a .npy (under the one name "all") or .npz; never unpickles, which could run code."""
    with _reading(what):
        _stored(io.BytesIO(data), len(data), what)
        with _silent():
            found = np.load(io.BytesIO(data), allow_pickle=False)
        return {WHOLE: found} if isinstance(found, np.ndarray) else {k: found[k] for k in found.files}


def map_array(path: Path) -> np.ndarray:
    """A memory-mapped .npy."""
    with open_input(path) as f, _reading(str(path)), _silent():
        _header(f, os.fstat(f.fileno()).st_size)
        return np.load(path, mmap_mode="r", allow_pickle=False)


class Stored(NamedTuple):
    """An array in a file: its header, and the file's own name for it."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype
    member: str | None  # of a .npz; None for a .npy


def stored(path: Path, what: str) -> dict[str, Stored]:
    """The arrays of a .npy (under the one name "all") or .npz, by their headers only."""
    with open_input(path) as f, _reading(what):
        return _stored(f, os.fstat(f.fileno()).st_size, what)


def shape_of(path: Path, what: str) -> tuple[int, int] | None:
    """Height and width of the images in a file of arrays; None if rows are no images."""
    if path.suffix.lower() not in SUFFIXES or not path.is_file():
        return None
    shapes = {array.shape[1:] for key, array in stored(path, what).items() if role(key)[1] == "X" and key != "n"}
    first = shapes.pop() if len(shapes) == 1 else ()
    return (first[0], first[1]) if len(first) == 2 else None


def _stored(f: IO[bytes], size: int, what: str) -> dict[str, Stored]:
    """Refuses headers that promise other than what follows them, and archives that unpack to much more."""
    start = f.read(2)
    f.seek(0)
    if start != b"PK":
        return {WHOLE: Stored(*_header(f, size), None)}
    found = {}
    with zipfile.ZipFile(f) as archive:
        members = archive.infolist()
        check_unpacked(sum(m.file_size for m in members), size, what)
        for m in members:
            name = m.filename.removesuffix(".npy")
            if name in found:
                raise ValueError(f"it has two arrays {name!r}")
            with archive.open(m) as array:
                found[name] = Stored(*_header(array, m.file_size), m.filename)
    return found


def _header(f: IO[bytes], size: int) -> tuple[tuple[int, ...], bool, np.dtype]:
    """(shape, whether it is stored column by column, type) of an array of `size` bytes with its header."""
    version = np.lib.format.read_magic(f)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    with _silent():
        shape, fortran, dtype = read(f)
    if dtype.hasobject:
        raise ValueError("Python objects need allow_pickle")
    declared, held = math.prod(shape) * dtype.itemsize, size - f.tell()
    if min(shape, default=0) < 0 or max(shape, default=0) > _LONGEST:
        raise ValueError("the header says a size that no array has")
    if declared != held:
        raise ValueError(f"the header says {declared} bytes of array, but there are {held}")
    return shape, fortran, dtype


def read_stored(path: Path, array: Stored, what: str, step: int) -> Iterator[np.ndarray]:
    """The array, `step` rows at a time; one that is stored column by column is read whole."""
    if array.member is None:
        for i in range(0, array.shape[0], step):
            # Mapped again for every part: pages of a map that stays open count as this process's memory.
            yield np.array(map_array(path)[i : i + step])
        return
    with _reading(what), zipfile.ZipFile(path) as z, z.open(array.member) as f:
        _header(f, z.getinfo(array.member).file_size)
        if array.fortran:
            data = np.frombuffer(f.read(), array.dtype).reshape(array.shape, order="F")
            yield from (data[i : i + step] for i in range(0, len(data), step))
            return
        row = array.dtype.itemsize * math.prod(array.shape[1:])
        for i in range(0, array.shape[0], step):
            count = min(step, array.shape[0] - i)
            data = f.read(count * row)
            yield np.frombuffer(data, array.dtype).reshape(count, *array.shape[1:])
        f.read(1)  # where the zip file's checksum is compared


@contextlib.contextmanager
def _silent():
    """NumPy warns about headers written by Python 2."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _reading(what: str):
    try:
        yield
    except BROKEN as e:
        if "allow_pickle" in str(e):
            raise DarnError(f"{what} holds Python objects, or is not a NumPy file: save it as numbers") from None
        raise DarnError(f"{what} is not a readable NumPy file; it may be truncated or damaged: {flat(e)}") from None


def array_parts(path: Path, what: str, split: str | None, labels, *, alone: bool) -> RawParts | None:
    """One split of a .npy or .npz, read in parts; None for a file that must be read whole.

    Such are files whose rows must first be divided into splits, and those that are refused anyway.

    Args:
        path: the file.
        what: as the user named it.
        split: which rows, or which array of a .npz.
        labels: the column of labels; "label" for those stored beside the data.
        alone: whether the other splits do not matter.
    """
    try:
        arrays = stored(path, what)
    except DarnError:
        return None
    count = arrays.pop("n", None)
    if count is not None and count.shape:
        return None
    packed = None if count is None else next(read_stored(path, count._replace(shape=(1,)), what, 1)).reshape(())
    if split is not None and split not in SPLITS:
        if split not in arrays:
            return None
        arrays = {WHOLE: arrays[split]}
    roles = {key: role(key) for key in arrays}
    if len(set(roles.values())) < len(roles):
        return None
    named = {s: arrays[key] for key, (s, kind) in roles.items() if kind == "X"}
    own = split in named and (split != "train" or "valid" in named)
    chosen = split if own else next(iter(named), None) if split not in SPLITS and len(named) == 1 else None
    if chosen is None or (len(named) > 1 and not alone) or len({a.shape[1:] for a in named.values()}) > 1:
        return None
    kinds = {kind: arrays[key] for key, (s, kind) in roles.items() if s == chosen}
    X, rows = kinds["X"], kinds["X"].shape[0] if kinds["X"].shape else 0
    if len(X.shape) not in (2, 3) or X.dtype.kind not in "biuf" or not math.prod(X.shape):
        return None
    extras = [a for kind, a in kinds.items() if kind != "X"]
    if any(len(a.shape) not in (1, 2) or a.shape[0] != rows or a.dtype.kind not in "biufU" for a in extras):
        return None
    label = what if chosen == WHOLE else f"{what} ({chosen})"
    step = max(PART // (math.prod(X.shape[1:]) * (X.dtype.itemsize if packed is None else 8)), 1)
    beside = labels == "label" and "labels" in kinds

    def read() -> Iterator[Part]:
        order = list(kinds)
        before = 0
        for found in zip(*(read_stored(path, kinds[k], what, step) for k in order), strict=True):
            held = dict(zip(order, found))
            values, _ = matrix(unpack(held["X"], packed, label), label, before=before)
            context, y = held.get("context"), held.get("labels")
            context = None if context is None else as_context(context, f"the context of {label}")
            y = y[:, 0] if y is not None and y.ndim == 2 and y.shape[1] == 1 else y
            part = Part(values, context, y, before=before)
            if labels is not None and not beside:
                part = take_column(Raw(what, {chosen: part}), labels).parts[chosen]
            yield part
            before += len(values)

    width = next(read()).X.shape[1]
    return RawParts(what, chosen, rows, width, read)


def open_arrays_parts(path: str | Path, every: int) -> tuple[tuple[int, ...], np.dtype, Callable]:
    """Every k-th row of the one array of a .npy or .npz, unchecked, including NaN.

    Returns:
        Its shape, its type, and a function that reads it in parts.
    """
    path, what = Path(path), str(path)
    arrays = stored(path, what)
    if len(arrays) != 1:
        raise DarnError(f"{what} holds {listed(arrays)}: keep a single array")
    (array,) = arrays.values()
    if not array.shape:
        return array.shape, array.dtype, lambda: iter(())
    step = max(PART // max(math.prod(array.shape[1:]) * array.dtype.itemsize, 1) // every, 1) * every
    rows = -(-array.shape[0] // every)
    return (rows, *array.shape[1:]), array.dtype, lambda: (x[::every] for x in read_stored(path, array, what, step))


def flat(e: Exception) -> str:
    return " ".join(str(e).split()).rstrip(".")[:120] or type(e).__name__


def listed(names: Iterable[str]) -> str:
    """The first names in order, shortened."""
    shown = sorted(names)
    more = f" and {len(shown) - 8:,} more" * (len(shown) > 8)
    return ", ".join(name[:40] for name in shown[:8]) + more or "nothing"


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
            raise DarnError(f"{what} holds no array {only!r}: choose one of {listed(arrays)}")
        arrays = {WHOLE: arrays[only]}
    taken: dict[str, dict[str, np.ndarray]] = {}
    for key, a in arrays.items():
        split, kind = role(key)
        if kind in taken.setdefault(split, {}):
            raise DarnError(f"{what} holds the arrays {listed(arrays)}: keep one, or name them train, valid and test")
        taken[split][kind] = a
    named = [s for s in taken if "X" in taken[s]]
    if not named or (WHOLE in named and len(named) > 1):
        raise DarnError(f"{what} holds {listed(arrays)}: name its arrays train, valid and test, or keep a single one")
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
        raise DarnError(f"{what} has splits of different widths ({said} columns): give all the same columns")
    return Raw(what, parts, shape=shapes.pop() if len(shapes) == 1 else None, source=f"arrays of {path.name}")


def unpack(X: np.ndarray, n, what: str) -> np.ndarray:
    """Undoes np.packbits if `n` is given and rows have ceil(n / 8) bytes."""
    if n is None or X.dtype != np.uint8 or X.ndim != 2:
        return X
    if n.shape != () or n.dtype.kind not in "iu" or int(n) < 1:
        raise DarnError(f"{what}: `n` beside the arrays is kept for the number of columns, one whole number: rename it")
    n = int(n)
    if X.shape[1] == -(-n // 8):
        if n % 8 and (X[:, -1] & (0xFF >> (n % 8))).any():
            raise DarnError(f"{what} has bits set beyond its {n} columns: the file is damaged or `n` is wrong")
        return np.unpackbits(X, axis=1, count=n)
    if X.shape[1] != n:
        raise DarnError(f"{what} has rows of {X.shape[1]} bytes, not of {n} columns, packed or plain: change `n`")
    return X
