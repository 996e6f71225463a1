"""The 8x8 digits of scikit-learn: a small set that needs no download."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

from darn.data._raw import Part, Raw

ROWS = (1297, 200, 300)
ABOUT = "8x8 handwritten digits of scikit-learn (UCI Optdigits), divided 1297/200/300 by RandomState(0)"


def _package(name: str) -> Path:
    """The folder of an installed package, without importing it."""
    found = importlib.util.find_spec(name)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def read_digits() -> Raw:
    """Grey levels 0..16 as fractions of 16; a threshold of 0.5 is a value of at least 8."""
    # The file itself: importing scikit-learn takes as long as scoring the rows.
    table = np.loadtxt(_package("sklearn") / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    X, y = table[:, :-1], table[:, -1].astype(int)
    order = np.random.RandomState(0).permutation(len(X))
    cuts = np.split(order, np.cumsum(ROWS)[:-1])
    parts = {s: Part(X[i] / 16.0, labels=y[i]) for s, i in zip(("train", "valid", "test"), cuts)}
    return Raw("digits", parts, shape=(8, 8), source=ABOUT)
