"""What a compressed table needs besides its bits to be restored byte for byte.

A model codes the value of a cell, but the file may write it in different ways ('?' for a missing value, 1.0 for 1,
surrounding blanks). Notes hold the usual text of every value of a column, and the whole line if a row differs from it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from darn.data._layout import Layout
from darn.data._schema import Schema
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


def fits(notes: dict, rows: int, n: int, schema: Schema | None) -> bool:
    """Whether notes are valid for this many rows; may raise TypeError, ValueError or AttributeError."""
    width = n if schema is None else len(schema.names)
    Layout.from_json(notes.get("layout", {}))
    texts, lines = notes.get("texts", {}), notes.get("lines", {})
    held = [*lines.values(), notes.get("tail", ""), *(t for column in texts.values() for t in column.values())]
    return (
        set(notes) <= {"layout", "texts", "lines", "tail", "columns"}
        and all(isinstance(t, str) for t in held)
        and all(0 <= int(j) < width for j in texts)
        and all(0 <= int(i) < rows for i in lines)
        and ("columns" in notes) == (schema is not None)
        and (schema is None or sorted(notes["columns"]) == sorted(schema.names))
    )


def table_text(notes: dict, blocks: Iterator[tuple[int, np.ndarray]], schema: Schema | None) -> Iterator[bytes]:
    """The bytes of the file, part by part.

    Args:
        notes: as `table_notes` made them.
        blocks: (number of the first row, bits) of consecutive rows.
        schema: of the model; None if its units are the columns.
    """
    layout = Layout.from_json(notes.get("layout", {}))
    texts, lines = notes.get("texts", {}), notes.get("lines", {})
    yield (b"\xef\xbb\xbf" if layout.bom else b"") + layout.head.encode()
    for first, x in blocks:
        if schema is None:
            columns = [[BITS[b] for b in column] for column in x.T.tolist()]
        else:
            found = dict(zip(schema.names, zip(*schema.decode(x))))
            columns = [list(found[name]) for name in notes["columns"]]
        for j, known in texts.items():
            columns[int(j)] = [known.get(w, w) for w in columns[int(j)]]
        rows = enumerate(zip(*columns), first)
        yield "".join(lines.get(str(i)) or layout.line(row) for i, row in rows).encode()
    yield notes.get("tail", "").encode()
