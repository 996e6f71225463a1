"""Compression without an existing model: train one, and store it in the file (the two-part code of MDL).

The file then holds the model's weights, at the precision that minimises the total size, and the rows coded with it.
Candidates are small, since every weight costs bits. The rows themselves are what is described, so there is no
overfitting: the model that makes the whole file shortest is the best.
"""

import bz2
import lzma
import math
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from darn import codec
from darn.codec import MAX_MODEL, MalformedError, Reader, varint
from darn.config import Architecture, Training
from darn.data import Rows
from darn.errors import DarnError, FormatError
from darn.inference.likelihood import importance
from darn.model import Stack
from darn.model_file import declared_arrays, describe, rebuild
from darn.training import fit
from darn.zoo import build

LEARNED = 20_000  # the most rows to train on, evenly spaced
LEARNED_BITS = 1 << 27  # of these rows together: fewer of them, if they are very wide
SCORED = 500  # rows to compare the grids on
STEPS = 4000  # of training, for each candidate
GRIDS = (1, 2, 3, 4, 5, 6, 8)  # weights as multiples of 2^-k
_INTEGERS = ("<i1", "<i2", "<i4")  # the types that weights are stored as


class TwoPart(NamedTuple):
    """A model trained for given rows, its bytes, and the estimated sizes of all candidates."""

    model: Stack
    inside: bytes
    name: str
    grid: int
    tried: dict[str, int]  # bytes of the whole file, estimated, for each candidate


def candidates(n: int) -> dict[str, Architecture]:
    """The architectures to try, from few weights to many."""
    return {
        "independent columns": Architecture(n_h=(), visible="factorial"),
        "8 hidden units": Architecture(n_h=(8,), n_d=(), visible="factorial"),
        "linear autoregression": Architecture(n_h=(), visible="linear"),
        "16 hidden units under linear autoregression": Architecture(n_h=(16,), n_d=(), visible="linear"),
    }


