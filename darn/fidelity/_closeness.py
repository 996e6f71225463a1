"""How close the distributions are: column by column, and pair by pair."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from darn.fidelity._columns import Column, Columns, Grid, grid

CELLS = 20  # of a column by itself
PAIR_CELLS = 6  # of a column in a pair: more cells would measure the size of the sample
PAIRS = 2000  # at most


@dataclass(frozen=True)
class Marginal:
    """The distribution of one column in real and in synthetic rows."""

    column: str
    kind: str  # "number" | "category"
    cells: tuple[str, ...]
    real: tuple[float, ...]  # the fraction of rows in each cell
    synthetic: tuple[float, ...]
    tv: float  # total variation: half the sum of the differences
    chance: float  # that of two random halves of all rows: what is due to the number of rows
    unseen: float  # of the synthetic rows: a category that no real row has, or a number beyond the real ones


@dataclass(frozen=True)
class Association:
    """How two columns depend on each other: Cramér's V, from 0 (not at all) to 1."""

    a: str
    b: str
    real: float
    synthetic: float
    tv: float  # total variation between the pairs of values
    chance: float

    @property
    def gap(self) -> float:
        return self.synthetic - self.real


def total_variation(p: np.ndarray, q: np.ndarray) -> float:
    """Half the sum of the differences of two distributions."""
    return float(np.abs(p - q).sum() / 2)


def marginals(columns: Columns) -> tuple[Marginal, ...]:
    """The distribution of every column, in cells that both tables share."""
    out = []
    split = _halves(columns)
    for column in columns.columns:
        g = grid(column, CELLS)
        real, synthetic = g.share("real"), g.share("synthetic")
        chance = total_variation(*(np.bincount(h, minlength=len(g.labels)) / len(h) for h in split(g)))
        out.append(
            Marginal(
                column.name,
                "number" if column.is_number else "category",
                g.labels,
                tuple(real.tolist()),
                tuple(synthetic.tolist()),
                total_variation(real, synthetic),
                chance,
                _unseen(column),
            )
        )
    return tuple(out)


def _unseen(column: Column) -> float:
    real, synthetic = column.parts["real"], column.parts["synthetic"]
    real = real[~np.isnan(real)]
    if column.is_number:
        outside = (synthetic < real.min()) | (synthetic > real.max()) if len(real) else ~np.isnan(synthetic)
    else:
        outside = ~np.isnan(synthetic) & ~np.isin(synthetic, real)
    return float(outside.mean())


def _halves(columns: Columns):
    """Divides the pooled rows at random into as many as the real and the synthetic ones."""
    n = columns.rows("real")
    order = np.random.RandomState(columns.seed).permutation(n + columns.rows("synthetic"))

    def split(g: Grid) -> tuple[np.ndarray, np.ndarray]:
        pooled = np.concatenate([g.parts["real"], g.parts["synthetic"]])[order]
        return pooled[:n], pooled[n:]

    return split


def associations(columns: Columns) -> tuple[Association, ...]:
    """Every pair of columns (at most `PAIRS` of them, drawn at random), the largest difference first."""
    grids = [grid(column, PAIR_CELLS) for column in columns.columns]
    split = _halves(columns)
    mixed = [split(g) for g in grids]
    pairs = list(combinations(range(len(grids)), 2))
    if len(pairs) > PAIRS:
        pick = np.random.RandomState(columns.seed).choice(len(pairs), PAIRS, replace=False)
        pairs = [pairs[i] for i in np.sort(pick)]
    out = []
    for i, j in pairs:
        shape = len(grids[i].labels), len(grids[j].labels)
        p, q = (_crossed(grids[i].parts[k], grids[j].parts[k], shape) for k in ("real", "synthetic"))
        halves = (_crossed(a, b, shape) for a, b in zip(mixed[i], mixed[j]))
        out.append(
            Association(
                columns.columns[i].name,
                columns.columns[j].name,
                _cramer(p, columns.rows("real")),
                _cramer(q, columns.rows("synthetic")),
                total_variation(p, q),
                total_variation(*halves),
            )
        )
    return tuple(sorted(out, key=lambda a: -abs(a.gap)))


def _crossed(a: np.ndarray, b: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    return np.bincount(a * shape[1] + b, minlength=shape[0] * shape[1]).reshape(shape) / max(len(a), 1)


def _cramer(p: np.ndarray, n: int) -> float:
    """Cramér's V with Bergsma's correction for the number of rows; 0 where a column is constant."""
    p = p[p.sum(axis=1) > 0][:, p.sum(axis=0) > 0]
    r, k = p.shape
    if min(r, k) < 2 or n < 2:
        return 0.0
    expected = np.outer(p.sum(axis=1), p.sum(axis=0))
    phi = ((p - expected) ** 2 / expected).sum()
    phi = max(0.0, phi - (r - 1) * (k - 1) / (n - 1))
    r, k = (m - (m - 1) ** 2 / (n - 1) for m in (r, k))
    return float(min(1.0, (phi / max(min(r, k) - 1, 1e-9)) ** 0.5))
