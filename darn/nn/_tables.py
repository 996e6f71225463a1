"""Sigmoid, tanh and elu as integer tables, computed in integer arithmetic.

`exp` and `tanh` of C libraries and vector units differ in the last bit between machines; Python's integers do not.
"""

from functools import lru_cache

import numpy as np

_SCALE = 96  # fractional bits of the working precision, whose error is far below the last bit of any entry


def _powers(step_bits: int, count: int) -> list[int]:
    """e^-(i / 2^step_bits) for i < count, in units of 2^-_SCALE."""
    one = 1 << _SCALE
    base, term, i = one, one, 0
    while term:  # the series of e^-t at t = 2^-step_bits
        i += 1
        term = (term >> step_bits) // i
        base += -term if i % 2 else term
    out = [one]
    for _ in range(count - 1):
        out.append((out[-1] * base) >> _SCALE)
    return out


def _ratio(top: int, bottom: int, bits: int) -> int:
    """top / bottom in units of 2^-bits, rounded to nearest."""
    return ((top << (bits + 1)) + bottom) // (2 * bottom)


@lru_cache
def sigmoid_table(step_bits: int, reach: int, bits: int) -> np.ndarray:
    """sigma(i / 2^step_bits) in units of 2^-bits for |i| <= reach * 2^step_bits, never 0 or 1."""
    one, count = 1 << _SCALE, (reach << step_bits) + 1
    low = [max(_ratio(e, one + e, bits), 1) for e in _powers(step_bits, count)]  # sigma(-i)
    high = [(1 << bits) - f for f in low]
    return np.array([*low[:0:-1], 1 << (bits - 1), *high[1:]], np.uint32)


@lru_cache
def activation_table(name: str, step_bits: int, reach: int, bits: int) -> np.ndarray:
    """tanh, sigmoid or elu at i / 2^step_bits for |i| <= reach * 2^step_bits, rounded to multiples of 2^-bits.

    As float64, which holds them exactly.
    """
    one, count = 1 << _SCALE, (reach << step_bits) + 1
    if name == "sigmoid":
        low = [_ratio(e, one + e, bits) for e in _powers(step_bits, count)]
        table = [*low[:0:-1], 1 << (bits - 1), *((1 << bits) - f for f in low[1:])]
    elif name == "elu":
        low = [-_ratio(one - e, one, bits) for e in _powers(step_bits, count)]
        table = [*low[:0:-1], *(_ratio(i, 1 << step_bits, bits) for i in range(count))]
    else:
        high = [_ratio(one - e, one + e, bits) for e in _powers(step_bits - 1, count)]  # e^-2t
        table = [*(-v for v in high[:0:-1]), *high]
    return np.array(table, np.float64) / (1 << bits)
