"""The cells of a table's rows as `darn compress` codes them: verbatim, whatever they hold.

The model codes the bits of a row. They give each column's value, to which the column's density adds a place, and value
and place give a text. Where the cell has another text (a number written in an unusual way, a category that no training
row had, a column that is not modelled), the text itself is kept, and likewise a whole line whose format is unusual.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from darn.data._column import AbstractColumn, Aside
from darn.data._notes import MOST_BLANKS, TableNotes
from darn.data._schema import Schema, check_present, check_unique, stripped
from darn.data._table import Table
from darn.errors import FormatError
from darn.symbols import Coder, Tables

MAX_BLOCK_CELLS = 1 << 23  # rows times units and columns of a block
MOST_TEXT = 1 << 22  # characters of a block, about
STEP = 4096  # rows whose texts are in memory at once
_SHARED = 60  # of a text, the most characters that are taken from the expected one
_ZERO = ord("0")


class Cells:
    """Some rows of a table as values and places, and the texts that differ from what these give."""

    def __init__(self, code: CellCode, first: int, values: np.ndarray, places: np.ndarray):
        self._code, self._first, self._values, self._places = code, first, values, places
        self.odd: list[tuple[np.ndarray, Sequence[str]]] = []  # (rows, texts) of each column, then of the lines

    def __len__(self) -> int:
        return self._values.shape[1]

    def expected(self, j: int, start: int, stop: int) -> list[str]:
        """The texts that values and places give, of column j."""
        part = slice(start, stop)
        return self._code.expected(j, self._values[j, part], self._places[j, part], self._first + start)

    def lines(self) -> Iterator[str]:
        """The text of every row."""
        for start in range(0, len(self), STEP):
            stop = min(start + STEP, len(self))
            columns = [self._restored(j, start, self.expected(j, start, stop)) for j in range(len(self._values))]
            layout = self._code.layout
            odd, texts = self.odd[-1]
            unusual = dict(zip(odd.tolist(), range(len(odd))))
            # Line by line: a text may be long, and stand in every row.
            for i, row in enumerate(zip(*columns) if columns else [()] * (stop - start), start):
                line = layout.line(row)
                yield _restored(line, texts[unusual[i]]) if i in unusual else line

    def _restored(self, j: int, start: int, expected: list[str]) -> list[str]:
        rows, texts = self.odd[j]
        for k in range(*np.searchsorted(rows, [start, start + len(expected)])):
            i = int(rows[k]) - start
            expected[i] = _restored(expected[i], texts[k])
        return expected


class CellCode:
    """Codes the cells of a table.

    Args:
        schema: of the model.
        notes: on the table.
    """

    def __init__(self, schema: Schema, notes: TableNotes):
        self.schema, self.notes, self.layout = schema, notes, notes.layout
        ends = np.cumsum([0, *schema.sizes])
        self._units = {c.name: (c, slice(a, b)) for c, a, b in zip(schema.columns, ends[:-1], ends[1:])}
        self.columns = [self._units[n][0] if n in self._units else None for n in notes.columns or ()]
        self._texts = [notes.texts.get(str(j), {}) for j in range(len(self.columns))]
        self._around = [notes.around.get(str(j), ("", "")) for j in range(len(self.columns))]

    @property
    def most_rows(self) -> int:
        """In a block."""
        return max(MAX_BLOCK_CELLS // (sum(self.schema.sizes) + len(self.columns) + 1), 1)

    def check(self, rows: int) -> bool:
        return rows <= self.most_rows

    def bits(self, table: Table) -> np.ndarray:
        """(N, units): the bits of the rows, where an unknown text counts as missing or as the first value."""
        at = {name: j for j, name in enumerate(table.names)}
        parts = [np.zeros((len(table), 0), np.uint8)]
        for c in self.schema.columns:
            if c.size:
                parts.append(c.to_bits(_values(c, stripped(table.cells[:, at[c.name]], c.missing))[0]))
        return np.concatenate(parts, axis=1)

    def blocks(self, tables: Iterable[Table]) -> Iterator[tuple[np.ndarray, Table]]:
        """The rows in blocks of bounded size: (bits, cells)."""
        for table in tables:
            sizes = np.cumsum([sum(map(len, row)) for row in table.cells.tolist()])
            start = 0
            while start < len(table):
                before = sizes[start - 1] if start else 0
                stop = max(int(np.searchsorted(sizes, before + MOST_TEXT, side="right")), start + 1)
                part = table.take(slice(start, min(stop, start + self.most_rows)))
                yield self.bits(part), part
                start += len(part)

    def expected(self, j: int, values: np.ndarray, places: np.ndarray, first: int) -> list[str]:
        """The texts of column j that these values and places give."""
        c, known, (before, after) = self.columns[j], self._texts[j], self._around[j]
        if c is None or isinstance(c, Aside):
            counted = getattr(c, "numbered", None)
            return [""] * len(values) if counted is None else [str(counted + first + i) for i in range(len(values))]
        given = values < c.n
        texts = np.full(len(values), known.get("", ""), object)
        found = c.written(values[given], places[given])
        texts[given] = [known.get(w, w) for w in found] if c.exact else [before + w + after for w in found]
        return texts.tolist()

    def code(self, coder: Coder, x: np.ndarray, first: int, item: Table | None = None) -> Cells:
        """Writes the cells of a table, or reads them.

        Args:
            coder: writes them, or has written them.
            x: (N, units), the bits of the rows.
            first: the number of the first row in the file.
            item: the table; None to read it.
        """
        values, places = np.zeros((2, len(self.columns), len(x)), np.int64)
        found = Cells(self, first, values, places)
        for j, c in enumerate(self.columns):
            if c is None or isinstance(c, Aside):
                continue
            values[j] = c.from_bits(x[:, self._units[c.name][1]]) if c.size else 0
            if values[j].max(initial=0) >= c.n + c.optional:
                raise FormatError("the rows are none of the model's table: the file or the model is not genuine")
            given = values[j] < c.n
            known = None
            if item is not None:
                known = c.places_of(stripped(item.cells[:, j], c.missing)[given], values[j, given])
            places[j, given] = c.code(coder, values[j, given], known)
        for j in range(len(self.columns)):
            texts = wanted = None
            if item is not None:
                texts, wanted = found.expected(j, 0, len(x)), item.cells[:, j].tolist()
            found.odd.append(_differences(coder, len(x), texts, wanted))
        texts = wanted = None
        if item is not None:
            texts = [self.layout.line(row) for row in item.cells.tolist()]
            wanted = list(item.raw) if item.raw is not None else texts
        found.odd.append(_differences(coder, len(x), texts, wanted))
        return found


def _values(c: AbstractColumn, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the value of each text, whether it is the text's own)."""
    gone = words == ""
    values = np.full(len(words), c.n if c.optional else -1)
    values[~gone] = c.find(words[~gone])
    fits = values >= 0
    values[~fits] = c.n if c.optional else 0
    return values, fits


