"""From a table's columns to rows of numbers: dropped columns, labels, weights, and the encoding of the others."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

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
        column: what some columns are: "NAME=KIND" each, where the kind is category, ordered, number, decimal-comma,
            decimal-point (numbers, too), boolean, date, id or auto. The others are recognised, unless
            `categorical` names columns.
        unseen: what a text that no training row had counts as, in rows for a trained model: "error", "missing", or
            "nearest", the known text that is most like it.
        seed: of the division into splits, so that densities are estimated from the training rows; None uses all rows.
        schema: a model's schema, so that new rows are encoded as its training rows were.
        names: of the columns of a model without a schema, so that new rows have them in the same order.
    """

    categorical: str | Sequence[str] | None = None
    drop: str | Sequence[str] | None = None
    weights: str | None = None
    delimiter: str | None = None
    column: Sequence[str] = ()
    unseen: str = "error"
    seed: int | None = None
    schema: Schema | None = None
    names: Sequence[str] | None = None

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
                raise DarnError(f"{item!r} does not say what a column is: give NAME=KIND, such as age=number")
            found[name] = kind.strip()
        return found


def listed(names: str | Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """The column names in "a,b" or ["a", "b"]; a name with a comma must be quoted, as in CSV, or given alone."""
    found: list[str] = []
    for item in [names] if isinstance(names, str) else names or ():
        lines = [[item]] if item in known else csv.reader(io.StringIO(item, newline=""), skipinitialspace=True)
        found += [w if w in known else w.strip() for w in itertools.chain.from_iterable(lines) if w.strip()]
    return list(dict.fromkeys(found))


def read_columns(path: Path, data: bytes, what: str, labels, columns: Columns) -> Raw:
    """A table, from the bytes of a file, as numbers."""
    if path.suffix.lower() in PARQUET or columns.takes_words:
        return read_words(parse_table(path, data, what, columns.delimiter), path, what, labels, columns)
    text = _text_table.open_text(path, data, what, columns.delimiter)
    label = None if labels is None else column_index(labels, text.names, text.width, what)
    part, names = _text_part(text, label), _without(text.names, label)
    if not len(part.X):
        raise DarnError(f"{what} has no rows below its header: give at least one")
    X, _ = matrix(part.X, what, names)
    if (own := own_places(names, columns.names, what)) is not None:
        X, names = X[:, own], tuple(columns.names or ())
    return Raw(what, {WHOLE: replace(part, X=X)}, columns=names, **_source(path, text.layout))


def column_parts(path: Path, what: str, labels, columns: Columns, *, scored: bool) -> RawParts | None:
    """As `read_columns`, read in parts; None if how to encode the rows depends on all of them.

    With `scored`, row weights are left out.
    """
    if columns.schema is None and (columns.categorical is not None or columns.column):
        return None
    if path.suffix.lower() in PARQUET or columns.takes_words:
        return _word_parts(path, what, labels, columns, scored)
    text = open_text_parts(path, what, columns.delimiter)
    label = None if labels is None else column_index(labels, text.head.names, text.head.width, what)
    rows, width, names = text.count(), text.head.width - (label is not None), _without(text.head.names, label)
    read = lambda: _numbered(_text_part(t, label) for t in text.read())  # noqa: E731
    if not rows:
        return None
    if (own := own_places(names, columns.names, what)) is None:
        return RawParts(what, WHOLE, rows, width, read, names)
    chosen = lambda: (replace(part, X=part.X[:, own]) for part in read())  # noqa: E731
    return RawParts(what, WHOLE, rows, len(own), chosen, tuple(columns.names or ()))


def _word_parts(path: Path, what: str, labels, columns: Columns, scored: bool) -> RawParts | None:
    table = open_table_parts(path, what, columns.delimiter)
    plain = not columns.takes_words and labels is None
    own = own_places(table.names, columns.names, what) if plain else None

    def part_of(part: Table | np.ndarray) -> Part:
        if isinstance(part, np.ndarray):
            return Part(part if own is None else part[:, own])
        return read_words(part, path, what, labels, columns, scored=True, weighted=not scored).parts[WHOLE]

    read = lambda: encoded(table.read(numbers=plain), part_of)  # noqa: E731

    rows = table.count()
    first = next(read(), None) if rows else None
    if first is None:
        return None
    names = columns.schema.units if columns.schema is not None else table.names if plain else None
    names = names if own is None else tuple(columns.names or ())
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


def own_places(names: Sequence[str] | None, own: Sequence[str] | None, what: str) -> list[int] | None:
    """Where a model's columns are in a table; None for one that has them in order, or that names none of them.

    Args:
        names: of the table's columns, if they have names.
        own: of the model's columns, likewise.
        what: the table, for messages.
    """
    if not names or not own or list(names) == list(own) or not set(own) & set(names) or len(set(own)) < len(own):
        return None
    if missing := [name for name in own if name not in names]:
        said = ", ".join(repr(name[:40]) for name in missing[:5]) + (" and others" if len(missing) > 5 else "")
        raise DarnError(f"{what} has no column {said}, which the model was trained with: add or rename it")
    check_unique(names, what)
    return [names.index(name) for name in own]


def _without(names: tuple[str, ...] | None, label: int | None) -> tuple[str, ...] | None:
    return names if label is None or not names else names[:label] + names[label + 1 :]


class _Chosen(NamedTuple):
    """What the columns of a table are for, by their numbers."""

    label: int | None
    weigh: int | None
    kept: list[int]  # those that are modelled


def _choose(names: Sequence[str], what: str, labels, columns: Columns) -> _Chosen:
    check_unique(names, what)
    index = lambda name, option: column_index(name, names, len(names), what, option=option)  # noqa: E731
    label = None if labels is None else index(labels, "labels")
    # Rows to be scored need not have the weights and dropped columns that training rows had.
    trained = columns.schema is not None or columns.names is not None
    absent = trained and columns.weights not in names
    weigh = None if columns.weights is None or absent else index(columns.weights, "weights")
    dropped = listed(columns.drop, names)
    if trained:
        dropped = [n for n in dropped if n in names]
    check_known(dropped, names, what, "drop")
    out = {label, weigh, *(index(n, "drop") for n in dropped)}
    kept = [i for i in range(len(names)) if i not in out]
    if not kept:
        raise DarnError(f"{what}: no column is left to model; drop fewer columns")
    return _Chosen(label, weigh, kept)


def _infer(names: Sequence[str], cells: Any, what: str, columns: Columns) -> Schema | None:
    """The schema of the columns that are modelled; None if they are numbers."""
    if columns.categorical is None and not columns.column:
        return None
    chosen = None if columns.categorical in (None, "auto") else listed(columns.categorical, names)
    fit = None
    if columns.seed is not None and len(cells) >= 10:  # otherwise there are too few rows to be divided
        fit = np.asarray(division(len(cells), what, columns.seed)["train"])
    return infer(names, cells, chosen, what, kinds=columns.kinds(), fit=fit)


class _Cells:
    """The cells of a table that is read in parts: every text once, and four bytes for each cell."""

    def __init__(self):
        self.names: tuple[str, ...] = ()
        self.texts: list[dict[str, int]] = []
        self.numbers: list[list[np.ndarray]] = []

    def add(self, names: tuple[str, ...], cells: np.ndarray) -> None:
        if not self.names:
            self.names, self.texts, self.numbers = names, [{} for _ in names], [[] for _ in names]
        for texts, numbers, column in zip(self.texts, self.numbers, cells.T.tolist()):
            numbers.append(np.array([texts.setdefault(cell, len(texts)) for cell in column], np.uint32))

    def __len__(self) -> int:
        return sum(map(len, self.numbers[0])) if self.numbers else 0

    def __getitem__(self, index: tuple[slice, int]) -> np.ndarray:
        """A column, as an array of all cells gives it."""
        rows, j = index
        return np.array(list(self.texts[j]), object)[np.concatenate(self.numbers[j])[rows]]


def infer_from_files(paths: Sequence[Path], labels, columns: Columns) -> Schema | None:
    """The schema that `read_columns` finds for a table of the rows of all these files, which are read in parts."""
    found = _Cells()
    for path in paths:
        what = str(path)
        table = open_table_parts(path, what, columns.delimiter)
        kept = _choose(table.names, what, labels, columns).kept
        names = tuple(table.names[i] for i in kept)
        if found.names and names != found.names:
            raise DarnError(f"{what} has other columns than {paths[0]}: give files of the same columns")
        for part in table.read():
            found.add(names, part.cells[:, kept])
    if not len(found):
        raise DarnError(f"{paths[0]} has no rows: give at least one")
    return _infer(found.names, found, str(paths[0]), columns)


def read_words(
    table: Table, path: Path, what: str, labels, columns: Columns, *, scored: bool = False, weighted: bool = False
) -> Raw:
    """A table as numbers; with `scored`, rows of one, checked elsewhere, whose weights count only if `weighted`."""
    names, cells = table.names, table.cells
    if not len(table):
        raise DarnError(f"{what} has no rows: give at least one")
    label, weigh, kept = _choose(names, what, labels, columns)
    found: dict[str, Any] = {
        "labels": None if label is None else cells[:, label],
        "weights": None
        if weigh is None or (scored and not weighted)
        else _weights(cells[:, weigh], names[weigh], what),
    }
    if (own := own_places([names[i] for i in kept], columns.names, what)) is not None:
        kept = [kept[i] for i in own]
    used, names = cells[:, kept], tuple(names[i] for i in kept)
    source = _source(path, table.layout)
    schema = _infer(names, used, what, columns) if columns.schema is None else columns.schema
    if schema is not None:
        if columns.unseen not in UNSEEN:
            raise DarnError(f"unseen must be one of {', '.join(UNSEEN)}, not {columns.unseen!r}")
        rows = schema.encode(names, used, what, unseen=columns.unseen)
        part = Part(rows.bits, **found, log_density=None if schema.exact else rows.log_density)
        return Raw(what, {WHOLE: part}, columns=schema.units, schema=schema, **source)
    X = numbers_of(used, names, what)
    if not scored:
        X, _ = matrix(X, what, names)
    return Raw(what, {WHOLE: Part(X, **found)}, columns=names, **source)


def numbers_of(cells: np.ndarray, names: Sequence[str], what: str) -> np.ndarray:
    """The cells of a table (N, columns) as numbers."""
    return np.stack([_floats(cells[:, i], name, what) for i, name in enumerate(names)], axis=1)


def _source(path: Path, layout: Layout) -> dict[str, Any]:
    if path.suffix.lower() in PARQUET:
        return {"source": f"table {path.name}"}
    return {"source": f"table {path.name}, cells {layout.described}", "delimiter": layout.delimiter}


def _weights(cells: np.ndarray, name: str, what: str) -> np.ndarray:
    weights = _floats(cells, name, what)
    if (weights < 0).any() or not weights.any():
        raise DarnError(f"{what}: the weights in column {name!r} must not be negative or all zero")
    return weights.astype(np.float32)


def _floats(words: np.ndarray, name: str, what: str) -> np.ndarray:
    bad = [w for w in words.tolist() if not is_number(w)]
    if bad:
        row = words.tolist().index(bad[0]) + 1
        raise DarnError(
            f"{what} has {bad[0][:40]!r} in row {row:,}, column {name!r}, where numbers are expected: correct it"
        )
    return np.array([float(w) for w in words.tolist()])
