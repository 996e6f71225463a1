"""The input of `darn compress`: sets, arrays, tables, bilevel images and folders of them, as rows of bits in parts."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from darn.data import _images, _text_table
from darn.data._arrays import map_array
from darn.data._check import check_bits, check_width, matrix
from darn.data._load import load_rows, names
from darn.data._notes import IMAGES
from darn.data._schema import Schema
from darn.data._table import PARQUET, is_table, parse_table
from darn.data._table_notes import BITS, pack_notes, table_notes
from darn.data._tiles import cut, n_tiles
from darn.errors import DarnError
from darn.files import read_bytes

TILE = (16, 16)  # for large images, if there is no model yet
_CHUNK = 1 << 22  # values of an array that are read at once


@dataclass(frozen=True)
class RowSource:
    """Rows to compress, and the notes needed to restore them in their original form."""

    rows: int
    parts: Iterable[np.ndarray]  # uint8 (., n) of 0 and 1
    notes: dict = field(default_factory=dict)
    about: str = ""  # how the file was read, if that had to be detected


def open_source(
    path: str,
    n: int | None,
    shape: tuple[int, int] | None,
    split: str | None = None,
    schema: Schema | None = None,
    delimiter: str | None = None,
) -> RowSource:
    """Opens a set, a file or a folder for compression.

    Args:
        path: a known set's name, a file, a folder of images, or "-" for standard input.
        n: the number of units of the model; None if there is no model yet: rows then have any width, and images are cut
            into tiles.
        shape: of a row as an image, if it is one.
        split: which rows of a set.
        schema: how a table's columns became units, if the model is over a table.
        delimiter: between the cells of a text table; None detects it.

    Returns:
        The rows and their notes.
    """
    if path == "-":
        return _from_stdin(n, shape, split, schema, delimiter)
    p = Path(path)
    if path not in names():
        if p.is_dir():
            return _folder(p, n, shape)
        if p.suffix.lower() in IMAGES and p.exists():
            return _image_rows([p], n, shape, single=True)
        if p.suffix.lower() == ".npy" and p.is_file():
            return _array(p, n)
        if is_table(p) and p.exists() and split is None:
            return _table(p, n, schema, delimiter)
        if schema is not None:
            raise DarnError(f"{path} is not a table, but the model is over one: give a .csv or .parquet file")
    rows = load_rows(path, n=n, split=split)
    step = max(_CHUNK // rows.n, 1)
    parts = (rows.take(slice(i, i + step)).unpack() for i in range(0, len(rows), step))
    return RowSource(len(rows), parts)


def _table(path: Path, n: int | None, schema: Schema | None, delimiter: str | None) -> RowSource:
    """A table that is restored byte for byte."""
    what, data = str(path), read_bytes(path)
    if schema is not None:
        x, notes, about = _words(path, data, schema, delimiter)
    elif path.suffix.lower() in PARQUET:
        x, notes, about = load_rows(path, n=n).unpack(), {}, ""
    else:
        text = _text_table.open_text(path, data, what, delimiter)
        check_width(text.width, n, what)
        about, x = f"cells {text.layout.described}", text.bits()
        if x is not None:
            size, end, lines = 2 * text.width - 1, text.layout.newline, text.lines[text.first :]
            odd = {str(i): line for i, line in enumerate(lines) if line[size:] != end}
            notes = {"table": pack_notes(text.layout, {}, odd, "")}
        else:
            X, _ = matrix(text.numbers()[0], what, text.names)
            check_bits(X, what, text.names)
            x = X.astype(np.uint8)
            table = parse_table(path, data, what, delimiter)
            notes = {"table": table_notes(table, [[BITS[b] for b in column] for column in x.T.tolist()])}
    step = max(_CHUNK // x.shape[1], 1)
    return RowSource(len(x), (x[i : i + step] for i in range(0, len(x), step)), notes, about)


def _words(path: Path, data: bytes, schema: Schema, delimiter: str | None) -> tuple[np.ndarray, dict, str]:
    what, lossy = str(path), [c.name for c in schema.columns if not c.exact]
    if lossy:
        raise DarnError(
            f"the model does not determine the numbers, dates or texts in column {', '.join(map(repr, lossy))}, so "
            "they could not be restored: train a model in which each is a category, or leave them out of the table "
            f"(drop = {lossy[0]!r} in training)"
        )
    table = parse_table(path, data, what, delimiter)
    wanted = set(schema.names)
    if strange := [name for name in table.names if name not in wanted]:
        raise DarnError(f"{what} has a column {strange[0]!r}, which the model was not trained with: leave it out")
    x = schema.encode(table.names, table.cells, what).bits
    known = dict(zip(schema.names, zip(*schema.decode(x)))) if len(x) else dict.fromkeys(schema.names, ())
    notes = table_notes(table, [known[name] for name in table.names]) | {"columns": list(table.names)}
    return x, {"table": notes}, f"cells {table.layout.described}"


def _from_stdin(n: int | None, shape, split, schema, delimiter) -> RowSource:
    """Standard input, whose type its first bytes show."""
    held = sys.stdin.buffer.read()
    kinds = {b"\x93NUMPY": ".npy", b"PK": ".npz", b"\x89PNG": ".png", b"P1": ".pbm", b"P4": ".pbm"}
    ending = next((end for start, end in kinds.items() if held.startswith(start)), ".csv")
    folder = tempfile.mkdtemp()
    try:
        path = Path(folder) / f"stdin{ending}"
        path.write_bytes(held)
        found = open_source(str(path), n, shape, split, schema, delimiter)
        return RowSource(found.rows, list(found.parts), found.notes, found.about)
    except DarnError as e:
        raise DarnError(str(e).replace(f"{folder}{os.sep}", "")) from e
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _array(path: Path, n: int | None) -> RowSource:
    """A .npy, of which only a part is in memory at any time."""
    X = map_array(path)
    width = int(np.prod(X.shape[1:]))
    if X.ndim not in (2, 3) or not width:
        raise DarnError(f"{path} has shape {X.shape}: give rows x columns, or images as (N, height, width)")
    if width != (n or width):
        raise DarnError(f"{path} has shape {X.shape}, but the model takes rows of {n} columns")
    if X.dtype.kind not in "biuf":
        raise DarnError(f"{path} holds values of type {X.dtype}: only numbers can be read, preferably 0 and 1")
    step = max(_CHUNK // width, 1)

    def parts():
        for i in range(0, len(X), step):
            # Mapped again for every part: pages of a map that stays open count as this process's memory.
            part = np.array(map_array(path)[i : i + step]).reshape(-1, width)
            if ((part != 0) & (part != 1)).any():
                raise DarnError(f"{path} has values other than 0 and 1: make it binary first")
            if part.dtype.kind == "f" and np.signbit(part).any():
                raise DarnError(f"{path} has the value -0.0, which would be restored as 0: make it 0 first")
            yield part.astype(np.uint8)

    notes = {} if X.dtype == np.uint8 else {"dtype": X.dtype.str}
    return RowSource(len(X), parts(), notes | ({"shape": list(X.shape[1:])} if X.ndim == 3 else {}))


def _folder(folder: Path, n: int | None, shape) -> RowSource:
    files = _images.image_files(folder, str(folder))
    if other := [f.name for f in files if f.suffix.lower() not in IMAGES]:
        kinds = " and ".join(IMAGES)
        raise DarnError(f"{folder} holds {other[0]}, but only {kinds} can be restored without loss: take it out")
    return _image_rows(files, n, shape, single=False)


def _image_rows(files: list[Path], n: int | None, shape, *, single: bool) -> RowSource:
    sizes = [_images.image_size(f) for f in files]
    if n is None:
        alike = len(set(sizes)) == 1 and sizes[0][0] * sizes[0][1] <= 1024
        shape = sizes[0] if alike else TILE
    if shape is None:
        raise DarnError("the model was not trained on images, so it has no height and width: use a model of images")
    rows = sum(int(np.prod(n_tiles(size, shape))) for size in sizes)
    notes = {"images": [[f.name, *size] for f, size in zip(files, sizes)], "tile": list(shape)}
    return RowSource(rows, (cut(_bilevel(f), shape) for f in files), notes | ({"single": 1} if single else {}))


def _bilevel(f: Path) -> np.ndarray:
    """(height, width) of 0 and 1; white is 1."""
    image = _images.read_image(f)
    if not image.plain or ((image.grey != 0) & (image.grey != 255)).any():
        raise DarnError(f"{f} is not only black and white, and other images cannot be compressed")
    return (image.grey != 0).astype(np.uint8)
