"""Recognises what the columns of a table are, and how they should become bits."""

from __future__ import annotations

import calendar
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from darn.data._amount import Amount, AmountForm, amount, amount_form, decimal_signs, signs_of
from darn.data._column import ONE_HOT, AbstractColumn, Aside, Category, fitting_code
from darn.data._date import Date, date_format, seconds
from darn.data._fit_number import fit_number, lattice
from darn.data._labels import check_known, column_index, numbers_first, plain
from darn.data._limits import check_names
from darn.data._number import Number, is_number, is_too_large
from darn.data._schema import Schema, stripped
from darn.data._scientific import Scientific, scientific_form
from darn.errors import DarnError

SIGNS = {"decimal-comma": ",", "decimal-point": "."}
KINDS = ("auto", "category", "ordered", "number", *SIGNS, "boolean", "date", "id")
FEW = 20  # a column with at most this many different numbers or dates is an ordered category
STRAYS = 3  # different texts that may stand for missing values in a column of numbers
MOST = 20_000  # different texts of a category; a column with more is set aside
CELLS = 32  # of a column of numbers, at most, to find where its density varies
FINE = 128  # cells of a column of numbers, about and at most: other columns know it no more finely
UNITS = 2000  # of a table, beyond which fewer columns are one-hot
_NAMES = {sign: name.removeprefix("decimal-") for name, sign in SIGNS.items()}
BOOLEAN = ({"0", "1"}, {"false", "true"}, {"no", "yes"}, {"n", "y"}, {"f", "t"}, {"off", "on"})
SCALES = (
    ("very low", "low", "medium", "high", "very high"),
    ("never", "rarely", "sometimes", "often", "always"),
    ("mild", "moderate", "severe"),
    ("poor", "fair", "good", "very good", "excellent"),
    ("tiny", "small", "medium", "large", "huge"),
    ("strongly disagree", "disagree", "neutral", "agree", "strongly agree"),
    ("strongly disagree", "disagree", "neither agree nor disagree", "agree", "strongly agree"),
    ("strongly disagree", "somewhat disagree", "neutral", "somewhat agree", "strongly agree"),
    ("very dissatisfied", "dissatisfied", "neutral", "satisfied", "very satisfied"),
    ("very unlikely", "unlikely", "neutral", "likely", "very likely"),
    ("very poor", "poor", "average", "good", "excellent"),
    ("xs", "s", "m", "l", "xl", "xxl"),
    *(tuple(map(str.lower, names)) for names in (calendar.day_abbr, calendar.day_name, calendar.month_abbr[1:])),
    tuple(map(str.lower, calendar.month_name[1:])),
)


def infer(
    names: Sequence[str],
    cells: np.ndarray,
    categorical: Sequence[str] | None,
    what: str,
    *,
    kinds: Mapping[str, str] | None = None,
    fit: np.ndarray | None = None,
) -> Schema:
    """The schema of a table.

    Args:
        names: of the columns.
        cells: (N, columns) of texts.
        categorical: the columns that are categories, where all others are 0 and 1; None decides by the values.
        what: the table is called in messages.
        kinds: of some columns, one of `KINDS` each: these are what they are said to be.
        fit: the numbers of the training rows, from which the densities of numbers are estimated; None for all rows.
    """
    check_names(names, what)
    index = lambda name, option: column_index(name, tuple(names), len(names), what, option=option)  # noqa: E731
    check_known(list(kinds or {}), names, what, "column")
    check_known(list(categorical or ()), names, what, "categorical")
    asked = {} if categorical is None else dict.fromkeys(range(len(names)), "bit")
    asked |= {index(w, "categorical"): "category" for w in categorical or ()}
    for name, kind in (kinds or {}).items():
        if kind not in KINDS:
            raise DarnError(f"column {name!r} cannot be {kind!r}: choose one of {', '.join(KINDS)}")
        asked[index(name, "column")] = kind
    found, columns, wrong = [], [], []
    for i, name in enumerate(names):
        words = stripped(cells[:, i])
        train = words if fit is None else words[fit]
        found.append(_Found(name, words, train, _usual_missing(cells[words == "", i])))
    clear = {one.name: one.signs for one in found if len(one.signs) == 1}
    like = next(iter(clear), None) if len(set().union(*clear.values())) == 1 else None
    for i, one in enumerate(found):
        try:
            columns.append(one.column(asked.get(i, "auto"), like and (like, *clear[like])))
        except _UnfitError as e:
            wrong.append(str(e))
    if wrong:
        more = f"; and {len(wrong) - 8} more columns" if len(wrong) > 8 else ""
        raise DarnError(f"{what} does not fit what its columns are said to be: {'; '.join(wrong[:8])}{more}")
    if not any(c.size for c in columns):
        raise DarnError(f"{what} has no column that varies, apart from those set aside: nothing is left to model")
    return Schema(_narrowed(columns))


