"""Output files, written part by part; each gets its name once it is complete. The suffix chooses the format."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np

from darn.data._layout import BLANKS, Layout
from darn.data._sheet import check_sheet, sheet, square_shape
from darn.errors import printable
from darn.files import check_suffix, check_target, open_output

TABLES = ("npy", "csv", "tsv")
PICTURES = ("png", *TABLES)
ARCHIVES = ("npz",)
PAGES = ("html", "htm")

Write = Callable[[np.ndarray], object]  # takes the next rows


def check_output(path: str | None, kinds: tuple[str, ...], *inputs: str | Path | None) -> None:
    """Refuses an output that cannot be written, before any work is done.

    Args:
        path: the file to write, or None.
        kinds: the suffixes it may have, without the dot.
        inputs: files that are read and must not be overwritten.
    """
    if path is None:
        return
    check_suffix(path, [f".{kind}" for kind in kinds])
    check_target(path, *inputs)


@contextlib.contextmanager
def open_table(path: str, rows: int, header: Sequence[str], delimiter: str = ",") -> Iterator[Write]:
    """Writes arrays of numbers, part by part, as .npy, or as .csv or .tsv under a header.

    Args:
        path: the file; "-" for a .npy on standard output.
        rows: in all parts together.
        header: the names of the columns.
        delimiter: between the cells of a .csv.

    Yields:
        The function that takes the parts, at least one, perhaps without rows.
    """
    with open_output(path) as f:
        if path == "-" or path.lower().endswith("npy"):
            yield _npy(f, rows)
        else:
            delimiter = _delimiter(path, delimiter)
            f.write(Layout(delimiter, joint=delimiter).line(header).encode())

            def write(part: np.ndarray) -> None:
                form = "%d" if np.issubdtype(part.dtype, np.integer) else "%.7g"
                np.savetxt(f, part, fmt=form, delimiter=delimiter)

            yield write


def _npy(f, rows: int) -> Write:
    started = False

    def write(part: np.ndarray) -> None:
        nonlocal started
        if not started:
            descr = np.lib.format.dtype_to_descr(part.dtype)
            header = {"descr": descr, "fortran_order": False, "shape": (rows, *part.shape[1:])}
            np.lib.format.write_array_header_1_0(f, header)
            started = True
        f.write(np.ascontiguousarray(part).data)

    return write


@contextlib.contextmanager
def open_scores(path: str, rows: int, every: int = 1, first: int = 0) -> Iterator[Write]:
    """Writes a number of each row: as .npy, or as .csv with the number of the row, counted from 1.

    Args:
        path: the file.
        rows: that are scored, every k-th of the input's.
        every: this k.
        first: rows of the input before them.

    Yields:
        The function that takes the numbers, part by part.
    """
    if path.lower().endswith("npy"):
        with open_table(path, rows, []) as write:
            yield write
        return
    place = itertools.count(first + 1, every)
    with open_words(path, ["row", "log_p"]) as words:
        yield lambda part: words([[next(place), f"{v:.7g}"] for v in part.tolist()])


@contextlib.contextmanager
def open_visible(
    path: str | None,
    rows: int,
    *,
    shape: tuple[int, int] | None,
    columns: Sequence[str] | None,
    n: int,
    delimiter: str = ",",
) -> Iterator[Write]:
    """Writes rows of the visible layer, part by part.

    Args:
        path: .png for a sheet of images, .npy or .csv for a table, "-" for a .npy on standard output; None for a table
            on standard output.
        rows: in all parts together.
        shape: of a row as an image; None for the shape nearest to a square.
        columns: the header of a .csv; x1, x2, ... by default.
        n: the number of units.
        delimiter: between the cells of a table as text.

    Yields:
        The function that takes the parts, at least one, perhaps without rows.
    """
    names = columns or [f"x{j + 1}" for j in range(n)]
    if path is None:
        with open_words(None, names, delimiter) as words:
            yield lambda part: words(part.tolist())
    elif path.lower().endswith("png"):
        shape = shape or square_shape(n)
        check_sheet(rows, shape, path)
        held: list[np.ndarray] = []
        yield held.append
        sheet(np.concatenate(held), shape, path)
    else:
        with open_table(path, rows, names, delimiter) as write:
            yield write


@contextlib.contextmanager
def open_words(
    path: str | None, names: Sequence[str], delimiter: str = ","
) -> Iterator[Callable[[list[list]], object]]:
    """Writes rows of text, part by part, as .csv or .tsv, quoted where necessary; None is standard output.

    A terminal gets the control characters of names and cells written out: it would obey them.
    """
    if path is None:
        write = _writer(_Lines(sys.stdout, sys.stdout.isatty()), delimiter)
        write([names])
        yield write
        return
    with open_output(path) as f:
        text = io.TextIOWrapper(f, encoding="utf-8", newline="")
        write = _writer(_Lines(text), _delimiter(path, delimiter))
        write([names])
        yield write
        text.flush()


def _delimiter(path: str, usual: str) -> str:
    """Between the cells of a file: a tab in a .tsv."""
    return "\t" if path.lower().endswith("tsv") else usual


class _Lines:
    """A text file that takes the lines of the csv module, whose ends become "\\n"; `shown` writes control characters
    out.

    The module quotes a carriage return in a cell only if lines end with one.
    """

    def __init__(self, file: TextIO, shown: bool = False):
        self.file, self.shown = file, shown

    def write(self, line: str) -> None:
        text = line.removesuffix("\r\n")
        self.file.write((printable(text) if self.shown else text) + "\n")


def _writer(lines: _Lines, delimiter: str) -> Callable[[Iterable[Sequence]], object]:
    """The function that writes rows."""
    if delimiter == BLANKS:  # where an empty cell needs quotes, which the csv module does not write
        layout = Layout(delimiter, joint=delimiter, newline="\r\n")
        return lambda rows: [lines.write(layout.line([str(cell) for cell in row])) for row in rows]
    return csv.writer(lines, delimiter=delimiter, lineterminator="\r\n").writerows


@contextlib.contextmanager
def open_archive(path: str, rows: int, names: Sequence[str]) -> Iterator[Callable[[Sequence[np.ndarray]], None]]:
    """Writes several arrays, part by part, as one compressed .npz.

    Args:
        path: the file.
        rows: of every array.
        names: of the arrays.

    Yields:
        The function that takes the parts: one array for each name.
    """
    with contextlib.ExitStack() as stack:
        # A zip file is written member by member, so each array waits in a file of its own.
        files = [stack.enter_context(tempfile.TemporaryFile(dir=Path(path).absolute().parent)) for _ in names]
        writers = [_npy(f, rows) for f in files]

        def write(parts: Sequence[np.ndarray]) -> None:
            for one, part in zip(writers, parts, strict=True):
                one(part)

        out = stack.enter_context(open_output(path))
        yield write
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, f in zip(names, files):
                f.seek(0)
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    shutil.copyfileobj(f, member, 1 << 20)
