"""Rows with holes: read from a file, or made by hiding a part of whole rows; and written once they are filled."""

import numpy as np

from darn.data import MISSING, Schema, read_words, square_shape, write_rows, write_table, write_words
from darn.errors import DarnError
from darn.runs import synthetic

HALVES = ("lower", "upper", "left", "right")


def hide(run, what: str) -> np.ndarray:
    """The units to hide: half of an image, or columns by name."""
    if what in HALVES:
        rows, columns = run.shape or square_shape(run.model.n_x)
        mask = np.zeros((rows, columns), bool)
        cut = {"lower": np.s_[rows // 2 :], "upper": np.s_[: rows // 2]}
        cut |= {"left": np.s_[:, : columns // 2], "right": np.s_[:, columns // 2 :]}
        mask[cut[what]] = True
        return mask.ravel()
    wanted = [w.strip() for w in what.split(",") if w.strip()]
    mask = np.zeros(run.model.n_x, bool)
    owner = np.repeat(run.schema.names, run.schema.groups) if run.schema else np.array(run.columns or [], dtype=str)
    for name in wanted:
        if name not in owner:
            raise DarnError(f"--hide takes {', '.join(HALVES)} or names of columns; there is no column {name!r}")
        mask |= owner == name
    return mask


def read(run, path: str, every: int):
    """(rows, mask, context) of a file in which values are missing: empty cells of a table, NaN of an array."""
    if run.model.n_context:
        raise DarnError("this model needs a label for every row: complete its rows from Python")
    if path.lower().endswith(".npy"):
        try:
            x = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as e:
            raise DarnError(f"{path} is not a readable NumPy file: {e}") from None
        if x.ndim != 2 or x.dtype.kind not in "fbiu":
            raise DarnError(f"{path} must hold rows by columns of 0, 1 and NaN")
        x = x[::every]
        return x, np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool), None
    names, cells = read_words(path)
    cells = cells[::every]
    gone = np.isin(np.char.lower(np.char.strip(cells)), MISSING)
    schema = run.schema
    if schema is None:
        if cells.shape[1] != run.model.n_x:
            raise DarnError(f"{path} has {cells.shape[1]} columns, the model {run.model.n_x}: give rows like its own")
        try:
            return np.where(gone, "0", cells).astype(np.float32), gone, None
        except ValueError:
            raise DarnError(f"{path} must hold 0 and 1, and nothing where a value is missing") from None
    lost = [n for n in schema.names if n not in names]
    if lost:
        raise DarnError(f"{path} has no column {lost[0]!r}: leave its cells empty where they are unknown")
    where = [names.index(n) for n in schema.names]
    cells, gone = cells[:, where], gone[:, where]
    x, mask = [], []
    for c, words, holes in zip(schema.columns, cells.T, gone.T):
        bits = np.zeros((len(words), len(c.units)), np.float32)
        if (~holes).any():
            bits[~holes] = Schema((c,)).encode([c.name], words[~holes, None], path)
        hide = np.repeat(holes[:, None], len(c.units), axis=1)
        if "" in c.values:  # a hole is to be filled with a value, not with another hole
            hide[:, -1] = False
        x.append(bits)
        mask.append(hide)
    return np.concatenate(x, axis=1), np.concatenate(mask, axis=1), None


def write(run, out: str, x: np.ndarray, context, seed: int) -> None:
    """Completions (rows, n, columns) as a picture, an array or a table of the original columns."""
    flat = x.reshape(-1, x.shape[-1])
    if out.lower().endswith("npy"):
        write_table(out, x, [])
    elif run.schema is not None and out.lower().endswith("csv"):
        side = None if context is None else np.repeat(context, x.shape[1], axis=0)
        write_words(out, *synthetic.table(run, flat, side, seed=seed))
    else:
        write_rows(out, flat, shape=run.shape, columns=run.columns)
