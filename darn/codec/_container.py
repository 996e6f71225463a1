"""The file: one member or several, each a header, independent blocks, and an end with the accounts.

    header  magic, version, length, fingerprint of the model, columns, rows, notes, embedded model (may be empty), CRC
    block   rows, length, CRC of these and the data, data          (repeated)
    end     0, number of hidden layers, bits by layer, rows without bits back, CRC

The rows of a file are those of its members in order: files of one model can be concatenated.
Numbers are varints; CRCs are zlib's CRC-32 in four bytes, little-endian.
"""

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from darn.codec._bytes import MalformedError, Reader, varint
from darn.errors import DarnError, InputError
from darn.jsonable import parse

MAGIC, VERSION = b"\x93DRN", 1

# Limits that the writer keeps, and the reader checks before it allocates anything.
MAX_COLUMNS = 1 << 25
MAX_UNITS = 1 << 25  # rows times columns of a block; a block of one row may have MAX_COLUMNS
MAX_BLOCK = 1 << 28  # bytes of a block
MAX_NOTES = 32 << 20  # bytes of notes, as JSON
MAX_MODEL = 64 << 20  # bytes of a model inside, compressed and not
_MAX_HEAD = MAX_NOTES + MAX_MODEL + 100
_PIECE = 1 << 20  # bytes read at once, so that a length that is not true takes no memory