def sample_of(parts: Iterable[np.ndarray], rows: int, n: int) -> np.ndarray:
    """The rows to train on: evenly spaced, in bounded memory.

    Args:
        parts: consecutive rows of 0 and 1.
        rows: in all parts together.
        n: columns.

    Returns:
        (M, n) uint8.
    """
    most = min(rows, LEARNED, max(LEARNED_BITS // n, 1))
    index = np.unique(np.linspace(0, rows - 1, most).astype(int))
    found, before = [np.zeros((0, n), np.uint8)], 0
    for part in parts:
        here = index[np.searchsorted(index, before) : np.searchsorted(index, before + len(part))]
        found.append(part[here - before])
        before += len(part)
    return np.concatenate(found)


def train_for(
    some: np.ndarray, rows: int, *, groups: Sequence[Any] | None = None, seed: int = 0, progress: bool = False
) -> TwoPart:
    """Finds the model that makes the file of some rows shortest, including the model itself.

    Args:
        some: (M, n) of 0 and 1, the rows to train on.
        rows: in the file.
        groups: of units that spell one value each, if they are those of a table (`darn.data.Schema.groups`).
        seed: of training.
        progress: whether to show a progress bar.

    Returns:
        The model, its bytes, and the sizes estimated for all candidates.
    """
    n = some.shape[1]
    best, tried = None, {}
    for name, arch in candidates(n).items():
        make = partial(build, arch, n, mean=_mean(some, n), groups=groups, key=jax.random.key(seed))
        alone = not arch.n_h and arch.visible == "factorial"
        if not alone and 2 * _weights(make) > rows * n:
            continue  # it could not pay off even at two bits per weight
        # Independent columns are learned by counting, unless units depend on the others of their group.
        model = make() if alone and groups is None else _trained(make(), some, seed, progress)
        for k, (rounded, inside) in ((k, _rounded(model, k)) for k in GRIDS):
            size = len(inside) + _bits(rounded, some, seed) * rows / 8
            tried[name] = min(tried.get(name, round(size)), round(size))
            if best is None or size < best[0]:
                best = size, rounded, inside, name, k
    assert best is not None
    return TwoPart(*best[1:], tried)


def _weights(make: Callable[[], Stack]) -> int:
    """How many weights the model would have, without making it: for wide rows, it might not fit into memory."""
    shapes = jax.tree.leaves(eqx.filter_eval_shape(make))
    return sum(math.prod(w.shape) for w in shapes if hasattr(w, "shape") and np.issubdtype(w.dtype, np.inexact))


def _mean(x: np.ndarray, n: int) -> np.ndarray:
    return (x.sum(axis=0) + 0.5) / (len(x) + 1) if len(x) else np.full(n, 0.5)


def _trained(model: Stack, x: np.ndarray, seed: int, progress: bool) -> Stack:
    batch = min(100, len(x))
    epochs = max(min(STEPS * batch // len(x), 400), 1)
    how = Training(lr=1e-3, schedule="half", batch=batch, epochs=epochs, validate_every=epochs, seed=seed)
    rows = Rows.from_array(x)
    return fit(model, rows, rows.take(slice(None, None, 10)), how, progress=progress).model


def _bits(model: Stack, x: np.ndarray, seed: int) -> float:
    """The estimated bits per row."""
    if not len(x):
        return 0.0
    some = x[np.random.RandomState(seed).permutation(len(x))[:SCORED]]
    return importance(model, some, n_samples=4, repeats=1, seed=seed).bound / np.log(2)


# ---------------------------------------------------------------- a model in few bytes


def _rounded(model: Stack, k: int) -> tuple[Stack, bytes]:
    """Returns (the model with weights that are multiples of 2^-k, its bytes); biases are four times as fine."""
    structure, arrays = describe(model)
    head, body = bytearray(), b""
    for a in arrays.values():
        fine = k + 2 if a.ndim == 1 else k
        whole = np.rint(np.ldexp(a.astype(np.float64), fine))
        kind = next(i for i, t in enumerate(_INTEGERS) if (whole == whole.astype(t)).all())
        head += bytes([kind, fine])
        body += whole.astype(_INTEGERS[kind]).tobytes()
    text = structure.encode()
    body = varint(len(text)) + text + bytes(head) + body
    if len(body) > MAX_MODEL:
        raise DarnError(f"a model inside a compressed file may have at most {MAX_MODEL} bytes, not {len(body)}")
    packed = codec.pack(body)
    return unpack(packed), packed


def unpack(inside: bytes) -> Stack:
    """The model that a compressed file carries.

    Args:
        inside: its bytes, as `TwoPart.inside` has them.

    Returns:
        The model.

    Raises:
        FormatError: for malformed bytes, or more than `MAX_MODEL` of them after decompression.
    """
    try:
        reader = Reader(codec.unpack(inside, MAX_MODEL))
        structure = reader.take(reader.varint()).decode()
        declared = declared_arrays(structure)
        head = reader.take(2 * len(declared))
        arrays = {}
        for (name, (_, shape)), kind, fine in zip(declared.items(), head[::2], head[1::2]):
            dtype = np.dtype(_INTEGERS[kind])
            whole = np.frombuffer(reader.take(math.prod(shape) * dtype.itemsize), dtype).reshape(shape)
            arrays[name] = np.ldexp(whole.astype(np.float64), -fine).astype(np.float32)
        reader.done()
        return rebuild(structure, arrays)
    except (DarnError, MalformedError, IndexError, ValueError) as e:
        raise FormatError(f"the model inside the file cannot be read: {str(e)[:300]}") from e


def general(parts: Iterable[bytes]) -> tuple[str, int]:
    """Returns (name, bytes) of the best general-purpose compressor."""
    streams = {
        "gzip -9": zlib.compressobj(9),
        "bzip2 -9": bz2.BZ2Compressor(9),
        "xz -9e": lzma.LZMACompressor(preset=9 | lzma.PRESET_EXTREME),
    }
    sizes = dict.fromkeys(streams, 0)
    for part in parts:
        for name, stream in streams.items():
            sizes[name] += len(stream.compress(part))
    for name, stream in streams.items():
        sizes[name] += len(stream.flush())
    return min(sizes.items(), key=lambda v: v[1])
