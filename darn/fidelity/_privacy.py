"""What synthetic rows give away about the rows they were learned from. None of this is differential privacy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from darn.fidelity._closeness import CELLS
from darn.fidelity._columns import Columns, grid

QUERIES = 2000  # rows whose nearest neighbour is looked for, at most
GUESSED = 500  # rows whose cells are guessed, at most
WORK = 600_000_000  # comparisons of cells in one search, at most
LEAST = 50  # rows looked up in any case
BLOCK = 20_000_000  # of them in memory at a time


@dataclass(frozen=True)
class Distances:
    """From rows to the nearest real row: the mean over columns of 0 for equal cells to 1, numbers by their rank."""

    median: float
    least_5: float  # 5% of the rows are nearer than this
    copies: float  # the fraction at distance 0


@dataclass(frozen=True)
class Privacy:
    """What an attacker could learn. Figures that need held-out rows are None without them."""

    synthetic: Distances
    other: Distances  # of held-out rows; without them, of each real row to the nearest other one
    held_out: bool
    closer: float  # P(a synthetic row is nearer to the real rows than an `other` one), ties half: 0.5, or 1 for copies
    membership_auc: float | None  # telling real rows from held-out ones by their distance to the synthetic rows
    disclosed: float  # cells of real rows guessed from the nearest synthetic row, all other cells being known
    disclosed_held_out: float | None  # likewise for held-out rows, which the generator has not seen
    disclosed_column: str | None  # the column with the largest difference between the two
    disclosed_gap: float | None  # that difference


def privacy(columns: Columns) -> Privacy:
    """Distances to the nearest row, membership inference and attribute disclosure."""
    scaled = {part: _scaled(columns, part) for part in columns.hashes}
    real, synthetic, held = scaled["real"], scaled["synthetic"], scaled.get("held_out")
    near = nearest(_some(synthetic, real), real)
    other = nearest(_some(real, real), real, own=True) if held is None else nearest(_some(held, real), real)
    found = _distances(near), _distances(other), held is not None, _smaller(near, other)
    right = _guessed(columns, scaled, "real")
    if held is None:
        return Privacy(*found, None, float(right.mean()), None, None, None)
    members, strangers = (nearest(_some(rows, synthetic), synthetic) for rows in (real, held))
    unseen = _guessed(columns, scaled, "held_out")
    j = int((right - unseen).argmax())
    return Privacy(
        *found,
        membership_auc=_smaller(members, strangers),
        disclosed=float(right.mean()),
        disclosed_held_out=float(unseen.mean()),
        disclosed_column=columns.columns[j].name,
        disclosed_gap=float((right - unseen)[j]),
    )


def _scaled(columns: Columns, part: str) -> np.ndarray:
    """(columns, N) such that min(|a - b|, 1) is the distance of two cells.

    Numbers are ranks among the real ones, from 0 to 1, equal only for equal numbers or where no real one lies between;
    categories are whole numbers. A missing value is 1 away from all others.
    """
    out = []
    for c in columns.columns:
        v = c.parts[part]
        if c.is_number:
            real = np.sort(c.parts["real"][~np.isnan(c.parts["real"])])
            rank = (np.searchsorted(real, v) + np.searchsorted(real, v, side="right")) / (2 * max(len(real), 1))
            out.append(np.where(np.isnan(v), 2.0, rank))
        else:
            out.append(np.where(np.isnan(v), -1.0, v))
    return np.stack(out).astype(np.float32)


def _some(rows: np.ndarray, base: np.ndarray, most: int = QUERIES) -> np.ndarray:
    return rows[:, : min(most, max(WORK // base.size, LEAST))]


def _blocks(query: np.ndarray, base: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """(number of the first row, the distances (columns, rows, base rows) of every cell), some rows at a time."""
    step = max(1, BLOCK // base.size)
    for start in range(0, query.shape[1], step):
        apart = np.abs(query[:, start : start + step, None] - base[:, None, :])
        yield start, np.minimum(apart, 1, out=apart)


def nearest(query: np.ndarray, base: np.ndarray, *, own: bool = False) -> np.ndarray:
    """The distance of each row to the nearest of `base`; with `own`, of the first rows of `base` to others."""
    out = np.empty(query.shape[1])
    for start, apart in _blocks(query, base):
        total = apart.mean(axis=0)
        if own:
            total[np.arange(len(total)), start + np.arange(len(total))] = np.inf
        out[start : start + len(total)] = total.min(axis=1)
    return out


def _guessed(columns: Columns, scaled, part: str) -> np.ndarray:
    """For each column, the fraction of rows whose cell is that of the synthetic row nearest by all other columns."""
    base = scaled["synthetic"]
    grids = [grid(c, CELLS) for c in columns.columns]
    query = _some(scaled[part], base, GUESSED)
    right = np.zeros(len(grids))
    for start, apart in _blocks(query, base):
        total = apart.sum(axis=0)
        for j, g in enumerate(grids):
            guess = g.parts["synthetic"][(total - apart[j]).argmin(axis=1)]
            right[j] += (guess == g.parts[part][start : start + len(guess)]).sum()
    return right / query.shape[1]


def _distances(d: np.ndarray) -> Distances:
    return Distances(float(np.median(d)), float(np.quantile(d, 0.05)), float(np.mean(d < 1e-9)))


def _smaller(a: np.ndarray, b: np.ndarray) -> float:
    """P(a value of `a` is smaller than one of `b`), ties half."""
    b = np.sort(b)
    below, upto = np.searchsorted(b, a), np.searchsorted(b, a, side="right")
    return float(1 - (below + upto).mean() / (2 * len(b)))
