"""DataFrames of pandas, polars and Arrow as texts, and back to the same types."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from darn.data._column import AbstractColumn, Aside, Category
from darn.data._date import ISO, Date
from darn.data._number import MOST_DIGITS, Number
from darn.data._scientific import Scientific
from darn.data._table import import_polars
from darn.errors import InputError, InputTypeError
from darn.files import open_output

LIBRARIES = ("pandas", "polars", "arrow")


def _reads(tag: str, text: str) -> bool:
    """Whether a text is a value of this kind."""
    try:
        return _TAGS[tag].read(text) is not None
    except (ValueError, ArithmeticError):
        return False


def _whole(text: str, parts: int = 1) -> int:
    found = Decimal(text)  # exact, where a float is not
    if found.adjusted() > MOST_DIGITS:
        raise ValueError("it is beyond all numbers")
    return round(found * parts)


def _span(text: str) -> timedelta:
    return timedelta(microseconds=_whole(text, 10**6))


def _span_text(value: timedelta) -> str:
    return f"{(Decimal(value // timedelta(microseconds=1)) / 10**6).normalize():f}"


class _Tag(NamedTuple):
    """What the texts of a column stand for."""

    type: type
    write: Callable[[Any], str]
    read: Callable[[str], Any]


# A type comes before those that it is a kind of: a bool is an int.
_TAGS = {
    "bool": _Tag(bool, lambda v: str(v).lower(), lambda t: t in ("true", "1")),
    "int": _Tag(int, str, _whole),
    "float": _Tag(float, str, float),
    "decimal": _Tag(Decimal, str, Decimal),
    "time": _Tag(datetime, lambda v: v.isoformat(" "), datetime.fromisoformat),
    "date": _Tag(date, date.isoformat, date.fromisoformat),
    "clock": _Tag(time, time.isoformat, time.fromisoformat),
    "span": _Tag(timedelta, _span_text, _span),
    "text": _Tag(str, str, str),
}


@dataclass(frozen=True)
class Form:
    """The library and the types of a frame, apart from its cells."""

    library: str  # "pandas" | "polars" | "arrow"
    names: tuple[str, ...]
    tags: tuple[str, ...]  # what each column's texts stand for, a key of `_TAGS`
    dtypes: tuple[Any, ...] = ()  # the library's own; () chooses the usual ones

    def __post_init__(self):
        if self.library not in LIBRARIES or len(self.tags) != len(self.names) or not set(self.tags) <= set(_TAGS):
            raise InputError("a model file says that its table was a frame of no known kind: save the model again")

    def within(self, library: str) -> Form:
        """The form in another library."""
        return self if self.library == library else Form(library, self.names, self.tags)

    def frame(self, cells: np.ndarray, columns: Sequence[AbstractColumn] = ()) -> Any:
        """The texts (N, columns) as a frame of these types.

        Args:
            cells: the texts; '' is a missing value.
            columns: the first ones. What they write for a missing value is one, unless the type has it, as text or inf.
        """
        for j, (column, tag) in enumerate(zip(columns, self.tags)):
            strange = {word for word in column.missing if not _reads(tag, word)}
            cells[:, j] = ["" if word in strange else word for word in cells[:, j].tolist()]
        dtypes = self.dtypes or (None,) * len(self.names)
        series = [self._column(j, cells[:, j].tolist(), dtype) for j, dtype in enumerate(dtypes)]
        if self.library == "pandas":
            import pandas

            return pandas.DataFrame(dict(zip(self.names, series)), columns=list(self.names))
        if self.library == "polars":
            import polars

            return polars.DataFrame(series)
        import pyarrow  # pyright: ignore[reportMissingImports]

        return pyarrow.table(series, names=list(self.names))

    def filled(self, X: Any, cells: np.ndarray, holes: np.ndarray, usual: Form) -> Any:
        """A frame of this form with some cells replaced; all others are not even converted.

        Args:
            X: the frame.
            cells: (N, columns) of texts.
            holes: (N, columns), True for the cells to be replaced by their texts.
            usual: the form of columns without any value of their own.
        """
        out = X.copy() if self.library == "pandas" else X
        for j in np.flatnonzero(holes.any(axis=0)).tolist():
            name, dtype, form, at = self.names[j], self.dtypes[j], self, j
            if holes[:, j].all() and name in usual.names:
                form, at = usual, usual.names.index(name)
                dtype = usual.dtypes[at] if usual.dtypes and usual.library == self.library else None
            texts = np.where(holes[:, j], cells[:, j], "")
            try:
                new = form.within(self.library)._column(at, texts.tolist(), dtype)
                out = _PUT[self.library](out, j, new, holes[:, j])
            except Exception as e:  # of many kinds
                said = " ".join(str(e).split())[:200]
                raise InputError(f"column {name!r} of the frame, {self.dtypes[j]}, cannot be filled in: {said}") from e
        return out

    def _column(self, j: int, texts: list[str], dtype: Any) -> Any:
        """A column of the library."""
        read, least, most = _TAGS[self.tags[j]].read, *_limits(dtype)
        try:
            values = [read(t) if t else None for t in texts]
        except (ValueError, ArithmeticError) as e:
            raise InputError(f"values of column {self.names[j]!r} are not of the type that the frame had") from e
        if most is not None:  # a sample may lie beyond all training rows, but not beyond the type
            values = [None if v is None else min(max(v, least), most) for v in values]
        if self.library == "pandas":
            import pandas

            # A column of whole numbers that was set aside has no values, which its type may not allow.
            cannot = None in values and isinstance(dtype, np.dtype) and dtype.kind in "iub"
            return pandas.Series(values, dtype=object if cannot else dtype)
        if self.library == "polars":
            import polars

            if zone := getattr(dtype, "time_zone", None):
                utc = polars.Series(self.names[j], values, dtype=polars.Datetime(dtype.time_unit, "UTC"))
                return utc.dt.convert_time_zone(zone)
            return polars.Series(self.names[j], values, dtype=dtype)
        import pyarrow  # pyright: ignore[reportMissingImports]

        return pyarrow.array(values, type=dtype)


def _limits(dtype: Any) -> tuple[Any, Any]:
    """The least and the greatest value of a type of whole numbers or decimals; None of any other."""
    if whole := re.fullmatch(r"(u?)int(8|16|32|64)", str(dtype).lower()):
        bits = int(whole[2])
        return (0, 2**bits - 1) if whole[1] else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if "decimal" in str(dtype).lower() and getattr(dtype, "precision", None):
        most = Decimal(10**dtype.precision - 1).scaleb(-dtype.scale)
        return -most, most
    return None, None


def _put_pandas(frame: Any, j: int, new: Any, holes: np.ndarray) -> Any:
    old = frame.iloc[:, j]
    if holes.all():
        kept = new.set_axis(frame.index)
    else:
        rows = np.flatnonzero(holes)
        kept, values = old.copy(), new.iloc[rows]
        if hasattr(old, "cat") and (more := [v for v in values.unique() if v not in old.cat.categories]):
            kept = kept.cat.add_categories(more)
        kept.iloc[rows] = values.array
    frame.isetitem(j, kept)
    return frame


def _put_polars(frame: Any, j: int, new: Any, holes: np.ndarray) -> Any:
    import polars

    old = frame.to_series(j)
    kept = new if holes.all() else new.zip_with(polars.Series(holes), old)
    return frame.with_columns(kept.alias(old.name))


def _put_arrow(frame: Any, j: int, new: Any, holes: np.ndarray) -> Any:
    import pyarrow  # pyright: ignore[reportMissingImports]
    from pyarrow import compute  # pyright: ignore[reportMissingImports]

    kept = new if holes.all() else compute.if_else(pyarrow.array(holes), new, frame.column(j))
    return frame.set_column(j, frame.schema.field(j).with_type(kept.type), kept)


_PUT = {"pandas": _put_pandas, "polars": _put_polars, "arrow": _put_arrow}


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
    strange = [n for n in names if not isinstance(n, str)]
    twice = [n for n in dict.fromkeys(names) if names.count(n) > 1]
    if strange or twice:
        said = ", ".join(map(repr, (strange or twice)[:8]))
        wrong = f"{'is not a text' if len(strange) == 1 else 'are not texts'}" if strange else "is twice"
        advice = ": rename the columns" + ", for example by X.columns = X.columns.astype(str)" * bool(strange)
        raise InputError(
            f"the columns of the frame must have different names, which are texts, but {said} {wrong}{advice}"
        )
    cells = np.empty(X.shape, object)
    tags = []
    for j, (column, dtype) in enumerate(zip(columns, dtypes)):
        values = [_plain(v) for v in column]
        tags.append(_tag(values))
        write = _writer(tags[-1], values, str(dtype))
        cells[:, j] = ["" if v is None else write(v) for v in values]
    return Form(library, tuple(names), tuple(tags), dtypes), cells


def _plain(value: Any) -> Any:
    """A cell as one of Python's own types; None for a missing value."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, np.generic):
        single = value.dtype.kind == "f" and value.dtype.itemsize < 8
        value = float(str(value)) if single else value.item()
    gone = (isinstance(value, float) and math.isnan(value)) or (isinstance(value, Decimal) and value.is_nan())
    return None if gone or value == "" else value


