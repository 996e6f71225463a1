"""Several tables of text on one scale: columns in common, rows in an order of their own, numbers and categories."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time

import numpy as np

from darn.data import FEW, Table, is_missing, spelled_numbers, stray_words
from darn.errors import DarnError

ROWS = 10_000  # of each table that are used, at most
FEWEST = 10  # rows of a table: fewer say nothing about a distribution


@dataclass(frozen=True)
class Column:
    """A column of every table: floats, or the numbers of categories, the most frequent first; NaN where missing."""

    name: str
    values: tuple[str, ...]  # of a category, by its number; empty for numbers
    parts: Mapping[str, np.ndarray]  # by table

    @property
    def is_number(self) -> bool:
        return not self.values

    def pooled(self) -> np.ndarray:
        """The values of the real and the synthetic rows."""
        return np.concatenate([self.parts["real"], self.parts["synthetic"]])


@dataclass(frozen=True)
class Columns:
    """The columns that all tables have, and a hash of every row."""

    columns: tuple[Column, ...]
    hashes: Mapping[str, np.ndarray]  # of each table's rows, uint64: what divides them into folds
    left_out: tuple[str, ...]  # columns that only some of the tables have, and identifiers left empty
    total: Mapping[str, int]  # rows of each table before at most `rows` of them were taken
    seed: int

    def rows(self, part: str) -> int:
        return len(self.hashes[part])

    def index(self, name: str) -> int:
        """The place of a column."""
        names = [c.name for c in self.columns]
        if name not in names:
            shown = ", ".join(names[:8]) + " ..." * (len(names) > 8)
            raise DarnError(f"the tables have no column {name!r} in common: choose one of {shown}")
        return names.index(name)


def align(tables: Mapping[str, Table], *, rows: int = ROWS, seed: int = 0) -> Columns:
    """Puts tables on one scale.

    Rows are put into an order that depends on their contents and the seed only, and the first `rows` of it are kept: so
    no figure depends on the order in a file, and the same row is kept in both of two tables.

    Args:
        tables: "real", "synthetic" and perhaps "held_out".
        rows: taken of each table at most.
        seed: of the order.

    Returns:
        The columns that all tables have.

    Raises:
        DarnError: No column in common, two of one name, or too few rows.
    """
    for part, table in tables.items():
        twice = [n for n, k in Counter(table.names).items() if k > 1]
        if twice:
            raise DarnError(f"{_said(part)} have several columns called {_listed(twice)}: rename them")
        if len(table) < FEWEST and part != "held_out":
            raise DarnError(f"{_said(part)} are only {len(table)}: at least {FEWEST} are needed")
        if not len(table):
            raise DarnError(f"{_said(part)} are none: give at least one")
    every = dict.fromkeys(n for t in tables.values() for n in t.names)
    names = [n for n in every if all(n in t.names for t in tables.values())]
    if not names:
        raise DarnError(
            f"the tables have no column in common ({_listed(tables['real'].names)} in the real rows, "
            f"{_listed(tables['synthetic'].names)} in the synthetic ones): rename the columns of one of them"
        )
    words, hashes = {}, {}
    for part, table in tables.items():
        cells = table.cells[:, [table.names.index(n) for n in names]]
        found = _hashes(cells, seed)
        order = np.argsort(found, kind="stable")[:rows]
        hashes[part], words[part] = found[order], _words(cells[order])
    found = [_column(name, {part: w[:, i] for part, w in words.items()}) for i, name in enumerate(names)]
    columns = tuple(c for c in found if not _is_empty_id(c)) or tuple(found)
    left_out = tuple(n for n in every if n not in {c.name for c in columns})
    return Columns(columns, hashes, left_out, {p: len(t) for p, t in tables.items()}, seed)


def _said(part: str) -> str:
    return f"the {part.replace('_', '-')} rows"


def _listed(names) -> str:
    return ", ".join(map(repr, list(names)[:5])) + " ..." * (len(names) > 5)


def _hashes(cells: np.ndarray, seed: int) -> np.ndarray:
    """A number for every row that depends on its values, and on how many equal rows are above it."""
    once: dict[str, str] = {}  # 1 and 1.0 are one value
    for cell in set(cells.ravel().tolist()):
        value = _number(cell)
        once[cell] = cell.strip() if value is None else repr(value)
    seen: Counter[str] = Counter()
    found = np.empty(len(cells), np.uint64)
    for i, row in enumerate(cells.tolist()):
        text = "\x1f".join(once[c] for c in row)
        digest = hashlib.blake2b(f"{seed}\x1f{seen[text]}\x1f{text}".encode("utf-8", "surrogatepass"), digest_size=8)
        found[i] = int.from_bytes(digest.digest(), "little")
        seen[text] += 1
    return found


def _words(cells: np.ndarray) -> np.ndarray:
    """Stripped texts, '' for a missing value."""
    out = np.array([c.strip() for c in cells.ravel().tolist()], dtype=object).reshape(cells.shape)
    out[is_missing(cells)] = ""
    return out


def _column(name: str, words: Mapping[str, np.ndarray]) -> Column:
    known = {w for part in words.values() for w in part.tolist() if w}
    strays = stray_words(known)
    for texts in (known, known.difference(strays)):
        if texts and (value := _values(texts)) and (texts == known or len(texts) > FEW):
            return Column(name, (), _coded(words, value))
    counts = Counter(w for part in ("real", "synthetic") for w in words[part].tolist() if w)
    order = sorted(known, key=lambda w: (-counts[w], w))
    return Column(name, tuple(order) or ("",), _coded(words, {w: i for i, w in enumerate(order)}))


def _values(words: Collection[str]) -> Mapping[str, float | None] | None:
    """The numbers that all of these texts are, or spell; None if there are others."""
    for read in (_number, _moment):
        value = {w: read(w) for w in words}
        if all(v is not None for v in value.values()):
            return value
    return spelled_numbers(sorted(words))


def _is_empty_id(column: Column) -> bool:
    """Whether real rows have an identifier that synthetic rows leave empty: by it alone they would be told apart."""
    real = column.parts["real"][~np.isnan(column.parts["real"])]
    empty = bool(np.isnan(column.parts["synthetic"]).all())
    return empty and not column.is_number and len(np.unique(real)) > len(real) / 2


def _coded(words: Mapping[str, np.ndarray], value: Mapping[str, float | None]) -> dict[str, np.ndarray]:
    return {part: np.array([value.get(w, math.nan) for w in column.tolist()], float) for part, column in words.items()}


def _number(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in word else None


def _moment(word: str) -> float | None:
    """A date, a time of day or both, in seconds."""
    word = word.replace("/", "-")
    of: tuple[Callable[[str], float], ...] = (_date, _clock)
    for read in of:
        try:
            return read(word)
        except (ValueError, OverflowError):
            continue
    return None


def _date(word: str) -> float:
    found = datetime.fromisoformat(word)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _clock(word: str) -> float:
    found = time.fromisoformat(word)
    return found.hour * 3600 + found.minute * 60 + found.second + found.microsecond / 1e6


@dataclass(frozen=True)
class Grid:
    """A column in a few cells: frequent values of their own, the others by quantile or together, and the missing."""

    labels: tuple[str, ...]
    parts: Mapping[str, np.ndarray]  # the cell of every row, by table

    def share(self, part: str) -> np.ndarray:
        """The fraction of rows in each cell."""
        return np.bincount(self.parts[part], minlength=len(self.labels)) / max(len(self.parts[part]), 1)


def grid(column: Column, most: int) -> Grid:
    """Divides a column into at most `most` cells, and one for missing values if there are any.

    Args:
        column: numbers or categories.
        most: cells. A number that at least one row in `most` has gets a cell of its own; the others are divided by
            common quantiles of the real and synthetic rows. The rarest categories share a cell.

    Returns:
        The cell of every row.
    """
    labels, parts = _bins(column, most) if column.is_number else _names(column, most)
    if any(np.isnan(v).any() for v in column.parts.values()):
        parts = {p: np.where(np.isnan(column.parts[p]), len(labels), code) for p, code in parts.items()}
        labels = [*labels, "(missing)"]
    return Grid(tuple(labels), parts)


def _names(column: Column, most: int) -> tuple[list[str], dict[str, np.ndarray]]:
    labels = list(column.values)
    if len(labels) > most:
        labels = [*labels[: most - 1], f"{len(labels) - most + 1} others"]
    parts = {p: np.minimum(np.nan_to_num(v), len(labels) - 1).astype(int) for p, v in column.parts.items()}
    return labels, parts


def _bins(column: Column, most: int) -> tuple[list[str], dict[str, np.ndarray]]:
    pooled = column.pooled()
    pooled = pooled[~np.isnan(pooled)]
    if not len(pooled):
        pooled = np.zeros(1)
    value, count = np.unique(pooled, return_counts=True)
    atoms = value[count * most >= len(pooled)] if len(value) > most else value
    rest = pooled[~np.isin(pooled, atoms)]
    edges = np.zeros(0)
    if len(rest):
        edges = np.unique(np.quantile(rest, np.linspace(0, 1, max(most - len(atoms), 1) + 1), method="nearest"))
    low = np.unique(rest)[np.searchsorted(np.unique(rest), edges[:-1])] if len(edges) > 1 else edges[:1]
    # In the order of their values: an atom stands before the bin that begins at it.
    begins = np.concatenate([atoms, low])
    order = np.argsort(begins, kind="stable")
    place = np.empty(len(order), int)
    place[order] = np.arange(len(order))
    said = [f"{v:.6g}" for v in atoms] + [f"{a:.6g} to {b:.6g}" for a, b in zip(low, [*edges[1:], *edges[:1]])]

    def cell(v: np.ndarray) -> np.ndarray:
        v = np.nan_to_num(v, posinf=0, neginf=0)
        atom = np.minimum(np.searchsorted(atoms, v), max(len(atoms) - 1, 0))
        is_atom = np.isin(v, atoms)
        bin_ = len(atoms) + np.clip(np.searchsorted(low, v, side="right") - 1, 0, max(len(low) - 1, 0))
        return place[np.where(is_atom | (not len(low)), atom, bin_)]

    return [said[i] for i in order], {p: cell(v) for p, v in column.parts.items()}
