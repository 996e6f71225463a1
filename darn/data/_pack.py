"""Packed sets: rows of any number in a folder, as parts of fixed-size records with a checksum each.

A folder holds `manifest.json` and the parts `00000.rows`, `00001.rows`, ... A part is a sequence of records, one for
each row: its bits eight to a byte (or intensities, a byte each) and what else the row has. The manifest is written
last, so a folder without one is not a packed set.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from darn.data._raw import SPLITS, WHOLE
from darn.data._rows import Rows
from darn.data._schema import Schema
from darn.errors import DarnError, FormatError
from darn.files import open_input, read_bytes
from darn.jsonable import FieldError, decode, parse, shown

MANIFEST = "manifest.json"
FORMAT, VERSION = "darn-pack", 1
MAX_MANIFEST = 32 << 20  # bytes of JSON
MAX_RECORD = 1 << 25  # bytes of a row
PART = 32 << 20  # bytes of a part, about: what is in memory while its checksum is compared
MOST_ROWS = 2**31 - 1  # of a set: row numbers are of 32 bits
READERS = 4  # threads that gather rows from the parts of a set
STEP = 1 << 22  # bytes of records that are unpacked at once


def _aligned(size: int) -> np.ndarray:
    """So many bytes, which JAX on a CPU takes as they are, without a copy."""
    room = np.empty(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size]


@cache
def _gather():
    """gather(records, rows, places, out): out[places] = records[rows], all of bytes, while other threads run.

    Numba is imported when it is first needed.
    """
    import numba

    def run(records, rows, places, out):
        for i in range(len(rows)):
            row, place = rows[i], places[i]
            for j in range(out.shape[1]):
                out[place, j] = records[row, j]

    try:
        return numba.njit(run, nogil=True, cache=True)
    except RuntimeError:  # no folder to cache the compiled code in
        return numba.njit(run, nogil=True)


@dataclass(frozen=True)
class PartInfo:
    """One file of rows."""

    split: str  # train, valid, test, or all
    rows: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What the rows of a packed set are."""

    format: str
    version: int
    n: int  # columns
    grey: bool  # whether values are intensities of a byte each
    n_context: int  # observed covariates, without the one-hot label
    weighted: bool
    dense: bool  # whether rows have a log density: that of a table's numbers within their cells
    source: str  # the files it was made of
    binarize: str | None = None  # how grey levels became bits
    shape: tuple[int, int] | None = None  # of a row as an image
    columns: tuple[str, ...] | None = None  # names
    classes: tuple[str, ...] | None = None  # what the labels stand for
    table: list[Any] | None = None  # how a table's columns became units, as `Schema.to_json` has it
    parts: tuple[PartInfo, ...] = field(default=(), repr=False)

    def __post_init__(self):
        if (self.format, self.version) != (FORMAT, VERSION):
            raise FieldError(f"its format is {shown(self.format)} {self.version}, not {FORMAT} {VERSION}", "format")
        if not 1 <= self.n <= MAX_RECORD or not 0 <= self.n_context <= MAX_RECORD:
            raise FieldError("its numbers of columns are not possible", "n")
        if self.record.itemsize > MAX_RECORD:
            raise FieldError(f"a row takes more than {MAX_RECORD:,} bytes", "n")
        if self.columns is not None and len(self.columns) != self.n:
            raise FieldError(f"it names {len(self.columns)} columns, but has {self.n}", "columns")
        if self.shape is not None and (min(self.shape) < 1 or self.shape[0] * self.shape[1] != self.n):
            raise FieldError(f"an image of {self.shape[0]} x {self.shape[1]} does not have {self.n} pixels", "shape")
        if self.classes is not None and not self.classes:
            raise FieldError("it names no classes", "classes")
        for part in self.parts:
            if part.split not in (*SPLITS, WHOLE) or part.rows < 1:
                raise FieldError("a part has no rows, or is of no split", "parts")
            if part.rows > max(PART // self.record.itemsize, 1):
                raise FieldError(f"a part has {part.rows:,} rows, more than {PART:,} bytes", "parts")
        whole = {part.split == WHOLE for part in self.parts}
        if len(whole) != 1 or sum(part.rows for part in self.parts) > MOST_ROWS:
            raise FieldError(f"its parts are none, of different kinds, or of more than {MOST_ROWS:,} rows", "parts")

    @property
    def width(self) -> int:
        """Bytes of a row's values."""
        return self.n if self.grey else -(-self.n // 8)

    @cached_property
    def record(self) -> np.dtype:
        """A row in a file."""
        fields: list[tuple] = [("values", "u1", (self.width,))]
        fields += [("context", "<f4", (self.n_context,))] if self.n_context else []
        fields += [("label", "<i4")] if self.classes is not None else []
        fields += [("weight", "<f4")] if self.weighted else []
        fields += [("log_density", "<f8")] if self.dense else []
        return np.dtype(fields)

    @cached_property
    def schema(self) -> Schema | None:
        return None if self.table is None else Schema.from_json(self.table)

    def to_text(self) -> str:
        """The content of `manifest.json`."""
        text = signed(asdict(self))
        if len(text) > MAX_MANIFEST:
            raise DarnError(
                f"the set's {MANIFEST} would have more than {MAX_MANIFEST:,} bytes: pack fewer files at once"
            )
        return text


def signed(about: Any) -> str:
    """The JSON of a set, with the checksum of the whole text as it is before that is put in."""
    text = json.dumps({"sha256": "", "set": about}, indent=1) + "\n"
    return text.replace('""', f'"{_digest(text.encode())}"', 1)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def part_name(i: int) -> str:
    return f"{i:05}.rows"


def is_pack(path: Any) -> bool:
    """Whether this is the folder of a packed set, whole or not."""
    if not isinstance(path, str | Path) or not os.path.isdir(path):
        return False
    return os.path.lexists(Path(path) / MANIFEST) or os.path.lexists(Path(path) / part_name(0))


class Pack:
    """A packed set that has been opened; the checksums of its parts are compared where they are read.

    Args:
        path: its folder.

    Raises:
        DarnError: if it is not whole, or not possible.
    """

    def __init__(self, path: str | Path):
        self.path, self.what = Path(path), str(path)
        if not os.path.lexists(self.path / MANIFEST):
            raise DarnError(
                f"{self.what} has no {MANIFEST}, so it is a packed set that was not finished: delete it and pack again"
            )
        try:
            text = read_bytes(self.path / MANIFEST, MAX_MANIFEST)
            found = parse(text, "it", MAX_MANIFEST)
            if not isinstance(found, dict) or set(found) != {"sha256", "set"}:
                raise FormatError("it does not describe a packed set")
            said = f'"{found["sha256"]}"'.encode()
            if found["sha256"] != _digest(text.replace(said, b'""', 1)):
                raise FormatError("it does not match its checksum")
            self.about = decode(Manifest, found["set"], "it")
            self.schema = self.about.schema
            if self.schema is not None and len(self.schema.units) != self.about.n:
                raise FormatError("its table has other columns")
        except (FormatError, FieldError, ValueError) as e:
            raise DarnError(f"{self.what}/{MANIFEST} is damaged ({e}): pack the set again") from e
        self.sha256 = _digest(text)
        counts = np.array([part.rows for part in self.about.parts], np.int64)
        self.ends = np.cumsum(counts)
        self._checked = False
        for i in range(len(counts)):
            self._file(i).close()

    def __len__(self) -> int:
        return int(self.ends[-1])

    @property
    def bytes(self) -> int:
        return len(self) * self.about.record.itemsize

    def splits(self) -> dict[str, np.ndarray]:
        """The rows of each split, or of all, as stretches of row numbers: (M, 2), the first ones and the ends."""
        found: dict[str, list[list[int]]] = {}
        for end, part in zip(self.ends.tolist(), self.about.parts):
            stretches, first = found.setdefault(part.split, []), end - part.rows
            if stretches and stretches[-1][1] == first:
                stretches[-1][1] = end
            else:
                stretches.append([first, end])
        return {split: np.array(stretches, np.int64) for split, stretches in found.items()}

    def _file(self, i: int):
        """A part, open, if it has the size that the manifest says."""
        path, wanted = self.path / part_name(i), self.about.parts[i].rows * self.about.record.itemsize
        try:
            f = open_input(path)
        except DarnError as e:
            raise DarnError(f"{e}: {self.what} is not whole, so pack the set again") from e
        size = os.fstat(f.fileno()).st_size
        if size != wanted:
            f.close()
            raise DarnError(f"{path} has {size:,} bytes instead of {wanted:,}: pack the set again")
        return f

    def part(self, i: int) -> np.ndarray:
        """The records of a part, whose checksum has been compared."""
        with self._file(i) as f:
            try:
                data = f.read()
            except OSError as e:
                raise DarnError(f"{self.path / part_name(i)} cannot be read: {e.strerror}") from e
        if _digest(data) != self.about.parts[i].sha256:
            raise DarnError(f"{self.path / part_name(i)} does not match its checksum: pack the set again")
        return np.frombuffer(data, self.about.record)

    def check(self) -> None:
        """Compares all checksums, once: rows that are read one by one are not checked."""
        for i in range(0 if self._checked else len(self.ends), len(self.ends)):
            self.part(i)
        self._checked = True

    def scan(self) -> Iterator[tuple[int, Rows]]:
        """(number of the first row, rows) of the whole set in order, in pieces of a few megabytes."""
        step = max(STEP // self.about.record.itemsize, 1)
        for i, end in enumerate(self.ends.tolist()):
            records = self.part(i)
            for start in range(0, len(records), step):
                yield end - len(records) + start, self._rows(records[start : start + step])
        self._checked = True

    def at(self, numbers: np.ndarray) -> Rows:
        """The rows with these numbers, in this order."""
        words = numbers.astype(np.uint64) << np.uint64(32) | np.arange(len(numbers), dtype=np.uint64)
        words.sort()  # many times as fast as to sort the numbers and their places apart
        wanted, places = (words >> np.uint64(32)).astype(np.int64), words.astype(np.uint32)
        size = self.about.record.itemsize
        out = _aligned(len(numbers) * size).reshape(len(numbers), size)
        cuts, gather = np.searchsorted(wanted, self.ends), _gather()

        def read(i: int) -> None:
            here = slice(cuts[i - 1] if i else 0, cuts[i])
            first = int(self.ends[i]) - self.about.parts[i].rows
            # Mapped anew each time: pages of a map that stays open count as this process's memory.
            with self._file(i) as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                held = np.frombuffer(mapped, np.uint8).reshape(-1, size)
                try:
                    gather(held, wanted[here] - first, places[here], out)
                finally:
                    del held  # or it could not be unmapped

        parts = np.flatnonzero(np.diff(cuts, prepend=0)).tolist()
        with ThreadPoolExecutor(READERS) as pool:  # mapping pages takes most of the time
            for _ in map(read, parts) if len(parts) < READERS else pool.map(read, parts):
                pass
        return self._rows(out.view(self.about.record)[:, 0])

    def _rows(self, records: np.ndarray) -> Rows:
        """Records as rows, if they are possible ones."""
        about = self.about
        values = np.ascontiguousarray(records["values"])
        field = lambda name: records[name].copy() if name in (records.dtype.names or ()) else None  # noqa: E731
        context, labels, weights, density = map(field, ("context", "label", "weight", "log_density"))
        spare = 0 if about.grey else -about.n % 8
        wrong = spare and (values[:, -1] & ((1 << spare) - 1)).any()
        wrong |= any(a is not None and not np.isfinite(a).all() for a in (context, weights, density))
        wrong |= weights is not None and bool((weights < 0).any())
        if labels is not None:
            wrong |= bool(((labels < 0) | (labels >= len(about.classes or ()))).any())
        if wrong:
            raise DarnError(f"{self.what} holds rows that are not possible: pack the set again")
        labels = None if labels is None else labels.astype(np.int64)
        return Rows(values, about.n, about.grey, context, labels, weights, density)
