"""Synthetic rows of a table: decoding bits to the table's columns, and counting copies of training rows."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from darn.data import AbstractPart, Schema
from darn.errors import DarnError
from darn.runs.run import Run


def decoded(
    schema: Schema,
    parts: Iterable[tuple[np.ndarray, Any]],
    seed: int,
    within: Mapping[int, AbstractPart] | None = None,
    first: int = 0,
) -> Iterator[tuple[list[list[str]], Any]]:
    """Rows of texts, with what belongs to them.

    Numbers are drawn within their bins. What is drawn for a row depends on the seed and the row's number alone, not on
    how the rows come in parts.

    Args:
        schema: of the table.
        parts: (bits, an array with as many rows or None) of consecutive rows.
        seed: of the numbers.
        within: what conditions allow of some columns, by their index.
        first: the number of the first row.
    """
    for x, side in parts:
        yield schema.decode(x, seed, within, np.arange(first, first + len(x))), side
        first += len(x)


def table(
    run: Run,
    parts: Iterable[tuple[np.ndarray, np.ndarray | None]],
    *,
    seed: int = 0,
    within: Mapping[int, AbstractPart] | None = None,
    first: int = 0,
) -> tuple[list[str], Iterator[list[list[str]]]]:
    """Returns (column names, rows of texts in parts) of sampled bits, which come as (bits, context).

    The class, if one was given, is the last column. `within` is what conditions allow of some columns, `first` the
    number of the first row.
    """
    assert run.schema is not None
    names, classes = list(run.schema.names), run.about.data.classes
    if classes and run.model.n_context:
        label = run.recipe.data.labels or ""
        names.append("label" if label.lstrip("-").isdigit() else label)

    def rows() -> Iterator[list[list[str]]]:
        assert run.schema is not None
        for words, context in decoded(run.schema, parts, seed, within, first):
            if classes and context is not None:
                words = [[*row, classes[k]] for row, k in zip(words, context.argmax(axis=1).tolist())]
            yield words

    return names, rows()


class Copies:
    """Counts the rows that equal a training row, and compares with the fraction of held-out rows that do.

    Rows are compared as bits: numbers and dates in the same cell are equal. A model that memorised rows produces more
    copies than there are among held-out rows.
    """

    def __init__(self, run: Run):
        self._seen, self._count, self._rows = None, 0, 0
        self._rounded = run.schema is not None and not run.schema.exact
        try:
            splits = run.splits()
        except DarnError:
            return  # the training data are no longer available
        # Of a set that does not fit into memory, copies are not counted.
        if splits.sha256 == run.about.data.sha256 and not splits.train.in_parts:
            self._seen = {r.tobytes() for r in splits.train.values}
            self._train = len(splits.train)
            held_out = np.concatenate([splits.valid.values, splits.test.values])
            self._held_out = float(np.mean([r.tobytes() in self._seen for r in held_out]))

    def add(self, x: np.ndarray) -> None:
        """Counts more sampled rows."""
        self._rows += len(x)
        if self._seen is not None:
            self._count += sum(r.tobytes() in self._seen for r in np.packbits(x, axis=1))

    def found(self) -> dict | None:
        """The fractions; None if the training data are no longer available."""
        if self._seen is None or not self._rows:
            return None
        shares = {"sampled": self._count / self._rows, "held_out": self._held_out}
        return shares | {"train_rows": self._train, "numbers_by_cell": self._rounded}


def sentence(found: dict) -> str:
    """How many rows are copies, in words."""
    text = (
        f"{found['sampled']:.1%} of them equal one of the {found['train_rows']:,} training rows, as do "
        f"{found['held_out']:.1%} of the held-out rows"
    )
    return text + (", if numbers in the same cell count as equal" if found["numbers_by_cell"] else "")
