"""The place of a number within its cell, coded under the column's density in whole-number arithmetic.

`Number.log_density` is a float, which may differ in its last bit between machines; a codec cannot use it. Here the same
probabilities are ratios of whole numbers, so that whoever reads a compressed file finds the numbers that were written.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from darn.symbols import Coder, Tables

FARTHEST = 2**52  # steps from 0: floats hold the distance of any two such numbers exactly


# q >= 0 as the number of bits of q + 1 less one, by its own table, and the bits after the first, evenly.
_GAMMA = Tables([[Fraction(1, 2 ** (b + 1)) for b in range(54)]])
_UNKNOWN, _GAP, _BELOW, _ABOVE, _COMMON = range(5)


class Places:
    """The distribution of i within each cell of a column of numbers; see `darn.data._number`."""

    def __init__(self, column: Any):  # a `Number`
        starts, ends, counts = column.starts, column.ends, column.counts
        self.cells = np.array(column.cells, np.int64)
        self.starts, self.ends = np.array(starts, np.int64), np.array(ends, np.int64)
        after = [*starts[1:], ends[-1] + 1]
        self.gap = np.array(after, np.int64) - self.ends - 1
        cuts = [*column.cells, len(starts)]
        self.pieces = Tables(counts[a:b] for a, b in itertools.pairwise(cuts))
        common = [(i, rows) for i, rows in column.common if self._inside(i)]
        self.known = np.array([i for i, _ in common], np.int64)
        owner = self.find(self.known)
        self.first = np.searchsorted(owner, np.arange(len(starts) + 1))
        self.rare = self.ends - self.starts + 1 - np.diff(self.first)  # numbers of a piece that are not common
        tails = [[Fraction(0), Fraction(0)] for _ in starts]
        tails[0][0], tails[-1][1] = (Fraction(p) for p, _ in column.tails)
        parts = zip(counts, (after[k] - ends[k] - 1 for k in range(len(starts))), tails, strict=True)
        self.parts = Tables(
            self._weights(k, rows, gap, tail, [rows for _, rows in common[self.first[k] : self.first[k + 1]]])
            for k, (rows, gap, tail) in enumerate(parts)
        )
        # Distances beyond the ends: multiples of the distance at which the density is halved, and what is left over.
        self.half = np.array([min(max(round(scale * 0.6931471805599453), 1), FARTHEST) for _, scale in column.tails])

    def _inside(self, i: int) -> bool:
        k = int(np.searchsorted(self.starts, i, side="right")) - 1
        return k >= 0 and i <= self.ends[k]

    def _weights(self, k: int, rows: int, gap: int, tail: Sequence[Fraction], common: list[int]) -> list[Fraction]:
        """Of what a number of this piece may be: none of the common ones, in the gap, beyond an end, or common."""
        span, rare = int(self.ends[k] - self.starts[k]) + 1, int(self.rare[k])
        half_rows = max(2 * (rows - sum(common)), 1) if rare else 0
        in_gap = Fraction(1, 2 * (rows + 1)) if gap else Fraction(0)
        inside = (1 - in_gap - sum(tail)) / (span * (2 * sum(common) + half_rows))
        each = [(2 * span * c + half_rows) * inside for c in common]
        return [half_rows * rare * inside, in_gap, *tail, *each]

    def find(self, i: np.ndarray) -> np.ndarray:
        """The piece of each number."""
        return np.maximum(np.searchsorted(self.starts, i, side="right") - 1, 0)

    def code(self, coder: Coder, cells: np.ndarray, i: np.ndarray | None = None) -> np.ndarray:
        """Writes or reads the numbers of these cells.

        Args:
            coder: writes them, or has written them.
            cells: of the numbers.
            i: the numbers, in their cells and at most `FARTHEST`; None to read them.
        """
        base = self.cells[cells]
        piece = base + coder.choose(self.pieces, cells, None if i is None else self.find(i) - base)
        kind = coder.choose(self.parts, piece, None if i is None else self._kind(piece, i))
        # The numbers that are not common, counted without these: common number t would be known[t] - t.
        offset = np.where(kind == _UNKNOWN, self.starts[piece] - self.first[piece], self.ends[piece] + 1)
        n = np.where(kind == _UNKNOWN, self.rare[piece], np.where(kind == _GAP, self.gap[piece], 1))
        rank = None
        if i is not None:
            rank = np.where(kind == _UNKNOWN, i - np.searchsorted(self.known, i), i) - offset
            rank = np.where(n > 1, rank, 0)
        found = offset + coder.below(n, rank)
        found += np.where(kind == _UNKNOWN, np.searchsorted(self._keys(), found, side="right"), 0)
        common = kind >= _COMMON
        found[common] = self.known[self.first[piece[common]] + kind[common] - _COMMON]
        for side, kind_of, end, sign in ((0, _BELOW, self.starts[0], -1), (1, _ABOVE, self.ends[-1], 1)):
            here = kind == kind_of
            far = self._distance(coder, self.half[side], here.sum(), None if i is None else sign * (i[here] - end))
            found[here] = end + sign * far
        return found

    def _keys(self) -> np.ndarray:
        return self.known - np.arange(len(self.known))

    def _kind(self, piece: np.ndarray, i: np.ndarray) -> np.ndarray:
        at = np.searchsorted(self.known, i)
        common = np.append(self.known, FARTHEST + 1)[at] == i
        beyond = np.where(self.gap[piece] > 0, _GAP, _ABOVE)
        rest = np.where(i < self.starts[piece], _BELOW, np.where(i > self.ends[piece], beyond, _UNKNOWN))
        return np.where(common, _COMMON + at - self.first[piece], rest)

    def _distance(self, coder: Coder, half: int, count: int, distance: np.ndarray | None) -> np.ndarray:
        """Distances of at least 1."""
        q = None if distance is None else (distance - 1) // half + 1
        bits = None if q is None else np.frexp(q.astype(np.float64))[1].astype(np.int64) - 1
        bits = coder.choose(_GAMMA, np.zeros(count, np.int64), bits)
        top = np.int64(1) << bits
        whole = top + coder.below(top, None if q is None else q - top)
        left = coder.below(np.full(count, half, np.int64), None if distance is None else (distance - 1) % half)
        return (whole - 1) * half + left + 1
