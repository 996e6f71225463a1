"""Variable-length integers, and a cursor that reads them back."""


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
