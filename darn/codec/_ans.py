"""Asymmetric numeral systems (rANS) over bits: a stack of bits held as one large integer in 32-bit words.

There is one state per block, not per row, so that rows cost no flush of their own. The loop over symbols is compiled:
`benchmarks/codec.py` compares it with vectorised NumPy and the constriction package.
"""

import numba
import numpy as np

from darn.nn import sigmoid_table

BITS = 28  # of a probability
STEP_BITS = 9  # logits are rounded to multiples of 2^-9, at a cost below 1e-7 nats a bit
REACH = 20  # and clipped to +-20, beyond which the probability is 2^-28

# Probability of a 1 for each rounded logit, and the length in bits of a 0 and of a 1 (for the accounts only).
FREQUENCY = sigmoid_table(STEP_BITS, REACH, BITS)
LENGTH = np.stack([BITS - np.log2(f.astype(np.float64)) for f in ((1 << BITS) - FREQUENCY, FREQUENCY)])

_ONE, _LEAST = 1 << BITS, 1 << 32
_SIDE = REACH << STEP_BITS


def compiled(f):
    """Compiled by numba."""
    try:
        return numba.njit(nogil=True, cache=True)(f)
    except RuntimeError:  # no folder to cache the compiled code in: compile in every process
        return numba.njit(nogil=True)(f)


@compiled
def index_of(a):
    """The place of a logit in the tables."""
    i = np.floor(np.float64(a) * (1 << STEP_BITS) + 0.5)  # exact: the factor is a power of two
    return np.int64(min(max(i, -_SIDE), _SIDE)) + _SIDE


@compiled
def _push(s, words, pos, bits, a, frequency, length):
    cost = 0.0
    for i in range(bits.size - 1, -1, -1):
        k = index_of(a[i])
        f, start = np.uint64(frequency[k]), np.uint64(0)
        if bits[i]:
            cost += length[1, k]
        else:
            f, start = np.uint64(_ONE) - f, f
            cost += length[0, k]
        if s >= f << np.uint64(64 - BITS):
            words[pos] = np.uint32(s & np.uint64(0xFFFFFFFF))
            pos += 1
            s >>= np.uint64(32)
        q = s // f
        s = (q << np.uint64(BITS)) + (s - q * f) + start
    return s, pos, cost


@compiled
def _pop(s, words, pos, bits, a, frequency, length):
    cost = 0.0
    for i in range(bits.size):
        k = index_of(a[i])
        f, low = np.uint64(frequency[k]), s & np.uint64(_ONE - 1)
        # Selections instead of a branch, which would be mispredicted for many a bit: three times as fast.
        bit = low < f
        own, start = (f, np.uint64(0)) if bit else (np.uint64(_ONE) - f, f)
        bits[i] = bit
        cost += length[np.int64(bit), k]
        s = own * (s >> np.uint64(BITS)) + (low - start)
        if s < np.uint64(_LEAST):
            if pos == 0:
                return s, -1, cost
            pos -= 1
            s = (s << np.uint64(32)) | np.uint64(words[pos])
    return s, pos, cost


@compiled
def _pop_linear(s, words, pos, bits, a, W, frequency, length):
    cost = 0.0
    for i in range(len(W)):
        s, pos, more = _pop(s, words, pos, bits[i], a[i], frequency, length)
        if pos < 0:
            return s, pos, cost
        cost += more
        for k in range(i + 1, len(W)):
            for row in range(a.shape[1]):
                a[k, row] += W[k, i] * bits[i, row]
    return s, pos, cost


@compiled
def _push_ranges(s, words, pos, start, frequency):
    cost = 0.0
    for i in range(start.size - 1, -1, -1):
        f = frequency[i]
        cost += BITS - np.log2(np.float64(f))
        if s >= f << np.uint64(64 - BITS):
            words[pos] = np.uint32(s & np.uint64(0xFFFFFFFF))
            pos += 1
            s >>= np.uint64(32)
        q = s // f
        s = (q << np.uint64(BITS)) + (s - q * f) + start[i]
    return s, pos, cost


@compiled
def _pop_symbols(s, words, pos, out, which, start, frequency, first, sure):
    for i in range(out.size):
        t = which[i]
        if sure[t] >= 0:
            out[i] = sure[t]
            continue
        low = s & np.uint64(_ONE - 1)
        a, b = first[t], first[t + 1]  # the last entry that starts at `low` or before is in a..b-1
        while b - a > 1:
            middle = (a + b) // 2
            if start[middle] <= low:
                a = middle
            else:
                b = middle
        out[i] = a - first[t]
        s = frequency[a] * (s >> np.uint64(BITS)) + (low - start[a])
        if s < np.uint64(_LEAST):
            if pos == 0:
                return s, -1
            pos -= 1
            s = (s << np.uint64(32)) | np.uint64(words[pos])
    return s, pos


@compiled
def _pop_below(s, words, pos, out, n):
    for i in range(out.size):
        low, most = s & np.uint64(_ONE - 1), np.uint64(n[i])
        k = ((low + np.uint64(1)) * most - np.uint64(1)) >> np.uint64(BITS)
        start = (k << np.uint64(BITS)) // most
        f = ((k + np.uint64(1)) << np.uint64(BITS)) // most - start
        out[i] = np.int64(k)
        s = f * (s >> np.uint64(BITS)) + (low - start)
        if s < np.uint64(_LEAST):
            if pos == 0:
                return s, -1
            pos -= 1
            s = (s << np.uint64(32)) | np.uint64(words[pos])
    return s, pos


class Empty(Exception):
    """The stack has fewer bits than a pop needs."""


