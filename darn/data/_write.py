"""Output files: rows as images, numbers as tables; the suffix of the name chooses the format."""

import csv
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from darn.data._layout import Layout
from darn.data._sheet import sheet, square_shape
from darn.errors import DarnError
from darn.files import atomic, check_target

TABLES = ("npy", "csv")
PICTURES = ("png", *TABLES)
ARCHIVES = ("npz",)
PAGES = ("html", "htm")


def check_output(path: str | None, kinds: tuple[str, ...], *inputs: str | Path | None) -> None:
    """Refuses an output that cannot be written, before any work is done.

    Args:
        path: the file to write, or None.
        kinds: the suffixes it may have, without the dot.
        inputs: files that are read and must not be overwritten.
    """
    if path is None:
        return
    if Path(path).suffix.lower().lstrip(".") not in kinds:
        endings = " or ".join(f".{k}" for k in kinds)
        raise DarnError(f"{path}: the suffix chooses the format, so it must be {endings}")
    check_target(path, *inputs)


def write_table(path: str, values: np.ndarray, header: list[str]) -> None:
    """Writes an array as .npy, or as .csv under a header."""
    with atomic(path) as temporary, open(temporary, "wb") as f:
        if path.lower().endswith("npy"):
            np.save(f, values)
        else:
            f.write(Layout().line(header).encode())
            form = "%d" if np.issubdtype(values.dtype, np.integer) else "%.7g"
            np.savetxt(f, values, fmt=form, delimiter=",")


def write_parts(path: str, parts: Iterable[np.ndarray], header: list[str]) -> None:
    """Writes rows of 0 and 1 as .csv under a header, part by part."""
    with atomic(path) as temporary, open(temporary, "wb") as f:
        f.write(Layout().line(header).encode())
        for x in parts:
            np.savetxt(f, x, fmt="%d", delimiter=",")


def write_rows(path: str | None, x: np.ndarray, *, shape: tuple[int, int] | None, columns: list[str] | None) -> None:
    """Writes rows of the visible layer.

    Args:
        path: .png for a sheet of images, .npy or .csv for a table; None for a table on standard output.
        x: (N, n).
        shape: of a row as an image; None for the shape nearest to a square.
        columns: the header of a .csv; x1, x2, ... by default.
    """
    names = columns or [f"x{j + 1}" for j in range(x.shape[1])]
    if path is None:
        write_words(None, names, x.tolist())
    elif path.lower().endswith("png"):
        sheet(x, shape or square_shape(x.shape[1]), path)
    else:
        write_table(path, x, names)


def write_words(path: str | None, names: list[str], rows: list[list[str]]) -> None:
    """Writes a table of text as .csv, quoted where necessary; None is standard output."""
    if path is None:
        csv.writer(sys.stdout, lineterminator="\n").writerows([names, *rows])
        return
    with atomic(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as f:
        csv.writer(f, lineterminator="\n").writerows([names, *rows])


def write_arrays(path: str, arrays: dict[str, np.ndarray]) -> None:
    """Writes several arrays as one .npz."""
    with atomic(path) as temporary, open(temporary, "wb") as f:
        np.savez_compressed(f, **arrays)  # pyright: ignore[reportArgumentType]
