"""Variable-length integers, a cursor that reads them back, and general-purpose compression with a limit."""

import bz2
import lzma
import zlib
from typing import Any

# (compress, a stream that decompresses at most a given number of bytes)
_PACKERS = (
    (zlib.compress, zlib.decompressobj),
    (bz2.compress, bz2.BZ2Decompressor),
    (lzma.compress, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=64 << 20)),
)


def varint(value: int) -> bytes:
    """Seven bits per byte, lowest first; the top bit says that more follow."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class MalformedError(Exception):
    """Malformed bytes."""


class Reader:
    """Reads bytes from front to back; raises `MalformedError` at the end."""

    def __init__(self, data: bytes):
        self._data, self._at = memoryview(data), 0

    def take(self, count: int) -> bytes:
        if count > len(self._data) - self._at:
            raise MalformedError("the data are truncated")
        self._at += count
        return bytes(self._data[self._at - count : self._at])

    def varint(self) -> int:
        value = 0
        for shift in range(0, 63, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise MalformedError("a number is too long")

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._at)

    def done(self) -> None:
        if self._at != len(self._data):
            raise MalformedError("there are bytes left over")


def pack(data: bytes) -> bytes:
    """The bytes, compressed by the general-purpose compressor that makes them shortest."""
    tag, packed = min(((i, pack(data)) for i, (pack, _) in enumerate(_PACKERS)), key=lambda v: len(v[1]))
    return bytes([tag]) + packed


def unpack(data: bytes, most: int) -> bytes:
    """What `pack` was given, and never more than `most` bytes in memory.

    Raises:
        MalformedError: if the bytes are not such, or too many.
    """
    try:
        stream: Any = _PACKERS[data[0]][1]()
        out = stream.decompress(data[1:], most + 1)
    except (IndexError, OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as e:
        raise MalformedError(f"compressed bytes cannot be read: {e}") from e
    if len(out) > most:
        raise MalformedError(f"they are longer than {most} bytes")
    if not stream.eof or stream.unused_data:
        raise MalformedError("they are truncated, or have extra bytes after their end")
    return out
