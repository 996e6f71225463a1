"""What `darn compress` takes in and `darn decompress` gives back: arrays, tables, bilevel images, folders of them.

An image of the model's own size is a row. A larger or smaller one is cut into tiles of that size; where the last tiles
reach beyond the edge, their outer pixels are not coded at all. A table of categories comes back cell by cell, as .csv.
"""

import contextlib
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from darn.data._cells import read_words
from darn.data._load import load_rows, names
from darn.data._schema import Schema
from darn.data._write import write_rows, write_words
from darn.errors import DarnError
from darn.files import atomic

IMAGES = (".png", ".pbm")
TILE = (16, 16)  # of large images, where no model says otherwise
_CHUNK = 1 << 22  # values of an array on disk that are looked at together


@dataclass(frozen=True)
class Source:
    """Rows to compress, read part by part, and what is needed to give them back as they came."""

    rows: int
    parts: Iterable[np.ndarray]
    notes: dict = field(default_factory=dict)


# ---------------------------------------------------------------- in


def open_source(
    path: str,
    n: int | None,
    shape: tuple[int, int] | None,
    split: str | None = None,
    schema: Schema | None = None,
) -> Source:
    """The rows of a set, a file or a folder, for a model over n units, which are an image of `shape` or the columns of
    a table.

    Where there is no model yet, n is None: a row is then as wide as it comes, and an image is cut into tiles.
    """
    if path == "-":
        return _from_stdin(n, shape, split, schema)
    p = Path(path)
    if path not in names():
        if p.is_dir():
            return _folder(p, n, shape)
        if p.suffix.lower() in IMAGES and p.exists():
            return _images([p], n, shape, single=True)
        if p.suffix.lower() == ".npy" and p.is_file():
            return _array(p, n)
        if schema is not None:
            return _table(path, schema)
    rows = load_rows(path, n=n, split=split)
    step = max(_CHUNK // rows.n, 1)
    parts = (rows.take(slice(i, i + step)).unpack() for i in range(0, len(rows), step))
    return Source(len(rows), parts)


def _table(path: str, schema: Schema) -> Source:
    """A table whose every cell comes back as it was written; one of which some would not is refused."""
    binned = [c.name for c in schema.columns if c.kind == "number"]
    if binned:
        raise DarnError(
            f"the model knows the numbers of column {binned[0]!r} by their bins only, and they would not come back: "
            f"train one that has them as categories (name all such columns: --categorical ...,{binned[0]}), or leave "
            f"the column out of the table (--drop {binned[0]!r} in training)"
        )
    columns, cells = read_words(path)
    if strange := [n for n in columns if n not in schema.names]:
        raise DarnError(f"{path} has a column {strange[0]!r}, which the model was not trained with: leave it out")
    x, texts = schema.encode(columns, cells, path), {}
    for name, words in zip(schema.names, zip(*schema.decode(x))):
        written: dict[str, str] = {}  # a value may be written otherwise than the model knows it, but in one way
        for word, text in zip(words, cells[:, columns.index(name)].tolist()):
            if written.setdefault(word, text) != text:
                raise DarnError(
                    f"{path} writes one value of column {name!r} in two ways, {written[word]!r} and {text!r}: write it "
                    "in one, so that it can come back as it was"
                )
        texts[name] = {word: text for word, text in written.items() if word != text}
    texts = {k: v for k, v in texts.items() if v}
    step = max(_CHUNK // x.shape[1], 1)
    parts = (x[i : i + step] for i in range(0, len(x), step))
    return Source(len(x), parts, {"table": list(columns)} | ({"texts": texts} if texts else {}))


def _from_stdin(n: int | None, shape, split, schema) -> Source:
    """What comes in by the pipe, its kind told by its first bytes."""
    held = sys.stdin.buffer.read()
    kinds = {b"\x93NUMPY": ".npy", b"PK": ".npz", b"\x89PNG": ".png", b"P1": ".pbm", b"P4": ".pbm"}
    ending = next((end for start, end in kinds.items() if held.startswith(start)), ".csv")
    folder = tempfile.mkdtemp()
    try:
        path = Path(folder) / f"stdin{ending}"
        path.write_bytes(held)
        found = open_source(str(path), n, shape, split, schema)
        return Source(found.rows, list(found.parts), found.notes)
    except DarnError as e:
        raise DarnError(str(e).replace(f"{folder}{os.sep}", "")) from e
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _array(path: Path, n: int | None) -> Source:
    """A .npy, of which never more than a part is in memory."""
    try:
        X = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as e:
        raise DarnError(f"{path} is not a readable NumPy file, it may be cut short or damaged") from e
    width = int(np.prod(X.shape[1:]))
    if X.ndim not in (2, 3) or not width:
        raise DarnError(f"{path} has the shape {X.shape}: give rows by columns, or images as (N, height, width)")
    if width != (n or width):
        raise DarnError(f"{path} has the shape {X.shape}, but the model is over rows of {n} columns")
    if X.dtype.kind not in "biuf":
        raise DarnError(f"{path} holds values of type {X.dtype}: only numbers can be read, 0 and 1 best")
    step = max(_CHUNK // width, 1)

    def parts():
        for i in range(0, len(X), step):
            # Mapped anew for every part: pages of a map that stays open count as this process's memory.
            part = np.array(np.load(path, mmap_mode="r")[i : i + step]).reshape(-1, width)
            if ((part != 0) & (part != 1)).any():
                raise DarnError(f"{path} has values other than 0 and 1: make it binary first")
            yield part.astype(np.uint8)

    notes = {} if X.dtype == np.uint8 else {"dtype": X.dtype.str}
    return Source(len(X), parts(), notes | ({"shape": list(X.shape[1:])} if X.ndim == 3 else {}))


def _folder(folder: Path, n: int | None, shape) -> Source:
    files = sorted(f for f in folder.iterdir() if f.suffix.lower() in IMAGES and not f.name.startswith("."))
    if not files:
        raise DarnError(f"{folder} is a folder without images ({' '.join(IMAGES)}): give a file, or a folder of images")
    return _images(files, n, shape, single=False)


def _images(files: list[Path], n: int | None, shape, *, single: bool) -> Source:
    sizes = [_size(f) for f in files]
    if n is None:
        alike = len(set(sizes)) == 1 and sizes[0][0] * sizes[0][1] <= 1024
        shape = sizes[0] if alike else TILE
    if shape is None:
        raise DarnError("the model does not know the height and width of its rows as images: it was trained on a table")
    rows = sum(_tiles(size, shape)[0] * _tiles(size, shape)[1] for size in sizes)
    notes = {"images": [[f.name, *size] for f, size in zip(files, sizes)], "tile": list(shape)}
    return Source(rows, (_cut(_pixels(f), shape) for f in files), notes | ({"single": 1} if single else {}))


def _size(f: Path) -> tuple[int, int]:
    from PIL import Image

    try:
        with Image.open(f) as image:
            return image.height, image.width
    except Exception as e:
        raise DarnError(f"{f} is not a readable image, it may be damaged") from e


def _pixels(f: Path) -> np.ndarray:
    """(height, width) of 0 and 1, white being 1."""
    from PIL import Image

    try:
        with Image.open(f) as image:
            grey = np.asarray(image.convert("L"))
            plain = image.mode in ("1", "L") or (image.mode == "P" and "transparency" not in image.info)
    except Exception as e:
        raise DarnError(f"{f} is not a readable image, it may be damaged") from e
    if not plain or ((grey != 0) & (grey != 255)).any():
        raise DarnError(f"{f} is not all black and white, and only such images are compressed without loss")
    return (grey != 0).astype(np.uint8)


def _tiles(size: tuple[int, int], tile: tuple[int, int]) -> tuple[int, int]:
    """How many tiles down and across."""
    return -(-size[0] // tile[0]), -(-size[1] // tile[1])


def _cut(image: np.ndarray, tile: tuple[int, int]) -> np.ndarray:
    """The image's tiles as rows, line by line of tiles, with zeros beyond the edge."""
    (down, across), (h, w) = _tiles(image.shape, tile), tile
    whole = np.zeros((down * h, across * w), image.dtype)
    whole[: image.shape[0], : image.shape[1]] = image
    return whole.reshape(down, h, across, w).swapaxes(1, 2).reshape(-1, h * w)


def _paste(rows: np.ndarray, size: tuple[int, int], tile: tuple[int, int]) -> np.ndarray:
    (down, across), (h, w) = _tiles(size, tile), tile
    whole = rows.reshape(down, across, h, w).swapaxes(1, 2).reshape(down * h, across * w)
    return whole[: size[0], : size[1]]


def mask(notes: dict) -> Callable[[int, int], np.ndarray] | None:
    """For tiles that reach beyond an edge: which units of rows start..stop are there; None where all are."""
    if "images" not in notes:
        return None
    tile = tuple(notes["tile"])
    sizes = [tuple(size) for _, *size in notes["images"]]
    if all(size[0] % tile[0] == 0 and size[1] % tile[1] == 0 for size in sizes):
        return None
    ends = np.cumsum([np.prod(_tiles(size, tile)) for size in sizes])

    def units(start: int, stop: int) -> np.ndarray:
        first, last = np.searchsorted(ends, [start, stop - 1], side="right")
        there = np.concatenate([_cut(np.ones(size, bool), tile) for size in sizes[first : last + 1]])
        offset = 0 if first == 0 else int(ends[first - 1])
        return there[start - offset : stop - offset]

    return units


# ---------------------------------------------------------------- out


def check_target(path: str, notes: dict, rows: int, n: int, schema: Schema | None = None) -> None:
    """Refuses notes that nobody wrote so, and a name that does not suit them, before any work is done."""
    if "table" in notes and schema is None:
        raise DarnError("the file holds a table of words, and the model is not over one: give the one it was made with")
    if not _genuine(notes, rows, n, schema):
        raise DarnError("what the file says of its images, array or table does not fit its rows: it is not genuine")
    endings = IMAGES if "single" in notes else (".csv",) if "table" in notes else (".npy", ".csv")
    if "images" in notes and "single" not in notes:
        if path == "-":
            raise DarnError("the file holds a folder of images, which cannot go down a pipe: name a folder")
        if os.path.exists(path) and not os.path.isdir(path):
            raise DarnError(f"the file holds a folder of images, but {path} is a file: name a folder")
    elif path != "-" and Path(path).suffix.lower() not in endings:
        raise DarnError(f"{path}: the ending of the name chooses the format, so it must be {' or '.join(endings)}")


def _genuine(notes: dict, rows: int, n: int, schema: Schema | None) -> bool:
    """Names that stay inside their folder, sizes that make up the rows, columns that are the model's."""
    try:
        if "table" in notes:
            texts = [t for column in notes.get("texts", {}).values() for t in column.values()]
            known = schema is not None and sorted(notes["table"]) == sorted(schema.names)
            return known and all(isinstance(t, str) for t in texts)
        if "images" in notes:
            tile, count, names = tuple(notes["tile"]), 0, set()
            for name, *size in notes["images"]:
                plain = Path(name).name == name and Path(name).suffix.lower() in IMAGES
                if not plain or name in names or len(size) != 2 or min(size) < 1:
                    return False
                names.add(name)
                count += int(np.prod(_tiles((size[0], size[1]), tile)))
            return len(tile) == 2 and min(tile) > 0 and tile[0] * tile[1] == n and count == rows
        kind = np.dtype(notes.get("dtype", "|u1")).kind
        return kind in "biuf" and int(np.prod(notes.get("shape", [n]))) == n
    except (TypeError, ValueError, KeyError, ZeroDivisionError):
        return False


def write_target(
    path: str,
    parts: Iterator[np.ndarray],
    rows: int,
    n: int,
    notes: dict,
    columns: list[str] | None,
    schema: Schema | None = None,
) -> None:
    """Writes the rows as they came: images as images, rows as .npy or .csv, a table's cells as .csv."""
    if "table" in notes:
        assert schema is not None
        write_words(
            None if path == "-" else path, *_cells(np.concatenate([np.zeros((0, n), np.uint8), *parts]), notes, schema)
        )
    elif "single" in notes:
        _, *size = notes["images"][0]
        _save_image(path, _paste(np.concatenate(list(parts)), tuple(size), tuple(notes["tile"])))
    elif "images" in notes:
        _write_folder(Path(path), parts, notes)
    elif path == "-":
        out = io.BytesIO()
        np.save(out, _as_it_was(np.concatenate([np.zeros((0, n), np.uint8), *parts]), notes))
        sys.stdout.buffer.write(out.getvalue())
    elif path.lower().endswith("npy"):
        _write_array(path, parts, rows, n, notes)
    else:
        write_rows(path, np.concatenate([np.zeros((0, n), np.uint8), *parts]), shape=None, columns=columns)


def _cells(x: np.ndarray, notes: dict, schema: Schema) -> tuple[list[str], list[list[str]]]:
    """(names, rows of words) of a table, as they were written."""
    names, texts = notes["table"], notes.get("texts", {})
    columns = dict(zip(schema.names, zip(*schema.decode(x)))) if len(x) else dict.fromkeys(names, ())
    written = ([texts.get(n, {}).get(w, w) for w in columns[n]] for n in names)
    return names, [list(row) for row in zip(*written)]


def _as_it_was(x: np.ndarray, notes: dict) -> np.ndarray:
    return x.reshape(len(x), *notes.get("shape", x.shape[1:])).astype(np.dtype(notes.get("dtype", "|u1")))


def _write_array(path: str, parts: Iterator[np.ndarray], rows: int, n: int, notes: dict) -> None:
    """Part by part, so that memory does not grow with the rows."""
    shape, dtype = (rows, *notes.get("shape", [n])), np.dtype(notes.get("dtype", "|u1"))
    with atomic(path) as temporary, open(temporary, "wb") as f:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(f, header)
        for x in parts:
            f.write(_as_it_was(x, notes).tobytes())


def _save_image(path: str, image: np.ndarray) -> None:
    from PIL import Image

    picture = Image.fromarray((image * 255).astype(np.uint8)).convert("1")
    if path == "-":
        picture.save(sys.stdout.buffer, format="PPM")
        return
    with atomic(path) as temporary:
        picture.save(temporary, format="PNG" if path.lower().endswith("png") else "PPM")


def _write_folder(folder: Path, parts: Iterator[np.ndarray], notes: dict) -> None:
    """All images or none: they are written beside the folder and moved into it at the end."""
    tile = tuple(notes["tile"])
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        held, parts = np.zeros((0, tile[0] * tile[1]), np.uint8), iter(parts)
        for name, *size in notes["images"]:
            count = int(np.prod(_tiles(tuple(size), tile)))
            while len(held) < count:
                held = np.concatenate([held, next(parts)])
            _save_image(str(beside / name), _paste(held[:count], tuple(size), tile))
            held = held[count:]
        for _ in parts:  # to the end, where the file's last checks are
            pass
        folder.mkdir(exist_ok=True)
        for f in beside.iterdir():
            os.replace(f, folder / f.name)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


@contextlib.contextmanager
def open_output(path: str):
    """A file to write to, which takes its name when all is written; or standard output for "-"."""
    if path == "-":
        yield sys.stdout.buffer
        return
    with atomic(path) as temporary, open(temporary, "wb") as f:
        yield f