def _usual_missing(cells: np.ndarray) -> str:
    """How most of these missing values are written."""
    return Counter(cell.strip() for cell in cells.tolist()).most_common(1)[0][0] if len(cells) else ""


def _narrowed(columns: Sequence[AbstractColumn]) -> tuple[AbstractColumn, ...]:
    """The columns with fewer one-hot ones if they have too many units: weights grow with the square of these."""
    most = ONE_HOT
    while sum(c.size for c in columns) > UNITS and most > 2:
        most //= 2
        columns = [replace(c, one_hot=c.one_hot and fitting_code(c.n, c.optional, most)) for c in columns]
    return tuple(columns)


class _UnfitError(Exception):
    """A column is not what it is said to be; the message says why, as a part of a sentence."""


class _Found:
    """The texts of one column."""

    def __init__(self, name: str, words: np.ndarray, train: np.ndarray, missing: str):
        self.name, self.words, self.train, self.rows = name, words, train, len(words)
        self.missing = missing  # how missing values are written
        self.count = Counter(words.tolist())
        self.optional = self.count.pop("", 0) > 0
        self.known = sorted(self.count, key=numbers_first)
        self.plain = all(is_number(w) for w in self.known)
        self.signs = decimal_signs(self.known) if self.known else set()
        self.form: AmountForm | None = None  # of amounts
        self.like: tuple[str, str] | None = None  # a column whose decimal sign is beyond doubt, and this sign

    def column(self, kind: str, like: tuple[str, str] | None = None) -> AbstractColumn:
        """The column, of this kind or the one that its texts suggest.

        Args:
            kind: one of `KINDS`.
            like: a column that shows how the table writes decimals: its name and its decimal sign.
        """
        why = "as asked"
        self.like = like
        if found := self._with_strays(kind, like):
            return found
        sign = SIGNS.get(kind) or (like[1] if like else ".")
        if kind in SIGNS:
            if self.signs and sign not in self.signs:
                some = self.where([w for w in self.known if "," in w or "." in w][:1])
                raise _UnfitError(
                    f"column {self.name!r} has {some}, where {_NAMES[sign]}s are to be decimal: correct it"
                )
            kind = "number"
        plus = self.plain and signs_of(self.known) == "+-"
        if self.known and (not self.plain or plus or (sign == "," and sign in self.signs)):
            self.form = amount_form(self.known, sign)
        if kind == "auto" or (not self.known and kind in ("category", "ordered", "boolean")):  # of no value at all
            kind, why = self.recognised()
        found = getattr(self, f"_{kind}")(why)
        return replace(found, missing=(self.missing,)) if found.optional else found

    def _with_strays(self, kind: str, like: tuple[str, str] | None) -> AbstractColumn | None:
        """The column of numbers or dates, of this kind, that it is but for a few words, such as '-' and 'inf'."""
        strays = stray_words(self.known)
        if not strays or kind not in ("auto", "number", "date", *SIGNS):
            return None
        mute = lambda words: np.array(["" if w in strays else w for w in words.tolist()], object)  # noqa: E731
        rest = _Found(self.name, mute(self.words), mute(self.train), self.missing)
        try:
            found = rest.column(kind, like)
        except _UnfitError:
            return None
        if found.kind not in ("number", "amount", "scientific", "date"):
            return None
        blank = self.rows - sum(self.count.values())
        usual = max(self.missing, *strays, key=lambda w: self.count.get(w, blank))
        stand = f"{self.where(strays)} stand{'s' * (len(strays) == 1)} for a missing value"
        return replace(found, why=f"{found.why}; {stand}", missing=tuple(dict.fromkeys((usual, *strays))))

    def recognised(self) -> tuple[str, str]:
        """Returns (kind, why)."""
        known, n = self.known, len(self.known)
        if not n:
            return "id", "always missing"
        if (n < 3 and {w.lower() for w in known} in BOOLEAN) or (not self.optional and self._bits() is not None):
            return "boolean", f"two values, {known[0]} and {known[-1]}" if n > 1 else f"always {known[0]}"
        digits = self.plain and not self.form
        # A leading zero is part of a code, such as a postal one.
        if digits and not any(re.match(r"[+-]?0\d", w) for w in known):
            if n <= FEW:
                return "ordered", f"{n} different number{'s' * (n != 1)}"
            if all(re.fullmatch(r"(19|20)\d{6}", w) for w in known) and (form := date_format(known)):
                return "date", f"dates as {form.described}"
            whole = all(re.fullmatch(r"-?\d+", w) for w in known)
            if whole and n == self.rows and int(known[-1]) - int(known[0]) == n - 1:
                return "id", "counts the rows"
            return "number", f"{n:,} different numbers"
        if not digits and (form := date_format(known)):
            return ("date" if n > FEW else "ordered"), f"dates as {form.described}{self._other_zones(form.zone)}"
        if self.form:
            return (
                "number" if n > FEW else "ordered"
            ), f"{n:,} different amount{'s' * (n != 1)}{self._separators(self.form)}"
        if _scale(known) is not None:
            return "ordered", "a known scale"
        almost = "" if digits else self._almost()
        if n > FEW and n > 0.5 * self.rows:
            return "id", f"{n:,} different texts in {self.rows:,} rows{almost}"
        if n > MOST:
            return "id", f"{n:,} different texts{almost}"
        return "category", f"{n:,} different text{'s' * (n != 1)}{almost}"

    def _separators(self, form: AmountForm) -> str:
        """What commas or points were taken for that could be decimal signs as well as stand between thousands."""
        if len(self.signs) < 2:
            return ""
        name = "comma" if any("," in w for w in self.known) else "point"
        meant = f"decimal {name}s" if form.point == SIGNS[f"decimal-{name}"] else f"{name}s between thousands"
        if self.like:
            return f" with {meant}, as the decimal {_NAMES[self.like[1]]} of column {self.like[0]!r} suggests"
        return f" with {meant}, or else it is a column decimal-{name}"

    def _other_zones(self, zone: str) -> str:
        others = sum(not w.endswith(zone) for w in self.known)
        return f", {others:,} of them in other time zones" if others else ""

    def _almost(self) -> str:
        """The texts but for which the column would be one of numbers or dates, if they are few."""
        known, some = self.known, self.known[: 1 + len(self.known) // 20] + self.known[len(self.known) // 2 :][:1]
        forms: list[tuple[str, Callable[[str], object]]] = [("numbers", is_number)]
        for word in some[:20]:
            if date := date_format([word]):
                forms.append((f"dates as {date.described}", lambda w, date=date: seconds(w, date)))
            elif form := amount_form([word]):
                forms.append((f"amounts like {word!r}", lambda w, form=form: amount(w, form)))
        for what, fits in dict(forms).items():
            others = [w for w in known if not fits(w)]
            if len(others) <= max(1, len(known) // 20) < len(known) // 4:
                return f", as all but {self.where(others)} are {what}"
        found = {w: date_format([w]) for w in known[:: -(-len(known) // 50) or 1]}
        if all(found.values()) and len(set(found.values())) > 1:
            first, *_, last = sorted(found, key=lambda w: str(found[w]))
            return f", as these dates are in several formats, like {first!r} and {last!r}"
        return ""

    def where(self, words: Sequence[str]) -> str:
        """Some texts with the first row that has each."""
        rows = self.words.tolist()
        first = {w: rows.index(w) + 1 for w in words[:5]}
        more = f" and {len(words) - 5:,} more" if len(words) > 5 else ""
        return ", ".join(f"{w[:40]!r} in row {i:,}" for w, i in first.items()) + more

    # ---------------------------------------------------------------- one method a kind

    def _category(self, why: str, order: str = "category", values: Sequence[str] | None = None) -> AbstractColumn:
        if values is None:
            # If they are numbered in binary, the first bits should divide frequent values from rare ones.
            values = self.known if len(self.known) <= FEW else sorted(self.known, key=lambda w: -self.count[w])
        code = fitting_code(len(values), self.optional)
        return Category(self.name, why, self.optional, code, tuple(values), order)

    def _ordered(self, why: str) -> AbstractColumn:
        values = _scale(self.known) or self.known
        if values and (form := date_format(list(values))):
            values = sorted(values, key=lambda w: float(seconds(w, form) or 0))
        elif form := self.form:
            values = sorted(values, key=lambda w: float(amount(w, form) or 0))
        return self._category(why, "ordered category", values)

    def _boolean(self, why: str) -> AbstractColumn:
        values = self._bits() or self.known
        if len(values) > 2:
            some = ", ".join(repr(v[:40]) for v in values[:3])
            raise _UnfitError(
                f"column {self.name!r} has {len(values)} different values, such as {some}, so it is not boolean: make "
                "it a category"
            )
        return self._category(why, "boolean", values)

    def _bit(self, why: str) -> AbstractColumn:
        """A column that must be 0 and 1, in any writing."""
        strange = [w for w in self.known if plain(w) not in ("0", "1")]
        if strange or self.optional:
            where = self.where(strange[:1] or [""]).replace("''", "a missing value")
            raise _UnfitError(
                f"column {self.name!r} has {where}, not 0 or 1: add it to the categorical columns, or give "
                "categorical = 'auto'"
            )
        return self._category("not among the categorical columns", "boolean", self._bits() or ("0", "1"))

    def _bits(self) -> tuple[str, ...] | None:
        """The texts of 0 and 1, if the column has no others and one text for each."""
        number = {plain(w): w for w in self.known}
        if not number or not set(number) <= {"0", "1"} or len(number) < len(self.known):
            return None
        return tuple(number.get(b, b) for b in ("0", "1"))

    def _number(self, why: str) -> AbstractColumn:
        if form := self.form:
            number = self._numbers(lambda w: amount(w, form), why)
            return Amount(self.name, why, self.optional, number.one_hot, number, *form)
        strange = [w for w in self.known if not is_number(w)]
        if strange or not self.known:
            said = f"has {self.where(strange) if strange else 'only missing values'}, where numbers are expected"
            if almost := self._almost():
                said = f"is not of numbers{almost}"
            raise _UnfitError(f"column {self.name!r} {said}: correct it")
        number = self._numbers(lambda w: w, why)
        if written := scientific_form(self.known):
            return Scientific(self.name, why, self.optional, number.one_hot, number, *written)
        return number

    def _numbers(self, number: Callable[[str], str | None], why: str) -> Number:
        """The numbers that the texts spell."""
        once = {w: number(w) or "" for w in self.known}
        words = self.train[self.train != ""].tolist() or self.known  # the training rows may have missing values only
        train = np.array([once[w] for w in words], object)
        form, rows = lattice(list(once.values())), len(train)
        return fit_number(self.name, why, train, self.optional, cells(rows), fine=fine(rows), form=form)

    def _date(self, why: str) -> AbstractColumn:
        form = date_format(self.known) if self.known else None
        if form is None:
            said = self._almost() or f"; it has {self.where(self.known[:2]) if self.known else 'only missing values'}"
            known = "in one of the known formats, such as 2014-01-31"
            raise _UnfitError(f"column {self.name!r} is not of dates {known}{said}: write all its cells in one of them")
        found = self._numbers(lambda w: seconds(w, form), why)
        return Date(self.name, why, self.optional, found.one_hot, found, *form)

    def _id(self, why: str) -> AbstractColumn:
        counted = why == "counts the rows"
        return Aside(self.name, why, False, False, int(self.known[0]) if counted else None)


def stray_words(words: Iterable[str]) -> list[str]:
    """The few words among numbers that may stand for missing values, such as "-", "inf" and 1e308; none if there are
    many."""
    found = [w for w in words if w.startswith("#") or not any(map(str.isnumeric, w)) or is_too_large(w)]
    return found if len(found) <= STRAYS else []


def spelled_numbers(words: Sequence[str]) -> dict[str, float] | None:
    """The numbers that texts spell, if all of them are dates in one format, or amounts in one writing."""
    if form := date_format(words):
        found = {w: seconds(w, form) for w in words}
    elif written := amount_form(words):
        found = {w: amount(w, written) for w in words}
    else:
        return None
    return {w: float(number or 0) for w, number in found.items()}


def cells(rows: int) -> int:
    """The number of cells in which the density of a column is estimated from this many training rows."""
    return int(np.clip(rows // 50, 8, CELLS))


def fine(rows: int) -> int:
    """The number of cells of a column of numbers with this many training rows."""
    return int(np.clip(rows // 3, 8, FINE))


def _scale(known: Sequence[str]) -> list[str] | None:
    """The texts in the order of a known scale that has them all."""
    by_lower = {w.lower(): w for w in known}
    if len(by_lower) < max(len(known), 2):
        return None
    for scale in SCALES:
        if set(by_lower) <= set(scale):
            return [by_lower[w] for w in scale if w in by_lower]
    return None
