"""The density of a column of numbers with few rows: a sum of kernels, narrower where there are more rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

POINTS = 256  # at which kernels stand, at most
HALVINGS = 14  # of the usual width, the widths to choose from
PATIENCE = 3  # halvings without gain


def smoothed(at: np.ndarray, rows: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """The smooth distribution function of numbers: 0 below the first of them, 1 above the last.

    Their kernels are logistic, with widths in proportion to the square root of 1 / density (Abramson 1982), cut off
    beyond the first and the last number. Of several factors, the one is taken by which the rows, each left out in turn,
    are the most likely.

    Args:
        at: the numbers, rising.
        rows: how many rows have each.
    """
    low, high = at[0] - 0.5, at[-1] + 0.5
    every = np.repeat(at.astype(np.float64), rows)
    some = every[:: -(-len(every) // POINTS)]  # enough of them to choose a factor by
    best, factor, since = -np.inf, 1.0, 0
    for tried in 0.5 ** np.arange(HALVINGS):
        each = _steps(some, some, _widths(some, tried, low, high), low, high)
        gain = float(np.log(np.maximum(each.sum(axis=1) - np.diag(each), 1e-12)).sum())
        since += 1
        if gain > best:
            best, factor, since = gain, tried, 0
        if since == PATIENCE:
            break
    points = np.array([part.mean() for part in np.array_split(every, min(POINTS, len(every)))])
    width = _widths(points, factor, low, high, rows=len(every))
    return lambda x: _below(x, points, width, low, high).mean(axis=1)


def _widths(at: np.ndarray, factor: float, low: float, high: float, *, rows: int | None = None) -> np.ndarray:
    """The widths of kernels at equally many rows each."""
    usual = np.full(len(at), max(factor * at.std() * (rows or len(at)) ** -0.2, 0.5))
    pilot = _steps(at, at, usual, low, high).sum(axis=1)
    return np.maximum(usual * np.exp(np.log(pilot).mean() / 2) / np.sqrt(pilot), 0.5)


def _below(x: np.ndarray, at: np.ndarray, width: np.ndarray, low: float, high: float) -> np.ndarray:
    """(len(x), len(at)): the part of each kernel that is below x."""
    scale = width * (3**0.5 / np.pi)  # of a logistic distribution with this standard deviation
    of = lambda x: 0.5 * (1 + np.tanh((x - at) / (2 * scale)))  # noqa: E731
    first, last = of(low), of(high)
    return (of(np.asarray(x, np.float64)[:, None]) - first) / (last - first)


def _steps(x: np.ndarray, at: np.ndarray, width: np.ndarray, low: float, high: float) -> np.ndarray:
    """(len(x), len(at)): the part of each kernel that is within half a step of x."""
    return _below(x + 0.5, at, width, low, high) - _below(x - 0.5, at, width, low, high)
