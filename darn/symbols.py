"""Symbols with frequencies in whole numbers, and what writes or reads them.

Whoever reads a compressed file must find the very frequencies that it was written with, so no float is among them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Protocol

import numpy as np

TOTAL = 28  # the frequencies of a table add up to 2^28


class Tables:
    """Some distributions over a few symbols each, as frequencies that add up to 2^28.

    Args:
        weights: of each distribution, not negative; proportional to the probabilities, up to rounding.
    """

    def __init__(self, weights: Iterable[Sequence[int | Fraction]]):
        start, frequency, first, sure = [], [], [0], []
        for table in weights:
            total = sum(table) or 1
            # At least 1, where a symbol is possible at all.
            whole = [max(int(w * (1 << TOTAL - 1) / Fraction(total)), 1) if w else 0 for w in table]
            cuts = [c * (1 << TOTAL) // max(sum(whole), 1) for c in itertools.accumulate(whole, initial=0)]
            start += cuts[:-1]
            here = [b - a for a, b in itertools.pairwise(cuts)]
            sure.append(next((i for i, f in enumerate(here) if f == 1 << TOTAL), -1))
            frequency += here
            first.append(len(start))
        self.start, self.frequency = np.array(start, np.uint64), np.array(frequency, np.uint64)
        self.first = np.array(first, np.int64)
        self.sure = np.array(sure, np.int64)  # the only possible symbol of a distribution, or -1

    def __len__(self) -> int:
        return len(self.sure)


class Coder(Protocol):
    """Writes symbols, or reads those that were written: the same calls in the same order do both.

    Every method takes the symbols if it writes them and None if it reads them, and returns them.
    """

    def choose(self, tables: Tables, which: np.ndarray, symbols: np.ndarray | None) -> np.ndarray:
        """Symbols of the distributions with these numbers."""
        ...

    def below(self, n: np.ndarray, symbols: np.ndarray | None) -> np.ndarray:
        """Whole numbers from 0 to before n, all as likely."""
        ...

    def count(self, number: int | None, most: int) -> int:
        """A whole number that is not large."""
        ...

    def texts(self, texts: list[str] | None, count: int) -> Sequence[str]:
        """This many texts."""
        ...
