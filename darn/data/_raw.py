"""What a reader returns: matrices of numbers, checked but not yet split or binarised."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from darn.data._check import check_lengths
from darn.errors import DarnError

SPLITS = ("train", "valid", "test")
WHOLE = "all"  # the only part of a source without splits


@dataclass(frozen=True)
class Part:
    X: np.ndarray  # (N, n), finite numbers
    context: np.ndarray | None = None
    labels: np.ndarray | None = None  # as read (numbers or text); `_labels.encode` makes them class numbers
    weights: np.ndarray | None = None  # how much each row counts
    log_density: np.ndarray | None = None  # (N,) of a table's numbers within their cells: log p(row | bits), nats
    before: int = 0  # rows of the file that come before these, if it is read in parts

    def __post_init__(self):
        sides = {"context": self.context, "labels": self.labels, "weights": self.weights}
        check_lengths(len(self.X), **sides, log_density=self.log_density)

    def take(self, index) -> Part:
        pick = lambda a: None if a is None else a[index]  # noqa: E731
        context, labels, weights = pick(self.context), pick(self.labels), pick(self.weights)
        return Part(self.X[index], context, labels, weights, pick(self.log_density))


@dataclass(frozen=True)
class Raw:
    what: str  # as the user named it, to begin a sentence with
    parts: dict[str, Part]
    shape: tuple[int, int] | None = None
    sha256: str | None = None
    columns: tuple[str, ...] | None = None
    source: str = ""
    schema: Any = None  # how a table's columns became units, where they were not bits: a `Schema`

    def label(self, split: str) -> str:
        return self.what if split == WHOLE else f"{self.what} ({split})"


@dataclass(frozen=True)
class RawParts:
    """What a reader returns for a file that is read in parts: one split, checked but not yet binarised."""

    what: str
    split: str
    rows: int
    width: int
    read: Callable[[], Iterator[Part]]  # from the first row on
    columns: tuple[str, ...] | None = None


def divide(raw: Raw, seed: int) -> Raw:
    """The source with three splits: its own, or 80/10/10 of its rows shuffled with the seed.

    If a source has train and test but no valid, a tenth of its train rows becomes valid.
    """
    parts = raw.parts
    if set(parts) == {WHOLE} or set(parts) == {"train"}:
        (part,) = parts.values()
        cut = division(len(part.X), raw.what, seed)
        return replace(raw, parts={s: part.take(i) for s, i in cut.items()})
    if set(parts) == {"train", "test"}:
        order = _shuffle(len(parts["train"].X), raw.what, seed)
        k = len(order) // 10
        train, valid = parts["train"].take(order[:-k]), parts["train"].take(order[-k:])
        return replace(raw, parts={"train": train, "valid": valid, "test": parts["test"]})
    missing = [s for s in SPLITS if s not in parts]
    if missing:
        raise DarnError(f"{raw.what} holds {' and '.join(parts)} but no {' and no '.join(missing)}: add it.")
    return raw


def pick_split(raw: Raw, split: str | None, seed: int) -> tuple[Raw, str]:
    """The source with that split, and the split's name; divided as in `load` if necessary."""
    if split is not None and split in SPLITS:
        own = split in raw.parts and (split != "train" or "valid" in raw.parts)
        return (raw if own else divide(raw, seed)), split
    if len(raw.parts) > 1:
        raise DarnError(f"{raw.what} holds {', '.join(raw.parts)}: choose one with split.")
    return raw, next(iter(raw.parts))


def division(N: int, what: str, seed: int) -> dict[str, np.ndarray]:
    """The rows of each split of N rows: 80/10/10, shuffled with the seed."""
    order = _shuffle(N, what, seed)
    k = N // 10
    return {"train": order[: -2 * k], "valid": order[-2 * k : -k], "test": order[-k:]}


def _shuffle(N: int, what: str, seed: int) -> np.ndarray:
    if N < 10:
        rows = "1 row" if N == 1 else f"{N} rows"
        raise DarnError(f"{what} has {rows}, too few to divide into train, valid and test: at least 10 are needed.")
    # RandomState's stream is frozen: the same seed gives the same split with every NumPy version.
    return np.random.RandomState(seed).permutation(N)
