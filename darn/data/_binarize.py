"""From checked values to Rows: the four ways of binarising intensities."""

from __future__ import annotations

import numpy as np

from darn.data import _check
from darn.data._raw import Part, Raw
from darn.data._rows import Rows, pack
from darn.errors import DarnError

MODES = ("threshold", "static", "dynamic", "intensity")


def check_options(binarize, threshold, seed) -> None:
    if binarize is not None and binarize not in MODES:
        raise DarnError(f"binarize = {binarize!r} is not known: choose {_check.CHOICES}.")
    if isinstance(threshold, bool) or not isinstance(threshold, int | float | np.number) or not 0 < threshold <= 1:
        raise DarnError(f"threshold = {threshold!r} must be a number above 0 and at most 1.")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise DarnError(f"seed = {seed!r} must be a whole number from 0 to 2^32 - 1.")


def full_scale(raw: Raw, binarize: str | None, threshold: float) -> int | None:
    """None if all values are bits; otherwise the value of full intensity, 1 or 255, the same in all splits.

    Runs before any shuffling, so that error messages name the row of the user's file.
    """
    parts = {raw.label(split): part.X for split, part in raw.parts.items()}
    bad = {what: _check.not_bit(X) for what, X in parts.items()}
    if not any(b.any() for b in bad.values()):
        return None
    for what, X in parts.items():
        if binarize is None:
            _check.check_bits(X, what, raw.columns)
        elif bad[what].any():
            r, c = _check.first(bad[what])
            said = f"{what} has the value {_check.number(X[r, c])} at {_check.place(r, c, raw.columns)}"
            _check.check_stray_column(X, bad[what], said)
    scales = {what: _check.scale(X) for what, X in parts.items()}
    for what, full in scales.items():
        if full is None:
            raise DarnError(
                f"{what} has values from {_check.number(parts[what].min())} to "
                f"{_check.number(parts[what].max())}: to be made binary they must be whole numbers 0 to 255, "
                "or fractions 0 to 1."
            )
    full = 255 if 255 in scales.values() else 1
    if full == 255 and any(bad[w].any() for w in parts if scales[w] == 1):
        raise DarnError(f"{raw.what} has fractions in one split and whole numbers above 1 in another: use one scale.")
    top = max(float(X.max()) for X in parts.values()) / full
    if binarize == "threshold" and top < threshold:
        raise DarnError(
            f"{raw.what}: no value reaches the threshold {threshold:g} of full scale {full} (the largest is "
            f"{top * full:g}): scale the values to 0..1 or lower the threshold."
        )
    return full


def to_rows(part: Part, split: str, full: int | None, binarize: str | None, threshold: float, seed: int) -> Rows:
    """One split as Rows. `full` is from `full_scale`; bits are unchanged in every mode."""
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
        values = draw(X, full, split, seed)
    return Rows(values, n, grey, part.context, part.labels, part.weights, part.log_density)


def draw(X: np.ndarray, full: int, split: str, seed: int) -> np.ndarray:
    """Packed bits, each 1 with its intensity as probability: 0 and full scale never change.

    RandomState's stream is frozen, so the same seed gives the same test set with every NumPy version. Each split has
    its own stream, so that it can be read without the others. In pieces, to hold few floats at a time.
    """
    rng = np.random.RandomState([seed, {"train": 0, "valid": 1}.get(split, 2)])
    step = max(1, 2**22 // X.shape[1])
    pieces = (X[i : i + step] / float(full) for i in range(0, len(X), step))
    return np.concatenate([pack(rng.random_sample(p.shape) < p) for p in pieces])
