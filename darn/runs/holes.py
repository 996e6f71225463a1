"""Rows with missing values: read from a file, or made by hiding a part of complete rows; written once completed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from darn.data import (
    Table,
    is_missing,
    is_table,
    listed,
    read_array,
    read_table,
    square_shape,
    write_rows,
    write_table,
    write_words,
)
from darn.errors import DarnError
from darn.files import open_output
from darn.runs import synthetic
from darn.runs.folder import Run, scored_rows

HALVES = ("lower", "upper", "left", "right")


@dataclass(frozen=True)
class Holes:
    """Rows with units missing, and the table they came from."""

    x: np.ndarray  # (N, n_x); the values of missing units do not matter
    mask: np.ndarray  # (N, n_x), True where a unit is missing
    context: np.ndarray | None = None
    table: Table | None = None  # the same rows as text, from which known cells are copied
    cells: np.ndarray | None = None  # (N, columns of the table), True where a cell is missing


def hidden_units(run: Run, what: str | Sequence[str]) -> np.ndarray:
    """The units to hide, (n_x,): half of an image, or columns by name."""
    if what in HALVES:
        rows, columns = run.shape or square_shape(run.model.n_x)
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
) -> Holes:
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
    rows = run.rows(source, split, delimiter=delimiter, unseen=unseen).take(slice(None, None, every))
    x, context = scored_rows(rows)
    units = hidden_units(run, what)
    path = run.recipe.data.source if source is None else source
    holes = Holes(x, np.broadcast_to(units, x.shape), context)
    if run.schema is None or not is_table(path):
        return holes
    own = "test" if source is None else None
    table = read_table(path, delimiter=delimiter, split=split or own, seed=run.recipe.training.seed).take(
        slice(None, None, every)
    )
    gone = set(_owners(run)[units].tolist())
    return replace(holes, table=table, cells=np.tile([n in gone for n in table.names], (len(table), 1)))


def read(run: Run, path: str, every: int, delimiter: str | None = None, unseen: str = "error") -> Holes:
    """Reads a file with missing values: empty cells of a table, NaN in an array.

    Args:
        run: the model.
        path: a .npy, or a table.
        every: 1 for all rows, k for every k-th.
        delimiter: between the cells of a text table; None detects it.
        unseen: what a text that no training row had counts as; the cell itself is kept in any case.
    """
    if run.model.n_context:
        raise DarnError("this model needs a label for every row: complete its rows from Python")
    if Path(path).suffix.lower() == ".npy":
        x = read_array(path)[::every]
        if x.ndim != 2 or x.dtype.kind not in "fbiu":
            raise DarnError(f"{path} must hold rows x columns of 0, 1 and NaN")
        return Holes(x, np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool))
    table = read_table(path, delimiter=delimiter).take(slice(None, None, every))
    gone = is_missing(table.cells)
    if run.schema is None:
        x = _bits(table.cells, gone, run.model.n_x, path)
        return Holes(x, gone, table=table, cells=gone)
    schema = run.schema
    if lost := [n for n in schema.modelled if n not in table.names]:
        raise DarnError(f"{path} has no column {', '.join(map(repr, lost))}: leave cells empty where they are unknown")
    found = schema.encode(table.names, table.cells, path, unseen=unseen, holes=True)
    modelled = np.isin(table.names, schema.modelled)  # other columns are copied, with their missing values
    return Holes(found.bits.astype(np.float32), found.unknown, None, table, gone & modelled)


def write(run: Run, out: str, x: np.ndarray, holes: Holes, seed: int) -> None:
    """Writes completions as an image, an array or a table.

    In a table every cell that was not missing is written as it was read, and so are columns that are not modelled.

    Args:
        run: the model.
        out: FILE.png, FILE.npy or FILE.csv.
        x: (N, n, n_x), n completions of each row.
        holes: the rows they complete.
        seed: of the numbers drawn within their bins.
    """
    flat, n = x.reshape(-1, x.shape[-1]), x.shape[1]
    if out.lower().endswith("npy"):
        write_table(out, x, [])
    elif not out.lower().endswith("csv") or (holes.table is None and run.schema is None):
        write_rows(out, flat, shape=run.shape, columns=run.columns)
    elif holes.table is None:
        side = None if holes.context is None else np.repeat(holes.context, n, axis=0)
        write_words(out, *synthetic.table(run, flat, side, seed=seed))
    else:
        assert holes.cells is not None
        _write_text(run, out, flat, n, holes.table, holes.cells, seed)


def _write_text(run: Run, out: str, flat: np.ndarray, n: int, table: Table, missing: np.ndarray, seed: int) -> None:
    if run.schema is None:
        filled = flat.astype(int).astype(str).astype(object)
        place = range(len(table.names))
    else:
        filled = np.array(run.schema.decode(flat, seed), dtype=object)
        place = [run.schema.names.index(name) if name in run.schema.names else 0 for name in table.names]
    layout = table.layout
    with open_output(out) as f:
        f.write((b"\xef\xbb\xbf" if layout.bom else b"") + layout.head.encode())
        for i, cells in enumerate(table.cells):
            for k in range(i * n, i * n + n):
                f.write(layout.line(np.where(missing[i], filled[k, place], cells).tolist()).encode())


def _bits(cells: np.ndarray, gone: np.ndarray, n: int, path: str) -> np.ndarray:
    if cells.shape[1] != n:
        raise DarnError(f"{path} has {cells.shape[1]} columns, but the model has {n}: give rows of its own kind")
    try:
        return np.where(gone, "0", cells).astype(np.float32)
    except ValueError:
        raise DarnError(f"{path} must hold 0 and 1, and empty cells for missing values") from None


def _owners(run: Run) -> np.ndarray:
    """The column that each unit belongs to."""
    if run.schema is not None:
        return np.repeat(np.array(run.schema.names, dtype=object), run.schema.sizes)
    return np.array(run.columns or [], dtype=object)
