"""Tables read as words, not numbers: columns by name, to drop, to weigh by, to condition on, or to make units of."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from darn.data import _table
from darn.data._check import matrix
from darn.data._labels import column_index
from darn.data._raw import WHOLE, Part, Raw
from darn.data._schema import Schema, _floats, infer
from darn.errors import DarnError

PARQUET = (".parquet", ".pq")


@dataclass(frozen=True)
class Columns:
    """What to make of a table's columns, where they are not simply bits."""

    categorical: str | None = None  # "auto", or names of columns to take as categories
    drop: str | None = None  # names of columns to leave out
    weights: str | None = None  # the column that says how much each row counts
    schema: Schema | None = None  # a model's own: new rows are read as its training rows were

    def __bool__(self) -> bool:
        return any(v is not None for v in (self.categorical, self.drop, self.weights, self.schema))


def read_cells(path: Path, data: bytes, what: str, labels, columns: Columns) -> Raw:
    """A .csv or .parquet whose columns are told apart by `columns`."""
    names, cells = (_parquet if path.suffix.lower() in PARQUET else _text)(path, data, what)
    if not len(cells):
        raise DarnError(f"{what} has no rows: give at least one.")
    index = lambda name, option: column_index(name, names, len(names), what, option=option)  # noqa: E731
    label = None if labels is None else index(labels, "--labels")
    # Rows to be scored need not have the weights that training rows had.
    absent = columns.schema is not None and columns.weights not in names
    weigh = None if columns.weights is None or absent else index(columns.weights, "--weights")
    dropped = {w.strip() for w in (columns.drop or "").split(",") if w.strip()}
    if columns.schema is not None:
        dropped &= set(names)
    out = {label, weigh, *(index(w, "--drop") for w in dropped)}
    kept = [i for i in range(len(names)) if i not in out]
    if not kept:
        raise DarnError(f"{what}: no column is left to model.")
    found = {
        "labels": None if label is None else cells[:, label],
        "weights": None if weigh is None else _weights(cells[:, weigh], names[weigh], what),
    }
    used, names = cells[:, kept], tuple(names[i] for i in kept)
    source = f"table {path.name}"
    schema = columns.schema
    if schema is None and columns.categorical is not None:
        schema = infer(names, used, columns.categorical, what)
    if schema is not None:
        part = Part(schema.encode(names, used, what), **found)
        return Raw(what, {WHOLE: part}, columns=schema.units, source=source, schema=schema)
    numbers = [_floats(np.char.strip(used[:, i]), n, what) for i, n in enumerate(names)]
    X, _ = matrix(np.stack(numbers, axis=1), what, names)
    return Raw(what, {WHOLE: Part(X, **found)}, columns=names, source=source)


def read_words(path: str | Path) -> tuple[tuple[str, ...], np.ndarray]:
    """(names, cells) of a table, as text."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as e:
        raise DarnError(f"{path} cannot be read: {e.strerror}") from None
    return (_parquet if path.suffix.lower() in PARQUET else _text)(path, data, str(path))


def _weights(cells: np.ndarray, name: str, what: str) -> np.ndarray:
    weights = _floats(np.char.strip(cells), name, what)
    if (weights < 0).any() or not weights.any():
        raise DarnError(f"{what}: the weights in column {name!r} must be 0 or more, and some of them more.")
    return weights.astype(np.float32)


def _text(path: Path, data: bytes, what: str) -> tuple[tuple[str, ...], np.ndarray]:
    lines = _table.decoded(path, data, what).split("\n")
    delimiter = _table.sniff([s for s in lines if s.strip()] or [""])
    # The csv module knows quotes, and with them commas and line ends inside a value.
    reader = csv.reader(io.StringIO("\n".join(lines)), delimiter=delimiter or " ", skipinitialspace=True)
    rows = [(reader.line_num, [w.strip() for w in row]) for row in reader if any(w.strip() for w in row)]
    if not rows:
        raise DarnError(f"{what} is empty: it needs one row of values a line.")
    head = rows[0][1]
    if any(map(_table.is_number, head)) or not any(head):
        names = tuple(f"c{i}" for i in range(len(head)))
    else:
        names, rows = tuple(head), rows[1:]
    for line, row in rows:
        if len(row) != len(names):
            raise DarnError(f"{what}: line {line} has {len(row)} values but {len(names)} are wanted: mend the line.")
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise DarnError(f"{what} has two columns called {twice!r}: rename one.")
    return names, np.array([row for _, row in rows], dtype=str).reshape(len(rows), len(names))


def _parquet(path: Path, data: bytes, what: str) -> tuple[tuple[str, ...], np.ndarray]:
    try:
        import polars
    except ImportError:
        raise DarnError(f"{what}: Parquet is read with polars, which is not installed: pip install polars.") from None
    try:
        frame = polars.read_parquet(io.BytesIO(data))
    except Exception as e:
        raise DarnError(f"{what} is not a readable Parquet file: {' '.join(str(e).split())[:120]}.") from None
    nested = [c for c in frame.columns if frame[c].dtype.is_nested()]
    if nested:
        raise DarnError(f"{what}: column {nested[0]!r} holds lists or structures: leave it out with --drop.")
    bits = [polars.col(c).cast(polars.Int8) for c in frame.columns if frame[c].dtype == polars.Boolean]
    frame = frame.with_columns(bits).select(polars.all().cast(polars.String).fill_null(""))
    cells = np.array([frame[c].to_list() for c in frame.columns], dtype=str).T
    return tuple(frame.columns), cells.reshape(frame.height, frame.width)
