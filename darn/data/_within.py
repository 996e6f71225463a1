"""Numbers within their cells, restricted to what a condition allows: probability, mean and draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from darn.data._draws import RowDraws
from darn.data._part import AbstractPart, Intervals, common

if TYPE_CHECKING:
    from darn.data._number import Number

_COMMON, _UNIFORM, _BELOW, _ABOVE = range(4)


class NumberPart(AbstractPart):
    """The allowed numbers of each cell: a mixture of ranges, each with one simple distribution.

    A range is of common numbers, weighted by their frequencies; of steps, all equally probable; or of distances below
    or above all training rows, which are geometric.
    """

    def __init__(self, column: Number, intervals: Intervals, missing: bool):
        self.column = column
        p, self._intervals = column._pieces, intervals
        self._p = p
        ranges = [_ranges(p, lo, hi) for lo, hi in intervals]
        cell, kind, mass, a, b = np.concatenate([np.zeros((5, 0)), *ranges], axis=1)
        keep = np.flatnonzero(mass > 0)
        keep = keep[np.argsort(cell[keep], kind="stable")]
        self._cell, self._kind = cell[keep].astype(int), kind[keep].astype(int)
        self._mass, self._a, self._b = mass[keep], a[keep], b[keep]
        self._total = np.concatenate([[0.0], np.cumsum(self._mass)])
        self._first, self._end = (np.searchsorted(self._cell, np.arange(column.n), side=s) for s in ("left", "right"))
        inside = np.bincount(self._cell, self._mass, minlength=column.n)
        whole = intervals == [(-np.inf, np.inf)]
        self.weights = np.append(np.ones(column.n) if whole else np.minimum(inside, 1), missing)

    def steps(self, values: np.ndarray, rng: RowDraws) -> np.ndarray:
        """An allowed number of each cell, in steps."""
        p, (which, u) = self._p, rng.uniform(2)
        k = weighted(self._total, self._first[values], self._end[values], which)
        k = np.minimum(k, len(self._kind) - 1)  # of a cell that has no allowed number: any other
        kind, a, b = self._kind[k], self._a[k], self._b[k]
        index = np.where(kind == _COMMON, a, 0).astype(int), np.where(kind == _COMMON, b, 0).astype(int)
        known = np.append(p.known, 0)[weighted(p.total, *index, u)]
        with np.errstate(invalid="ignore"):
            even = np.minimum(a + np.floor(u * (b - a + 1)), b)
            scale = np.where(kind == _BELOW, p.scale[0], p.scale[1])
            far = np.minimum(np.floor(a - scale * np.log1p(u * np.expm1(-(b - a + 1) / scale))), b)
        tail = np.where(kind == _BELOW, p.starts[0] - far, p.ends[-1] + far)
        return np.where(kind == _COMMON, known, np.where(kind == _UNIFORM, even, tail))

    def allows(self, words):
        i = self.column.steps(words)
        return np.isnan(i) | np.any([(i >= lo) & (i <= hi) for lo, hi in self._intervals], axis=0)

    def draw(self, values, rng):
        return self.column.texts(self.steps(values, rng))

    def quantile(self, p, level):
        def share(i: float) -> float:
            upto = NumberPart(self.column, common(self._intervals, [(-np.inf, i)]), False).weights[:-1]
            return float(p @ np.divide(upto, self.weights[:-1], out=np.zeros(len(p)), where=p > 0))

        # Beyond 40 times the mean distance of a tail there is nothing.
        low, high = (
            self._p.starts[0] - np.ceil(40 * self._p.scale[0]),
            self._p.ends[-1] + np.ceil(40 * self._p.scale[1]),
        )
        while low < high and low < (middle := np.floor((low + high) / 2)) + 1:
            low, high = (low, middle) if share(middle) >= level else (middle + 1, high)
        return self.column.texts(np.array([low]))[0]

    def means(self):
        p, a, b = self._p, self._a, self._b
        moment = np.concatenate([[0.0], np.cumsum(p.known * p.count)])
        index = np.where(self._kind == _COMMON, a, 0).astype(int), np.where(self._kind == _COMMON, b, 0).astype(int)
        with np.errstate(invalid="ignore", divide="ignore"):
            known = (moment[index[1]] - moment[index[0]]) / (p.total[index[1]] - p.total[index[0]])
            scale = np.where(self._kind == _BELOW, p.scale[0], p.scale[1])
            q, m = np.exp(-1 / scale), b - a + 1
            cut = np.where(np.isinf(m), 0, m * np.exp(-m / scale) / -np.expm1(-m / scale))
            far = a + q / -np.expm1(-1 / scale) - np.nan_to_num(cut)
        tail = np.where(self._kind == _BELOW, p.starts[0] - far, p.ends[-1] + far)
        each = np.where(self._kind == _COMMON, known, np.where(self._kind == _UNIFORM, (a + b) / 2, tail))
        total = np.bincount(self._cell, self._mass, minlength=self.column.n)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.bincount(self._cell, self._mass * each, minlength=self.column.n) / total
        return (self.column.offset + self.column.step * mean) / 10.0**self.column.decimals


def _ranges(p, lo: float, hi: float) -> np.ndarray:
    """(cell, kind, probability in the cell, first, last) of the ranges of numbers from lo to hi, as columns."""
    n = len(p.starts)
    within = p.share * (1 - p.outside)

    def even(first, last, mass):
        a, b = np.maximum(first, lo), np.minimum(last, hi)
        size = np.maximum(last - first + 1, 1)
        return np.full(n, _UNIFORM), mass * np.maximum(b - a + 1, 0) / size, a, b

    a = np.clip(np.searchsorted(p.known, lo, side="left"), p.first, p.end)
    b = np.clip(np.searchsorted(p.known, hi, side="right"), p.first, p.end)
    parts: list[tuple] = [(np.full(n, _COMMON), within * (p.total[b] - p.total[a]) * p.per_row, a, b)]
    parts.append(even(p.starts, p.ends, within * p.rare))
    parts.append(even(p.ends + 1, p.ends + p.gap, p.share * p.in_gap))
    for side, (near, end) in enumerate(((p.starts[0] - hi, p.starts[0] - lo), (lo - p.ends[-1], hi - p.ends[-1]))):
        near, scale = max(near, 1.0), p.scale[side]
        mass = np.exp(-(near - 1) / scale) * -np.expm1(-(end - near + 1) / scale) if end >= near else 0.0
        parts.append((np.full(n, (_BELOW, _ABOVE)[side]), p.share * p.tails[:, side] * mass, near, end))
    columns = [np.stack([p.owner, *(np.broadcast_to(v, n) for v in part)]).astype(np.float64) for part in parts]
    return np.concatenate(columns, axis=1)


def weighted(total: np.ndarray, first: np.ndarray, end: np.ndarray, u: np.ndarray) -> np.ndarray:
    """An entry from `first` to before `end`, chosen by u according to weights whose cumulative sums are `total`."""
    goal = total[first] + u * (total[end] - total[first])
    return np.clip(np.searchsorted(total, goal, side="right") - 1, first, np.maximum(end - 1, first))
