"""Columns of numbers that all have an exponent, such as 1.25e-07."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context
from typing import ClassVar, NamedTuple

import numpy as np

from darn.data._number import is_number
from darn.data._spelled import AbstractSpelled

_FORM = re.compile(r"[+-]?\d(?:\.(\d+))?([eE])[+-](\d+)", re.ASCII)
_MOST = 20  # digits after the point, and of the exponent


class ScientificForm(NamedTuple):
    """The writing of numbers with an exponent."""

    after: int  # digits after the point
    letter: str  # before the exponent
    width: int  # least digits of the exponent


@dataclass(frozen=True)
class Scientific(AbstractSpelled):
    """A number with an exponent: 1.25e-07."""

    after: int
    letter: str
    width: int

    kind: ClassVar[str] = "scientific"

    def number_of(self, word):
        return word if is_number(word) else None

    def nearest(self, word):
        near = self.number.nearest(word)
        return None if near is None else self.spelled(near)

    def means(self, part):
        return part.means()

    def spelled(self, number):
        return self._spelled(number, self.after)

    def drawn(self, numbers, fits):
        """With the digits of the table, where so many are enough; otherwise with all."""
        words = self.texts(numbers)
        fit = fits(np.array(words, object)).tolist()
        return [word if good else self._spelled(number, _MOST) for word, number, good in zip(words, numbers, fit)]

    def _spelled(self, number: str, after: int) -> str:
        exact = Context(prec=after + 1, rounding=ROUND_HALF_EVEN).create_decimal(number)
        sign, digits, _ = exact.as_tuple()
        first, *rest = "".join(map(str, digits)).strip("0").ljust(self.after + 1, "0")
        exponent = exact.adjusted() if exact else 0
        part = "." * bool(rest) + "".join(rest)
        return f"{'-' * sign}{first}{part}{self.letter}{'-' if exponent < 0 else '+'}{abs(exponent):0{self.width}}"

    def describe(self):
        low, high = self.ends()
        return f"{self.number.describe()}; scientific, {low} to {high}"

    def is_sound(self):
        return (
            0 <= self.after <= _MOST and self.letter in ("e", "E") and 1 <= self.width <= _MOST
        ) and self.number.is_sound()


def scientific_form(words: Sequence[str]) -> ScientificForm | None:
    """The writing that all of these numbers have, if they have exponents and equally many digits."""
    found = [_FORM.fullmatch(w) for w in words]
    if not all(found):
        return None
    forms = {(len(m[1] or ""), m[2]) for m in found if m}
    width = min((len(m[3]) for m in found if m), default=0)
    after, letter = next(iter(forms), (_MOST + 1, ""))
    return ScientificForm(after, letter, width) if len(forms) == 1 and max(after, width) <= _MOST else None
