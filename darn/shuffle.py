"""A random order of very many numbers, computed place by place: no list of them is held or sorted.

A Feistel network over pairs of digits takes pairs to pairs, each to another one; what it takes beyond the last number
goes through it again. The same arithmetic serves NumPy here and JAX in `darn.random`, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

MANY = 1 << 22  # numbers of which no list is made
ROUNDS = 8


def feistel(x: Any, keys: Any, n: int) -> Any:
    """A permutation of the numbers below side * (n / side, rounded up), which are at least n and less than 2^32.

    Args:
        x: uint32 (N,), an array of NumPy or JAX.
        keys: uint32 (ROUNDS,).
        n: at most 2^31.
    """
    side, other = _sides(n)
    high, low = x // side, x % side
    for i in range(0, ROUNDS, 2):
        high = (high + _mixed(low ^ keys[i]) % other) % other
        low = (low + _mixed(high ^ keys[i + 1]) % side) % side
    return high * side + low


def _sides(n: int) -> tuple[np.uint32, np.uint32]:
    side = max(int(np.ceil(np.sqrt(n))), 1)
    return np.uint32(side), np.uint32(-(-n // side))


def _mixed(x: Any) -> Any:
    """Every bit of the result depends on every bit of x (the end of MurmurHash3)."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


@dataclass(frozen=True)
class Shuffle:
    """Consecutive places of a random order of 0 .. n - 1; indexed and sliced like an array of them."""

    n: int
    seed: int
    start: int
    stop: int

    @staticmethod
    def of(n: int, seed: int) -> Shuffle:
        """All places; the same seed gives the same order with every version of NumPy."""
        return Shuffle(n, seed, 0, n)

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, index: Any) -> Any:
        """Slices without a step are places as well; other indices give numbers, uint32."""
        if isinstance(index, slice):
            first, last, step = index.indices(len(self))
            if step == 1:
                return replace(self, start=self.start + first, stop=self.start + max(first, last))
            index = np.arange(first, last, step)
        places = np.asarray(index, np.int64)
        keys = np.random.RandomState(self.seed).randint(0, 1 << 32, ROUNDS, np.uint32)  # its stream is frozen
        x = feistel((places + self.start).astype(np.uint32).reshape(-1), keys, self.n)
        while (beyond := x >= self.n).any():
            x[beyond] = feistel(x[beyond], keys, self.n)
        return x.reshape(places.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[np.arange(len(self))].astype(np.int64 if dtype is None else dtype)
