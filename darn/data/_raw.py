"""What a reader returns: matrices of numbers, checked but not yet split or binarised."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from darn.data._check import check_lengths
from darn.errors import DarnError
from darn.shuffle import MANY, Shuffle

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
    delimiter: str | None = None  # of a text table

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
    """The source with three splits: its own, or those of `shares`."""
    found = shares({name: len(part.X) for name, part in raw.parts.items()}, raw.what, seed)
    parts = {s: raw.parts[name] if i is None else raw.parts[name].take(np.asarray(i)) for s, (name, i) in found.items()}
    return replace(raw, parts=parts)


Places = np.ndarray | Shuffle


def shares(counts: Mapping[str, int], what: str, seed: int) -> dict[str, tuple[str, Places | None]]:
    """For each of three splits: the part that its rows are in, and their places there; None for all of them in order.

    Without splits, 80/10/10 of all rows, shuffled with the seed. If a source has train and test but no valid, a tenth
    of its train rows becomes valid.

    Args:
        counts: the rows of each part of the source.
        what: the source, for messages.
        seed: of the shuffle.
    """
    if set(counts) == {WHOLE} or set(counts) == {"train"}:
        ((name, count),) = counts.items()
        return {s: (name, i) for s, i in division(count, what, seed).items()}
    if set(counts) == {"train", "test"}:
        order = _shuffle(counts["train"], what, seed)
        k = len(order) // 10
        return {"train": ("train", order[:-k]), "valid": ("train", order[-k:]), "test": ("test", None)}
    missing = [s for s in SPLITS if s not in counts]
    if missing:
        raise DarnError(f"{what} holds {' and '.join(counts)} but no {' and no '.join(missing)}: add it")
    return {s: (s, None) for s in counts}


def pick_split(raw: Raw, split: str | None, seed: int) -> tuple[Raw, str]:
    """The source with that split, and the split's name; divided as in `load` if necessary."""
    own = own_split(raw.parts, raw.what, split)
    return (raw, own) if own is not None else (divide(raw, seed), str(split))


def own_split(names: Collection[str], what: str, split: str | None) -> str | None:
    """The part of a source that is asked for, as it is; None if the source must be divided for it."""
    if split is not None and split in SPLITS:
        return split if split in names and (split != "train" or "valid" in names) else None
    if len(names) > 1:
        raise DarnError(f"{what} holds {', '.join(names)}: choose one with split")
    return next(iter(names))


def division(N: int, what: str, seed: int) -> dict[str, Places]:
    """The rows of each split of N rows: 80/10/10, shuffled with the seed."""
    order = _shuffle(N, what, seed)
    k = N // 10
    return {"train": order[: -2 * k], "valid": order[-2 * k : -k], "test": order[-k:]}


def _shuffle(N: int, what: str, seed: int) -> Places:
    if N < 10:
        rows = "1 row" if N == 1 else f"{N} rows"
        raise DarnError(f"{what} has {rows}, too few to divide into train, valid and test: at least 10 are needed")
    if N > MANY:
        return Shuffle.of(N, seed)
    # RandomState's stream is frozen: the same seed gives the same split with every NumPy version.
    return np.random.RandomState(seed).permutation(N)
