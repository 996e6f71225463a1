"""Rows with missing values: read from a file, or made by hiding a part of complete rows; written once completed."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from darn.batching import join
from darn.data import (
    AbstractPart,
    Layout,
    Table,
    encoded,
    every_kth,
    is_missing,
    is_pack,
    is_table,
    listed,
    open_arrays_parts,
    open_filled_parquet,
    open_parquet,
    open_table,
    open_table_parts,
    open_visible,
    open_words,
    own_places,
    read_table,
    square_shape,
)
from darn.errors import DarnError
from darn.files import open_output
from darn.inference import completion
from darn.inference.given import check_width
from darn.model import Stack
from darn.runs import synthetic
from darn.runs.run import Run

WORDS = ("csv", "tsv", "parquet")  # what texts are written as
HALVES = ("lower", "upper", "left", "right")


@dataclass(frozen=True)
class Holes:
    """Consecutive rows with units missing, and the table they came from."""

    x: np.ndarray  # (N, n_x); the values of missing units do not matter
    mask: np.ndarray  # (N, n_x), True where a unit is missing
    context: np.ndarray | None = None
    table: Table | None = None  # the same rows as text, from which known cells are copied
    cells: np.ndarray | None = None  # (N, columns of the table), True where a cell is missing

    @property
    def holed(self) -> np.ndarray:
        """(N,), True for the rows with missing units, or missing cells of columns that have one value only."""
        units = np.asarray(self.mask.any(axis=1))
        return units if self.cells is None else units | np.asarray(self.cells.any(axis=1))


@dataclass(frozen=True)
class HoleSource:
    """Rows with units missing, read in parts."""

    rows: int
    read: Callable[[], Iterator[Holes]]  # from the first row on; can be called again
    layout: Layout | None = None  # of the table they come from
    alike: bool = False  # whether the same units are missing in all rows

    def survey(self, model: Stack) -> tuple[completion.Survey, int]:
        """What is missing in the rows with holes, and the number of missing units."""
        missing = 0

        def masks() -> Iterator[np.ndarray]:
            nonlocal missing
            for part in self.read():
                check_width(model, part.x)
                mask = part.mask[: 1 if self.alike else None]
                missing += int(mask.sum())
                yield mask[part.holed[: len(mask)]]
                if self.alike:
                    break

        found = completion.survey(model, masks())
        return (found.times(self.rows), missing * self.rows) if self.alike else (found, missing)

    def given(self, model: Stack, seen: Callable[[Holes], object] = lambda part: None) -> Iterator[tuple]:
        """The rows with holes as `completion.complete_parts` takes them; `seen` is told of every part."""
        for part in self.read():
            seen(part)
            holed = part.holed
            if holed.any():
                side = None if part.context is None else np.asarray(part.context[holed], np.float32)
                yield *completion.holes(model, part.x[holed], part.mask[holed]), side


def completed(
    run: Run, source: HoleSource, known: completion.Survey, n: int, *, scored: bool = False, **options: Any
) -> Iterator[tuple]:
    """Completes all rows part by part; rows without holes are copied unchanged.

    Args:
        run: the model.
        source: the rows.
        known: their survey.
        n: completions of each row.
        scored: whether the missing units have their values, so that log p(missing | observed) is known.
        **options: of `completion.complete_parts`.

    Yields:
        (rows, (N, n, n_x) completions, `Completions.ess`, `ConditionalLikelihood.log_p`) of consecutive rows; the last
        two of rows with holes only, or None.
    """
    waiting: deque[Holes] = deque()
    held: list[Any] = []
    ready = 0
    holed = source.given(run.model, waiting.append)
    if scored:
        found = completion.conditional_parts(run.model, holed, known, n=n, **options)
        drawn = ((f.x, f.ess, scores.log_p) for f, scores in found)
    else:
        found = completion.complete_parts(run.model, holed, known, n=n, **options)
        drawn = ((f.x, f.ess, None) for f in found)

    def fill(part: Holes) -> tuple:
        nonlocal held, ready
        filled = np.repeat(np.where(part.mask, 0, part.x).astype(np.uint8)[:, None], n, axis=1)
        count = int(part.holed.sum())
        if not count:
            return part, filled, None, None
        whole: tuple = join(held)
        ready -= count
        held = [tuple(v if v is None else v[count:] for v in whole)] if ready else []
        filled[part.holed] = whole[0][:count]
        return part, filled, *(v if v is None else v[:count] for v in whole[1:])

    for one in drawn:
        held.append(one)
        ready += len(one[0])
        while waiting and int(waiting[0].holed.sum()) <= ready:
            yield fill(waiting.popleft())
    while waiting:
        yield fill(waiting.popleft())


def hidden_units(run: Run, what: str | Sequence[str]) -> np.ndarray:
    """The units to hide, (n_x,): half of an image, or columns by name."""
    if what in HALVES:
        rows, columns = run.shape or square_shape(run.model.n_x)
        if rows == 1 and what in ("lower", "upper"):
            raise DarnError(f"rows of {columns} columns have no {what} half: hide left or right, or columns by name")
        mask = np.zeros((rows, columns), bool)
        cut = {"lower": np.s_[rows // 2 :], "upper": np.s_[: rows // 2]}
        cut |= {"left": np.s_[:, : columns // 2], "right": np.s_[:, columns // 2 :]}
        mask[cut[what]] = True
        return mask.ravel()
    mask = np.zeros(run.model.n_x, bool)
    owner = _owners(run)
    wanted = listed(what, owner.tolist())
    for name in wanted:
        if name not in owner:
            raise DarnError(f"there is no column {name!r} to hide: give {', '.join(HALVES)} or names of columns")
        mask |= owner == name
    return mask


def hide(
    run: Run,
    source: str | None,
    split: str | None,
    every: int,
    what: str,
    delimiter: str | None = None,
    unseen: str = "error",
) -> HoleSource:
    """Complete rows with the same units hidden in each.

    Args:
        run: the model.
        source: a file or a set; None for the model's own data.
        split: which rows of it.
        every: 1 for all rows, k for every k-th.
        what: half of an image ("lower", "upper", "left", "right") or columns by name.
        delimiter: between the cells of a text table; None detects it.
        unseen: what a text that no training row had counts as.
    """
    rows = run.open(source, split, delimiter=delimiter, unseen=unseen).every(every)
    units = hidden_units(run, what)
    path = run.recipe.data.source if source is None else source
    if run.schema is None or not is_table(path):
        read = lambda: (Holes(x, np.broadcast_to(units, x.shape), c) for x, c in rows.parts())  # noqa: E731
        return HoleSource(rows.rows, read, alike=True)
    gone = set(_owners(run)[units].tolist())
    if source is None or split is not None:
        whole = read_table(path, delimiter=delimiter, split=split or "test", seed=run.recipe.training.seed)
        layout, tables = whole.layout, lambda: iter([whole])
    else:
        found = open_table_parts(path, path, delimiter)
        layout, tables = found.layout, found.read

    def cells() -> Iterator[Holes]:
        for (x, context), table in _aligned(rows.parts(), every_kth(tables(), every)):
            hidden = np.tile([n in gone for n in table.names], (len(table), 1))
            yield Holes(x, np.broadcast_to(units, x.shape), context, table, hidden)

    return HoleSource(rows.rows, cells, layout, alike=True)


def _aligned(rows: Iterator[tuple], tables: Iterable[Table]) -> Iterator[tuple[tuple, Table]]:
    """Every table with its rows, which come in other parts."""
    held: list[tuple] = []
    for table in tables:
        while sum(len(x) for x, _ in held) < len(table):
            held.append(next(rows))
        x, context = join(held)
        cut = len(table)
        yield (x[:cut], None if context is None else context[:cut]), table
        held = [(x[cut:], None if context is None else context[cut:])]


def read(run: Run, path: str, every: int, delimiter: str | None = None, unseen: str = "error") -> HoleSource:
    """Opens a file with missing values: empty cells of a table, NaN in an array.

    Args:
        run: the model.
        path: a .npy, a .npz of one array, or a table.
        every: 1 for all rows, k for every k-th.
        delimiter: between the cells of a text table; None detects it.
        unseen: what a text that no training row had counts as; the cell itself is kept in any case.
    """
    if run.model.n_context:
        raise DarnError("this model needs a label for every row: complete its rows from Python")
    if is_pack(path):
        raise DarnError(f"{path} is a packed set, whose rows have no missing values: give the file, or hide a part")
    if Path(path).suffix.lower() in (".npy", ".npz"):
        shape, dtype, arrays = open_arrays_parts(path, every)
        if len(shape) != 2 or dtype.kind not in "fbiu":
            raise DarnError(f"{path} must hold rows x columns of 0, 1 and NaN")
        gone = np.isnan if dtype.kind == "f" else lambda x: np.zeros(x.shape, bool)
        return HoleSource(shape[0], lambda: (Holes(x, gone(x)) for x in arrays()))
    found = open_table_parts(path, path, delimiter)
    rows = -(-found.count() // every)
    parts = lambda: encoded(every_kth(found.read(), every), lambda t: _of_table(run, t, path, unseen))  # noqa: E731
    return HoleSource(rows, parts, found.layout)


def _of_table(run: Run, table: Table, path: str, unseen: str) -> Holes:
    gone = is_missing(table.cells)
    if run.schema is None:
        own = own_places(table.names, run.columns, path)
        if own is None:
            own = list(range(len(table.names)))
        mask = gone[:, own]
        x = _bits(table.cells[:, own], mask, [table.names[i] for i in own], run.model.n_x, path)
        return Holes(x, mask, table=table, cells=gone & np.isin(np.arange(gone.shape[1]), own))
    schema = run.schema
    found = schema.encode(table.names, table.cells, path, unseen=unseen, holes=True)
    modelled = np.isin(table.names, schema.modelled)  # other columns are copied, with their missing values
    return Holes(found.bits.astype(np.float32), found.unknown, None, table, gone & modelled)


def write(
    run: Run,
    out: str,
    parts: Iterator[tuple],
    source: HoleSource,
    n: int,
    seed: int,
    within: Mapping[int, AbstractPart] | None = None,
) -> None:
    """Writes completions as an image, an array or a table.

    In a table every cell that was not missing is written as it was read, and so are columns that are not modelled.

    Args:
        run: the model.
        out: FILE.png, FILE.npy, FILE.csv, FILE.tsv or FILE.parquet.
        parts: (rows, (N, n, n_x) completions) of consecutive rows.
        source: the rows they complete.
        n: completions of each row.
        seed: of the numbers drawn within their bins.
        within: what texts of some columns are drawn from, by their index.
    """
    flat = lambda x: x.reshape(-1, x.shape[-1])  # noqa: E731
    if out.lower().endswith("npy"):
        with open_table(out, source.rows, []) as put:
            for _, x in parts:
                put(x)
    elif not out.lower().endswith(WORDS) or (source.layout is None and run.schema is None):
        how = {"shape": run.shape, "columns": run.columns, "n": run.model.n_x}
        with open_visible(out, source.rows * n, **how) as put:
            for _, x in parts:
                put(flat(x))
    elif source.layout is None:
        side = lambda c: None if c is None else np.repeat(c, n, axis=0)  # noqa: E731
        names, rows = synthetic.table(
            run, ((flat(x), side(part.context)) for part, x in parts), seed=seed, within=within
        )
        columns = run.schema.columns if run.schema is not None else ()
        typed = out.lower().endswith("parquet")
        with open_parquet(out, columns, names[len(columns) :]) if typed else open_words(out, names) as put:
            for texts in rows:
                put(texts)
    elif out.lower().endswith("parquet"):
        _write_parquet(run, out, parts, n, seed, within)
    else:
        _write_text(run, out, parts, n, source.layout, seed, within)


def _write_text(run: Run, out: str, parts: Iterator[tuple], n: int, layout: Layout, seed: int, within) -> None:
    with open_output(out) as f:
        f.write((b"\xef\xbb\xbf" if layout.bom else b"") + layout.head.encode())
        for _, _, cells in _filled(run, parts, n, seed, within):
            f.writelines(layout.line(row).encode() for row in cells.tolist())


def _write_parquet(run: Run, out: str, parts: Iterator[tuple], n: int, seed: int, within) -> None:
    assert run.schema is not None
    filled = _filled(run, parts, n, seed, within)
    first = next(filled)
    with open_filled_parquet(out, first[0].names, run.schema.columns) as put:
        for table, holes, cells in chain([first], filled):
            put(cells, holes, None if table.frame is None else table.frame[np.repeat(np.arange(len(table)), n)])


def _filled(run: Run, parts: Iterator[tuple], n: int, seed: int, within) -> Iterator[tuple]:
    """Consecutive rows of the table; of their completions, (N * n, columns), which cells fill holes, and all cells."""
    waiting: deque[Holes] = deque()

    def bits() -> Iterator[tuple]:
        for part, x in parts:
            waiting.append(part)
            yield x.reshape(-1, x.shape[-1]), None

    if run.schema is None:
        texts = (x.astype(int).astype(str) for x, _ in bits())
    else:
        width, rows = len(run.schema.columns), synthetic.decoded(run.schema, bits(), seed, within)
        texts = (np.array(words, object).reshape(-1, width) for words, _ in rows)
    for known in texts:
        part = waiting.popleft()
        assert part.table is not None
        assert part.cells is not None
        own = run.columns if run.schema is None else run.schema.names
        if own and (run.schema is not None or own_places(part.table.names, own, "the table") is not None):
            known = known[:, [own.index(name) if name in own else 0 for name in part.table.names]]
        gone, given = (np.repeat(a, n, axis=0) for a in (part.cells, part.table.cells))
        yield part.table, gone, np.where(gone, known, given)


def _bits(cells: np.ndarray, gone: np.ndarray, names: Sequence[str], n: int, path: str) -> np.ndarray:
    if cells.shape[1] != n:
        raise DarnError(f"{path} has {cells.shape[1]} columns, but the model has {n}: give rows of its own kind")
    wrong = next((cell for cell in dict.fromkeys(cells[~gone].tolist()) if not _is_bit(cell)), None)
    if wrong is not None:
        column = names[np.flatnonzero((cells == wrong).any(axis=0))[0]]
        raise DarnError(
            f"{path} has {wrong[:40]!r} in column {column!r}, not 0 or 1: correct it, or leave the cell empty"
        )
    return np.where(gone, "0", cells).astype(np.float32)


def _is_bit(cell: str) -> bool:
    try:
        return float(cell) in (0, 1)
    except ValueError:
        return False


def _owners(run: Run) -> np.ndarray:
    """The column that each unit belongs to."""
    if run.schema is not None:
        return np.repeat(np.array(run.schema.names, dtype=object), run.schema.sizes)
    return np.array(run.columns or [], dtype=object)
