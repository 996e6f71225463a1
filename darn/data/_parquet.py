"""How much a Parquet file unpacks to, by the headers of its pages: polars would decompress first and tell later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from darn.data._limits import check_unpacked

_MAGIC = b"PAR1"
_DEEPEST = 16  # structures and lists inside each other; the format has eight

# The numbers of the fields that are looked at, from the format's Thrift definition.
_ROW_GROUPS, _COLUMNS, _META_DATA = 4, 1, 3
_COMPRESSED, _DATA_PAGE, _DICTIONARY_PAGE = 7, 9, 11  # of a column chunk: its bytes, and where its pages begin
_UNPACKED_PAGE, _PACKED_PAGE = 2, 3  # of a page: its sizes


def check_pages(file, packed: int, what: str) -> None:
    """Refuses a Parquet file whose pages declare much more than the file holds.

    Args:
        file: its content, as bytes or a memory map.
        packed: its size.
        what: the file as the user named it.

    Raises:
        DarnError: The pages unpack to too much.
        ValueError, IndexError, KeyError: The file is damaged.
    """
    unpacked = 0
    for size in _pages(file, packed):
        unpacked += size
        check_unpacked(unpacked, packed, what)


def _pages(file, packed: int) -> Iterator[int]:
    """The declared size of every page of every column, in the order of the footer."""
    if packed < 12 or file[:4] != _MAGIC or file[packed - 4 : packed] != _MAGIC:
        raise ValueError("it does not begin and end as a Parquet file does")
    start = packed - 8 - int.from_bytes(file[packed - 8 : packed - 4], "little")
    if start < 4:
        raise ValueError("its footer is longer than the file")
    footer = _Thrift(file, start).structure()
    for group in footer.get(_ROW_GROUPS, ()):
        for column in group.get(_COLUMNS, ()):
            chunk = column[_META_DATA]
            at = chunk.get(_DICTIONARY_PAGE) or chunk[_DATA_PAGE]
            end = at + chunk[_COMPRESSED]
            if not 4 <= at <= end <= start:
                raise ValueError("a column lies outside the file")
            while at < end:
                header = _Thrift(file, at)
                page = header.structure()
                if page[_UNPACKED_PAGE] < 0 or page[_PACKED_PAGE] < 0:
                    raise ValueError("a page of a negative size")
                yield page[_UNPACKED_PAGE]
                at = header.at + page[_PACKED_PAGE]


class _Thrift:
    """Values in Thrift's compact protocol, which Parquet's headers are written in."""

    def __init__(self, data, at: int):
        self.data, self.at = data, at

    def structure(self, depth: int = 0) -> dict[int, Any]:
        """The fields by their numbers. Texts are skipped: they are None."""
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            step, kind = head >> 4, head & 15
            number = number + step if step else self._signed()
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError("structures inside each other without end")
        if kind in (1, 2, 3):
            return self._byte()
        if kind in (4, 5, 6):
            return self._signed()
        if kind in (7, 8):
            length = 8 if kind == 7 else self._unsigned()
            self.at += length
            if self.at > len(self.data):
                raise ValueError("a header ends beyond the file")
            return None
        if kind in (9, 10):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._unsigned()
            return [self._value(head & 15, depth + 1) for _ in range(count)]
        if kind == 12:
            return self.structure(depth + 1)
        raise ValueError("an unknown type in a header")

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _unsigned(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise ValueError("a number without end")

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)
