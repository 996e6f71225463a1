"""DataFrames of pandas, polars and Arrow as texts, and back to the same types."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import numpy as np

from darn.data._column import AbstractColumn
from darn.data._number import Number
from darn.errors import InputError, InputTypeError

LIBRARIES = ("pandas", "polars", "arrow")
# What the texts of a column stand for.
_FROM_TEXT: dict[str, Any] = {
    "int": lambda t: round(float(t)),
    "float": float,
    "bool": lambda t: t == "true",
    "date": date.fromisoformat,
    "time": datetime.fromisoformat,
    "text": str,
}


@dataclass(frozen=True)
class Form:
    """The library and the types of a frame, apart from its cells."""

    library: str  # "pandas" | "polars" | "arrow"
    names: tuple[str, ...]
    tags: tuple[str, ...]  # what each column's texts stand for, a key of `_FROM_TEXT`
    dtypes: tuple[Any, ...] = ()  # the library's own; () chooses the usual ones

    def __post_init__(self):
        if self.library not in LIBRARIES or len(self.tags) != len(self.names) or not set(self.tags) <= set(_FROM_TEXT):
            raise InputError("a model file says that its table was a frame of no known kind: save the model again")

    def frame(self, cells: np.ndarray) -> Any:
        """The texts (N, columns) as a frame of these types; '' is a missing value."""
        read = [_FROM_TEXT[tag] for tag in self.tags]
        try:
            columns = [[read[j](t) if t else None for t in cells[:, j].tolist()] for j in range(len(self.names))]
        except (ValueError, OverflowError) as e:
            raise InputError(f"a column's values are not of the type that the frame had: {e}") from e
        dtypes = self.dtypes or (None,) * len(columns)
        if self.library == "pandas":
            import pandas

            made = {n: _series(pandas.Series, c, t) for n, c, t in zip(self.names, columns, dtypes)}
            return pandas.DataFrame(made, columns=list(self.names))
        if self.library == "polars":
            import polars

            return polars.DataFrame([polars.Series(n, c, dtype=t) for n, c, t in zip(self.names, columns, dtypes)])
        import pyarrow  # pyright: ignore[reportMissingImports]

        return pyarrow.table([pyarrow.array(c, type=t) for c, t in zip(columns, dtypes)], names=list(self.names))


def _series(make: Any, values: list, dtype: Any) -> Any:
    # A column of whole numbers that was set aside has no values, which its type may not allow.
    cannot = None in values and isinstance(dtype, np.dtype) and dtype.kind in "iub"
    return make(values, dtype=object if cannot else dtype)


def read_frame(X: Any) -> tuple[Form, np.ndarray]:
    """Returns (the frame's form, its cells as texts (N, columns); '' for missing values)."""
    library = type(X).__module__.split(".")[0].replace("pyarrow", "arrow")
    if library not in LIBRARIES or not hasattr(X, "shape") or len(X.shape) != 2:
        raise InputTypeError(f"give a DataFrame of pandas, polars or Arrow, not a {type(X).__name__}")
    if library == "arrow":
        names, columns = X.column_names, [c.to_pylist() for c in X.columns]
        dtypes = tuple(X.schema.types)
    else:
        names = list(X.columns)
        series = [X.iloc[:, j] if library == "pandas" else X.to_series(j) for j in range(X.shape[1])]
        columns = [s.tolist() if library == "pandas" else s.to_list() for s in series]
        dtypes = tuple(X.dtypes)
    if not all(isinstance(n, str) for n in names) or len(set(names)) < len(names):
        raise InputError("the columns of the frame must have different names, which are texts")
    cells = np.empty(X.shape, object)
    for j, (column, dtype) in enumerate(zip(columns, dtypes)):
        # As Python floats, numbers of single precision would have digits that mean nothing.
        single = str(dtype).lower() in ("float32", "float16", "float", "halffloat")
        cells[:, j] = [str(np.float32(t)) if single and t else t for t in map(_text, column)]
    tags = tuple(_tag(column) for column in columns)
    return Form(library, tuple(names), tags, dtypes), cells


def _tag(values: Sequence[Any]) -> str:
    """What all values of a column are, apart from missing ones."""
    kinds = {type(v) for v in values if _text(v)}
    for tag, kind in (("bool", bool), ("int", int), ("float", float), ("time", datetime), ("date", date)):
        if kinds and all(issubclass(k, kind) for k in kinds):
            return tag
    return "float" if kinds == {int, float} else "text"


def _text(value: Any) -> str:
    if (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, float) and math.isnan(value))
    ):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else value.isoformat(" ") if isinstance(value, datetime) else str(value)


def usual_tag(column: AbstractColumn) -> str:
    """What the texts of a column stand for, where no frame says it."""
    if isinstance(column, Number) and not column.digits[1]:
        return "int" if not column.optional else "float"
    return "float" if isinstance(column, Number) else "text"
