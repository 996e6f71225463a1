"""A table as text: column names and cells, verbatim."""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from darn.data import _text_table
from darn.data._layout import Layout
from darn.data._limits import check_cells, check_unpacked
from darn.data._parquet import check_pages
from darn.data._raw import WHOLE, Part, Raw, pick_split
from darn.errors import DarnError
from darn.files import open_input, read_bytes

PARQUET = (".parquet", ".pq")
PART_CELLS = 1 << 21  # of a part of a Parquet file as text
SUFFIXES = (*_text_table.SUFFIXES, *PARQUET)


@dataclass(frozen=True)
class Table:
    """Column names and cells of a table, and the format of its file."""

    names: tuple[str, ...]
    cells: np.ndarray  # (N, columns) of str objects: a long cell costs its own length and no more
    layout: Layout
    raw: tuple[str, ...] | None = None  # the text of every row in the file, if it is a text file
    tail: str = ""  # the text below the last row
    frame: Any = None  # the same rows as a polars frame, if it is a Parquet file

    def __len__(self) -> int:
        return len(self.cells)

    def take(self, index: np.ndarray | slice) -> Table:
        """The rows at a slice or an array of row numbers."""
        rows = np.arange(len(self))[index]
        raw = None if self.raw is None else tuple(self.raw[i] for i in rows.tolist())
        frame = None if self.frame is None else self.frame[rows]
        return replace(self, cells=self.cells[rows], raw=raw, tail="", frame=frame)


def is_table(path: str | Path) -> bool:
    """Whether the suffix of a name is that of a table."""
    return Path(path).suffix.lower() in SUFFIXES


def parse_table(path: Path, data: bytes, what: str, delimiter: str | None = None) -> Table:
    """The table in the bytes of a file, whose type follows from the suffix of its name."""
    if path.suffix.lower() in PARQUET:
        return _parquet(data, what)
    text = _text_table.open_text(path, data, what, delimiter)
    return _from_text(text, text.layout)


def _from_text(text: _text_table.TextTable, layout: Layout) -> Table:
    once: dict[str, str] = {}  # most cells repeat others: each text is kept once
    cells, raw = [], []
    for r in text.records():
        cells.append([once.setdefault(c, c) for c in r.cells])
        raw.append(r.raw)
    tail = "".join(text.lines[text.first :])[sum(map(len, raw)) :]
    return Table(_names(text), _array(cells, text.width), layout, tuple(raw), tail)


def _names(text: _text_table.TextTable) -> tuple[str, ...]:
    return text.names or tuple(f"c{i}" for i in range(text.width))


@dataclass(frozen=True)
class TableParts:
    """A table in a file, read in parts."""

    what: str  # as the user named it
    names: tuple[str, ...]
    layout: Layout
    count: Callable[[], int]  # the number of rows; reads a text file once
    tables: Callable[[], Iterator[Table]]  # the rows from the first one on; the last part has the tail
    frames: Callable[[], Iterator[Any]] | None = None  # likewise, as polars frames, if the file is a Parquet file

    def within(self, start: int, stop: int) -> TableParts:
        """The rows from `start` up to `stop`; the text below the last row belongs to that."""

        def tables() -> Iterator[Table]:
            before = 0
            for table in self.tables():
                first, end = max(start - before, 0), min(stop - before, len(table))
                before += len(table)
                if first < end or not len(table):
                    yield replace(table.take(slice(first, end)), tail=table.tail if end == len(table) else "")
                if before >= stop and before > start:
                    break

        return replace(self, count=lambda: stop - start, tables=tables, frames=None)

    def read(self, *, numbers: bool = False) -> Iterator[Any]:
        """The rows as tables; with `numbers`, parts of a Parquet file that hold only integers are arrays."""
        if not numbers or self.frames is None:
            yield from self.tables()
            return
        for frame in self.frames():
            found = _whole_numbers(frame)
            if found is None:
                yield from _from_frames(frame, self.layout, self.what)
            else:
                yield found


def open_table_parts(path: str | Path, what: str, delimiter: str | None = None) -> TableParts:
    """As `read_table`, for a file that is read in parts."""
    path = Path(path)
    if path.suffix.lower() in PARQUET:
        names, rows, frames = _parquet_parts(path, what)
        layout = Layout(head=Layout().line(names))
        tables = lambda: (t for frame in frames() for t in _from_frames(frame, layout, what))  # noqa: E731
        return TableParts(what, names, layout, lambda: rows, tables, frames)
    text = _text_table.open_text_parts(path, what, delimiter)
    layout = text.head.layout
    tables = lambda: _joined(_from_text(t, layout) for t in text.read())  # noqa: E731
    return TableParts(what, _names(text.head), layout, text.count, tables)


def _from_frame(frame, layout: Layout, what: str) -> Table:
    with _reading(what):
        return Table(tuple(frame.columns), _cells(frame), layout, frame=frame)


