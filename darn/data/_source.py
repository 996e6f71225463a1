"""The input of `darn compress`: sets, arrays, tables, bilevel images and folders of them, as rows of bits in parts."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from darn.data import _images
from darn.data._arrays import map_array, read_stored, stored
from darn.data._cells import CellCode, cell_notes
from darn.data._check import check_bits, check_width, matrix
from darn.data._columns import numbers_of
from darn.data._infer import infer
from darn.data._labels import plain
from darn.data._load import names, open_rows
from darn.data._notes import IMAGES, TableNotes, read_notes
from darn.data._pack import Pack, is_pack
from darn.data._row_source import RowSource
from darn.data._rows import Rows, pack
from darn.data._schema import Schema, check_unique
from darn.data._table import PARQUET, Table, is_table, open_table_parts, read_table
from darn.data._table_notes import BITS, pack_notes, table_notes
from darn.data._text_table import open_text_parts
from darn.data._tiles import cut, n_tiles
from darn.errors import DarnError

TILE = (16, 16)  # for large images, if there is no model yet
Share = Callable[[int], tuple[int, int]]
_CHUNK = 1 << 22  # values of an array that are read at once


def open_source(
    path: str,
    n: int | None,
    shape: tuple[int, int] | None,
    split: str | None = None,
    schema: Schema | None = None,
    delimiter: str | None = None,
    share: Share | None = None,
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
        share: from the number of rows, or of images, to the first one to take and the end; None takes all.

    Returns:
        The rows and their notes.
    """
    if path == "-":
        if share is not None:
            raise DarnError("standard input cannot be divided: name a file")
        return _from_stdin(n, shape, split, schema, delimiter)
    p = Path(path)
    if path not in names():
        if is_pack(p):
            _check_bits_only(p)
            return _shared(open_rows(path, n=n, split=split), share)
        if p.is_dir():
            return _folder(p, n, shape, share)
        if p.suffix.lower() in IMAGES and p.exists():
            if share is not None:
                raise DarnError(f"{path} is one image, which cannot be divided: give a folder of images")
            return _image_rows([p], n, shape, single=True)
        if p.suffix.lower() == ".npy" and p.is_file():
            return _shared(_array(p, n), share)
        if is_table(p) and p.exists() and split is None:
            return _table(p, n, schema, delimiter, share)
        if schema is not None:
            if not p.exists():
                raise DarnError(f"there is no file {path}: give a .csv or .parquet file")
            raise DarnError(f"{path} is not a table, but the model is over one: give a .csv or .parquet file")
    return _shared(open_rows(path, n=n, split=split), share)


def _shared(source: RowSource, share: Share | None) -> RowSource:
    """A share of rows whose notes are about each of them."""
    return source if share is None else replace(source.within(*share(source.rows)), notes=source.notes)


def own_schema(path: str, delimiter: str | None = None) -> Schema | None:
    """The schema of a table by its own rows; None for a table of 0 and 1, and for what is no table."""
    if path in names() or not is_table(path) or not Path(path).is_file():
        return None
    table = read_table(path, delimiter=delimiter)
    if all(plain(cell) in BITS for cell in set(table.cells.ravel().tolist())):
        return None
    check_unique(table.names, path)
    return infer(table.names, table.cells, None, path)


def _check_bits_only(path: Path) -> None:
    if Pack(path).schema is not None:
        raise DarnError(
            f"{path} is a packed table, which keeps the units of its cells but not their text: compress the table "
            "itself."
        )


def _table(path: Path, n: int | None, schema: Schema | None, delimiter: str | None, share: Share | None) -> RowSource:
    """A table that is restored byte for byte. It is read twice more than other files, for its notes."""
    what = str(path)
    if schema is not None:
        return _words(path, schema, delimiter, share)
    if path.suffix.lower() in PARQUET:
        return _shared(open_rows(path, n=n), share)
    if share is not None:
        return _some_bits(path, n, delimiter, share)
    text = open_text_parts(path, what, delimiter)
    check_width(text.head.width, n, what)
    rows, plain, odd = 0, True, {}
    size, end = 2 * text.head.width - 1, text.head.layout.newline
    for part in text.read():
        X = part.bits() if plain else None
        if X is not None:
            odd |= {str(rows + i): line for i, line in enumerate(part.lines) if line[size:] != end}
        else:
            plain = False
            X, _ = matrix(part.numbers()[0], what, text.head.names, rows) if part.count() else (np.zeros((0, 1)), None)
            check_bits(X, what, text.head.names, rows)
        rows += len(X)
    if not rows:
        raise DarnError(f"{what} has no rows (shape {(0, text.head.width)}): give at least one.")
    if plain:
        notes = pack_notes(text.head.layout, {}, odd, "")
    else:
        table = open_table_parts(path, what, delimiter)
        notes = table_notes(lambda: ((t, _bit_words(t)) for t in table.read()), table.layout)

    def read() -> Iterator[Rows]:
        for part in text.read():
            X = part.bits()
            X = part.numbers()[0] if X is None else X
            if len(X):
                yield Rows(pack(X), X.shape[1])

    return RowSource(rows, text.head.width, read, {"table": notes}, f"cells {text.head.layout.described}")


