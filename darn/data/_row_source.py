"""Rows that are read in parts: a source may be larger than memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from darn.data._cells import CellCode
from darn.data._rows import Rows
from darn.data._table import Table

PART = 1 << 22  # bits of a part of rows in memory


@dataclass(frozen=True)
class RowSource:
    """Rows to score, encode or compress."""

    rows: int
    n: int  # columns
    read: Callable[[], Iterator[Rows]]  # all rows in order, in parts of a few megabytes; can be called again
    notes: dict = field(default_factory=dict)  # what compression needs to restore the rows in their original form
    about: str = ""  # how the file was read, if that had to be detected
    # Of a table of words and numbers, to compress it: what codes its cells, and its rows as blocks of (bits, cells).
    cells: CellCode | None = None
    blocks: Callable[[], Iterator[tuple[np.ndarray, Table]]] | None = None
    columns: tuple[str, ...] | None = None  # names

    def parts(self) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """(x, context) of consecutive rows, as the functions of a model take them."""
        return ((part.unpack(), part.context) for part in self.read())

    def scored(self) -> Iterator[tuple[np.ndarray, np.ndarray | None, np.ndarray | None]]:
        """(x, context, log density) of consecutive rows, as `darn.inference.likelihood.score_parts` takes them."""
        return ((part.unpack(), part.context, part.log_density) for part in self.read())

    def bits(self) -> Iterator[np.ndarray]:
        """x alone, uint8 of 0 and 1."""
        return (part.unpack() for part in self.read())

    def every(self, k: int) -> RowSource:
        """Every k-th row, beginning with the first."""
        return self if k == 1 else replace(self, rows=-(-self.rows // k), read=lambda: every_kth(self.read(), k))

    def within(self, start: int, stop: int) -> RowSource:
        """The rows from `start` up to `stop`, without notes: to score or encode them."""
        if (start, stop) == (0, self.rows):
            return self
        return RowSource(stop - start, self.n, lambda: between(self.read(), start, stop))

    @staticmethod
    def held(rows: Rows) -> RowSource:
        """Rows in memory, or of a packed set."""
        if rows.in_parts:
            return RowSource(len(rows), rows.n, rows.read)
        step = max(PART // rows.n, 1)
        read = lambda: (rows.take(slice(i, i + step)) for i in range(0, len(rows), step))  # noqa: E731
        return RowSource(len(rows), rows.n, read)


def between(parts: Iterator, start: int, stop: int) -> Iterator:
    """The rows from `start` up to `stop` of parts that can be counted and have `take`; none after them are read."""
    before = 0
    while before < stop and (part := next(parts, None)) is not None:
        first, end = max(start - before, 0), min(stop - before, len(part))
        before += len(part)
        if first < end:
            yield part if end - first == len(part) else part.take(slice(first, end))


def every_kth(parts: Iterator, k: int) -> Iterator:
    """Every k-th row of parts that can be counted and have `take`."""
    before = 0
    for part in parts:
        kept = part.take(slice(-before % k, None, k))
        before += len(part)
        if len(kept):
            yield kept
