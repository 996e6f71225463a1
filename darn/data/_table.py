"""A table as text: column names and cells, verbatim."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from darn.data import _text_table
from darn.data._layout import Layout
from darn.data._limits import check_cells, check_unpacked
from darn.data._raw import WHOLE, Part, Raw, pick_split
from darn.errors import DarnError
from darn.files import read_bytes

PARQUET = (".parquet", ".pq")
SUFFIXES = (*_text_table.SUFFIXES, *PARQUET)


@dataclass(frozen=True)
class Table:
    """Column names and cells of a table, and the format of its file."""

    names: tuple[str, ...]
    cells: np.ndarray  # (N, columns) of str objects: a long cell costs its own length and no more
    layout: Layout
    raw: tuple[str, ...] | None = None  # the text of every row in the file, if it is a text file
    tail: str = ""  # the text below the last row

    def __len__(self) -> int:
        return len(self.cells)

    def take(self, index: np.ndarray | slice) -> Table:
        """The rows at a slice or an array of row numbers."""
        rows = np.arange(len(self))[index]
        raw = None if self.raw is None else tuple(self.raw[i] for i in rows.tolist())
        return replace(self, cells=self.cells[rows], raw=raw, tail="")


def is_table(path: str | Path) -> bool:
    """Whether the suffix of a name is that of a table."""
    return Path(path).suffix.lower() in SUFFIXES


def parse_table(path: Path, data: bytes, what: str, delimiter: str | None = None) -> Table:
    """The table in the bytes of a file, whose type follows from the suffix of its name."""
    if path.suffix.lower() in PARQUET:
        return _parquet(data, what)
    text = _text_table.open_text(path, data, what, delimiter)
    once: dict[str, str] = {}  # most cells repeat others: each text is kept once
    cells, raw = [], []
    for r in text.records():
        cells.append([once.setdefault(c, c) for c in r.cells])
        raw.append(r.raw)
    names = text.names or tuple(f"c{i}" for i in range(text.width))
    tail = "".join(text.lines[text.first :])[sum(map(len, raw)) :]
    return Table(names, _array(cells, len(names)), text.layout, tuple(raw), tail)


def read_table(path: str | Path, *, delimiter: str | None = None, split: str | None = None, seed: int = 0) -> Table:
    """Reads a .csv, .tsv or .parquet as text.

    Args:
        path: the file.
        delimiter: of a text file; None detects it.
        split: "train", "valid" or "test": only the rows that `darn.data.load` puts there, in its order.
        seed: of that division.

    Returns:
        Every row of the file, every cell as written.
    """
    table = parse_table(Path(path), read_bytes(path), str(path), delimiter)
    if split is None:
        return table
    numbered = Raw(str(path), {WHOLE: Part(np.arange(len(table))[:, None])})
    raw, split = pick_split(numbered, split, seed)
    return table.take(raw.parts[split].X[:, 0])


def _parquet(data: bytes, what: str) -> Table:
    try:
        import polars
    except ImportError:
        raise DarnError(f"{what}: reading Parquet needs polars: install it with `pip install polars`.") from None
    try:
        with _silent():
            frame = _frame(polars, data, what)
        bits = [polars.col(c).cast(polars.Int8) for c in frame.columns if frame[c].dtype == polars.Boolean]
        frame = frame.with_columns(bits)
        columns = [
            ["" if v is None else str(v) for v in frame[c].to_list()]
            if frame[c].dtype.is_nested()
            else frame[c].cast(polars.String).fill_null("").to_list()
            for c in frame.columns
        ]
    except DarnError:
        raise
    except (Exception, polars.exceptions.PanicException) as e:  # a panic of polars is no Exception
        raise DarnError(f"{what} is not a readable Parquet file: {' '.join(str(e).split())[:120]}.") from None
    names = tuple(frame.columns)
    return Table(names, _array(list(zip(*columns)), len(names)), Layout(head=Layout().line(names)))


def _frame(polars, data: bytes, what: str):
    """The table, if it is not much larger than its file."""
    rows = polars.scan_parquet(io.BytesIO(data)).select(polars.len()).collect().item()
    check_cells(rows * len(polars.read_parquet_schema(io.BytesIO(data))), len(data), what)
    frame = polars.read_parquet(io.BytesIO(data))
    check_unpacked(sum(_bytes(frame[c]) for c in frame.columns), len(data), what)
    return frame


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without standard error, to which polars writes a stack trace for some damaged files."""
    with open(os.devnull, "w") as nothing:
        kept = os.dup(2)
        os.dup2(nothing.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _bytes(column) -> int:
    """The bytes of a column's cells, each counted as often as it occurs; text may be stored once for many cells."""
    return int(column.str.len_bytes().sum() or 0) if str(column.dtype) in ("String", "Categorical") else 0


def _array(rows: list, width: int) -> np.ndarray:
    cells = np.empty((len(rows), width), object)
    for i, row in enumerate(rows):
        cells[i] = row
    return cells
