"""The output of `darn decompress`: rows as images, arrays or tables, in their original form."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from darn.data import _text_table
from darn.data._cells import CellCode, digest
from darn.data._notes import IMAGES, Notes, read_notes
from darn.data._schema import Schema
from darn.data._table_notes import table_text
from darn.data._tiles import n_tiles, paste
from darn.data._write import open_table, open_visible
from darn.errors import DarnError
from darn.files import atomic, check_suffix, check_target, open_output

Blocks = Iterator[tuple[int, Any]]  # (number of the first row, bits, or the `Cells` of a table)


def check_restore(path: str, notes: dict, rows: int, n: int, schema: Schema | None = None) -> CellCode | None:
    """Refuses notes or an output name that do not fit the rows, before any work is done.

    Args:
        path: the file or folder to write, "-" for standard output.
        notes: of the compressed file, perhaps forged.
        rows: in the file.
        n: units of a row.
        schema: of the model, if it is over a table.

    Returns:
        What reads the cells of a table of words and numbers; None for other rows.
    """
    found = read_notes(notes)
    of_words = found.table is not None and found.table.columns is not None
    if of_words and schema is None:
        raise DarnError("the file holds a table, but the model is not over one: use the model it was compressed with")
    if not found.fits(rows, n, schema):
        raise DarnError("the file's notes on its images, array or table do not fit its rows: it is not genuine")
    if of_words and found.table is not None and schema is not None and found.table.schema != digest(schema):
        raise DarnError("the file was compressed with a model of another table: use that model")
    tables = _text_table.SUFFIXES if found.table is not None else (".csv",)
    endings = IMAGES if found.single else tables if of_words else (".npy", *tables)
    if found.images and not found.single:
        if path == "-":
            raise DarnError("the file holds a folder of images, which cannot be written to a pipe: name a folder")
        if os.path.exists(path) and not os.path.isdir(path):
            raise DarnError(f"the file holds a folder of images, but {path} is a file: name a folder")
        return None
    if path != "-":
        check_suffix(path, endings)
        check_target(path)
    if not of_words:
        return None
    assert found.table is not None
    assert schema is not None
    return CellCode(schema, found.table)


def check_joint(first: dict, other: dict) -> None:
    """Refuses two files whose rows cannot be restored one after the other.

    Args:
        first: the notes of a compressed file.
        other: those of one that follows it.
    """
    a, b = read_notes(first), read_notes(other)
    kind = lambda notes: (notes.table is not None, bool(notes.images), notes.dtype, notes.shape, notes.tile)  # noqa: E731
    if kind(a) != kind(b) or a.single or b.single:
        raise DarnError("the files hold tables, arrays or images of different kinds: join files of one kind")
    if a.table is not None and b.table is not None:
        about = lambda t: (t.columns, t.schema, t.inside, t.layout.delimiter, t.layout.head)  # noqa: E731
        if about(a.table) != about(b.table):
            raise DarnError("the files hold tables with different columns or formats: join files of one table")
    if twice := {name for name, *_ in a.images} & {name for name, *_ in b.images}:
        raise DarnError(f"two of the files hold an image {min(twice)}: rename one of them before compressing")


def restore(
    path: str,
    members: Iterable[tuple[dict, Blocks]],
    rows: int,
    n: int,
    columns: list[str] | None,
) -> None:
    """Writes rows in their original form: images as images, a table as its text, other rows as .npy or .csv.

    Args:
        path: the file or folder to write, "-" for standard output.
        members: of the compressed file in order: the notes, checked by `check_restore` and `check_joint`; and (number
            of the first row, rows) in order.
        rows: their number.
        n: units of a row.
        columns: names of the units, for a .csv of rows that were not a table.
    """
    every = ((read_notes(notes), blocks) for notes, blocks in members)
    found, blocks = next(every)
    every = chain([(found, blocks)], every)
    parts = (x for _, blocks in every for _, x in blocks)
    if found.table is not None and not path.lower().endswith(".npy"):
        with open_output(path) as f:
            last = b""
            for i, (notes, blocks) in enumerate(every):
                assert notes.table is not None
                if last and not last.endswith((b"\n", b"\r")):  # the last line of a file may have no end
                    f.write(notes.table.layout.newline.encode())
                for text in table_text(notes.table, blocks, head=not i):
                    f.write(text)
                    last = text or last
    elif found.single:
        assert found.tile is not None
        _, height, width = found.images[0]
        _save_image(path, paste(_all(parts, n), (height, width), found.tile))
    elif found.images:
        _write_folder(Path(path), every)
    elif path == "-" or path.lower().endswith("npy"):
        with open_table(path, rows, []) as write:
            for x in chain([np.zeros((0, n), np.uint8)], parts):  # a header even if there are no rows
                write(_as_it_was(x, found))
    else:
        with open_visible(path, rows, shape=None, columns=columns, n=n) as write:
            for x in parts:
                write(x)


def _all(parts: Iterator[np.ndarray], n: int) -> np.ndarray:
    return np.concatenate([np.zeros((0, n), np.uint8), *parts])


def _as_it_was(x: np.ndarray, notes: Notes) -> np.ndarray:
    return x.reshape(len(x), *(notes.shape or x.shape[1:])).astype(np.dtype(notes.dtype))


def _save_image(path: str, image: np.ndarray) -> None:
    from PIL import Image

    picture = Image.fromarray((image * 255).astype(np.uint8)).convert("1")
    if path == "-":
        picture.save(sys.stdout.buffer, format="PPM")
        return
    with atomic(path) as temporary:
        picture.save(temporary, format="PNG" if path.lower().endswith("png") else "PPM")


def _write_folder(folder: Path, members: Iterable[tuple[Notes, Blocks]]) -> None:
    """Writes all images or none: they are written beside the folder and moved into it at the end."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for notes, blocks in members:
            tile, parts = notes.tile, (x for _, x in blocks)
            assert tile is not None
            held: list[np.ndarray] = []
            for name, height, width in notes.images:
                count = int(np.prod(n_tiles((height, width), tile)))
                while sum(map(len, held)) < count:
                    held.append(next(parts))
                rows = np.concatenate(held)
                _save_image(str(beside / name), paste(rows[:count], (height, width), tile))
                held = [rows[count:]]
            for _ in parts:  # read to the end, where the file's last checks are
                pass
        folder.mkdir(exist_ok=True)
        for f in beside.iterdir():
            check_target(folder / f.name)
        for f in beside.iterdir():
            os.replace(f, folder / f.name)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
