"""Columns of numbers: a density over all numbers, mixed where some numbers are frequent.

The numbers of a column are multiples of a step, such as 1 or 0.01. They are divided into pieces, within which their
density hardly varies; a number that is frequent enough has one to itself. A piece is cut into cells of equal width, all
cells with about as many training rows as any other. The model chooses the cell, which is spelled in binary and may
follow from other numbers (`darn.layers.Numbers`). Inside a cell, numbers that occur often have their own frequencies,
and all others the same; beyond the lowest and the highest number the density falls off exponentially.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from darn.data._column import GRID, AbstractColumn
from darn.data._draws import RowDraws
from darn.data._part import allowed_steps, exact_number
from darn.data._place import FARTHEST, Places
from darn.data._within import NumberPart
from darn.data._within import weighted as _weighted

LARGEST = 1e300  # numbers are below
DIGITS = 15  # that a float represents exactly
MOST_DIGITS = 400  # after the point, or zeros before it: the smallest float has 324


@dataclass(frozen=True)
class Number(AbstractColumn):
    """A whole or decimal number.

    Numbers are counted in steps: number = (offset + step i) / 10^decimals. `log_density` is log p(i | cell) less the
    log of the step's length, so a density of the number; for whole numbers at steps of 1 it is a probability. A number
    between two steps counts as the nearest.
    """

    decimals: int
    offset: int
    step: int
    digits: tuple[int, int]  # the fewest and the most digits after the point, in texts
    cells: tuple[int, ...]  # the first piece of each cell
    starts: tuple[int, ...]  # the lowest i of each piece in training rows; a piece extends to the next one's
    ends: tuple[int, ...]  # the highest i of each piece in training rows
    counts: tuple[int, ...]  # training rows in each piece
    common: tuple[tuple[int, int], ...]  # (i, training rows), in the order of i
    tails: tuple[tuple[float, float], tuple[float, float]]  # below and above: (probability in its piece, mean distance)

    kind: ClassVar[str] = "number"
    exact: ClassVar[bool] = False

    @property
    def n(self):
        return len(self.cells)

    @property
    def scale(self):
        if self.one_hot or self.n < 2:
            return None
        below = np.cumsum([0.0, *self.counts])[[*self.cells, len(self.counts)]]
        u = (below + 0.5) / (below[-1] + 1)
        return tuple(np.rint((np.log(u) - np.log1p(-u)) * (1 << GRID)).astype(int).tolist())

    @property
    def length(self) -> float:
        """Of a step."""
        return self.step / 10.0**self.decimals

    def find(self, words):
        i = self.steps(words)
        return np.where(np.isnan(i), -1, self._pieces.owner[self._pieces.find(np.nan_to_num(i))])

    def steps(self, words: np.ndarray) -> np.ndarray:
        """i of each number; NaN of other texts."""
        scale = 10.0**self.decimals
        if abs(self.offset) < 10**DIGITS:
            step = lambda w: (float(w) * scale - self.offset) / self.step  # noqa: E731
        else:  # a float does not have all digits of such numbers
            step = lambda w: float(round(self.place(w) or 0))  # noqa: E731
        once = {w: step(w) if is_number(w) else np.nan for w in set(words.tolist())}
        return np.clip(np.rint(np.array([once[w] for w in words.tolist()])), -1e300, 1e300)

    def nearest(self, word):
        """Of an infinite number, or one that is too large: the last one."""
        try:
            far = float(word)
        except ValueError:
            return None
        end = self.ends[-1] if far > 0 else self.starts[0]
        return None if "_" in word or far != far else self.texts(np.array([end]))[0]

    def is_sound(self):
        n, places = len(self.starts), [i for i, _ in self.common]
        limits = [v for pair in zip(self.starts, self.ends) for v in pair]
        return (
            0 < n == len(self.ends) == len(self.counts)
            and self.cells[:1] == (0,)
            and _rises((*self.cells, n))
            and all(a <= b for a, b in zip(self.starts, self.ends))
            and _rises((self.starts[0] - 1, *self.starts))
            and all(a <= b for a, b in itertools.pairwise(limits))
            and _rises(places)
            and min(self.counts) > 0
            and all(rows > 0 for _, rows in self.common)
            and max(-self.starts[0], self.ends[-1]) <= FARTHEST
            and self.step > 0
            and 0 <= self.digits[0] <= self.digits[1] <= MOST_DIGITS
            and abs(self.decimals) <= MOST_DIGITS
            and all(0 < p <= 0.5 and 0 < scale < 1e300 for p, scale in self.tails)
        )

    # ---------------------------------------------------------------- inside a cell

    @cached_property
    def _pieces(self) -> _Pieces:
        return _Pieces(self)

    def log_density(self, words, values):
        return self._pieces.log_p(self.steps(words)) - np.log(self.length)

    def draw(self, values, rng):
        return self.texts(self._pieces.draw(values, rng))

    def part(self, tests):
        return NumberPart(self, allowed_steps(self.place, tests), all(t.keeps_missing for t in tests))

    def place(self, word: str) -> Fraction | None:
        """i of a number exactly, perhaps between two steps; None of other texts."""
        exact = exact_number(word)
        return None if exact is None else (exact * Fraction(10) ** self.decimals - self.offset) / self.step

    def places_of(self, words, values):
        i, own = self.steps(words), self.places.starts[self.places.cells[values]]
        fits = np.abs(np.nan_to_num(i, nan=np.inf)) <= FARTHEST
        i = np.where(fits, np.nan_to_num(i), own).astype(np.int64)
        return np.where(self._pieces.owner[self.places.find(i)] == values, i, own)

    def code(self, coder, values, place=None):
        return self.places.code(coder, values, place)

    @cached_property
    def places(self) -> Places:
        return Places(self)

    def written(self, values, place):
        return self.texts(place)

    def texts(self, i: np.ndarray) -> list[str]:
        """The numbers as texts, with as many digits as in the table; in whole numbers, so the same everywhere."""
        decimals, fewest = max(self.decimals, 0), self.digits[0]
        scale, larger = 10**decimals, 10 ** max(-self.decimals, 0)
        out = []
        for v in i.tolist():
            k = (self.offset + self.step * int(v)) * larger
            whole, part = divmod(abs(k), scale)
            digits = str(part).rjust(decimals, "0").rstrip("0").ljust(fewest, "0") if decimals or fewest else ""
            sign = "-" if k < 0 else ""
            out.append(f"{sign}{whole}.{digits}" if digits else f"{sign}{whole}")
        return out

    def value_names(self):
        last = [*(c - 1 for c in self.cells[1:]), -1]
        steps = [self.starts[c] for c in self.cells], [self.ends[c] for c in last]
        lo, hi = (self.texts(np.array(v)) for v in steps)
        return [a if a == b else f"{a}..{b}" for a, b in zip(lo, hi)]

    def describe(self):
        lo, hi = self.texts(np.array([self.starts[0], self.ends[-1]]))
        what = "whole number" if self.decimals <= 0 else "real number"
        alone = sum(".." not in name for name in self.value_names())
        cells = f"{self.n} cell{'s' * (self.n != 1)}" + (f", {alone} of them of a single number" if alone else "")
        steps = f" in steps of {self.length:g}" if self.length != 1 else ""
        return f"{what} from {lo} to {hi}{steps}, in {cells}"


class _Pieces:
    """The distribution of i within each cell, as arrays over the pieces.

    A piece is a mixture of three parts: common numbers by their frequencies; the uniform distribution from its lowest
    to its highest number; and what is outside of these, up to the next piece uniformly, or beyond the ends of the
    column.
    """

    def __init__(self, column: Number):
        self.starts, self.ends = (np.array(v, np.float64) for v in (column.starts, column.ends))
        rows = np.array(column.counts, np.float64)
        n = len(rows)
        self.owner = np.searchsorted(column.cells, np.arange(n), side="right") - 1
        self.cells = np.append(column.cells, n)
        self.rows = np.concatenate([[0.0], np.cumsum(rows)])
        self.share = rows / np.add.reduceat(rows, column.cells)[self.owner]
        self.known, self.count = np.array(column.common, np.float64).reshape(-1, 2).T
        piece = np.searchsorted(self.starts, self.known, side="right") - 1
        self.first, self.end = (np.searchsorted(piece, np.arange(n), side=side) for side in ("left", "right"))
        self.total = np.concatenate([[0.0], np.cumsum(self.count)])
        held = self.total[self.end] - self.total[self.first]
        self.span = self.ends - self.starts + 1
        # A number that no training row has counts as half a row.
        rest = np.where(self.span > self.end - self.first, np.maximum(rows - held, 0.5), 0.0)
        self.per_row = 1 / (held + rest)
        self.rare = rest * self.per_row
        self.gap = np.append(self.starts[1:] - self.ends[:-1] - 1, 0)
        self.in_gap = np.where(self.gap > 0, 0.5 / (rows + 1), 0)
        self.tails = np.zeros((n, 2))
        (self.tails[0, 0], low), (self.tails[-1, 1], high) = column.tails
        self.scale = np.array([low, high])
        self.outside = self.in_gap + self.tails.sum(axis=1)

    def find(self, i: np.ndarray) -> np.ndarray:
        """The piece of each number."""
        return np.maximum(np.searchsorted(self.starts, i, side="right") - 1, 0)

    def log_p(self, i: np.ndarray) -> np.ndarray:
        """log p(i | its cell)."""
        k = self.find(i)
        at = np.searchsorted(self.known, i)
        here = np.append(self.known, np.nan)[at] == i
        p = np.where(here, np.append(self.count, 0)[at] * self.per_row[k], 0) + self.rare[k] / self.span[k]
        with np.errstate(divide="ignore"):
            inside = np.log1p(-self.outside[k]) + np.log(p)
            gap = np.log(self.in_gap[k] / np.maximum(self.gap[k], 1))
            below, above = np.log(self.tails[k]).T
        below = below + _log_geometric(self.starts[k] - i, self.scale[0])
        above = above + _log_geometric(i - self.ends[k], self.scale[1])
        beyond = np.where(self.gap[k] > 0, gap, above)
        found = np.where(i < self.starts[k], below, np.where(i > self.ends[k], beyond, inside))
        return np.log(self.share[k]) + found

    def draw(self, cell: np.ndarray, rng: RowDraws) -> np.ndarray:
        """A number of each cell."""
        place, which, u = rng.uniform(3)
        k = _weighted(self.rows, self.cells[cell], self.cells[cell + 1], place)
        below, above = self.tails[k].T
        outside = self.outside[k]
        common = (which - outside) / (1 - outside) >= self.rare[k]
        known = np.append(self.known, 0)[_weighted(self.total, self.first[k], self.end[k], u)]
        inside = np.where(common, known, self.starts[k] + np.floor(u * self.span[k]))
        far = lambda scale: np.floor(1 - scale * np.log1p(-u))  # noqa: E731
        i = np.where(which < below, self.starts[k] - far(self.scale[0]), self.ends[k] + far(self.scale[1]))
        i = np.where(which < below + above, i, self.ends[k] + 1 + np.floor(u * self.gap[k]))
        return np.where(which < outside, i, inside)


def _log_geometric(distance: np.ndarray, scale: float) -> np.ndarray:
    """log p of a whole distance of at least 1, exponential with this scale and rounded up."""
    return np.log(-np.expm1(-1 / scale)) - (distance - 1) / scale


def _rises(values: Sequence[int]) -> bool:
    """Whether each value is above the one before it."""
    return all(a < b for a, b in itertools.pairwise(values))


def is_number(word: str) -> bool:
    """Whether a text is a finite number that can be modelled."""
    return _size(word) < LARGEST


def is_too_large(word: str) -> bool:
    """Whether a text is a number that is infinite, or too large to be modelled."""
    return _size(word) >= LARGEST


def _size(word: str) -> float:
    """The absolute value of a number, which `Decimal` can hold, too; NaN of other texts."""
    try:
        value = np.nan if "_" in word else abs(float(word))
        return value if value != 0 or Decimal(word).is_finite() else np.nan
    except (ValueError, ArithmeticError):
        return np.nan
