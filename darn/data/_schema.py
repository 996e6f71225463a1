"""A table as bits, and back: the columns, each with its units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from darn.data._amount import Amount
from darn.data._column import AbstractColumn, Aside, Category
from darn.data._date import Date
from darn.data._draws import RowDraws
from darn.data._number import Number
from darn.data._part import MISSING, AbstractPart
from darn.data._scientific import Scientific
from darn.errors import DarnError, FormatError, printable
from darn.jsonable import decode, shown

UNSEEN = ("error", "missing", "nearest")  # what a text that no training row had may count as
MOST_UNSEEN = 1000  # such texts of a column that are counted
T, E = TypeVar("T"), TypeVar("E")
_KINDS: dict[str, type] = {c.kind: c for c in (Category, Number, Amount, Scientific, Date, Aside)}


class UnseenError(DarnError):
    """Columns of a table have values that did not occur in the training data: `strange` are some of each."""

    def __init__(self, what: str, strange: dict[str, list[str]], unseen: str):
        super().__init__(_refusal(what, strange, unseen))
        self.what, self.strange, self.unseen = what, strange, unseen

    def and_in(self, parts: Iterator[Any], encode: Callable[[Any], Any]) -> UnseenError:
        """The error for this part of a table and all others."""
        found = {name: dict.fromkeys(words) for name, words in self.strange.items()}
        for part in parts:
            try:
                encode(part)
            except UnseenError as e:
                for name, words in e.strange.items():
                    have = found.setdefault(name, {})
                    have |= dict.fromkeys(words[: MOST_UNSEEN - len(have)])
        return UnseenError(self.what, {name: list(words) for name, words in found.items()}, self.unseen)


def encoded(parts: Iterable[T], encode: Callable[[T], E]) -> Iterator[E]:
    """`encode` of every part of a table; where it meets unseen values, the error names those of all parts."""
    parts = iter(parts)
    for part in parts:
        try:
            found = encode(part)
        except UnseenError as e:
            raise e.and_in(parts, encode) from None
        yield found


class Encoded(NamedTuple):
    """A table's rows as bits."""

    bits: np.ndarray  # (N, n) uint8
    unknown: np.ndarray  # (N, n) bool: units of cells whose value is not known
    log_density: np.ndarray  # (N,) log p(cells | bits), nats


