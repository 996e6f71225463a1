"""The rows that an estimator trains on and scores: equal rows merged, some held out, padded to few sizes."""

import numpy as np

from darn.batching import cut
from darn.data import Rows
from darn.errors import InputError

LEAST = 128  # the least number of rows in a program: fewer are padded, so that small calls share one program


def padded(X: np.ndarray) -> np.ndarray:
    """X padded to at least `LEAST` rows, or to a power of two up to a thousand, by repeating its last row."""
    size = min(1 << max(len(X) - 1, LEAST - 1).bit_length(), max(len(X), 1024))
    return cut(X, 0, len(X), size)


def distinct(X: np.ndarray, weight) -> tuple[np.ndarray, np.ndarray]:
    """Returns (packed bits of each distinct row, its weight): all that training depends on."""
    packed = np.packbits(X, axis=1)
    values, where = np.unique(packed, axis=0, return_inverse=True)
    total = np.bincount(where.ravel(), weights=weight, minlength=len(values)).astype(np.float64)
    if not total.any():
        raise InputError("all sample weights are zero: at least one must be positive")
    return values[total > 0], total[total > 0]


def held_out(weight: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """The part of each row's weight that goes to validation, as if a row of weight 3 were three rows.

    The shuffled rows are laid on a line, each as long as its weight; one unit is taken at every 1/fraction-th position.
    """
    unit = min(1.0, weight.mean())  # for weights that are not counts, a row of mean weight is one row
    order = np.random.RandomState(seed).permutation(len(weight))
    ends = np.floor(np.cumsum(weight[order]) / unit * fraction + 0.5)
    held = np.zeros_like(weight)
    held[order] = np.minimum(np.diff(ends, prepend=0) * unit, weight[order])
    return held


def training_rows(values: np.ndarray, weight: np.ndarray, n: int, batch: int) -> Rows:
    """The rows, padded to whole batches with rows of weight 0, so that similar sizes share a compiled program."""
    values, weight = values[weight > 0], weight[weight > 0]
    N = len(values)
    size = LEAST if N <= LEAST else -(-N // batch) * batch
    weight = np.concatenate([weight, np.zeros(size - N)]).astype(np.float32)
    return Rows(cut(values, 0, N, size), n, weights=weight)
