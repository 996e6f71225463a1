"""Gradient boosting on synthetic rows: whether it tells them from real ones, and learns as much from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from darn.errors import DarnError
from darn.fidelity._columns import Columns

# Gradient boosting uses one thread: on a busy machine threads that wait for each other at every leaf take ten times as
# long, and sums in one order are the same everywhere.
FOLDS = 5
CLASSES = 50  # a column with more categories than this is not a target
LEVELS = 255  # categories that gradient boosting takes; the rarest share one
FEW = 20  # a target with at most this many different numbers is a class


@dataclass(frozen=True)
class Utility:
    """A target column predicted from the others, for real test rows."""

    target: str
    score: str  # "accuracy", or "R²" for a target of many numbers
    real: float  # learned from real rows
    synthetic: float  # learned from as many synthetic rows
    baseline: float  # the most frequent class, or the mean
    train_rows: int
    test_rows: int
    held_out: bool  # whether the test rows are the held-out ones, or a fifth of the real ones


def two_sample_auc(columns: Columns) -> float:
    """The probability that a classifier ranks a synthetic row above a real one: 0.5 cannot tell, 1 always can.

    The mean over five folds. Rows are divided by a hash of their contents, so that a real row and its copy fall into
    the same fold: a generator that repeats real rows gets 0.5, not less.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score
    from threadpoolctl import threadpool_limits

    X = np.concatenate([features(columns, part) for part in ("real", "synthetic")])
    y = np.repeat([0, 1], [columns.rows("real"), columns.rows("synthetic")])
    fold = _folds(np.concatenate([columns.hashes["real"], columns.hashes["synthetic"]]))
    found = []
    for k in range(FOLDS):
        train, test = fold != k, fold == k
        if len(np.unique(y[train])) < 2 or len(np.unique(y[test])) < 2:
            continue
        model = HistGradientBoostingClassifier(**_options(columns, range(X.shape[1])))
        with threadpool_limits(1):
            guess = model.fit(X[train], y[train]).predict_proba(X[test])[:, 1]
        found.append(roc_auc_score(y[test], guess))
    return float(np.mean(found)) if found else float("nan")


def utility(columns: Columns, target: str) -> Utility:
    """Trains on synthetic rows, tests on real ones; beside it, trains on real rows.

    Args:
        columns: with "held_out" rows to test on; without, every fifth real row is tested.
        target: the column to predict, a category or a number.

    Returns:
        Accuracy for a category, R² for a number.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    j = columns.index(target)
    column = columns.columns[j]
    if len(columns.columns) < 2:
        raise DarnError(f"{target!r} is the only column: there is nothing to predict it from")
    every = [k for k in range(len(columns.columns)) if k != j]
    data = {part: (features(columns, part)[:, every], column.parts[part]) for part in column.parts}
    data = {part: (X[~np.isnan(y)], y[~np.isnan(y)]) for part, (X, y) in data.items()}
    apart = _folds(columns.hashes["real"][~np.isnan(column.parts["real"])]) == 0
    X, y = data["real"]
    held_out = "held_out" in data
    train, test = ((X, y), data["held_out"]) if held_out else ((X[~apart], y[~apart]), (X[apart], y[apart]))
    n = min(len(train[1]), len(data["synthetic"][1]))
    if not n or not len(test[1]):
        raise DarnError(f"the target {target!r} is missing in nearly all rows: choose another column")
    numeric = column.is_number and len(np.unique(train[1])) > FEW
    if not numeric and len(np.unique(train[1])) > CLASSES:
        raise DarnError(f"the target {target!r} has more than {CLASSES} classes: choose another column")
    kind = HistGradientBoostingRegressor if numeric else HistGradientBoostingClassifier

    def learned(X: np.ndarray, y: np.ndarray) -> float:
        X, y = X[:n], y[:n]
        if len(np.unique(y)) < 2:  # a constant target: nothing to learn
            return _score(test[1], np.full(len(test[1]), y[0]), numeric)
        with threadpool_limits(1):
            return _score(test[1], kind(**_options(columns, every)).fit(X, y).predict(test[0]), numeric)

    usual = np.mean(train[1]) if numeric else _most_frequent(train[1])
    baseline = _score(test[1], np.full(len(test[1]), usual), numeric)
    said = "R²" if numeric else "accuracy"
    return Utility(target, said, learned(*train), learned(*data["synthetic"]), baseline, n, len(test[1]), held_out)


def features(columns: Columns, part: str) -> np.ndarray:
    """(N, columns): numbers, and categories by number as far as gradient boosting takes them; NaN where missing."""
    found = [c.parts[part] if c.is_number else np.minimum(c.parts[part], LEVELS - 1) for c in columns.columns]
    return np.stack(found, axis=1)


def _options(columns: Columns, used) -> dict:
    """Early stopping would make the result depend on a division of the rows that is not ours."""
    mask = [not columns.columns[k].is_number for k in used]
    return {"categorical_features": mask, "early_stopping": False, "random_state": columns.seed}


def _folds(hashes: np.ndarray) -> np.ndarray:
    return ((hashes >> np.uint64(7)) % np.uint64(FOLDS)).astype(int)


def _most_frequent(y: np.ndarray) -> float:
    value, count = np.unique(y, return_counts=True)
    return value[count.argmax()]


def _score(y: np.ndarray, guess: np.ndarray, numeric: bool) -> float:
    if not numeric:
        return float(np.mean(y == guess))
    spread = float(((y - y.mean()) ** 2).sum())
    return 1 - float(((y - guess) ** 2).sum()) / spread if spread else 0.0