def _tag(values: Sequence[Any]) -> str:
    """What all values of a column are, apart from missing ones."""
    kinds = {type(v) for v in values if v is not None}
    for tag, (kind, *_) in _TAGS.items():
        if kinds and all(issubclass(k, kind) for k in kinds):
            return tag
    return {frozenset((int, float)): "float", frozenset((int, Decimal)): "decimal"}.get(frozenset(kinds), "text")


def _writer(tag: str, values: Sequence[Any], dtype: str) -> Callable[[Any], str]:
    """From the values of a column to texts, all of one format."""
    if tag == "time" and any(v is not None and v.microsecond for v in values):
        return lambda v: v.isoformat(" ", timespec="microseconds")
    # As Python floats, numbers of single precision would have digits that mean nothing.
    if tag == "float" and dtype.lower() in ("float32", "float16", "float", "halffloat"):
        return lambda v: str(np.float32(v))
    if tag == "float":
        return lambda v: str(float(v))  # some may be whole
    return _TAGS[tag].write if tag != "text" else _text


def _text(value: Any) -> str:
    """A cell of a column of several types."""
    return next((t.write(value) for t in _TAGS.values() if isinstance(value, t.type)), None) or str(value)


def usual_tag(column: AbstractColumn) -> str:
    """What the texts of a column stand for, where no frame says it."""
    if isinstance(column, Number):
        return "int" if not column.digits[1] and _within_64_bits(column) else "float"
    if isinstance(column, Date) and column.form in ISO and re.fullmatch(r"Z?|[+-]\S*", column.zone):
        return "date" if column.form == ISO[0] else "time"
    if isinstance(column, Scientific):
        return "float"
    if isinstance(column, Aside) and column.numbered is not None:
        return "int"
    if isinstance(column, Category) and column.values:
        forms = {"int": r"-?(0|[1-9]\d{0,17})", "float": r"-?(0|[1-9]\d*)\.\d+"}
        return next((t for t, form in forms.items() if all(re.fullmatch(form, v) for v in column.values)), "text")
    return "text"


