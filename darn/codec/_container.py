"""The file: a header, independent blocks, and an end with the accounts.

    header  magic, version, length, fingerprint of the model, columns, rows, notes, embedded model (may be empty), CRC
    block   rows, length, CRC of these and the data, data          (repeated)
    end     0, number of hidden layers, bits by layer, rows without bits back, CRC

Numbers are varints; CRCs are zlib's CRC-32 in four bytes, little-endian.
"""

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from darn.codec._bytes import MalformedError, Reader, varint
from darn.errors import DarnError

MAGIC, VERSION = b"\x93DRN", 1
_MOST = 1 << 31  # bytes of a header or a block; a larger length means that the file is damaged


@dataclass(frozen=True)
class Head:
    """The header of a compressed file."""

    fingerprint: bytes
    n_x: int
    rows: int
    notes: dict = field(default_factory=dict)  # about the input, such as names and sizes of images
    model: bytes = b""  # the embedded model, if there is one

    def to_bytes(self) -> bytes:
        notes = zlib.compress(json.dumps(self.notes, separators=(",", ":")).encode(), 9) if self.notes else b""
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
    size = varint(rows) + varint(len(data))
    return size + zlib.crc32(size + data).to_bytes(4, "little") + data


def _sealed(data: bytes) -> bytes:
    return data + zlib.crc32(data).to_bytes(4, "little")


class _Source:
    """Reads from a file and remembers the bytes since the last CRC."""

    def __init__(self, file: BinaryIO):
        self._file, self.seen = file, b""

    def take(self, count: int) -> bytes:
        data = self._file.read(count)
        if len(data) < count:
            raise DarnError("the file is truncated: get a complete copy of it")
        self.seen += data
        return data

    def varint(self) -> int:
        number = bytearray()
        while not number or number[-1] >= 0x80:
            if len(number) > 8:
                raise DarnError("the file is damaged: get another copy of it")
            number += self.take(1)
        return Reader(bytes(number)).varint()

    def sealed(self) -> bool:
        """Reads a CRC and checks it against the bytes read since the last one."""
        seen = self.seen
        right = int.from_bytes(self.take(4), "little") == zlib.crc32(seen)
        self.seen = b""
        return right


def read_head(file: BinaryIO) -> Head:
    source = _Source(file)
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
    source.seen = start
    size = source.varint()
    if size > _MOST:
        raise DarnError("the file's header is damaged: get another copy of it")
    body = Reader(source.take(size))
    if not source.sealed() or version < 1:
        raise DarnError("the file's header is damaged: get another copy of it")
    try:
        fingerprint, n_x, rows = body.take(8), body.varint(), body.varint()
        notes, model = body.take(body.varint()), body.take(body.varint())
        body.done()
        return Head(fingerprint, n_x, rows, json.loads(zlib.decompress(notes)) if notes else {}, model)
    except (MalformedError, zlib.error, ValueError) as e:
        raise DarnError("the file's header is malformed although its checksum matches: do not trust this file") from e


@dataclass(frozen=True)
class Block:
    """A block of the file; `data` is None if it is damaged."""

    first_row: int
    rows: int
    data: bytes | None


def read_blocks(file: BinaryIO, head: Head) -> Iterator[Block | End]:
    """The blocks in order, then the end. Raises DarnError if the next block cannot be located."""
    source, row = _Source(file), 0
    while True:
        rows = source.varint()
        if rows == 0:
            break
        size = source.varint()
        if size > _MOST or row + rows > head.rows:
            raise DarnError(f"the file is damaged after row {row:,}: get another copy of it")
        seen = source.seen
        crc, data = source.take(4), source.take(size)
        source.seen = b""
        right = int.from_bytes(crc, "little") == zlib.crc32(data, zlib.crc32(seen))
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
    if file.read(1):
        raise DarnError("there are extra bytes after the end of the compressed rows: get another copy of the file")
    yield End(tuple(numbers[: layers + 1]), tuple(numbers[layers + 1 : -1]), numbers[-1])
