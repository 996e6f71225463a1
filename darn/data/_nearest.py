"""Nearest rows, to see whether a sample is a copy."""

import numpy as np

from darn.data._rows import Rows


def nearest(rows: Rows, x: np.ndarray, *, block: int = 256) -> tuple[np.ndarray, np.ndarray]:
    """Finds the nearest row.

    Args:
        rows: where to look.
        x: (M, n) of bits.
        block: rows compared at once.

    Returns:
        (index, distance) for each row of x; the first of several at the same distance. The distance is the number of
        bits that differ, or the sum of |x - y| for intensities.
    """
    best, where = np.full(len(x), np.inf), np.zeros(len(x), np.int64)
    apart = _intensities(x) if rows.grey else _bits(x)
    before = 0
    for part in rows.read():
        for start in range(0, len(part), block):  # a block stays in the cache while it is compared with all of x
            d = apart(part.values[start : start + block])
            i = d.argmin(axis=1)
            found = d[np.arange(len(x)), i]
            where, best = np.where(found < best, before + start + i, where), np.minimum(found, best)
        before += len(part)
    return where, best


def _bits(x: np.ndarray):
    """Compares 64 units by an exclusive or and a bit count, at the speed of memory."""

    def words(packed: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8)))).view(np.uint64)

    asked = words(np.packbits(np.asarray(x).astype(bool), axis=1))

    def apart(values: np.ndarray) -> np.ndarray:
        there = words(np.asarray(values))
        d = np.empty((len(asked), len(there)), np.int64)
        for k, q in enumerate(asked):
            np.bitwise_count(there ^ q[None]).sum(axis=1, dtype=np.int64, out=d[k])
        return d

    return apart


def _intensities(x: np.ndarray):
    """|x - y| = x + y - 2xy for a bit x: one matrix product."""
    x = np.asarray(x, np.float32)

    def apart(values: np.ndarray) -> np.ndarray:
        y = np.asarray(values, np.float32) / 255
        return x.sum(1)[:, None] + y.sum(1)[None] - 2 * (x @ y.T)

    return apart
