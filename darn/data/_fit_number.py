"""Estimates the density of a column of numbers from the training rows."""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction

import numpy as np

from darn.data._column import fitting_code
from darn.data._number import DIGITS, Number
from darn.data._place import FARTHEST
from darn.data._smooth import smoothed

GAIN = 4.0  # nats that the training rows of a piece must gain by its division
COMMON = 5  # a number has its own frequency within its piece if it occurs this often, and
SIGMAS = 4  # so many standard deviations more often than if the piece were uniform
MOST_COMMON = 2000  # such numbers of a column: the most frequent ones
FINEST = 308  # decimals of a step: 10^308 is a float
NEVER = 1e-9  # the probability of a number below 0, or above, where all training rows are on the other side
FEW_ROWS = 2000  # with fewer, cells divide a smoothed density
_WIDE = Context(prec=2000)  # no number is rounded


def lattice(words: list[str]) -> tuple[int, tuple[int, int]]:
    """(decimals that the numbers need, fewest and most digits after the point as written).

    All digits are kept if there are at most `DIGITS`, or if the numbers are close to each other and far from 0.
    """
    exact = [Decimal(w) for w in words]
    need = max(-v.normalize(_WIDE).as_tuple().exponent for v in exact)  # type: ignore[operator]
    low, high = min(exact), max(exact)
    largest = max(-low, high)
    room = min(DIGITS - 1 - (largest.adjusted() if largest else 0), FINEST)
    decimals = max(need, 0)
    nearest = 0 if low <= 0 <= high else min(abs(low), abs(high)).adjusted() + decimals
    scaled = lambda v: v.scaleb(decimals, _WIDE)  # noqa: E731
    if nearest >= DIGITS and scaled(_WIDE.subtract(high, low)) < FARTHEST and scaled(largest) < 2**63:
        room = decimals
    decimals = min(max(need, 0), room)
    fewest = min(min(max(-v.as_tuple().exponent, 0) for v in exact), max(room, 0))  # type: ignore[operator]
    return decimals, (fewest, max(fewest, decimals))


def fit_number(
    name: str, why: str, words: np.ndarray, optional: bool, cells: int, *, fine: int = 0, form=None
) -> Number:
    """The column of these numbers.

    Args:
        name: of the column.
        why: it is taken for numbers.
        words: of the training rows, without missing values.
        optional: whether there are missing values.
        cells: about how many, within which the density varies by pieces.
        fine: about how many, where a cell is to be a slice of a piece; 0 for cells of whole pieces.
        form: (decimals, digits) as `lattice` gives them, if other rows have other digits.
    """
    distinct, times = np.unique(words.astype(str), return_counts=True)
    decimals, digits = form or lattice(distinct.tolist())
    k, base = np.array([float(w) for w in distinct.tolist()]) * 10.0**decimals, 0
    if np.abs(k).min() >= 10**DIGITS:
        exact = [round(Fraction(Decimal(w)) * Fraction(10) ** decimals) for w in distinct.tolist()]
        base = min(exact)
        k = np.array([v - base for v in exact])
    k, where = np.unique(np.rint(k).astype(np.int64), return_inverse=True)
    rows = np.bincount(where.ravel(), weights=times).astype(np.int64)
    step = int(np.gcd.reduce(k - k[0])) or 1
    offset = base or int(k[0]) % step
    i = (k - (0 if base else offset)) // step
    begun = _cell_starts(rows, cells)
    total = np.concatenate([[0], np.cumsum(rows)])
    parts = [_divided(i, total, a, b) for a, b in zip(begun, np.append(begun[1:], len(i)), strict=True)]
    first = np.array([a for part in parts for a in part])
    last = np.append(first[1:], len(i)) - 1
    counts = np.add.reduceat(rows, first)
    usual = (counts / (i[last] - i[first] + 1))[np.searchsorted(first, np.arange(len(i)), side="right") - 1]
    often = np.flatnonzero((rows >= COMMON) & (rows > usual + SIGMAS * np.sqrt(usual)))
    often = np.sort(often[np.argsort(-rows[often], kind="stable")[:MOST_COMMON]])
    starts, ends, own = i[first], i[last], np.searchsorted(first, begun)
    if fine:
        others = ~np.isin(i, np.union1d(starts[starts == ends], i[often]))
        if rows.sum() < FEW_ROWS and others.sum() > 1:
            starts, ends, counts = _divided_smoothly(i, rows, others, fine)
        else:
            starts, ends, counts = _sliced(starts, ends, counts, fine)
        own = np.arange(len(starts))
    mean = np.average(i, weights=rows)
    # In normal data the next record is about half a standard deviation away after 100 rows, a quarter after 10,000.
    spread = float(np.sqrt(np.average((i - mean) ** 2, weights=rows))) / np.log10(max(rows.sum(), 10))
    low, high = i[0] + offset / step, i[-1] + offset / step
    tails = (_tail(low, counts[0], max(spread, 1.0)), _tail(-high, counts[-1], max(spread, 1.0)))
    return Number(
        name,
        why,
        optional,
        not fine and fitting_code(len(own), optional),
        decimals,
        offset,
        step,
        digits,
        tuple(own.tolist()),
        tuple(starts.tolist()),
        tuple(ends.tolist()),
        tuple(counts.tolist()),
        tuple(zip(i[often].tolist(), rows[often].tolist())),
        tails,
    )


