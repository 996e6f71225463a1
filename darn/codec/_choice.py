"""The order of a row as one more hidden variable: its exact posterior, in integers.

A layer may be a uniform mixture of K chains, which decide the units of y in K different orders. To push y, the order k
is popped from p(k | y, c), y is pushed along chain k, and k under its uniform prior; so the K orders cost exactly
-log2 (1/K) sum_k p_k(y | c). The posterior follows from the lengths of y in the K orders, in the coder's own
probabilities; every step is on integers, so that it is the same on every machine.
"""

import math

import numpy as np

from darn.codec._ans import BITS, FREQUENCY, compiled, index_of

_FINE = 24  # fractional bits of a length


def _whole_log2(f: np.ndarray) -> np.ndarray:
    """log2 of whole numbers below 2^32, in units of 2^-_FINE, rounded down."""
    whole = np.frexp(f.astype(np.float64))[1].astype(np.uint64) - np.uint64(1)  # exact
    x, found = f.astype(np.uint64) << (np.uint64(31) - whole), whole  # x / 2^31 is in [1, 2)
    for _ in range(_FINE):  # squaring doubles the logarithm
        x = x * x >> np.uint64(31)
        above = x >> np.uint64(32)  # 0 or 1: the next digit
        x >>= above
        found = found << np.uint64(1) | above
    return found.astype(np.int64)


# Lengths of a 0 and of a 1 for each rounded logit, in units of 2^-_FINE bits.
_LENGTH = (BITS << _FINE) - np.stack([_whole_log2((1 << BITS) - FREQUENCY.astype(np.int64)), _whole_log2(FREQUENCY)])


def _roots() -> np.ndarray:
    """2^-(1/2), 2^-(1/4), ... 2^-(2^-_FINE), in units of 2^-30."""
    found, last = [], 1 << 29
    for _ in range(_FINE):
        last = math.isqrt(last << 30)
        found.append(last)
    return np.array(found, np.uint64)


_ROOTS = _roots()


@compiled
def _lengths(bits, a, there, length):
    found = np.zeros(bits.shape[1], np.int64)
    for i in range(bits.shape[0]):
        for j in range(bits.shape[1]):
            if there[i, j]:
                found[j] += length[bits[i, j], index_of(a[i, j])]
    return found


def lengths(bits: np.ndarray, logits: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    """(rows,): the length of each row's bits, (units, rows), in units of 2^-24 bits; `mask`: the units that count."""
    there = np.ones(bits.shape, bool) if mask is None else np.ascontiguousarray(mask)
    return _lengths(np.ascontiguousarray(bits), np.ascontiguousarray(logits), there, _LENGTH)


def in_bits(found: np.ndarray) -> np.ndarray:
    """What `lengths` returned, for rows in each of K orders (K, rows), as the bits that the mixture takes."""
    found = np.ldexp(found.astype(np.float64), -_FINE)
    return np.log2(len(found)) - np.logaddexp2.reduce(-found, axis=0)


def posterior(found: np.ndarray) -> np.ndarray:
    """(rows, K): the probability of each order given the row, in units of 2^-BITS, none 0; they sum to one.

    Args:
        found: (K, rows), the lengths of each row in each order.
    """
    behind = (found - found.min(axis=0)).T
    weights = np.full(behind.shape, 1 << 30, np.uint64)
    for i, root in enumerate(_ROOTS):  # 2^-behind: the fraction digit by digit, then the whole part
        digit = behind >> (_FINE - 1 - i) & 1 == 1
        weights = np.where(digit, weights * root >> np.uint64(30), weights)
    weights >>= np.minimum(behind >> _FINE, 31).astype(np.uint64)
    K = np.uint64(weights.shape[1])
    shares = (np.uint64(1 << BITS) - K) * weights // weights.sum(axis=1, keepdims=True) + np.uint64(1)
    shares[np.arange(len(shares)), weights.argmax(axis=1)] += np.uint64(1 << BITS) - shares.sum(axis=1)
    return shares.astype(np.uint32)


def uniform(rows: int, K: int) -> np.ndarray:
    """(rows, K): equal probabilities but for rounding, in units of 2^-BITS."""
    shares = np.full((rows, K), (1 << BITS) // K, np.uint32)
    shares[:, 0] += (1 << BITS) % K
    return shares
