"""What a compressed table of bits needs besides these to be restored byte for byte.

A model codes the bit of a cell, but the file may write it in different ways (1.0 for 1, surrounding blanks). Notes hold
the usual text of both bits of a column, and the whole line if a row differs from it. For tables of words and numbers,
see `darn.data._cells`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from darn.data._cells import STEP, Cells
from darn.data._layout import Layout
from darn.data._notes import TableNotes
from darn.data._table import Table

BITS = ("0", "1")


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


def table_text(notes: TableNotes, blocks: Iterator[tuple[int, Any]], *, head: bool = True) -> Iterator[bytes]:
    """The bytes of the file, part by part.

    Args:
        notes: as `table_notes` or `darn.data._cells.cell_notes` made them.
        blocks: (number of the first row, bits or cells) of consecutive rows.
        head: whether to begin with the text above the first row.
    """
    layout = notes.layout
    if head:
        yield (b"\xef\xbb\xbf" if layout.bom else b"") + layout.head.encode()
    for first, rows in blocks:
        if isinstance(rows, Cells):
            yield from (line.encode() for line in rows.lines())
            continue
        for start in range(0, len(rows), STEP):
            yield from _lines(notes, first + start, rows[start : start + STEP])
    yield notes.tail.encode()


def _lines(notes: TableNotes, first: int, x: np.ndarray) -> Iterator[bytes]:
    columns = [[BITS[b] for b in column] for column in x.T.tolist()]
    for j, known in notes.texts.items():
        columns[int(j)] = [known.get(w, w) for w in columns[int(j)]]
    # Line by line: a text may be long, and stand in every row.
    for i, row in enumerate(zip(*columns), first):
        yield (notes.lines.get(str(i)) or notes.layout.line(row)).encode()
