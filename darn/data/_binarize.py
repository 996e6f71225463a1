"""From checked values to Rows: the four ways of binarising intensities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from darn.data import _check
from darn.data._raw import Part
from darn.data._rows import Rows, pack
from darn.errors import DarnError

MODES = ("threshold", "static", "dynamic", "intensity")


def check_options(binarize, threshold, seed) -> None:
    if binarize is not None and binarize not in MODES:
        raise DarnError(f"binarize = {binarize!r} is not known: choose {_check.CHOICES}")
    if isinstance(threshold, bool) or not isinstance(threshold, int | float | np.number) or not 0 < threshold <= 1:
        raise DarnError(f"threshold = {threshold!r} must be a number above 0 and at most 1")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise DarnError(f"seed = {seed!r} must be a whole number from 0 to 2^32 - 1")


def full_scale(
    parts: Mapping[str, Iterable[Part]], what: str, columns, binarize: str | None, threshold: float
) -> int | None:
    """None if all values are bits; otherwise the value of full intensity, 1 or 255, the same in all splits.

    Runs before any shuffling, so that error messages name the row of the user's file.

    Args:
        parts: each split, by the name to begin a sentence with, in parts of consecutive rows.
        what: the file.
        columns: their names, if they have names.
        binarize: how grey levels become bits.
        threshold: of that.
    """
    ranges = {label: _range(given, label, columns, binarize) for label, given in parts.items()}
    if all(r.bits for r in ranges.values()):
        return None
    scales = {label: _check.scale(*r[1:]) for label, r in ranges.items()}
    for label, full in scales.items():
        if full is None:
            raise DarnError(
                f"{label} has values from {_check.number(ranges[label].low)} to "
                f"{_check.number(ranges[label].high)}: to be made binary they must be whole numbers 0 to 255, "
                "or fractions 0 to 1"
            )
    full = 255 if 255 in scales.values() else 1
    if full == 255 and any(not ranges[w].bits for w in ranges if scales[w] == 1):
        raise DarnError(f"{what} has fractions in one split and whole numbers above 1 in another: use one scale")
    top = max(float(r.high) for r in ranges.values()) / full
    if binarize == "threshold" and top < threshold:
        raise DarnError(
            f"{what}: no value reaches the threshold {threshold:g} of full scale {full} (the largest is "
            f"{top * full:g}): scale the values to 0..1 or lower the threshold"
        )
    return full


class _Range(NamedTuple):
    bits: bool  # whether all values are 0 or 1
    low: Any
    high: Any
    whole: bool  # whether all are whole numbers


def _range(parts: Iterable[Part], what: str, columns, binarize: str | None) -> _Range:
    """The range of the values of one split; refuses values that need a choice, and a column that is no intensity."""
    found = None
    for part in parts:
        X, bad = part.X, _check.not_bit(part.X)
        bits = not bad.any()
        if not bits and binarize is None:
            _check.check_bits(X, what, columns, part.before)
        elif not bits and (found is None or found.bits):
            r, c = _check.first(bad)
            where = _check.place(part.before + r, c, columns)
            _check.check_stray_column(X, bad, f"{what} has the value {_check.number(X[r, c])} at {where}")
        here = _Range(bits, X.min(), X.max(), bits or _check.is_whole(X))
        found = here if found is None else _Range(*_merged(found, here))
    assert found is not None
    return found


def _merged(a: _Range, b: _Range) -> tuple:
    return a.bits and b.bits, min(a.low, b.low), max(a.high, b.high), a.whole and b.whole


def to_rows(part: Part, split: str, full: int | None, binarize: str | None, threshold: float, rng) -> Rows:
    """A split, or a part of it, as Rows. `full` is from `full_scale`; bits are unchanged in every mode.

    `rng` is the split's, from `draws`; it goes on from part to part.
    """
    X, n = part.X, part.X.shape[1]
    grey = full is not None and (binarize == "intensity" or (binarize == "dynamic" and split == "train"))
    if full is None:
        values = pack(X)
    elif grey:
        # one byte per value: fractions are rounded to the nearest of 256 levels
        values = X.astype(np.uint8) if full == 255 else np.rint(X * 255.0).astype(np.uint8)
    elif binarize == "threshold":
        values = pack(X / float(full) >= threshold)
    else:
        values = draw(X, full, rng)
    return Rows(values, n, grey, part.context, part.labels, part.weights, part.log_density)


def draws(split: str, seed: int) -> np.random.RandomState:
    """The random numbers of a split, which can so be read without the others.

    RandomState's stream is frozen, so the same seed gives the same test set with every NumPy version.
    """
    return np.random.RandomState([seed, {"train": 0, "valid": 1}.get(split, 2)])


def draw(X: np.ndarray, full: int, rng: np.random.RandomState) -> np.ndarray:
    """Packed bits, each 1 with its intensity as probability: 0 and full scale never change.

    In pieces, to hold few floats at a time.
    """
    step = max(1, 2**22 // X.shape[1])
    pieces = (X[i : i + step] / float(full) for i in range(0, len(X), step))
    return np.concatenate([pack(rng.random_sample(p.shape) < p) for p in pieces])
