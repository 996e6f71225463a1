"""Columns of amounts: numbers with a currency or a percent sign, with separated thousands, or with a decimal comma."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np

from darn.data._number import is_number
from darn.data._spelled import AbstractSpelled

_CURRENCY = r"(?:[A-Z]{0,3}[$\u00a3\u00a5\u20a0-\u20cf]|EUR|USD|GBP|CHF|JPY)"
BEFORE = rf"(?:{_CURRENCY}[ \u00a0]?)?"
AFTER = rf"(?:[ \u00a0]?(?:[%\u2030]|{_CURRENCY}))?"
# (between thousands, decimal sign): the first that fits all texts of a column
WAYS = (
    ("", "."),
    *((g, ".") for g in ", '_\u00a0\u202f"),
    ("", ","),
    *((g, ",") for g in ". '\u00a0\u202f"),
)


SIGNS = ("-", "+-", "()")  # how amounts below 0, and perhaps those above it, are marked


class AmountForm(NamedTuple):
    """The writing of amounts."""

    before: str  # a text before the digits, after the sign
    after: str
    between: str  # between thousands; "" for nothing
    point: str
    signs: str = "-"  # one of `SIGNS`


@lru_cache
def _pattern(form: AmountForm) -> re.Pattern[str]:
    """Of an amount; the groups are its sign, the digits before the decimal sign, and those after it."""
    before, after, between, point = map(re.escape, form[:4])
    whole = r"0|[1-9]\d*" + (rf"|[1-9]\d{{0,2}}(?:{between}\d{{3}})+" if between else "")
    digits = rf"(?P<whole>{whole})(?:{point}(?P<part>\d+))?{after}"
    signed = (
        rf"(?P<sign>\()?{before}{digits}(?(sign)\))"
        if form.signs == "()"
        else (rf"(?P<sign>(?:[+-]?{before}|{before}[+-]?)){digits}")
    )
    return re.compile(signed, re.ASCII)


@dataclass(frozen=True)
class Amount(AbstractSpelled):
    """A number as people write it: $1,234.50, 12 %, 3,5."""

    before: str
    after: str
    between: str
    point: str
    signs: str = "-"

    kind: ClassVar[str] = "amount"

    @property
    def form(self) -> AmountForm:
        return AmountForm(self.before, self.after, self.between, self.point, self.signs)

    def number_of(self, word):
        return amount(word, self.form)

    def place(self, word):
        found = super().place(word)
        return self.number.place(word) if found is None and is_number(word) else found

    def nearest(self, word):
        near = word if is_number(word) else self.number.nearest(word)
        return None if near is None else self.spelled(self.number.texts(self.number.steps(np.array([near], object)))[0])

    def means(self, part):
        return part.means()

    def spelled(self, number):
        negative, digits = number.startswith("-"), number.removeprefix("-")
        whole, _, part = digits.partition(".")
        if self.between:
            whole = f"{int(whole):,}".replace(",", self.between)
        text = f"{self.before}{whole}{self.point * bool(part)}{part}{self.after}"
        if self.signs == "()":
            return f"({text})" if negative else text
        return ("-" if negative else "+" if self.signs == "+-" and float(number) else "") + text

    def describe(self):
        low, high = self.ends()
        return f"{self.number.describe()}; written {low} to {high}"

    def is_sound(self):
        return (
            re.fullmatch(BEFORE, self.before) is not None
            and re.fullmatch(AFTER, self.after) is not None
            and (self.between, self.point) in WAYS
            and self.signs in SIGNS
            and self.number.is_sound()
        )


def amount(word: str, form: AmountForm) -> str | None:
    """The number that a text in this writing spells; None of other texts, and of numbers beyond any float."""
    found = _pattern(form).fullmatch(word)
    if found is None:
        return None
    sign = "-" * bool(set(found["sign"] or "") & {"-", "("})
    whole = found["whole"].replace(form.between, "") if form.between else found["whole"]
    number = f"{sign}{whole}" + (f".{found['part']}" if found["part"] else "")
    return number if is_number(number) else None


def amount_form(words: Sequence[str], point: str = ".") -> AmountForm | None:
    """The writing that all of these texts have, if they are amounts but not plain numbers.

    Args:
        words: the texts.
        point: the decimal sign, where the texts leave open which one they have.
    """
    found = _surroundings(words[0])
    for between, sign in sorted(WAYS, key=lambda way: way[1] != point):
        form = AmountForm(*found, between, sign, signs_of(words)) if found else None
        if form and any((form.before, form.after, between, sign != ".", form.signs != "-")) and _fits(words, form):
            return form
    return None


def decimal_signs(words: Sequence[str]) -> set[str]:
    """The decimal signs that numbers or amounts with a comma or a point may have; both if each could be between
    thousands."""
    found = _surroundings(words[0]) if any("," in w or "." in w for w in words) else None
    signs = signs_of(words)
    return (
        {sign for between, sign in WAYS if _fits(words, AmountForm(*found, between, sign, signs))} if found else set()
    )


def signs_of(words: Sequence[str]) -> str:
    """How these amounts are marked as being below or above 0."""
    if any(w.startswith("(") for w in words):
        return "()"
    marked = all(w[:1] in "+-" or not re.search("[1-9]", w) for w in words)
    return "+-" if marked and any(w.startswith("+") for w in words) else "-"


def _surroundings(word: str) -> tuple[str, str] | None:
    """What stands before and after the digits of an amount."""
    word = word[1:-1] if re.fullmatch(r"\(.*\)", word) else word
    found = re.fullmatch(rf"[+-]?({BEFORE})[+-]?\d[\d.,' _\u00a0\u202f]*?({AFTER})", word)
    return None if found is None else (found[1], found[2])


def _fits(words: Sequence[str], form: AmountForm) -> bool:
    return all(amount(w, form) is not None for w in words)
