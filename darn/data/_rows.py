"""Rows of bits or intensities in memory, and a data set in its three splits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from darn.data._check import check_bits, check_lengths, matrix
from darn.data._schema import Schema
from darn.errors import DarnError


@dataclass(frozen=True)
class Moves:
    """How a training step changes images: some of them are shifted, turned and stretched at random.

    Intensities are interpolated. Bits are copied from the nearest pixel, which moves them by whole pixels.
    """

    shape: tuple[int, int]  # of an image
    share: float  # of the rows that are moved
    shift: float  # at most, in pixels
    turn: float  # at most, in degrees
    stretch: float  # at most, as a fraction
    threshold: float | None = None  # the intensity from which a unit of a grey row is on; None: rows stay as they are


@dataclass(frozen=True)
class Rows:
    """The rows of one split: bits packed eight to a byte, or intensities of one byte each."""

    values: np.ndarray  # bits: uint8 (N, ceil(n/8)), np.packbits(axis=1) order; grey: uint8 (N, n), 0..255
    n: int
    grey: bool = False  # values are intensities, for `intensity` and for the train split of `dynamic`
    context: np.ndarray | None = None  # float32 (N, n_context), observed: one-hot class label or covariates
    labels: np.ndarray | None = None  # int (N,), the class by number, if known; not used for training
    weights: np.ndarray | None = None  # float32 (N,), row weights for training; None: all equal
    log_density: np.ndarray | None = None  # (N,) of a table's numbers: log p(row | bits), nats; None: 0
    moves: Moves | None = None  # what every training step does to the rows
    in_parts: ClassVar[bool] = False  # whether they are read as they are needed

    def __post_init__(self):
        width = self.n if self.grey else -(-self.n // 8)
        if self.values.ndim != 2 or self.values.shape[1] != width:
            raise DarnError(
                f"rows of {self.n} columns take {width} bytes each, but the values have shape "
                f"{self.values.shape}: see Rows"
            )
        sides = {"context": self.context, "labels": self.labels, "weights": self.weights}
        check_lengths(len(self.values), **sides, log_density=self.log_density)

    def __len__(self) -> int:
        return len(self.values)

    def read(self) -> Iterator[Rows]:
        """All rows in pieces: here in one."""
        return iter([self])

    def unpack(self) -> np.ndarray:
        """Bits as uint8 0/1 (N, n); intensities as float32 (N, n) in [0, 1]."""
        if self.grey:
            return self.values.astype(np.float32) / np.float32(255)
        return np.unpackbits(self.values, axis=1, count=self.n)

    @property
    def identity(self) -> list[Any]:
        """All that a model trains with, for a comparison."""
        return [self.n, self.grey, self.values, self.context, self.weights]

    def mean(self) -> np.ndarray:
        """The weighted mean of each column, in bounded memory."""
        return mean_of(self, self.weights)

    def take(self, index) -> Rows:
        """Selects rows by a slice, an array of row numbers or a mask, with their context, labels and weights.

        Args:
            index: the slice, numbers or mask.

        Returns:
            The selected rows.
        """
        if isinstance(index, int | np.integer):
            index = np.array([index])
        pick = lambda a: None if a is None else a[index]  # noqa: E731
        sides = (self.context, self.labels, self.weights, self.log_density)
        return Rows(self.values[index], self.n, self.grey, *map(pick, sides), moves=self.moves)

    def subsample(self, n: int) -> Rows:
        """A random subset of the rows, always the same one, in their original order.

        Args:
            n: how many rows; all of them if there are not more.

        Returns:
            The subset.
        """
        if n >= len(self):
            return self
        return self.take(np.sort(np.random.default_rng(0).choice(len(self), n, replace=False)))

    @staticmethod
    def from_array(X, *, context=None) -> Rows:
        """Packs an array of 0 and 1.

        Args:
            X: (N, n) or images (N, height, width), of any numeric or bool type, also sparse.
            context: (N, n_context), observed covariates.

        Returns:
            The rows.

        Raises:
            DarnError: if X holds anything but 0 and 1.
        """
        X, _ = matrix(X, "the data")
        check_bits(X, "the data")
        return Rows(pack(X), X.shape[1], context=None if context is None else as_context(context, "the context"))


@dataclass(frozen=True)
class Splits:
    """A data set in its three splits, and its provenance.

    A split of a large packed set is a `darn.data.PackedRows`, which reads rows as they are needed.
    """

    name: str
    train: Rows
    valid: Rows
    test: Rows
    binarize: str | None  # None (was binary) | "threshold" | "static" | "dynamic" | "intensity"
    shape: tuple[int, int] | None = None  # image rows x columns, if a row is an image
    sha256: str | None = None  # of the file read
    columns: tuple[str, ...] | None = None
    source: str = ""
    schema: Schema | None = None  # how a table's columns became units, if they were not bits
    delimiter: str | None = None  # of a text table
    classes: tuple[str, ...] | None = None  # what the numbers in Rows.labels (and the one-hot context) stand for


def joined(parts: Sequence[Rows]) -> Rows:
    """Consecutive rows as one."""
    if len(parts) == 1:
        return parts[0]
    arrays = {
        k: [getattr(part, k) for part in parts] for k in ("values", "context", "labels", "weights", "log_density")
    }
    return replace(parts[0], **{k: None if v[0] is None else np.concatenate(v) for k, v in arrays.items()})


def in_steps(rows: Any, step: int) -> Iterator[Rows]:
    """Rows in pieces of `step`, the last one shorter."""
    return (rows.take(slice(start, start + step)) for start in range(0, len(rows), step))


def mean_of(rows: Any, weights: np.ndarray | None, pieces: Iterator[Rows] | None = None) -> np.ndarray:
    """The weighted mean of each column, in bounded memory; without weights, the rows may come in any pieces."""
    total, start = np.zeros(rows.n), 0
    for part in pieces or in_steps(rows, max((1 << 25) // rows.n, 1)):
        if weights is not None:
            total += np.asarray(weights[start : start + len(part)], np.float64) @ part.unpack()
        else:
            total += part.unpack().sum(axis=0, dtype=np.float64) if rows.grey else _ones(part.values)[: rows.n]
        start += len(part)
    whole = len(rows) if weights is None else np.asarray(weights, np.float64).sum()
    return total / max(whole, 1e-300)


def _ones(values: np.ndarray) -> np.ndarray:
    """How many rows of packed bits have a 1 in each column: three rows at a time become their sum and their carry."""
    total, level, planes = np.zeros(8 * values.shape[1], np.int64), 0, [values]
    while level < len(planes):
        rows, carries = np.asarray(planes[level], np.uint8), []
        while len(rows) > 2:
            k = len(rows) // 3
            a, b, c = rows[:k], rows[k : 2 * k], rows[2 * k : 3 * k]
            odd = a ^ b
            carries.append(a & b | c & odd)
            rows = np.concatenate([odd ^ c, rows[3 * k :]])
        total += np.unpackbits(rows, axis=1).sum(axis=0, dtype=np.int64) << level
        planes += [np.concatenate(carries)] if carries else []
        level += 1
    return total


def pack(X: np.ndarray) -> np.ndarray:
    """Packs 0/1 of any type, eight bits to a byte."""
    return np.packbits(X.astype(bool, copy=False), axis=1)


def as_context(context, what: str) -> np.ndarray:
    """Observed covariates as float32 (N, n_context); raises DarnError unless they are finite."""
    C, shape = matrix(context, what)
    if shape is not None:
        raise DarnError(f"{what} is 3-D: give rows x covariates")
    return C.astype(np.float32)