def _tail(distance: float, rows: int, spread: float) -> tuple[float, float]:
    """(probability in its piece, mean distance) of numbers beyond the last one, which is so many steps from 0.

    The next of n rows is beyond all others with probability 1 / (n + 1). Where no training row has crossed 0, hardly
    any sample does.
    """
    if distance < 0:
        return 1 / (rows + 1), spread
    return (1 / (rows + 1), min(spread, distance / 20)) if distance else (NEVER, spread)


def _cell_starts(rows: np.ndarray, cells: int) -> np.ndarray:
    """The first number of each cell, by its place among the distinct ones, in order; `rows` are their frequencies."""
    if len(rows) <= cells:
        return np.arange(len(rows))
    alone = rows >= rows.sum() / cells
    share = rows[~alone].sum() / max(cells - alone.sum(), 1)
    starts, filled = [], np.inf
    for j, (count, own) in enumerate(zip(rows.tolist(), alone.tolist())):
        if own or filled + count / 2 > share:
            starts.append(j)
            filled = 0
        filled = np.inf if own else filled + count
    return np.array(starts)


def _sliced(starts: np.ndarray, ends: np.ndarray, counts: np.ndarray, fine: int):
    """Pieces cut into slices of equal width, about `fine` in all: (starts, ends, rows), each of its share of the rows.

    The density is that of the piece, which enough rows have; how often a slice has a number is left to the model.
    """
    spans = ends - starts + 1
    slices = np.clip(np.rint(fine * counts / counts.sum()), 1, spans).astype(np.int64)
    piece = np.repeat(np.arange(len(starts)), slices)
    k = np.arange(len(piece)) - np.repeat(np.cumsum(slices) - slices, slices)
    cut = lambda whole, k: k * whole[piece] // slices[piece]  # noqa: E731
    first = starts[piece] + cut(spans, k)
    last = starts[piece] + cut(spans, k + 1) - 1
    return first, last, np.maximum(cut(counts, k + 1) - cut(counts, k), 1)


def _divided_smoothly(i: np.ndarray, rows: np.ndarray, others: np.ndarray, fine: int):
    """As `_sliced`, of a density that is smooth but for some numbers, which get a cell each.

    Args:
        i: the numbers, in order.
        rows: how many rows have each.
        others: (N,) which of them have a smooth density.
        fine: about how many cells.
    """
    below = smoothed(i[others], rows[others])
    per_cell = rows.sum() / fine
    found = []
    for run in np.split(np.arange(len(i)), np.flatnonzero(np.diff(others) | ~others[1:]) + 1):
        total = int(rows[run].sum())
        lo, hi = int(i[run[0]]), int(i[run[-1]]) + 1
        cells = int(np.clip(round(total / per_cell), 1, hi - lo)) if others[run[0]] else 1
        grid = np.unique(np.concatenate([np.linspace(lo, hi, 512).astype(np.int64), i[run], i[run] + 1]))
        mass = below(grid - 0.5)
        cut = np.rint(np.interp(np.linspace(mass[0], mass[-1], cells + 1)[1:-1], mass, grid)).astype(np.int64)
        edges = np.unique(np.clip([lo, *cut, hi], lo, hi))
        share = np.interp(edges, grid, mass)
        share = np.rint(total * (share - share[0]) / max(share[-1] - share[0], 1e-300)).astype(np.int64)
        share[-1] = total
        found.append((edges[:-1], edges[1:] - 1, np.maximum(np.diff(share), 1)))
    return tuple(np.concatenate(parts) for parts in zip(*found))


def _divided(i: np.ndarray, total: np.ndarray, a: int, b: int) -> list[int]:
    """The first numbers of the pieces of a cell from distinct number a to before b; `total` counts the rows before."""
    rows, middle = total[b] - total[a], int(np.searchsorted(total, (total[a] + total[b]) / 2))
    middle = min(max(middle, a + 1), b - 1)
    if a < middle < b:
        width = float(i[b - 1] - i[a] + 1)
        left, lower = (total[middle] - total[a]) / rows, float(i[middle] - i[a]) / width
        gain = rows * (left * np.log(left / lower) + (1 - left) * np.log((1 - left) / (1 - lower)))
        if gain > GAIN and min(left, 1 - left) * rows >= COMMON:
            return _divided(i, total, a, middle) + _divided(i, total, middle, b)
    return [a]