def _differences(coder: Coder, rows: int, expected: list[str] | None, texts: list[str] | None):
    """(rows, texts) where a text is not the expected one, written or read."""
    odd = None
    if expected is not None and texts is not None:
        odd = np.flatnonzero([a != b for a, b in zip(expected, texts, strict=True)])
    count = coder.count(None if odd is None else len(odd), rows)
    which = None
    if odd is not None:
        which = np.zeros(rows, np.int64)
        which[odd] = 1
    flags = coder.choose(Tables([[rows - count, count]]), np.zeros(rows, np.int64), which)
    odd = np.flatnonzero(flags)
    kept = None
    if expected is not None and texts is not None:
        kept = [_difference(expected[i], texts[i]) for i in odd.tolist()]
    return odd, coder.texts(kept, len(odd))


def _difference(expected: str, text: str) -> str:
    """A text, without the characters that it begins with as the expected one does."""
    same = 0
    for a, b in zip(expected[:_SHARED], text):
        if a != b:
            break
        same += 1
    return chr(_ZERO + same) + text[same:]


def _restored(expected: str, difference: str) -> str:
    return expected[: max(ord(difference[:1] or "0") - _ZERO, 0)] + difference[1:]


# ---------------------------------------------------------------- notes


def digest(schema: Schema) -> str:
    """Identifies a schema: cells can only be read with the one that they were written with."""
    return hashlib.sha256(json.dumps(schema.to_json(), sort_keys=True).encode()).hexdigest()[:16]


def cell_notes(schema: Schema, tables: Iterable[Table], names: Sequence[str], what: str) -> dict[str, Any]:
    """The notes on a table's cells: the usual text of each value, and the blanks around numbers.

    Args:
        schema: of the model.
        tables: the table in parts.
        names: of its columns.
        what: it is called in messages.
    """
    check_present(names, schema.modelled, what)
    check_unique(names, what)
    by_name = {c.name: c for c in schema.columns if not isinstance(c, Aside)}
    texts: dict[int, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    around: dict[int, Counter[tuple[str, str]]] = defaultdict(Counter)
    tail = ""
    for table in tables:
        tail = table.tail
        for j, name in enumerate(names):
            if (c := by_name.get(name)) is None:
                continue
            count = Counter(table.cells[:, j].tolist())
            cells = np.array(list(count), object)
            words = stripped(cells, c.missing)
            values, fits = _values(c, words)
            shown = np.array(c.written(values % c.n, np.zeros(len(cells), np.int64)) if c.exact else words, object)
            for cell, word, value, good in zip(cells.tolist(), shown.tolist(), values.tolist(), fits.tolist()):
                if good and (c.exact or value == c.n):
                    texts[j][word if value < c.n else ""][cell] += count[cell]
                elif good:
                    before, _, after = cell.partition(word)
                    if len(before) + len(after) <= MOST_BLANKS:
                        around[j][before, after] += count[cell]
    usual = {j: {w: found.most_common(1)[0][0] for w, found in column.items()} for j, column in texts.items()}
    other = {str(j): {w: t for w, t in found.items() if w != t} for j, found in usual.items()}
    blanks = {str(j): list(found.most_common(1)[0][0]) for j, found in around.items()}
    notes = {
        "texts": {j: t for j, t in other.items() if t},
        "around": {j: pair for j, pair in blanks.items() if any(pair)},
        "tail": tail,
    }
    return {k: v for k, v in notes.items() if v} | {"columns": list(names), "schema": digest(schema)}