def _within_64_bits(column: Number) -> bool:
    low, high = (int(t) for t in column.texts(np.array([column.starts[0], column.ends[-1]])))
    return max(-low, high) < 2**63


@contextlib.contextmanager
def open_parquet(path: str, columns: Sequence[AbstractColumn], more: Sequence[str]) -> Iterator[Callable]:
    """Writes rows of texts as a Parquet file, typed: numbers, dates in ISO's format, texts.

    Args:
        path: the file.
        columns: of the table.
        more: names of further columns, of texts.

    Yields:
        The function that takes the next rows.
    """
    form = _typed((*(c.name for c in columns), *more), (*map(usual_tag, columns), *["text"] * len(more)), columns)
    parts = [form.frame(np.zeros((0, len(form.names)), object))]
    with open_output(path) as f:
        yield lambda rows: parts.append(form.frame(np.array(rows, object).reshape(-1, len(form.names)), columns))
        import_polars(path).concat(parts).write_parquet(f)


@contextlib.contextmanager
def open_filled_parquet(path: str, names: Sequence[str], columns: Sequence[AbstractColumn]) -> Iterator[Callable]:
    """Writes a table with its holes filled as a Parquet file.

    Rows of a Parquet file keep its types, and their other cells are not even converted. Of rows of texts a column is
    typed as by `open_parquet` where that loses nothing of the cells that were given.

    Args:
        path: the file.
        names: of the table's columns.
        columns: those of them that have one.

    Yields:
        The function that takes the next rows: texts, which of them fill holes, and the frame they came from or None.
    """
    polars = import_polars(path)
    parts: list[tuple[np.ndarray, np.ndarray, Any]] = []
    with open_output(path) as f:
        yield lambda *part: parts.append(part)
        texts, holes, frames = zip(*parts)
        cells, gone = np.concatenate(texts), np.concatenate(holes)
        by_name = {c.name: c for c in columns}
        tags = [usual_tag(by_name[n]) if n in by_name else "text" for n in names]
        if frames[0] is None:
            given = [[t for t in set(c[~h].tolist()) if t] for c, h in zip(cells.T, gone.T)]
            kept = [tag if all(_keeps(tag, t) for t in texts) else "text" for tag, texts in zip(tags, given)]
            frame = _typed(names, kept, columns).frame(cells)
        else:
            frame = polars.concat(frames)
            frame = read_frame(frame)[0].filled(frame, cells, gone, _typed(names, tags, columns))
        frame.write_parquet(f)


def _typed(names: Sequence[str], tags: Sequence[str], columns: Sequence[AbstractColumn]) -> Form:
    """The form of a polars frame with these tags."""
    polars = import_polars("a typed table")
    zoned = {c.name for c in columns if getattr(c, "zone", "")}
    kinds = {"int": polars.Int64, "float": polars.Float64, "date": polars.Date, "text": polars.String}
    time = lambda name: polars.Datetime("us", "UTC" if name in zoned else None)  # noqa: E731
    types = (time(name) if tag == "time" else kinds[tag] for name, tag in zip(names, tags))
    return Form("polars", tuple(names), tuple(tags), tuple(types))


def _keeps(tag: str, text: str) -> bool:
    """Whether a text is the value that it is read as: of its number, every digit that a float can hold."""
    try:
        value = _TAGS[tag].read(text)
        if tag not in ("int", "float"):
            return True
        number = Decimal(text)
        return (number == value and -(2**63) <= value < 2**63) if tag == "int" else (number % 1 != 0 or number == value)
    except (ValueError, ArithmeticError):
        return False