class Ans:
    """A stack of bits, each pushed and popped under its logit; last in, first out."""

    def __init__(self):
        self._state, self._words, self._count = np.uint64(_LEAST), np.zeros(1024, np.uint32), 0
        self.lowest = 0

    def push(self, bits: np.ndarray, logits: np.ndarray) -> float:
        """Pushes the bits, so that `pop` returns them in the same order; returns their length in bits."""
        bits, a = np.ascontiguousarray(bits, np.uint8).reshape(-1), np.ascontiguousarray(logits).reshape(-1)
        self._make_room(bits.size)
        s, count, cost = _push(self._state, self._words, self._count, bits, a, FREQUENCY, LENGTH)
        self._state, self._count = np.uint64(s), int(count)
        return cost

    def pop(self, logits: np.ndarray) -> tuple[np.ndarray, float]:
        """Returns (bits in the shape of their logits, their length in bits); raises `Empty` if they are not there."""
        bits = np.empty(logits.shape, np.uint8)
        a = np.ascontiguousarray(logits).reshape(-1)
        s, count, cost = _pop(self._state, self._words, self._count, bits.reshape(-1), a, FREQUENCY, LENGTH)
        self._popped(s, count)
        return bits, cost

    def pop_linear(self, a: np.ndarray, W: np.ndarray) -> tuple[np.ndarray, float]:
        """Like `pop`, of units (units, rows) whose logits are a + W y; changes `a`.

        W is strictly lower-triangular; its sums must be exact, as those of an integer twin.
        """
        bits, W = np.empty(a.shape, np.uint8), np.ascontiguousarray(W)
        s, count, cost = _pop_linear(self._state, self._words, self._count, bits, a, W, FREQUENCY, LENGTH)
        self._popped(s, count)
        return bits, cost

    # Symbols of any alphabet: each is a range of `frequency` out of 2^BITS, none of them all.

    def push_ranges(self, start: np.ndarray, frequency: np.ndarray) -> float:
        """Pushes symbols by their ranges, so that they are popped in the same order; returns their length in bits."""
        self._make_room(start.size)
        s, count, cost = _push_ranges(self._state, self._words, self._count, start, frequency)
        self._state, self._count = np.uint64(s), int(count)
        return cost

    def pop_symbols(self, which, start, frequency, first, sure) -> np.ndarray:
        """Pops a symbol of each table `which`; see `darn.symbols.Tables`."""
        out, which = np.empty(len(which), np.int64), np.ascontiguousarray(which, np.int64)
        self._popped(*_pop_symbols(self._state, self._words, self._count, out, which, start, frequency, first, sure))
        return out

    def pop_below(self, n: np.ndarray) -> np.ndarray:
        """Pops whole numbers below n, from 2 to 2^16 each, all as likely."""
        out = np.empty(len(n), np.int64)
        self._popped(*_pop_below(self._state, self._words, self._count, out, np.ascontiguousarray(n, np.int64)))
        return out

    def push_choices(self, chosen: np.ndarray, shares: np.ndarray) -> float:
        """Pushes one of several values for each row, under shares (rows, values) that sum to 2^BITS."""
        if shares.shape[1] == 1:
            return 0.0
        own = np.arange(len(chosen)), chosen
        start, frequency = _ranges(shares)
        return self.push_ranges(start[own], frequency[own])

    def pop_choices(self, shares: np.ndarray) -> tuple[np.ndarray, float]:
        """Returns (the value of each row, their length in bits); raises `Empty` if they are not there."""
        rows, values = shares.shape
        start, frequency = (v.reshape(-1) for v in _ranges(shares))
        first, sure = np.arange(rows + 1) * values, np.full(rows, 0 if values == 1 else -1)
        chosen = self.pop_symbols(np.arange(rows), start, frequency, first, sure)
        return chosen, float((BITS - np.log2(frequency[first[:-1] + chosen].astype(np.float64))).sum())

    def _make_room(self, symbols: int) -> None:
        room = self._count + symbols  # a symbol emits at most one word
        if room > self._words.size:
            self._words = np.concatenate([self._words[: self._count], np.zeros(2 * room - self._count, np.uint32)])

    def _popped(self, s, count) -> None:
        if count < 0:
            raise Empty
        self._state, self._count = np.uint64(s), int(count)

    def watch(self) -> None:
        """Starts anew to look for the lowest size."""
        self.lowest = self.size

    def note(self) -> None:
        """Notes the size, if it is the lowest since `watch`; after the last of some pops."""
        self.lowest = min(self.lowest, self.size)

    @property
    def size(self) -> int:
        """Number of bits that can be popped, to within one."""
        return 32 * (self._count - 1) + int(self._state).bit_length() - 1

    @property
    def empty(self) -> bool:
        return self._count == 0 and int(self._state) == _LEAST

    def copy(self) -> "Ans":
        new = Ans()
        new._state, new._words, new._count = self._state, self._words[: self._count].copy(), self._count
        return new

    def to_bytes(self) -> bytes:
        state = int(self._state)
        # Five to eight bytes; the total length modulo four tells how many.
        head = state.to_bytes(-(-state.bit_length() // 8), "little")
        return head + self._words[: self._count].astype("<u4").tobytes()

    @staticmethod
    def from_bytes(data: bytes) -> "Ans":
        head = 5 + (len(data) - 5) % 4
        state = int.from_bytes(data[:head], "little")
        if len(data) < 5 or not _LEAST <= state < 1 << 64:
            raise Empty
        new = Ans()
        new._state, new._words = np.uint64(state), np.frombuffer(data, "<u4", offset=head).astype(np.uint32)
        new._count = new._words.size
        return new


def _ranges(shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(start, frequency) of every value of every row."""
    frequency = shares.astype(np.uint64)
    return np.cumsum(frequency, axis=1) - frequency, frequency
