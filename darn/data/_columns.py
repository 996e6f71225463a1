"""From a table's columns to rows of numbers: dropped columns, labels, weights, and the encoding of the others."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from darn.data import _text_table
from darn.data._check import matrix
from darn.data._infer import infer
from darn.data._labels import check_known, column_index
from darn.data._layout import Layout
from darn.data._number import is_number
from darn.data._raw import WHOLE, Part, Raw, RawParts, division
from darn.data._schema import UNSEEN, Schema, check_unique, encoded
from darn.data._table import PARQUET, Table, open_table_parts, parse_table
from darn.data._text_table import TextTable, open_text_parts
from darn.errors import DarnError


@dataclass(frozen=True)
class Columns:
    """How to read a table's columns that are not bits.

    Attributes:
        categorical: "auto", or the categorical columns: comma-separated names, or a sequence of names.
        drop: the columns to leave out, likewise.
        weights: the column of row weights.
        delimiter: between the cells of a text table; None detects it.
        column: what some columns are: "NAME=KIND" each, where the kind is category, ordered, number, boolean, date, id
            or auto. The others are recognised, unless `categorical` names columns.
        unseen: what a text that no training row had counts as, in rows for a trained model: "error", "missing", or
            "nearest", the known text that is most like it.
        seed: of the division into splits, so that densities are estimated from the training rows; None uses all rows.
        schema: a model's schema, so that new rows are encoded as its training rows were.
    """

    categorical: str | Sequence[str] | None = None
    drop: str | Sequence[str] | None = None
    weights: str | None = None
    delimiter: str | None = None
    column: Sequence[str] = ()
    unseen: str = "error"
    seed: int | None = None
    schema: Schema | None = None

    def __bool__(self) -> bool:
        return self.takes_words or self.delimiter is not None

    @property
    def takes_words(self) -> bool:
        """Whether the table must be read as text, not as a matrix of numbers."""
        return bool(self.column) or any(v is not None for v in (self.categorical, self.drop, self.weights, self.schema))

    def kinds(self) -> dict[str, str]:
        """The kind that each column in `column` is said to have."""
        found = {}
        for item in self.column:
            name, equals, kind = item.rpartition("=")  # the name itself may have one
            if not equals or not name:
                raise DarnError(f"{item!r} does not say what a column is: give NAME=KIND, such as age=number.")
            found[name] = kind.strip()
        return found


def listed(names: str | Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """The column names in "a,b" or ["a", "b"]; a name with a comma must be quoted, as in CSV, or given alone."""
    found: list[str] = []
    for item in [names] if isinstance(names, str) else names or ():
        words = [item] if item in known else next(csv.reader([item], skipinitialspace=True), [])
        found += [w if w in known else w.strip() for w in words if w.strip()]
    return list(dict.fromkeys(found))


def read_columns(path: Path, data: bytes, what: str, labels, columns: Columns) -> Raw:
    """A table, from the bytes of a file, as numbers."""
    if path.suffix.lower() in PARQUET or columns.takes_words:
        return _words(parse_table(path, data, what, columns.delimiter), path, what, labels, columns)
    text = _text_table.open_text(path, data, what, columns.delimiter)
    label = None if labels is None else column_index(labels, text.names, text.width, what)
    part, names = _text_part(text, label), _without(text.names, label)
    if not len(part.X):
        raise DarnError(f"{what} has no rows below its header: give at least one.")
    X, _ = matrix(part.X, what, names)
    return Raw(what, {WHOLE: replace(part, X=X)}, columns=names, source=_source(path, text.layout))


def column_parts(path: Path, what: str, labels, columns: Columns) -> RawParts | None:
    """As `read_columns`, for rows to be scored, read in parts; None if how to encode them depends on all rows."""
    if columns.schema is None and (columns.categorical is not None or columns.column):
        return None
    if path.suffix.lower() in PARQUET or columns.takes_words:
        return _word_parts(path, what, labels, columns)
    text = open_text_parts(path, what, columns.delimiter)
    label = None if labels is None else column_index(labels, text.head.names, text.head.width, what)
    rows, width = text.count(), text.head.width - (label is not None)
    read = lambda: _numbered(_text_part(t, label) for t in text.read())  # noqa: E731
    return RawParts(what, WHOLE, rows, width, read, _without(text.head.names, label)) if rows else None


def _word_parts(path: Path, what: str, labels, columns: Columns) -> RawParts | None:
    table = open_table_parts(path, what, columns.delimiter)
    plain = not columns.takes_words and labels is None

    def part_of(part: Table | np.ndarray) -> Part:
        if isinstance(part, np.ndarray):
            return Part(part)
        return _words(part, path, what, labels, columns, scored=True).parts[WHOLE]

    read = lambda: encoded(table.read(numbers=plain), part_of)  # noqa: E731

    rows = table.count()
    first = next(read(), None) if rows else None
    if first is None:
        return None
    names = columns.schema.units if columns.schema is not None else table.names if plain else None
    return RawParts(what, WHOLE, rows, first.X.shape[1], lambda: _numbered(read()), names)


def _numbered(parts: Iterable[Part]) -> Iterator[Part]:
    """The parts with the number of rows before each."""
    before = 0
    for part in parts:
        if len(part.X):
            yield replace(part, before=before)
            before += len(part.X)


def _text_part(text: TextTable, label: int | None) -> Part:
    X, found = text.bits() if label is None else None, []
    if X is None:
        X, found = text.numbers(label)
    return Part(X, labels=None if label is None else np.array(found, dtype=object))


def _without(names: tuple[str, ...] | None, label: int | None) -> tuple[str, ...] | None:
    return names if label is None or not names else names[:label] + names[label + 1 :]


def _words(table: Table, path: Path, what: str, labels, columns: Columns, *, scored: bool = False) -> Raw:
    names, cells = table.names, table.cells
    if not len(table):
        raise DarnError(f"{what} has no rows: give at least one.")
    check_unique(names, what)
    index = lambda name, option: column_index(name, names, len(names), what, option=option)  # noqa: E731
    label = None if labels is None else index(labels, "labels")
    # Rows to be scored need not have the weights that training rows had.
    absent = columns.schema is not None and columns.weights not in names
    weigh = None if columns.weights is None or absent else index(columns.weights, "weights")
    dropped = listed(columns.drop, names)
    if columns.schema is not None:
        dropped = [n for n in dropped if n in names]
    check_known(dropped, names, what, "drop")
    out = {label, weigh, *(index(n, "drop") for n in dropped)}
    kept = [i for i in range(len(names)) if i not in out]
    if not kept:
        raise DarnError(f"{what}: no column is left to model; drop fewer columns.")
    found: dict[str, Any] = {
        "labels": None if label is None else cells[:, label],
        "weights": None if weigh is None or scored else _weights(cells[:, weigh], names[weigh], what),
    }
    used, names = cells[:, kept], tuple(names[i] for i in kept)
    source = _source(path, table.layout)
    schema = columns.schema
    if schema is None and (columns.categorical is not None or columns.column):
        chosen = None if columns.categorical in (None, "auto") else listed(columns.categorical, names)
        fit = None
        if columns.seed is not None and len(used) >= 10:  # otherwise there are too few rows to be divided
            fit = division(len(used), what, columns.seed)["train"]
        schema = infer(names, used, chosen, what, kinds=columns.kinds(), fit=fit)
    if schema is not None:
        if columns.unseen not in UNSEEN:
            raise DarnError(f"unseen must be one of {', '.join(UNSEEN)}, not {columns.unseen!r}.")
        rows = schema.encode(names, used, what, unseen=columns.unseen)
        part = Part(rows.bits, **found, log_density=None if schema.exact else rows.log_density)
        return Raw(what, {WHOLE: part}, columns=schema.units, source=source, schema=schema)
    numbers = [_floats(used[:, i], n, what) for i, n in enumerate(names)]
    X = np.stack(numbers, axis=1)
    if not scored:
        X, _ = matrix(X, what, names)
    return Raw(what, {WHOLE: Part(X, **found)}, columns=names, source=source)


def _source(path: Path, layout: Layout) -> str:
    return f"table {path.name}" + ("" if path.suffix.lower() in PARQUET else f", cells {layout.described}")


def _weights(cells: np.ndarray, name: str, what: str) -> np.ndarray:
    weights = _floats(cells, name, what)
    if (weights < 0).any() or not weights.any():
        raise DarnError(f"{what}: the weights in column {name!r} must not be negative or all zero.")
    return weights.astype(np.float32)


def _floats(words: np.ndarray, name: str, what: str) -> np.ndarray:
    bad = [w for w in words.tolist() if not is_number(w)]
    if bad:
        row = words.tolist().index(bad[0]) + 1
        raise DarnError(
            f"{what} has {bad[0][:40]!r} in row {row:,}, column {name!r}, where numbers are expected: correct it."
        )
    return np.array([float(w) for w in words.tolist()])
