"""Coders of symbols with frequencies, over the same stack of bits as the model's units.

What is to be read first must be pushed last. So the writer keeps what it is given, and pushes it in reverse at the end.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from darn.codec._ans import BITS, Ans
from darn.codec._bytes import MalformedError, Reader, pack, unpack, varint
from darn.errors import InputError
from darn.symbols import TOTAL, Tables

MAX_TEXTS = 32 << 20  # bytes of texts of a block, before compression
DIGIT = 16  # bits of a whole number that are coded at once
_ONE = 1 << BITS
assert TOTAL == BITS


class Writing:
    """Keeps symbols until `finish`; see `darn.symbols.Coder`."""

    def __init__(self):
        self._ranges: list[tuple[np.ndarray, np.ndarray]] = []
        self._counts, self._texts = b"", bytearray()

    def choose(self, tables: Tables, which: np.ndarray, symbols: np.ndarray | None) -> np.ndarray:
        assert symbols is not None
        at = tables.first[which] + symbols
        self._keep(tables.start[at], tables.frequency[at])
        return symbols

    def below(self, n: np.ndarray, symbols: np.ndarray | None) -> np.ndarray:
        assert symbols is not None
        for shift, most in _digits(n):
            digit = (symbols >> shift) % most
            start = (digit << BITS) // most
            self._keep(start, ((digit + 1) << BITS) // most - start)
        return symbols

    def _keep(self, start: np.ndarray, frequency: np.ndarray) -> None:
        some = frequency < _ONE  # a certain symbol takes no bits
        self._ranges.append((start[some].astype(np.uint64), frequency[some].astype(np.uint64)))

    def count(self, number: int | None, most: int) -> int:
        assert number is not None
        self._counts += varint(number)
        return number

    def texts(self, texts: list[str] | None, count: int) -> Sequence[str]:
        assert texts is not None
        for text in texts:
            self._texts += text.replace("\\", "\\\\").replace("\n", "\\n").encode() + b"\n"
        if len(self._texts) > MAX_TEXTS:
            raise InputError(
                f"a compressed file holds at most {MAX_TEXTS:,} bytes of text in a block of rows: leave out columns "
                "of long texts that the model does not predict"
            )
        return texts

    def finish(self, ans: Ans) -> tuple[bytes, float]:
        """Pushes the symbols; returns the bytes that go beside the stack, and the length of the symbols in bits."""
        cost = sum(ans.push_ranges(*ranges) for ranges in reversed(self._ranges))
        texts = pack(bytes(self._texts)) if self._texts else b""
        beside = self._counts + varint(len(texts)) + texts
        return varint(len(beside)) + beside, cost


class Reading:
    """Reads what `Writing` has written, from a stack of bits and the bytes beside it."""

    def __init__(self, ans: Ans, beside: bytes):
        self._ans, self._reader = ans, Reader(beside)
        self._blob: np.ndarray | None = None
        self._ends, self._next = np.zeros(0, np.int64), 0

    def choose(self, tables: Tables, which: np.ndarray, symbols: np.ndarray | None) -> np.ndarray:
        return self._ans.pop_symbols(which, tables.start, tables.frequency, tables.first, tables.sure)

    def below(self, n: np.ndarray, symbols: np.ndarray | None) -> np.ndarray:
        out = np.zeros(len(n), np.int64)
        for shift, most in _digits(n):
            digit = np.zeros(len(n), np.int64)
            some = most > 1
            digit[some] = self._ans.pop_below(most[some])
            out |= digit << shift
        if (out >= n).any():
            raise MalformedError("a number is too large")
        return out

    def count(self, number: int | None, most: int) -> int:
        found = self._reader.varint()
        if found > most:
            raise MalformedError("a number is too large")
        return found

    def texts(self, texts: list[str] | None, count: int) -> Sequence[str]:
        """Texts that are decoded when they are looked at: there may be many."""
        self._next += count
        return _Texts(self, self._next - count, count)

    def finish(self) -> None:
        """Reads the texts, whose number is known by now."""
        packed = self._reader.take(self._reader.varint())
        self._reader.done()
        data = unpack(packed, MAX_TEXTS) if packed else b""
        if data.count(b"\n") != self._next or not (data.endswith(b"\n") or not data):
            raise MalformedError("the texts are not as many as are needed")
        try:
            data.decode()
        except UnicodeDecodeError as e:
            raise MalformedError("the texts are not UTF-8") from e
        self._blob = np.frombuffer(data, np.uint8)
        self._ends = np.concatenate([[-1], np.flatnonzero(self._blob == ord("\n"))])

    def text(self, k: int) -> str:
        assert self._blob is not None
        text = self._blob[self._ends[k] + 1 : self._ends[k + 1]].tobytes().decode()
        return "\\".join(part.replace("\\n", "\n") for part in text.split("\\\\"))


class _Texts(Sequence):
    def __init__(self, owner: Reading, first: int, count: int):
        self._owner, self._first, self._count = owner, first, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, k: Any) -> Any:
        if not 0 <= k < self._count:
            raise IndexError(k)
        return self._owner.text(self._first + k)


def _digits(n: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """(bits to shift by, how many values) of the digits of numbers below n.

    The first digit has 16 bits, of whose values only those below n are possible; all others have every possible value.
    """
    last = np.asarray(n, np.int64) - 1
    whole = np.frexp(last.astype(np.float64))[1].astype(np.int64)  # bits, or one more
    left = np.maximum(whole - DIGIT, 0)
    found = [(left, (last >> left) + 1)]
    while left.any():
        bits = np.minimum(left, DIGIT)
        left = left - bits
        found.append((left, np.int64(1) << bits))
    return found
