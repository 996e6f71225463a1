"""Columns whose texts spell numbers in a way of their own: dates, or amounts such as $1,234 and 5%."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from darn.data._column import AbstractColumn
from darn.data._number import Number
from darn.data._part import AbstractPart, allowed_steps
from darn.data._within import NumberPart


@dataclass(frozen=True)
class AbstractSpelled(AbstractColumn):
    """A column of numbers in another writing. Values, densities and places are those of the numbers."""

    number: Number

    exact: ClassVar[bool] = False
    log_unit: ClassVar[float] = 0.0  # of the density: log of so many numbers

    @abc.abstractmethod
    def number_of(self, word: str) -> str | None:
        """The number that a text spells; None if it is not in the column's writing."""

    @abc.abstractmethod
    def spelled(self, number: str) -> str:
        """The text of a number."""

    def place(self, word: str) -> Fraction | None:
        """Of a text in a condition, as `Number.place` gives it."""
        found = self.number_of(word)
        return None if found is None else self.number.place(found)

    def means(self, part: NumberPart) -> np.ndarray | None:
        """The mean of the allowed numbers of each value; None if that is no text of the column."""
        return None

    @property
    def n(self):
        return self.number.n

    def numbers(self, words: np.ndarray) -> np.ndarray:
        """The numbers of texts; '' of other texts."""
        once = {w: self.number_of(w) or "" for w in set(words.tolist())}
        return np.array([once[w] for w in words.tolist()], dtype=object)

    def texts(self, numbers: Sequence[str]) -> list[str]:
        return [self.spelled(w) for w in numbers]

    @property
    def scale(self):
        return self.number.scale

    def find(self, words):
        return self.number.find(self.numbers(words))

    def log_density(self, words, values):
        return self.number.log_density(self.numbers(words), values) + self.log_unit

    def drawn(self, numbers: Sequence[str], fits: Callable[[np.ndarray], np.ndarray]) -> list[str]:
        """The texts of numbers that were drawn; `fits` says of texts whether they may stand for these numbers."""
        return self.texts(numbers)

    def draw(self, values, rng):
        return self.drawn(self.number.draw(values, rng), lambda words: self.find(words) == values)

    def part(self, tests):
        steps = allowed_steps(self.place, tests, f"in the column's writing, like {self.ends()[0]}")
        return SpelledPart(self, NumberPart(self.number, steps, all(t.keeps_missing for t in tests)))

    def places_of(self, words, values):
        return self.number.places_of(self.numbers(words), values)

    def code(self, coder, values, place=None):
        return self.number.code(coder, values, place)

    def written(self, values, place):
        return self.texts(self.number.texts(place))

    def value_names(self):
        return ["..".join(map(self.spelled, name.split(".."))) for name in self.number.value_names()]

    def ends(self) -> tuple[str, str]:
        """The texts of the lowest and the highest number of the training rows."""
        low, high = self.texts(self.number.texts(np.array([self.number.starts[0], self.number.ends[-1]])))
        return low, high


class SpelledPart(AbstractPart):
    """Allowed texts: those of allowed numbers."""

    def __init__(self, column: AbstractSpelled, numbers: NumberPart):
        self.column, self.weights, self._numbers = column, numbers.weights, numbers

    def allows(self, words):
        return self._numbers.allows(self.column.numbers(words))

    def draw(self, values, rng):
        fits = lambda words: self.allows(words) & (self.column.find(words) == values)  # noqa: E731
        return self.column.drawn(self._numbers.draw(values, rng), fits)

    def means(self):
        return self.column.means(self._numbers)

    def quantile(self, p, level):
        return self.column.drawn([self._numbers.quantile(p, level)], self.allows)[0]