def _bit_words(table: Table) -> list[list[str]]:
    return [[BITS[int(float(cell))] for cell in column] for column in table.cells.T.tolist()]


def _some_bits(path: Path, n: int | None, delimiter: str | None, share: Share) -> RowSource:
    """Some rows of a text table of 0 and 1."""
    what = str(path)
    table = open_table_parts(path, what, delimiter)
    check_width(len(table.names), n, what)
    start, stop = share(table.count())
    some = table.within(start, stop)

    def read() -> Iterator[Rows]:
        before = start
        for part in some.read():
            if len(part):
                X, _ = matrix(numbers_of(part.cells, part.names, what), what, part.names, before)
                check_bits(X, what, part.names, before)
                yield Rows(pack(X), X.shape[1])
                before += len(part)

    for _ in read():  # all are bits: the notes are on texts of these
        pass
    notes = table_notes(lambda: ((t, _bit_words(t)) for t in some.read()), table.layout)
    return RowSource(stop - start, len(table.names), read, {"table": notes}, f"cells {table.layout.described}")


def _words(path: Path, schema: Schema, delimiter: str | None, share: Share | None) -> RowSource:
    what = str(path)
    table = open_table_parts(path, what, delimiter)
    if share is not None:
        table = table.within(*share(table.count()))
    notes = cell_notes(schema, table.read(), table.names, what) | {"layout": table.layout.to_json()}
    code = CellCode(schema, read_notes({"table": notes}).table or TableNotes())
    n, blocks = len(schema.units), lambda: code.blocks(table.read())
    read = lambda: (Rows(pack(x), n) for x, _ in blocks())  # noqa: E731
    about = "" if path.suffix.lower() in PARQUET else f"cells {table.layout.described}"
    return RowSource(table.count(), n, read, {"table": notes}, about, code, blocks)


def _from_stdin(n: int | None, shape, split, schema, delimiter) -> RowSource:
    """Standard input, whose type its first bytes show; it waits in a temporary file."""
    start = sys.stdin.buffer.read(8)
    kinds = {b"\x93NUMPY": ".npy", b"PK": ".npz", b"\x89PNG": ".png", b"P1": ".pbm", b"P4": ".pbm"}
    ending = next((end for begin, end in kinds.items() if start.startswith(begin)), ".csv")
    folder = tempfile.mkdtemp()
    path = Path(folder) / f"stdin{ending}"
    with open(path, "wb") as f:
        f.write(start)
        shutil.copyfileobj(sys.stdin.buffer, f, 1 << 20)
    try:
        with _renamed(folder):
            found = open_source(str(path), n, shape, split, schema, delimiter)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise

    def read() -> Iterator[Rows]:
        with _renamed(folder):
            yield from found.read()

    weakref.finalize(read, shutil.rmtree, folder, ignore_errors=True)  # the folder lives as long as this function
    return replace(found, read=read)


@contextlib.contextmanager
def _renamed(folder: str):
    """Errors about the temporary file name it without its folder."""
    try:
        yield
    except DarnError as e:
        raise DarnError(str(e).replace(f"{folder}{os.sep}", "")) from e


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

    def read() -> Iterator[Rows]:
        array = stored(path, str(path))["all"]
        for part in read_stored(path, array, str(path), max(_CHUNK // width, 1)):
            part = part.reshape(-1, width)
            if ((part != 0) & (part != 1)).any():
                raise DarnError(f"{path} has values other than 0 and 1: make it binary first")
            if part.dtype.kind == "f" and np.signbit(part).any():
                raise DarnError(f"{path} has the value -0.0, which would be restored as 0: make it 0 first")
            yield Rows(pack(part), width)

    notes = {} if X.dtype == np.uint8 else {"dtype": X.dtype.str}
    return RowSource(len(X), width, read, notes | ({"shape": list(X.shape[1:])} if X.ndim == 3 else {}))


def _folder(folder: Path, n: int | None, shape, share: Share | None) -> RowSource:
    files = _images.image_files(folder, str(folder))
    if share is not None:
        if not files[slice(*share(len(files)))]:
            raise DarnError(f"{folder} has {len(files):,} images, too few for so many shards: use fewer")
        files = files[slice(*share(len(files)))]
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
    width = shape[0] * shape[1]
    read = lambda: (Rows(pack(cut(_bilevel(f), shape)), width) for f in files)  # noqa: E731
    return RowSource(rows, width, read, notes | ({"single": 1} if single else {}))


def _bilevel(f: Path) -> np.ndarray:
    """(height, width) of 0 and 1; white is 1."""
    image = _images.read_image(f)
    if not image.plain or ((image.grey != 0) & (image.grey != 255)).any():
        raise DarnError(f"{f} is not only black and white, and other images cannot be compressed")
    return (image.grey != 0).astype(np.uint8)
