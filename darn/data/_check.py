"""Checks of values: each error says in one sentence what is wrong, where it first occurs, and what to do."""

from __future__ import annotations

import numpy as np

from darn.errors import DarnError

CHOICES = "threshold, static, dynamic or intensity"


def matrix(X, what: str, columns=None, before: int = 0) -> tuple[np.ndarray, tuple[int, int] | None]:
    """An (N, n) array of finite real numbers, and the image shape if each row was an image.

    `before` rows of the file come before these.
    """
    if hasattr(X, "toarray"):  # a scipy sparse matrix
        X = X.toarray()
    try:
        X = np.asarray(X)
    except ValueError:
        raise DarnError(f"{what} has rows of different lengths: every row needs the same columns") from None
    kinds = {
        "O": "Python objects",
        "c": "complex numbers",
        "U": "text",
        "S": "text",
        "M": "dates",
        "m": "times",
    }
    if X.dtype.kind not in "biuf":
        held = kinds.get(X.dtype.kind, f"values of type {X.dtype}")
        raise DarnError(f"{what} holds {held}: only numbers can be read, preferably 0 and 1")
    if X.ndim not in (2, 3):
        hint = "; a single row is X.reshape(1, -1)" if X.ndim == 1 else ""
        raise DarnError(
            f"{what} is {X.ndim}-D with shape {X.shape}: give rows x columns, or images as (N, height, width){hint}"
        )
    if len(X) == 0:
        raise DarnError(f"{what} has no rows (shape {X.shape}): give at least one")
    if X.size == 0:
        raise DarnError(f"{what} has no columns (shape {X.shape}): give at least one")
    shape = X.shape[1:] if X.ndim == 3 else None
    X = X.reshape(len(X), -1)
    if X.dtype.kind == "f" and not np.isfinite(X).all():
        r, c = first(~np.isfinite(X))
        where = place(before + r, c, columns)
        raise DarnError(f"{what} has the value {X[r, c]} at {where}: fill in or drop missing and infinite values")
    return X, shape


def first(bad: np.ndarray) -> tuple[int, int]:
    """Row and column of the first True, row by row."""
    r, c = divmod(int(bad.argmax()), bad.shape[1])
    return r, c


def place(r: int, c: int, columns=None) -> str:
    name = f" '{columns[c]}'" if columns else ""
    return f"row {r + 1}, column {c + 1}{name} (counted from 1)"


def not_bit(X: np.ndarray) -> np.ndarray:
    return (X != 0) & (X != 1)


def check_bits(X: np.ndarray, what: str, columns=None, before: int = 0) -> None:
    """Refuses a matrix that is not all 0 and 1, with the likely reason; `before` as for `matrix`."""
    bad = not_bit(X)
    if not bad.any():
        return
    r, c = first(bad)
    said = f"{what} has the value {number(X[r, c])} at {place(before + r, c, columns)}"
    check_stray_column(X, bad, said)
    as_table = ", or give categorical = 'auto' if this is a table of numbers" if columns else ""
    if scale(X.min(), X.max(), is_whole(X)) is not None:
        grey = "0 to 255" if X.max() > 1 else "0 to 1"
        raise DarnError(
            f"{said}, not 0 or 1; the values look like grey levels ({grey}): choose how to make them "
            f"binary (binarize = {CHOICES}){as_table}"
        )
    raise DarnError(
        f"{said}, not 0 or 1: recode the data as 0 and 1, or scale it to 0..1 and choose how to make it binary "
        f"(binarize = {CHOICES}){as_table}"
    )


def check_stray_column(X: np.ndarray, bad: np.ndarray, said: str) -> None:
    """Refuses one column of integers among columns of bits: a label or a row number left in the table.

    Also checked if `binarize` is given: scaling by the label's largest value would silently turn all other columns to
    zeros.
    """
    stray = np.flatnonzero(bad.any(axis=0))
    if len(stray) != 1 or X.shape[1] < 2:
        return
    v = X[:, stray[0]].astype(float)  # differences of bytes would wrap around
    if (v != np.floor(v)).any():
        return
    if len(v) > 2 and (np.diff(v) == 1).all():
        raise DarnError(f"{said}, and that column counts the rows while all others are 0/1: remove it")
    if v.min() >= -1 and v.max() < 1000:
        raise DarnError(
            f"{said} while all other columns are 0/1, so it looks like a class label: take it out with "
            f"labels = {stray[0]} (columns count from 0, -1 is the last) or remove it"
        )


def scale(low, high, whole: bool) -> int | None:
    """The value of full intensity, 1 or 255, of values in a range; None if they fit neither."""
    if low < 0 or high > 255:
        return None
    if high <= 1:
        return 1
    return 255 if whole else None


def is_whole(X: np.ndarray) -> bool:
    return X.dtype.kind != "f" or bool((np.floor(X) == X).all())


def number(v) -> str:
    return f"{v:g}" if isinstance(v, np.floating) else str(v)


def check_lengths(rows: int, **extras) -> None:
    """Checks that context and labels, if given, have one entry per row."""
    for name, extra in extras.items():
        if extra is not None and (found := len(np.atleast_1d(extra))) != rows:
            raise DarnError(f"the {name} has {found} rows but the data have {rows}: give one for each row")


def check_width(width: int, n: int | None, what: str, labels=None) -> None:
    if n is not None and width != n:
        beside = "" if labels is None else f" beside its label (column {labels})"
        raise DarnError(f"{what} has {width} columns{beside}, but {n} are needed: give rows of {n} columns{beside}")
