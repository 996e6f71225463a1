"""What a compressed table needs besides its bits to be restored byte for byte.

A model codes the value of a cell, but the file may write it in different ways ('?' for a missing value, 1.0 for 1,
surrounding blanks). Notes hold the usual text of every value of a column, and the whole line if a row differs from it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from darn.data._layout import Layout
from darn.data._notes import TableNotes
from darn.data._schema import Schema
from darn.data._table import Table

BITS = ("0", "1")
STEP = 4096  # rows written at once


def table_notes(read: Callable[[], Iterator[tuple[Table, Sequence[Sequence[str]]]]], layout: Layout) -> dict:
    """The notes of a table.

    Args:
        read: gives the table in parts, each with the values of its columns as the model codes them; called twice.
        layout: of the table.
    """
    texts: dict[int, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for table, words in read():
        for j, values in enumerate(words):
            for (word, text), count in Counter(zip(values, table.cells[:, j].tolist())).items():
                texts[j][word][text] += count
    usual = {j: {word: found.most_common(1)[0][0] for word, found in column.items()} for j, column in texts.items()}
    lines, tail, before = {}, "", 0
    for table, words in read():
        written = table.raw or [layout.line(row) for row in table.cells.tolist()]
        columns = [[usual[j][w] for w in values] for j, values in enumerate(words)]
        rows = enumerate(zip(zip(*columns), written), before)
        lines |= {str(i): raw for i, (row, raw) in rows if layout.line(row) != raw}
        tail, before = table.tail, before + len(table)
    other = {str(j): {w: t for w, t in found.items() if w != t} for j, found in usual.items()}
    return pack_notes(layout, {j: t for j, t in other.items() if t}, lines, tail)


def pack_notes(layout: Layout, texts: dict, lines: dict[str, str], tail: str) -> dict:
    """The notes without empty entries."""
    return {k: v for k, v in {"layout": layout.to_json(), "texts": texts, "lines": lines, "tail": tail}.items() if v}


def table_text(notes: TableNotes, blocks: Iterator[tuple[int, np.ndarray]], schema: Schema | None) -> Iterator[bytes]:
    """The bytes of the file, part by part.

    Args:
        notes: as `table_notes` made them.
        blocks: (number of the first row, bits) of consecutive rows.
        schema: of the model; None if its units are the columns.
    """
    layout = notes.layout
    yield (b"\xef\xbb\xbf" if layout.bom else b"") + layout.head.encode()
    for first, x in blocks:
        for start in range(0, len(x), STEP):
            yield from _lines(notes, first + start, x[start : start + STEP], schema)
    yield notes.tail.encode()


def _lines(notes: TableNotes, first: int, x: np.ndarray, schema: Schema | None) -> Iterator[bytes]:
    if schema is None:
        columns = [[BITS[b] for b in column] for column in x.T.tolist()]
    else:
        found = dict(zip(schema.names, zip(*schema.decode(x))))
        columns = [list(found[name]) for name in notes.columns or ()]
    for j, known in notes.texts.items():
        columns[int(j)] = [known.get(w, w) for w in columns[int(j)]]
    # Line by line: a text may be long, and stand in every row.
    for i, row in enumerate(zip(*columns), first):
        yield (notes.lines.get(str(i)) or notes.layout.line(row)).encode()
