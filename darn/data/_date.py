"""Columns of dates and times: numbers of seconds, in the format of the table."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import ClassVar, NamedTuple

from darn.data._spelled import AbstractSpelled

DAY = 86_400.0
_DAYS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y%m%d")
_TIMES = ("", " %H:%M:%S", " %H:%M", "T%H:%M:%S", "T%H:%M")
FORMATS = (*(day + time for day in _DAYS for time in _TIMES), "%H:%M:%S", "%H:%M", "%Y-%m")
ISO = ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M")
_EPOCH = datetime(1970, 1, 1)
_ZONE = r" ?(?:Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)"
_END = re.compile(rf"(.*?\d\d:\d\d(?::\d\d)?)(?:\.(\d{{1,9}}))?({_ZONE})?", re.DOTALL | re.ASCII)


class DateForm(NamedTuple):
    """The writing of dates."""

    form: str  # as `strptime` takes it, without the next two
    fraction: int  # digits of a second's fraction
    zone: str  # the usual time zone's text, such as "+02:00"; "" for none

    @property
    def described(self) -> str:
        return self.form + "." * (self.fraction > 0) + "f" * self.fraction + self.zone


@dataclass(frozen=True)
class Date(AbstractSpelled):
    """A date or time: the density is that of its seconds since 1970, per day.

    With time zones these are the seconds of UTC, and samples are written in the usual zone.
    """

    form: str
    fraction: int
    zone: str

    kind: ClassVar[str] = "date"
    log_unit: ClassVar[float] = math.log(DAY)

    def number_of(self, word):
        return seconds(word, DateForm(self.form, self.fraction, self.zone))

    def place(self, word):
        """Of a day, too, in a column of times: its beginning."""
        found, day = super().place(word), self.form.partition("%H")[0][:-1]
        start = _seconds(word, day) if found is None and day else None
        return found if start is None else self.number.place(str(start - _offset(self.zone)))

    def spelled(self, number):
        exact = Decimal(number) + _offset(self.zone)
        whole = math.floor(exact)
        # A number beyond the calendar, or of a time beyond the day, is its last one.
        first, last = ((1000, 1, 1), (9999, 12, 31)) if "%Y" in self.form else ((1970, 1, 1), (1970, 1, 1))
        least, most = _whole(datetime(*first)), _whole(datetime(*last, 23, 59, 59))
        inside = min(max(whole, least), most)
        text = (_EPOCH + timedelta(seconds=inside)).strftime(self.form)
        if self.fraction:
            part = int((exact - whole) * 10**self.fraction) if inside == whole else 0
            text += f".{part:0{self.fraction}}"
        return text + self.zone

    def describe(self):
        low, high = self.ends()
        return f"date from {low} to {high}, in {self.n} cells"

    def is_sound(self):
        return (
            self.form in FORMATS
            and 0 <= self.fraction <= 9
            and (not self.zone or re.fullmatch(_ZONE, self.zone) is not None)
            and self.number.is_sound()
        )


def seconds(word: str, form: DateForm) -> str | None:
    """The seconds since 1970 of a date, as text; None if it is not exactly in the format."""
    body, fraction, zone = _split(word) if form.fraction or form.zone else (word, "", "")
    if len(fraction) != form.fraction or bool(zone) != bool(form.zone):
        return None
    whole = _seconds(body, form.form)
    if whole is None:
        return None
    number = whole - _offset(zone)
    return f"{number + Decimal(f'0.{fraction}'):f}" if fraction else str(number)


def date_format(words: Sequence[str]) -> DateForm | None:
    """The format that all of these texts have, if they are dates."""
    parts = [_split(w) for w in words]
    _, digits, zone = (len(p) for p in parts[0])
    plain = not (digits or zone) or any(len(f) != digits or bool(z) != bool(zone) for _, f, z in parts)
    bodies = list(words) if plain else [body for body, _, _ in parts]
    some = [form for form in FORMATS if _seconds(bodies[0], form) is not None and ("%Y" in form or not zone)]
    form = next((form for form in some if all(_seconds(b, form) is not None for b in bodies)), None)
    if form is None or plain:
        return None if form is None else DateForm(form, 0, "")
    return DateForm(form, digits, Counter(z for *_, z in parts).most_common(1)[0][0])


def _split(word: str) -> tuple[str, str, str]:
    """(day and time, digits of the fraction of a second, time zone)."""
    found = _END.fullmatch(word)
    return (word, "", "") if found is None else (found[1], found[2] or "", found[3] or "")


def _offset(zone: str) -> int:
    """Seconds east of Greenwich."""
    found = re.search(r"([+-])(\d\d):?(\d\d)?$", zone)
    return 0 if found is None else int(found[1] + "1") * 60 * (60 * int(found[2]) + int(found[3] or 0))


def _whole(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(seconds=1)


def _seconds(word: str, form: str) -> int | None:
    try:
        found = datetime.strptime(word, form)
    except ValueError:
        return None
    if "%Y" not in form:
        found = found.replace(year=1970)
    return _whole(found) if found.strftime(form) == word else None