@dataclass(frozen=True)
class Schema:
    """How a table's columns become units."""

    columns: tuple[AbstractColumn, ...]

    @staticmethod
    def of_bits(names: Sequence[str]) -> Schema:
        """The schema of plain rows of 0 and 1 with these columns."""
        return Schema(tuple(Category(n, "", False, False, ("0", "1"), "boolean") for n in names))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of units of each column."""
        return tuple(c.size for c in self.columns)

    @property
    def groups(self) -> tuple:
        """The units as `darn.layers.Groups` takes them."""
        return tuple(c.group for c in self.columns if c.size)

    @property
    def numbers(self) -> tuple:
        """The words of bits that spell cells of numbers, as `darn.layers.Numbers` takes them, each with its edges."""
        found, at = [], 0
        for c in self.columns:
            if (edges := c.scale) is not None:
                found.append(((at + c.optional, c.size - c.optional, at if c.optional else -1), edges))
            at += c.size
        return tuple(found)

    @property
    def units(self) -> tuple[str, ...]:
        return tuple(u for c in self.columns for u in c.units)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    @property
    def modelled(self) -> tuple[str, ...]:
        """The columns that are not set aside."""
        return tuple(c.name for c in self.columns if not isinstance(c, Aside))

    @property
    def exact(self) -> bool:
        """Whether the bits determine the values of a row, so that `log_density` is 0."""
        return all(c.exact or isinstance(c, Aside) for c in self.columns)

    def statement(self) -> list[str]:
        """What each column was taken for and why, a line for each."""
        width = max((len(c.name) for c in self.columns), default=0)
        what = [c.describe() + ", or missing" * (c.optional and not isinstance(c, Aside)) for c in self.columns]
        units = [f"{c.size} unit{'s' * (c.size != 1)}" for c in self.columns]
        lines = [f"  {c.name:{width}}  {w}; {u} ({c.why})" for c, w, u in zip(self.columns, what, units)]
        return [printable(line) for line in lines]

    # ---------------------------------------------------------------- rows to bits

    def encode(
        self, names: Sequence[str], cells: np.ndarray, what: str, *, unseen: str = "error", holes: bool = False
    ) -> Encoded:
        """The rows of a table as bits.

        Args:
            names: of the table's columns, in any order.
            cells: (N, columns) of texts.
            what: the table is called in messages.
            unseen: what a text that no training row had counts as: "error", "missing", or "nearest", the known text
                that is most like it.
            holes: whether missing cells hold unknown values, to be filled in.

        Returns:
            The bits, which of them are unknown, and the log density of the numbers within their cells.
        """
        at = {name: i for i, name in enumerate(names)}  # a table may have many columns
        check_present(names, self.modelled, what)
        check_unique(names, what)
        parts, strange = [], {}
        for c in self.columns:
            words = stripped(cells[:, at[c.name]]) if c.name in at else np.full(len(cells), "", object)
            part, wrong = _encode(c, words, unseen, holes)
            parts.append(part)
            if wrong:
                strange[c.name] = wrong
        if strange:
            raise UnseenError(what, strange, unseen)
        bits, unknown, log_density = zip(*parts)
        return Encoded(np.concatenate(bits, 1), np.concatenate(unknown, 1), np.sum(log_density, axis=0))

    def log_densities(self, names: Sequence[str], cells: np.ndarray) -> np.ndarray:
        """(N, columns): log p(cell | its bits) of rows that `encode` takes, nats."""
        out = np.zeros((len(cells), len(self.columns)))
        for j, c in enumerate(self.columns):
            if c.name in names:
                words = stripped(cells[:, list(names).index(c.name)], c.missing)
                given = words != ""
                out[given, j] = c.log_density(words[given], c.find(words[given]))
        return out

    def decode(
        self,
        bits: np.ndarray,
        seed: int = 0,
        parts: Mapping[int, AbstractPart] | None = None,
        numbers: np.ndarray | None = None,
    ) -> list[list[str]]:
        """Rows of texts, with the columns `names`; numbers are drawn within their cells.

        Args:
            bits: (N, n) of 0 and 1.
            seed: of the numbers; what is drawn for a row depends on it and the row's own number.
            parts: what a condition allows of some columns, by their index.
            numbers: (N,) of the rows; counted from 0 on by default.
        """
        numbers = np.arange(len(bits)) if numbers is None else numbers
        own, each = parts or {}, np.split(bits, np.cumsum(self.sizes)[:-1], axis=1)
        texts = [
            c.decode(x, RowDraws(seed, i, numbers), own.get(i)) for i, (c, x) in enumerate(zip(self.columns, each))
        ]
        return [list(row) for row in zip(*texts)]

    # ---------------------------------------------------------------- files

    def to_json(self) -> list[dict]:
        return [c.to_json() for c in self.columns]

    @staticmethod
    def from_json(columns: Sequence[Any]) -> Schema:
        """The schema of a file, perhaps forged.

        Raises:
            FormatError: A column is not one that darn writes.
        """
        found = tuple(_column_from(c) for c in columns)
        check_unique([c.name for c in found], "the table of the model")
        return Schema(found)


def _column_from(found: Any) -> AbstractColumn:
    kind = _KINDS.get(str(found.get("kind"))) if isinstance(found, dict) else None
    if kind is None:
        raise FormatError(f"{shown(found)} is not a column that darn writes")
    column = decode(kind, {k: v for k, v in found.items() if k != "kind"}, "a column")
    if not (column.missing and column.is_sound()):
        raise FormatError(f"the fields of the column {shown(column.name)} do not fit each other")
    return column


def _encode(c: AbstractColumn, words: np.ndarray, unseen: str, holes: bool):
    """((bits, unknown, log density) of a column, the texts that it does not know)."""
    given = words != ""
    words = stripped(words, c.missing)
    gone = words == ""
    given_as_missing = given & gone
    if isinstance(c, Aside):
        gone = np.zeros(len(words), bool)
    values = np.full(len(words), c.n)
    values[~gone] = c.find(words[~gone])
    strange = values < 0
    if strange.any() and unseen == "nearest":
        near = {w: c.nearest(w) for w in set(words[strange].tolist())}
        words = np.array([near.get(w) or w if s else w for w, s in zip(words.tolist(), strange.tolist())], object)
        values[strange] = c.find(words[strange])
        strange = values < 0
    if unseen == "missing":
        values[strange] = c.n
        gone, strange = gone | strange, np.zeros(len(words), bool)
    blank = gone & ~given_as_missing & holes
    wrong = strange | (gone & ~blank & (not c.optional))
    if wrong.any():
        return None, list(dict.fromkeys(words[wrong].tolist()))[:MOST_UNSEEN]
    log_density = np.zeros(len(words))
    log_density[~gone] = c.log_density(words[~gone], values[~gone])
    bits, unknown = c.to_bits(np.where(blank & (not c.optional), 0, values)), np.zeros((len(words), c.size), bool)
    bits[blank], unknown[blank] = c.blank()
    return (bits, unknown, log_density), []


def _refusal(what: str, strange: dict[str, list[str]], unseen: str) -> str:
    """One sentence for all columns and texts that no training row had."""

    def said(name, words):
        shown = ", ".join(repr(w[:40]) if w else "a missing value" for w in words[:5])
        more = f" and {'at least ' * (len(words) >= MOST_UNSEEN)}{len(words) - 5:,} more" if len(words) > 5 else ""
        return f"{shown}{more} in column {name[:40]!r}"

    listed = [said(name, words) for name, words in strange.items()]
    more = f"; and in {len(listed) - 8} more columns" if len(listed) > 8 else ""
    advice = {
        "error": " (unseen = 'missing' or 'nearest' would take them for that)",
        "missing": " (no training row had a missing value there, so they cannot count as missing)",
        "nearest": " (nothing is near to them)",
    }[unseen]
    return f"{what} has values that did not occur in the training data: {'; '.join(listed[:8])}{more}{advice}."


def check_present(names: Sequence[str], wanted: Sequence[str], what: str) -> None:
    """Refuses a table that lacks columns of the model."""
    known = set(names)
    if lost := [n for n in wanted if n not in known]:
        said = ", ".join(repr(n[:40]) for n in lost[:8]) + f" and {len(lost) - 8} more" * (len(lost) > 8)
        raise DarnError(
            f"{what} has no column {said}, which the model was trained with: add {'it' if len(lost) == 1 else 'them'}, "
            "with empty cells where the values are not known"
        )


def check_unique(names: Sequence[str], what: str) -> None:
    """Refuses several columns of one name."""
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        said = ", ".join(repr(name[:40]) for name in twice[:8]) + ", ..." * (len(twice) > 8)
        raise DarnError(f"{what} has several columns called {said}: give every column a name of its own")


def is_missing(cells: np.ndarray) -> np.ndarray:
    """Which cells mark a missing value, in one of the usual ways."""
    return np.array([c.strip().lower() in MISSING for c in cells.ravel().tolist()], bool).reshape(cells.shape)


def stripped(cells: np.ndarray, missing: Sequence[str] = ()) -> np.ndarray:
    """Stripped cells, as objects; '' for all missing values, which further texts may stand for."""
    once = {c: c.strip() for c in set(cells.tolist())}
    once = {c: "" if w in missing or w.lower() in MISSING else w for c, w in once.items()}
    return np.array([once[c] for c in cells.tolist()], dtype=object)
