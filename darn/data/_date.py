"""Columns of dates and times: numbers of seconds, in the format of the table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import ClassVar

import numpy as np

from darn.data._column import AbstractColumn
from darn.data._number import Number
from darn.data._part import AbstractPart, allowed_steps
from darn.data._within import NumberPart

DAY = 86_400.0
_DAYS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y%m%d")
_TIMES = ("", " %H:%M:%S", " %H:%M", "T%H:%M:%S", "T%H:%M", "T%H:%M:%SZ")
FORMATS = (*(day + time for day in _DAYS for time in _TIMES), "%H:%M:%S", "%H:%M", "%Y-%m")


@dataclass(frozen=True)
class Date(AbstractColumn):
    """A date or time: the density is that of its seconds since 1970, per day."""

    form: str  # as `strptime` takes it
    seconds: Number

    kind: ClassVar[str] = "date"
    exact: ClassVar[bool] = False

    @property
    def n(self):
        return self.seconds.n

    def find(self, words):
        return self.seconds.find(self.numbers(words))

    def log_density(self, words, values):
        return self.seconds.log_density(self.numbers(words), values) + np.log(DAY)

    def draw(self, values, rng):
        return self.texts(self.seconds.draw(values, rng))

    def texts(self, numbers: list[str]) -> list[str]:
        """The dates of these seconds."""
        return [self._text(w) for w in numbers]

    def part(self, tests):
        def place(word: str) -> Fraction | None:
            at = seconds(word, self.form)
            return None if at is None else self.seconds.place(at)

        steps = allowed_steps(place, tests, f"a date like {self.value_names()[0].split('..')[0]}")
        return DatePart(self, NumberPart(self.seconds, steps, all(t.keeps_missing for t in tests)))

    def places_of(self, words, values):
        return self.seconds.places_of(self.numbers(words), values)

    def code(self, coder, values, place=None):
        return self.seconds.code(coder, values, place)

    def written(self, values, place):
        return [self._text(w) for w in self.seconds.texts(place)]

    def value_names(self):
        return ["..".join(map(self._text, name.split(".."))) for name in self.seconds.value_names()]

    @property
    def scale(self):
        return self.seconds.scale

    def describe(self):
        names = self.value_names()
        return f"date from {names[0].split('..')[0]} to {names[-1].split('..')[-1]}, in {self.n} cells"

    def is_sound(self):
        return self.form in FORMATS and self.seconds.is_sound()

    def numbers(self, words: np.ndarray) -> np.ndarray:
        """The seconds of dates, as texts; '' of other texts."""
        once = {w: seconds(w, self.form) or "" for w in set(words.tolist())}
        return np.array([once[w] for w in words.tolist()], dtype=object)

    def _text(self, word: str) -> str:
        # A number beyond the calendar, or of a time beyond the day, is its last one.
        ends = ((1, 1, 1), (9999, 12, 31)) if "%Y" in self.form else ((1900, 1, 1), (1900, 1, 1))
        first, last = datetime(*ends[0], tzinfo=UTC).timestamp(), datetime(*ends[1], 23, 59, 59, tzinfo=UTC).timestamp()
        return datetime.fromtimestamp(min(max(float(word), first), last), UTC).strftime(self.form)


class DatePart(AbstractPart):
    """Allowed dates: those of allowed seconds."""

    def __init__(self, column: Date, seconds: NumberPart):
        self.column, self.weights, self._seconds = column, seconds.weights, seconds

    def allows(self, words):
        return self._seconds.allows(self.column.numbers(words))

    def draw(self, values, rng):
        return self.column.texts(self._seconds.draw(values, rng))

    def means(self):
        return None

    def quantile(self, p, level):
        return self.column.texts([self._seconds.quantile(p, level)])[0]


def seconds(word: str, form: str) -> str | None:
    """The seconds since 1970 of a date in this format, as text; None if it is not exactly in the format."""
    try:
        found = datetime.strptime(word, form).replace(tzinfo=UTC)
    except ValueError:
        return None
    return str(int(found.timestamp())) if found.strftime(form) == word else None


def date_format(words: list[str]) -> str | None:
    """The format that all of these texts have, if they are dates."""
    some = [form for form in FORMATS if seconds(words[0], form) is not None]
    return next((form for form in some if all(seconds(w, form) is not None for w in words)), None)
