"""Numbers in as few bytes as they need, and a cursor that reads them back."""


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the top bit says that more follow."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Damaged(Exception):
    """Bytes that nobody wrote so."""


class Reader:
    """Reads from bytes, front to back; `Damaged` at their end."""

    def __init__(self, data: bytes):
        self._data, self._at = memoryview(data), 0

    def take(self, count: int) -> bytes:
        if count > len(self._data) - self._at:
            raise Damaged("cut short")
        self._at += count
        return bytes(self._data[self._at - count : self._at])

    def varint(self) -> int:
        value = 0
        for shift in range(0, 63, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise Damaged("a number without an end")

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._at)

    def done(self) -> None:
        if self._at != len(self._data):
            raise Damaged("something is left over")
