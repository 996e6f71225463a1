"""Batches of rows as cluster engines hand them over: a frame of pandas, polars or Arrow, or columns as NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from darn.data import _labels
from darn.data._binarize import to_rows
from darn.data._cells import CellCode, cell_notes
from darn.data._check import check_bits, check_width, matrix
from darn.data._columns import Columns, listed, read_words
from darn.data._frame import read_frame
from darn.data._layout import Layout
from darn.data._notes import TableNotes, read_notes
from darn.data._raw import WHOLE, Part
from darn.data._row_source import RowSource
from darn.data._rows import Rows
from darn.data._schema import Schema
from darn.data._table import Table
from darn.data._table_notes import pack_notes
from darn.errors import InputError, InputTypeError

WHAT = "the batch"


def _array(values: Any) -> np.ndarray:
    """Values as an array, where NaN stands for a missing number."""
    if isinstance(values, list) and None in values and all(isinstance(v, int | float | None) for v in values):
        return np.array([np.nan if v is None else v for v in values])
    return np.asarray(values)


class Batch:
    """Columns of equal length, whatever library they come from.

    Args:
        given: a DataFrame of pandas or polars, a Table or RecordBatch of Arrow, or a mapping from names to arrays.
    """

    def __init__(self, given: Any):
        self.given: Any = given
        library = type(given).__module__.split(".")[0]
        if isinstance(given, Mapping):
            self._kind = "mapping"
        elif library in ("pandas", "polars", "pyarrow") and len(getattr(given, "shape", ())) == 2:
            self._kind = library
        else:
            raise InputTypeError(
                f"a batch is a DataFrame of pandas, polars or Arrow, or a mapping from columns to arrays, not a "
                f"{type(given).__name__}"
            )
        names = self.given if self._kind == "mapping" else self.given.columns
        names = self.given.schema.names if self._kind == "pyarrow" else names
        self.names: list[str] = list(names)
        if not all(isinstance(n, str) for n in self.names) or len(set(self.names)) < len(self.names):
            raise InputError("the columns of a batch must have different names, which are texts")

    def __len__(self) -> int:
        if self._kind == "mapping":
            return len(next(iter(self.given.values()))) if self.names else 0
        return self.given.shape[0]

    @property
    def library(self) -> str:
        """That a `Form` makes frames of this kind with."""
        return {"pyarrow": "arrow", "mapping": "pandas"}.get(self._kind, self._kind)

    def own(self, name: str) -> Any:
        """A column as its library has it."""
        return self.given.column(name) if self._kind == "pyarrow" else self.given[name]

    def column(self, name: str) -> np.ndarray:
        """A column as an array; one of arrays of equal length as a matrix."""
        if name not in self.names:
            raise InputError(f"{WHAT} has no column {name!r}: it has {', '.join(self.names[:8])}")
        if self._kind == "mapping":
            return np.asarray(self.given[name])
        if self._kind == "pyarrow":
            found = self.given.column(name)
            found = np.asarray(found.to_numpy(zero_copy_only=False))
        else:
            found = self.given[name].to_numpy()
        nested = len(found) and isinstance(found[0], np.ndarray | list)
        return np.stack([np.asarray(v) for v in found]) if found.dtype == object and nested else found

    def only(self, names: Sequence[str]) -> Batch:
        """Some of the columns."""
        if self._kind == "mapping":
            return Batch({n: self.given[n] for n in names})
        return Batch(self.given.select(list(names)) if self._kind != "pandas" else self.given[list(names)])

    def beside(self, new: Mapping[str, Any], keep: bool = True) -> Any:
        """More columns, with these or alone, in the same type."""
        if self._kind == "mapping":
            own = dict(self.given) if keep else {}
            return own | {k: _array(v) for k, v in new.items()}
        if self._kind == "pandas":
            import pandas

            made = pandas.DataFrame(dict(new), index=self.given.index if keep else None)
            return self.given.assign(**{n: made[n] for n in made}) if keep else made
        if self._kind == "polars":
            import polars

            made = polars.DataFrame({k: polars.Series(k, v) for k, v in new.items()})
            return self.given.with_columns(made) if keep else made
        import pyarrow  # pyright: ignore[reportMissingImports]

        names = [n for n in self.names if n not in new] if keep else []
        ready = pyarrow.Array, pyarrow.ChunkedArray
        arrays = [self.given.column(n) for n in names]
        arrays += [v if isinstance(v, ready) else pyarrow.array(v) for v in new.values()]
        table = pyarrow.table(arrays, names=[*names, *new])
        if not isinstance(self.given, pyarrow.RecordBatch):
            return table
        whole = [c.combine_chunks() if c.num_chunks != 1 else c.chunk(0) for c in table.columns]
        return pyarrow.RecordBatch.from_arrays(whole, names=table.column_names)

    def _frame(self) -> Any:
        """As `read_frame` takes it."""
        if self._kind == "mapping":
            import pandas

            return pandas.DataFrame(dict(self.given))
        if self._kind == "pyarrow":
            import pyarrow  # pyright: ignore[reportMissingImports]

            return pyarrow.table([self.given.column(n) for n in self.names], names=self.names)
        return self.given

    def _table(self) -> Table:
        form, cells = read_frame(self._frame())
        return Table(form.names, cells, Layout(head=Layout().line(form.names)))

    # ---------------------------------------------------------------- rows for a model

    def rows(
        self,
        *,
        n: int,
        own: Sequence[str] | None,
        columns: Columns,
        labels: str | int | None = None,
        classes: tuple[str, ...] | None = None,
        intensities: bool = False,
    ) -> Rows:
        """The rows as a model takes them, like those of a file.

        Args:
            n: the number of columns it has.
            own: their names, if they have names.
            columns: how a table's columns became units.
            labels: the column of class labels, if the model was trained with them.
            classes: its classes.
            intensities: whether values between 0 and 1 are allowed.
        """
        if columns.schema is not None or labels is not None:
            raw = read_words(self._table(), Path(WHAT), WHAT, labels, columns, scored=True)
            raw, _ = _labels.encode(raw, labels is not None, classes)
            part = raw.parts[WHOLE]
            check_width(part.X.shape[1], n, WHAT, labels)
            check_bits(part.X, WHAT, raw.columns)
            return to_rows(part, WHOLE, None, None, 0.5, None)
        X, names = self.matrix(own, columns)
        check_width(X.shape[1], n, WHAT)
        bits = not ((X != 0) & (X != 1)).any()
        if not bits and intensities and X.min() >= 0 and X.max() <= 1:
            return to_rows(Part(X), WHOLE, 1, "intensity", 0.5, None)
        check_bits(X, WHAT, names)
        return to_rows(Part(X), WHOLE, None, None, 0.5, None)

    def matrix(self, own: Sequence[str] | None, columns: Columns) -> tuple[np.ndarray, list[str]]:
        """The values of a model's columns, by their names if all are there, in their order otherwise."""
        if own is not None and set(own) <= set(self.names):
            names = list(own)
        else:
            out = {*listed(columns.drop, self.names), columns.weights}
            names = [name for name in self.names if name not in out]
        found = [self.column(name) for name in names]
        wide = [v.reshape(len(v), -1) if v.dtype != object else v[:, None] for v in found]
        X, _ = matrix(np.concatenate(wide, axis=1) if wide else np.zeros((len(self), 0)), WHAT, names)
        return X, names

    def source(self, n: int, own: Sequence[str] | None, schema: Schema | None) -> RowSource:
        """The rows to be compressed, as a table."""
        if schema is None:
            X, names = self.matrix(own, Columns())
            check_width(X.shape[1], n, WHAT)
            check_bits(X, WHAT, names)
            named = names if len(names) == X.shape[1] else [f"x{j + 1}" for j in range(n)]
            notes = pack_notes(Layout(head=Layout().line(named)), {}, {}, "")
            return replace(RowSource.held(to_rows(Part(X), WHOLE, None, None, 0.5, None)), notes={"table": notes})
        table = self._table()
        notes = cell_notes(schema, [table], table.names, WHAT) | {"layout": table.layout.to_json()}
        code = CellCode(schema, read_notes({"table": notes}).table or TableNotes())
        blocks = lambda: code.blocks([table])  # noqa: E731
        read = lambda: (Rows(np.packbits(x, axis=1), n) for x, _ in blocks())  # noqa: E731
        return RowSource(len(table), n, read, {"table": notes}, "", code, blocks)
