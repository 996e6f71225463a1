"""Columns of dates and times: numbers of seconds, in the format of the table."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import ClassVar, NamedTuple

from darn.data._spelled import AbstractSpelled

DAY = 86_400.0
# As `strptime` takes them; "%-d" is a number without a leading 0.
_DAYS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y%m%d")
_DAYS += ("%-d.%-m.%Y", "%-d/%-m/%Y", "%-m/%-d/%Y", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%-m/%-d/%y")
_DAYS += tuple(f"%{d}{between}%{b}{between}%Y" for b in "bB" for d in ("d", "-d") for between in " -")
_DAYS += ("%d-%b-%y", "%b %d, %Y", "%b %-d, %Y", "%B %d, %Y", "%B %-d, %Y")
_CLOCKS = ("%H:%M:%S", "%H:%M", "%-H:%M:%S", "%-H:%M", "%I:%M:%S %p", "%I:%M %p", "%-I:%M:%S %p", "%-I:%M %p")
# The format of the day alone by that of the day and the time, or of one of them.
FORMATS = {day: day for day in (*_DAYS, "%Y-%m")} | dict.fromkeys(_CLOCKS, "")
FORMATS |= {f"{day} {clock}": day for day in _DAYS for clock in _CLOCKS}
FORMATS |= {f"{day}T{clock}": day for day in _DAYS for clock in _CLOCKS[:2]}
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
        found, day = super().place(word), FORMATS[self.form]
        start = _seconds(word, day) if found is None and day else None
        return found if start is None else self.number.place(str(start - _offset(self.zone)))

    def spelled(self, number):
        exact = Decimal(number) + _offset(self.zone)
        whole = math.floor(exact)
        # A number beyond the calendar, or of a time beyond the day, is its last one.
        first, last = ((1000, 1, 1), (9999, 12, 31)) if FORMATS[self.form] else ((1970, 1, 1), (1970, 1, 1))
        if "%y" in self.form:
            first, last = (1969, 1, 1), (2068, 12, 31)
        least, most = _whole(datetime(*first)), _whole(datetime(*last, 23, 59, 59))
        inside = min(max(whole, least), most)
        text = _text(_EPOCH + timedelta(seconds=inside), self.form)
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
    some = [
        form
        for form in _by_shape().get(_shape(bodies[0]), ())
        if _seconds(bodies[0], form) is not None and (FORMATS[form] or not zone)
    ]
    form = next((form for form in some if all(_seconds(b, form) is not None for b in bodies)), None)
    if form is None or plain:
        return None if form is None else DateForm(form, 0, "")
    return DateForm(form, digits, Counter(z for *_, z in parts).most_common(1)[0][0])


def _shape(text: str) -> str:
    """A text with one 0 for digits and one a for letters."""
    return re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "0", text))


@cache
def _by_shape() -> dict[str, list[str]]:
    """The formats of each shape: most words need not be compared with any."""
    found: dict[str, list[str]] = {}
    for form in FORMATS:
        shape = _shape(re.sub("%-?.", "0", re.sub("%[bBp]", "a", form)))
        found.setdefault(shape, []).append(form)
    return found


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
    """Of a text that is exactly in this format."""
    try:
        found = datetime.strptime(word, form.replace("%-", "%"))
    except ValueError:
        return None
    if not FORMATS[form]:
        found = found.replace(year=1970)
    return _whole(found) if _text(found, form) == word else None


def _text(moment: datetime, form: str) -> str:
    short = re.sub("%-(.)", lambda part: str(int(moment.strftime("%" + part[1]))), form)
    return moment.strftime(short)