def most_rows(n_x: int) -> int:
    """The most rows in a block."""
    return max(MAX_UNITS // n_x, 1)


@dataclass(frozen=True)
class Head:
    """The header of a compressed file."""

    fingerprint: bytes
    n_x: int
    rows: int
    notes: dict = field(default_factory=dict)  # about the input, such as names and sizes of images
    model: bytes = b""  # the embedded model, if there is one

    def to_bytes(self) -> bytes:
        text = json.dumps(self.notes, separators=(",", ":")).encode() if self.notes else b""
        for what, size, most in (
            ("columns", self.n_x, MAX_COLUMNS),
            ("bytes of notes, such as lines that no rule describes", len(text), MAX_NOTES),
            ("bytes of a model inside", len(self.model), MAX_MODEL),
        ):
            if size > most:
                raise InputError(f"a compressed file holds at most {most:,} {what}, not {size:,}")
        notes = zlib.compress(text, 9) if text else b""
        body = self.fingerprint + varint(self.n_x) + varint(self.rows)
        body += varint(len(notes)) + notes + varint(len(self.model)) + self.model
        return _sealed(MAGIC + bytes([VERSION]) + varint(len(body)) + body)


@dataclass(frozen=True)
class End:
    """The accounts: bits by layer, rounded, and the number of rows coded without bits back."""

    p: tuple[int, ...]
    q: tuple[int, ...]
    first: int

    def to_bytes(self) -> bytes:
        numbers = (0, len(self.q), *self.p, *self.q, self.first)
        return _sealed(b"".join(map(varint, numbers)))


def block_bytes(rows: int, data: bytes) -> bytes:
    if len(data) > MAX_BLOCK:
        raise InputError(f"a block of {rows:,} rows takes {len(data):,} bytes, more than {MAX_BLOCK:,}: train a model")
    size = varint(rows) + varint(len(data))
    return size + zlib.crc32(size + data).to_bytes(4, "little") + data


def _sealed(data: bytes) -> bytes:
    return data + zlib.crc32(data).to_bytes(4, "little")


class _Source:
    """Reads from a file and sums the CRC of the bytes since the last one."""

    def __init__(self, file: BinaryIO, crc: int = 0):
        self._file, self.crc = file, crc

    def take(self, count: int) -> bytes:
        pieces = []
        while count:
            piece = self._file.read(min(count, _PIECE))
            if not piece:
                raise DarnError("the file is truncated: get a complete copy of it")
            self.crc = zlib.crc32(piece, self.crc)
            pieces.append(piece)
            count -= len(piece)
        return b"".join(pieces)

    def skip(self, count: int) -> None:
        self._file.seek(count, 1)

    def varint(self) -> int:
        number = bytearray()
        while not number or number[-1] >= 0x80:
            if len(number) > 8:
                raise DarnError("the file is damaged: get another copy of it")
            number += self.take(1)
        return Reader(bytes(number)).varint()

    def sealed(self) -> bool:
        """Reads a CRC and checks it against the bytes read since the last one."""
        wanted = self.crc
        right = int.from_bytes(self.take(4), "little") == wanted
        self.crc = 0
        return right


def read_head(file: BinaryIO) -> Head:
    start = file.read(len(MAGIC) + 1)
    if start[: len(MAGIC)] != MAGIC:
        raise DarnError("this is not a compressed darn file, or its first bytes are damaged")
    if len(start) == len(MAGIC):
        raise DarnError("the file is truncated: get a complete copy of it")
    version = start[-1]
    if version > VERSION:
        raise DarnError(
            f"the file has format version {version}, but this darn reads versions up to {VERSION}: upgrade darn"
        )
    source = _Source(file, zlib.crc32(start))
    size = source.varint()
    if size > _MAX_HEAD:
        raise DarnError("the file's header is damaged: get another copy of it")
    body = Reader(source.take(size))
    if not source.sealed() or version < 1:
        raise DarnError("the file's header is damaged: get another copy of it")
    try:
        fingerprint, n_x, rows = body.take(8), body.varint(), body.varint()
        notes, model = body.take(body.varint()), body.take(body.varint())
        body.done()
        if not 1 <= n_x <= MAX_COLUMNS or len(model) > MAX_MODEL:
            raise MalformedError("sizes beyond the limits")
        return Head(fingerprint, n_x, rows, _notes(notes), model)
    except (MalformedError, zlib.error, DarnError) as e:
        raise DarnError("the file's header is malformed although its checksum matches: do not trust this file") from e


def _notes(packed: bytes) -> dict:
    """The notes, and never more than `MAX_NOTES` bytes of them in memory."""
    if not packed:
        return {}
    stream = zlib.decompressobj()
    text = stream.decompress(packed, MAX_NOTES + 1)
    found = parse(text, "the notes", MAX_NOTES)
    if not stream.eof or not isinstance(found, dict):
        raise MalformedError("the notes are cut short, or not an object")
    return found


@dataclass(frozen=True)
class Block:
    """A block of the file; `data` is None if it is damaged."""

    first_row: int
    rows: int
    data: bytes | None


def read_blocks(file: BinaryIO, head: Head, *, skip: bool = False) -> Iterator[Block | End]:
    """The blocks in order, then the end. Raises DarnError if the next block cannot be located.

    Args:
        file: open for reading bytes, just after the header.
        head: the header.
        skip: whether to pass over the blocks without reading them; their `data` are then empty, and not checked.
    """
    source, row = _Source(file), 0
    while True:
        rows = source.varint()
        if rows == 0:
            break
        size = source.varint()
        if size > MAX_BLOCK or rows > most_rows(head.n_x) or row + rows > head.rows:
            raise DarnError(f"the file is damaged after row {row:,}: get another copy of it")
        crc, right = source.crc, True
        wanted, data = int.from_bytes(source.take(4), "little"), b""
        if skip:
            source.skip(size)
        else:
            data = source.take(size)
            right = zlib.crc32(data, crc) == wanted
        source.crc = 0
        yield Block(row, rows, data if right else None)
        row += rows
    layers = source.varint()
    if layers > 1000:
        raise DarnError("the file's end is damaged: get another copy of it")
    numbers = [source.varint() for _ in range(2 * layers + 2)]
    if not source.sealed():
        raise DarnError("the file's end is damaged: get another copy of it")
    if row != head.rows:
        raise DarnError(f"the file holds {row:,} rows, but its header says {head.rows:,}: get another copy of it")
    yield End(tuple(numbers[: layers + 1]), tuple(numbers[layers + 1 : -1]), numbers[-1])