def _from_frames(frame, layout: Layout, what: str) -> Iterator[Table]:
    """Several tables of a frame of few bytes, whose texts take many."""
    step = max(PART_CELLS // max(frame.width, 1), 1)
    return (_from_frame(frame.slice(i, step), layout, what) for i in range(0, max(len(frame), 1), step))


def _joined(tables: Iterator[Table]) -> Iterator[Table]:
    """The tables, where the text below one belongs to the first row of the next."""
    last, tail, table = None, "", None
    for table in tables:
        if not len(table):
            tail += table.tail
        else:
            assert table.raw is not None
            if last is not None:
                yield last
            table = replace(table, raw=(tail + table.raw[0], *table.raw[1:]))
            last, tail = replace(table, tail=""), table.tail
    if last is not None:
        yield replace(last, tail=tail)
    elif table is not None:  # no rows at all
        yield replace(table, tail=tail)


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


def import_polars(what: str):
    try:
        import polars
    except ImportError:
        raise DarnError(f"{what}: a Parquet file needs polars: install it with `pip install polars`") from None
    return polars


@contextlib.contextmanager
def _reading(what: str):
    try:
        with _silent():
            yield
    except DarnError:
        raise
    except (Exception, import_polars(what).exceptions.PanicException) as e:  # a panic of polars is no Exception
        raise DarnError(f"{what} is not a readable Parquet file: {' '.join(str(e).split())[:120]}") from None


def _parquet_parts(path: Path, what: str) -> tuple[tuple[str, ...], int, Callable[[], Iterator[Any]]]:
    """Column names and number of rows of a Parquet file, and a function that reads them as consecutive frames."""
    polars = import_polars(what)
    with open_input(path) as f, _reading(what):
        packed = os.fstat(f.fileno()).st_size
        with mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as content:
            check_pages(content, packed, what)
        frame = polars.scan_parquet(path, glob=False)  # the name is not a pattern
        names, rows = _checked(polars, frame, packed, what)
        width = sum(map(_bytes_of, frame.collect_schema().dtypes()))
    step = max(8 * PART_CELLS // max(width, 1), 1)  # each part has to unpack the pages that it lies in

    def read() -> Iterator[Any]:
        unpacked = 0
        for start in range(0, max(rows, 1), step):
            with _reading(what):
                part = frame.slice(start, step).collect()
                unpacked += _bytes(part)
                check_unpacked(unpacked, packed, what)
            yield part

    return names, rows, read


def _parquet(data: bytes, what: str) -> Table:
    polars = import_polars(what)
    with _reading(what):
        check_pages(data, len(data), what)
        names, _ = _checked(polars, polars.scan_parquet(io.BytesIO(data)), len(data), what)
        frame = polars.read_parquet(io.BytesIO(data))
        check_unpacked(_bytes(frame), len(data), what)
    return _from_frame(frame, Layout(head=Layout().line(names)), what)


def _cells(frame) -> np.ndarray:
    """The cells of a polars frame as text."""
    import polars

    bits = [polars.col(c).cast(polars.Int8) for c in frame.columns if frame[c].dtype == polars.Boolean]
    frame = frame.with_columns(bits)
    columns = [frame[c].cast(polars.String).fill_null("").to_list() for c in frame.columns]
    return _array(list(zip(*columns)), len(columns))


def _whole_numbers(frame) -> np.ndarray | None:
    """A polars frame of integers and booleans without gaps, as an array; None for any other."""
    if not all(t.is_integer() or str(t) == "Boolean" for t in frame.dtypes) or any(frame.null_count().row(0)):
        return None
    return frame.to_numpy()


def _bytes_of(kind) -> int:
    """Of a cell in memory: whole numbers and booleans stay as they are, everything else becomes a text."""
    whole = re.fullmatch(r"U?Int(\d+)", str(kind))
    return int(whole[1]) // 8 if whole else 1 if str(kind) == "Boolean" else 8


def _checked(polars, frame, packed: int, what: str) -> tuple[tuple[str, ...], int]:
    """Column names and number of rows of a lazy frame, if it is not much larger than its file."""
    schema = frame.collect_schema()
    if nested := [name for name, kind in schema.items() if kind.is_nested()]:
        raise DarnError(f"{what} has lists or records in column {nested[0]!r}: give one number or text in each cell")
    names = tuple(schema.names())
    rows = frame.select(polars.len()).collect().item()
    check_cells(rows * len(names), packed, what)
    return names, rows


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


def _bytes(frame) -> int:
    """The bytes of the cells, each counted as often as it occurs; text may be stored once for many cells."""
    lengths = {
        "String": lambda c: c.str.len_bytes(),
        "Binary": lambda c: c.bin.size(),
        "Categorical": lambda c: c.cat.len_bytes(),
        "Enum": lambda c: c.cat.len_bytes(),
    }
    found = ((frame[c], lengths.get(str(kind.base_type()))) for c, kind in frame.schema.items())
    return sum(int(of(column).sum() or 0) for column, of in found if of is not None)


def _array(rows: list, width: int) -> np.ndarray:
    cells = np.empty((len(rows), width), object)
    for i, row in enumerate(rows):
        cells[i] = row
    return cells
