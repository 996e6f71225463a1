"""The part of a column that a condition allows: how much of each value, and draws from it."""

from __future__ import annotations

import abc
import difflib
import itertools
import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from darn.data._column import AbstractColumn
    from darn.data._draws import RowDraws

COMPARISONS = ("<", "<=", ">", ">=")
MISSING = ("", "?", "na", "n/a", "nan", "null", "none")  # how files say that a value is not there


class Test(NamedTuple):
    """A test of one cell, such as (">=", ("40",)).

    The operators are =, !=, <, <=, >, >=, `in` and `not in` some texts, `..` from one text to another, and `is missing`
    and `is given`, without a text. A missing value passes only `is missing`, and `=` or `in` with a text that means
    missing.
    """

    __test__ = False  # not one of pytest's

    op: str
    words: tuple[str, ...] = ()

    @property
    def known(self) -> list[str]:
        """The words that do not mean a missing value."""
        return [w for w in self.words if w.strip().lower() not in MISSING]

    @property
    def keeps_missing(self) -> bool:
        """Whether a missing value passes."""
        return self.op == "is missing" or (self.op in ("=", "in") and len(self.known) < len(self.words))

    def bounds(self) -> list[tuple[str, str]]:
        """The comparisons that a range, or a comparison, is made of."""
        if self.op == "..":
            low, high = self.words
            return [(">=", low), ("<=", high)]
        return [(self.op, self.words[0])] if self.op in COMPARISONS else []


class AbstractPart(abc.ABC):
    """What a condition allows of a column's texts."""

    column: Any  # its own kind of column
    weights: np.ndarray  # (n + 1,) the probability that a text of each value is allowed; the last: a missing one

    @abc.abstractmethod
    def draw(self, values: np.ndarray, rng: RowDraws) -> list[str]:
        """An allowed text of each value."""

    @abc.abstractmethod
    def allows(self, words: np.ndarray) -> np.ndarray:
        """Which texts, none of them missing, are allowed; unknown ones are."""

    @abc.abstractmethod
    def means(self) -> np.ndarray | None:
        """(n,) the mean of the allowed numbers of each value; None if the texts are not numbers."""

    def quantile(self, p: np.ndarray, level: float) -> str | None:
        """The least text that is not below this share of the column; None if its values have no order.

        Args:
            p: (n,) the probability of each value, given that it is allowed.
            level: the share, between 0 and 1.
        """
        return None


class ValuePart(AbstractPart):
    """Some values of a column whose values are one text each."""

    def __init__(self, column: AbstractColumn, allowed: np.ndarray, missing: bool):
        self.column, self.weights = column, np.append(allowed, missing).astype(np.float64)

    def draw(self, values, rng):
        return self.column.draw(values, rng)

    def allows(self, words):
        values = self.column.find(words)
        return (values < 0) | (self.weights[values] > 0)

    def means(self):
        found = [exact_number(v) for v in self.column.value_names()]
        return None if None in found else np.array([float(v) for v in found if v is not None])


class Refused(Exception):
    """A test that a column cannot answer; the message says why, as a part of a sentence."""


def allowed_values(values: Sequence[str], codes: dict[str, int], ordered: bool, tests: Sequence[Test]) -> np.ndarray:
    """Which of a column's texts pass all tests.

    Args:
        values: the texts, in their order if there is one.
        codes: the value of every text that may be given.
        ordered: whether the order means something.
        tests: of the cell.

    Raises:
        Refused: A text is none of the values, or there is no order.
    """
    passed = np.ones(len(values), bool)
    unknown: dict[str, None] = {}
    numbers = [exact_number(v) for v in values]
    for test in tests:
        if test.op == "is missing":
            passed[:] = False
        if test.op in ("=", "in", "!=", "not in"):
            listed = np.zeros(len(values), bool)
            for word in test.known:
                if word in codes:
                    listed[codes[word]] = True
                else:
                    unknown[word] = None
            passed &= listed if test.op in ("=", "in") else ~listed
        for op, word in test.bounds():
            if None not in numbers:
                rank, limit = numbers, exact_number(word)
            elif ordered:
                rank, limit = list(range(len(values))), codes.get(word)
            else:
                raise Refused(f"its values have no order, so there is no {op}: use =, != or in")
            if limit is None:
                unknown[word] = None
            else:
                passed &= np.array([_compare(op, r, limit) for r in rank])
    if unknown:
        raise Refused(_not_known(list(unknown), list(values)))
    return passed


def _compare(op: str, a, b) -> bool:
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op]


def _not_known(words: list[str], values: list[str]) -> str:
    near = {w: difflib.get_close_matches(w, values, n=1) for w in words}
    said = ", ".join(f"{w!r}" + (f" (did you mean {near[w][0]!r}?)" if near[w] else "") for w in words[:8])
    some = ", ".join(map(repr, values[:8])) + ", ..." * (len(values) > 8)
    return f"{said} {'is' if len(words) == 1 else 'are'} none of its values {some}"


def exact_number(word: str) -> Fraction | None:
    """The number that a text is, exactly; None if it is none, or far beyond any float."""
    try:
        found = Decimal(word.strip())
    except ArithmeticError:
        return None
    if "_" in word or not found.is_finite() or abs(found.adjusted()) > 400:
        return None
    return Fraction(found)


Intervals = list[tuple[float, float]]  # of whole numbers, both ends included, ascending and apart
EVERYTHING: Intervals = [(-math.inf, math.inf)]


def allowed_steps(place, tests: Sequence[Test], what: str = "a number") -> Intervals:
    """The steps of a column of numbers that pass all tests.

    Args:
        place: from a text to its exact place in steps, perhaps between two; None if it is not a number.
        tests: of the cell.
        what: the texts should be.

    Raises:
        Refused: A text is something else.
    """
    found, strange = EVERYTHING, {}
    for test in tests:
        if test.op == "is missing":
            found = []
        places = {w: place(w) for w in test.known}
        strange |= dict.fromkeys(w for w, at in places.items() if at is None)
        if strange:
            continue
        if test.op in ("=", "in", "!=", "not in"):
            points = sorted({int(at) for at in places.values() if at == int(at)})
            found = common(found, [(_float(i), _float(i)) for i in points] if test.op in ("=", "in") else _but(points))
        for op, word in test.bounds():
            at = places.get(word)
            if at is None:
                raise Refused(f"{op} needs a value to compare with")
            low, high = math.ceil(at), math.floor(at)
            limit = {"<": (None, low - 1), "<=": (None, high), ">": (high + 1, None), ">=": (low, None)}[op]
            ends = (
                -math.inf if limit[0] is None else _float(limit[0]),
                math.inf if limit[1] is None else _float(limit[1]),
            )
            found = common(found, [ends])
    if strange:
        raise Refused(f"{', '.join(map(repr, strange))} {'is' if len(strange) == 1 else 'are'} not {what}")
    return found


def _float(i: int) -> float:
    return float(min(max(i, -(10**300)), 10**300))


def _but(points: list[int]) -> Intervals:
    edges = [-math.inf, *(_float(i) for i in points), math.inf]
    return [(a + 1, b - 1) for a, b in itertools.pairwise(edges) if a + 1 <= b - 1]


def common(a: Intervals, b: Intervals) -> Intervals:
    """What is in both."""
    both = [(max(lo, low), min(hi, high)) for lo, hi in a for low, high in b]
    return sorted((lo, hi) for lo, hi in both if lo <= hi)
