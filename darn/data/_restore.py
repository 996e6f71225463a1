"""The output of `darn decompress`: rows as images, arrays or tables, in their original form."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from darn.data import _text_table
from darn.data._schema import Schema
from darn.data._source import IMAGES
from darn.data._table_notes import fits, table_text
from darn.data._tiles import n_tiles, paste
from darn.data._write import open_table, open_visible
from darn.errors import DarnError
from darn.files import atomic, check_target, open_output

Blocks = Iterator[tuple[int, np.ndarray]]  # (number of the first row, rows)


def check_restore(path: str, notes: dict, rows: int, n: int, schema: Schema | None = None) -> None:
    """Refuses notes or an output name that do not fit the rows, before any work is done.

    Args:
        path: the file or folder to write, "-" for standard output.
        notes: of the compressed file, perhaps forged.
        rows: in the file.
        n: units of a row.
        schema: of the model, if it is over a table.
    """
    of_table = notes["table"] if isinstance(notes.get("table"), dict) else {}
    if "columns" in of_table and schema is None:
        raise DarnError("the file holds a table, but the model is not over one: use the model it was compressed with")
    if not _genuine(notes, rows, n, schema):
        raise DarnError("the file's notes on its images, array or table do not fit its rows: it is not genuine")
    tables = _text_table.SUFFIXES if "table" in notes else (".csv",)
    endings = IMAGES if "single" in notes else tables if "columns" in of_table else (".npy", *tables)
    if "images" in notes and "single" not in notes:
        if path == "-":
            raise DarnError("the file holds a folder of images, which cannot be written to a pipe: name a folder")
        if os.path.exists(path) and not os.path.isdir(path):
            raise DarnError(f"the file holds a folder of images, but {path} is a file: name a folder")
        return
    if path == "-":
        return
    if Path(path).suffix.lower() not in endings:
        raise DarnError(f"{path}: the suffix chooses the format, so it must be {' or '.join(endings)}")
    check_target(path)


def _genuine(notes: dict, rows: int, n: int, schema: Schema | None) -> bool:
    """Checks that names stay inside their folder, sizes add up to the rows, and columns are the model's."""
    try:
        if "table" in notes:
            return fits(notes["table"], rows, n, schema)
        if "images" in notes:
            tile, count, names = tuple(notes["tile"]), 0, set()
            for name, *size in notes["images"]:
                plain = Path(name).name == name and Path(name).suffix.lower() in IMAGES
                if not plain or name in names or len(size) != 2 or min(size) < 1:
                    return False
                names.add(name)
                count += int(np.prod(n_tiles((size[0], size[1]), tile)))
            return len(tile) == 2 and min(tile) > 0 and tile[0] * tile[1] == n and count == rows
        kind = np.dtype(notes.get("dtype", "|u1")).kind
        return kind in "biuf" and int(np.prod(notes.get("shape", [n]))) == n
    except (TypeError, ValueError, KeyError, AttributeError, ZeroDivisionError):
        return False


def restore(
    path: str,
    blocks: Blocks,
    rows: int,
    n: int,
    notes: dict,
    columns: list[str] | None,
    schema: Schema | None = None,
) -> None:
    """Writes rows in their original form: images as images, a table as its text, other rows as .npy or .csv.

    Args:
        path: the file or folder to write, "-" for standard output.
        blocks: (number of the first row, rows) in order.
        rows: their number.
        n: units of a row.
        notes: of the compressed file, checked by `check_restore`.
        columns: names of the units, for a .csv of rows that were not a table.
        schema: of the model, if it is over a table.
    """
    parts = (x for _, x in blocks)
    if "table" in notes and not path.lower().endswith(".npy"):
        with open_output(path) as f:
            for text in table_text(notes["table"], blocks, schema):
                f.write(text)
    elif "single" in notes:
        _, *size = notes["images"][0]
        _save_image(path, paste(_all(parts, n), tuple(size), tuple(notes["tile"])))
    elif "images" in notes:
        _write_folder(Path(path), parts, notes)
    elif path == "-" or path.lower().endswith("npy"):
        with open_table(path, rows, []) as write:
            for x in chain([np.zeros((0, n), np.uint8)], parts):  # a header even if there are no rows
                write(_as_it_was(x, notes))
    else:
        with open_visible(path, rows, shape=None, columns=columns, n=n) as write:
            for x in parts:
                write(x)


def _all(parts: Iterator[np.ndarray], n: int) -> np.ndarray:
    return np.concatenate([np.zeros((0, n), np.uint8), *parts])


def _as_it_was(x: np.ndarray, notes: dict) -> np.ndarray:
    return x.reshape(len(x), *notes.get("shape", x.shape[1:])).astype(np.dtype(notes.get("dtype", "|u1")))


def _save_image(path: str, image: np.ndarray) -> None:
    from PIL import Image

    picture = Image.fromarray((image * 255).astype(np.uint8)).convert("1")
    if path == "-":
        picture.save(sys.stdout.buffer, format="PPM")
        return
    with atomic(path) as temporary:
        picture.save(temporary, format="PNG" if path.lower().endswith("png") else "PPM")


def _write_folder(folder: Path, parts: Iterator[np.ndarray], notes: dict) -> None:
    """Writes all images or none: they are written beside the folder and moved into it at the end."""
    tile = tuple(notes["tile"])
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        held, parts = np.zeros((0, tile[0] * tile[1]), np.uint8), iter(parts)
        for name, *size in notes["images"]:
            count = int(np.prod(n_tiles((size[0], size[1]), tile)))
            while len(held) < count:
                held = np.concatenate([held, next(parts)])
            _save_image(str(beside / name), paste(held[:count], (size[0], size[1]), tile))
            held = held[count:]
        for _ in parts:  # read to the end, where the file's last checks are
            pass
        folder.mkdir(exist_ok=True)
        for f in beside.iterdir():
            os.replace(f, folder / f.name)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
