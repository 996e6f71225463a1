"""Tables of categories and numbers as bits, and back: each column becomes a one-hot group of units."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from darn.data._labels import column_index, numbers_first, plain
from darn.data._limits import check_names
from darn.errors import DarnError, FormatError
from darn.jsonable import shown

MISSING = ("", "?", "na", "n/a", "nan", "null", "none")  # how files say that a value is not there
FEW = 20  # a column with at most this many different numbers is treated as categories
MOST = 500  # categories of one column
BINS = 10  # of a column of many numbers, equally full


@dataclass(frozen=True)
class Column:
    """One column: a bit, categories, or binned numbers. Missing values have their own category, ''."""

    name: str
    kind: str  # "bit" | "category" | "number"
    values: tuple[str, ...] = ()  # categories ('' last, if values are missing); the texts of a bit, if not 0 and 1
    edges: tuple[float, ...] = ()  # of the bins, lowest and highest value included
    decimals: int = 0  # digits after the decimal point, for writing numbers

    @property
    def units(self) -> list[str]:
        if self.kind == "bit":
            return [self.name]
        bins = [f"{self.name}={lo:g}..{hi:g}" for lo, hi in zip(self.edges[:-1], self.edges[1:])]
        return bins + [f"{self.name}={v or '(missing)'}" for v in self.values]

    def describe(self) -> str:
        """How the column is encoded, in words."""
        if self.kind == "bit":
            return "a bit"
        gone = ", or missing" if "" in self.values else ""
        if self.kind == "number":
            bins = len(self.edges) - 1
            return f"a number from {self.edges[0]:g} to {self.edges[-1]:g}, in {bins} bin{'s' * (bins != 1)}{gone}"
        if not self.values[0]:
            return "always missing"
        known = [v for v in self.values if v]
        if len(known) == 1:
            return f"always {known[0]!r}{gone}"
        return f"one of {len(known)}: {', '.join(map(repr, known[:5]))}{', ...' * (len(known) > 5)}{gone}"

    def encode(self, words: np.ndarray, what: str) -> np.ndarray:
        """(N, units) of 0 and 1."""
        if self.kind == "number":
            gone = words == ""
            index = np.searchsorted(self.edges[1:-1], floats(words[~gone], self.name, what), side="right")
            place = np.full(len(words), len(self.edges) - 1)
            place[~gone] = index
            known = ~gone | ("" in self.values)
        else:
            code = self._codes()
            place = np.array([code.get(w, code.get(plain(w), -1)) for w in words.tolist()], np.int64)
            known = place >= 0
        if not known.all():
            word = str(words[~known][0])
            said = f"the value {word!r}" if word else "a missing value"
            raise DarnError(f"{what} has {said} in column {self.name!r}, which did not occur in the training data.")
        if self.kind == "bit":
            return place[:, None].astype(np.uint8)
        return np.eye(len(self.units), dtype=np.uint8)[place]

    def _codes(self) -> dict[str, int]:
        """Each category's number, by its text and, if unambiguous, by its numeric value: 1 for 1.0."""
        values = (self.values or ("0", "1")) if self.kind == "bit" else self.values
        same = Counter(plain(v) for v in values)
        loose = {plain(v): i for i, v in enumerate(values) if same[plain(v)] == 1}
        return loose | {v: i for i, v in enumerate(values)}

    def decode(self, bits: np.ndarray, rng: np.random.RandomState) -> list[str]:
        """The texts of encoded values; a number is drawn uniformly within its bin."""
        if self.kind == "bit":
            return [(self.values or ("0", "1"))[int(b)] for b in bits[:, 0].tolist()]
        place = bits.argmax(axis=1)
        if self.kind == "category":
            return [self.values[i] for i in place.tolist()]
        n, u = len(self.edges) - 1, rng.random_sample(len(bits))
        lo, hi = (np.append(e, 0.0)[np.minimum(place, n)] for e in (self.edges[:-1], self.edges[1:]))
        drawn = lo + u * (hi - lo)
        return ["" if i >= n else f"{v:.{self.decimals}f}" for i, v in zip(place.tolist(), drawn.tolist())]


@dataclass(frozen=True)
class Schema:
    """How a table's columns become units."""

    columns: tuple[Column, ...]

    @property
    def groups(self) -> tuple[int, ...]:
        return tuple(len(c.units) for c in self.columns)

    @property
    def units(self) -> tuple[str, ...]:
        return tuple(u for c in self.columns for u in c.units)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    def encode(self, names: Sequence[str], cells: np.ndarray, what: str) -> np.ndarray:
        """Bits of a table whose columns are found by name, in any order."""
        given, wanted = set(names), set(self.names)  # a table may have many columns
        lost = [c.name for c in self.columns if c.name not in given]
        if lost:
            raise DarnError(f"{what} has no column {lost[0]!r}, which the model was trained with: add it.")
        check_unique(names, what)
        words = {n: _words(cells[:, i]) for i, n in enumerate(names) if n in wanted}
        return np.concatenate([c.encode(words[c.name], what) for c in self.columns], axis=1)

    def decode(self, bits: np.ndarray, seed: int = 0) -> list[list[str]]:
        """Rows of texts, with the columns `names`."""
        rng = np.random.RandomState(seed)
        parts = np.split(bits, np.cumsum(self.groups)[:-1], axis=1)
        return [list(row) for row in zip(*(c.decode(p, rng) for c, p in zip(self.columns, parts)))]

    def to_json(self) -> list[dict]:
        return [asdict(c) for c in self.columns]


def check_columns(columns: Sequence[Column]) -> None:
    """Refuses columns of a file that `infer` never gives, since they could not be encoded or decoded."""
    check_unique([c.name for c in columns], "the table of the model")
    for c in columns:
        edges = np.asarray(c.edges)
        good = {
            "bit": len(c.values) in (0, 2) and not c.edges,
            "category": 2 <= len(c.values) <= MOST + 1 and not c.edges,
            "number": len(c.values) <= 1 and 2 <= len(edges) <= BINS + 1 and 0 <= c.decimals <= 6,
        }
        if not good.get(c.kind) or len(set(c.values)) < len(c.values) or not np.isfinite(edges).all():
            raise FormatError(f"the column {shown(c.name)} is not one that darn writes")
        if c.edges and (np.diff(edges) <= 0).any():
            raise FormatError(f"the edges of the column {shown(c.name)} are not in order")


def check_unique(names: Sequence[str], what: str) -> None:
    """Refuses two columns of one name."""
    if len(set(names)) < len(names):
        twice = next(n for n in names if list(names).count(n) > 1)
        raise DarnError(f"{what} has two columns called {twice!r}: rename one.")


def infer(names: Sequence[str], cells: np.ndarray, categorical: Sequence[str] | None, what: str) -> Schema:
    """Infers the schema of a table: None decides by the values; otherwise only the named columns are categories."""
    check_names(names, what)
    chosen = None
    if categorical is not None:
        chosen = {column_index(w, tuple(names), len(names), what, option="categorical") for w in categorical}
    columns = tuple(
        _column(name, _words(cells[:, i]), None if chosen is None else i in chosen, what)
        for i, name in enumerate(names)
    )
    return Schema(columns)


def _column(name: str, words: np.ndarray, category: bool | None, what: str) -> Column:
    found = sorted(set(words.tolist()), key=numbers_first)
    known, missing = [w for w in found if w], ("",) if "" in found else ()
    bits = {w: plain(w) for w in found}
    if not category and set(bits.values()) <= {"0", "1"}:
        texts = tuple(next((w for w in found if bits[w] == b), b) for b in ("0", "1"))
        # 1 and 1.0 in one column are two texts, so categories, unless the column is declared to be bits.
        if len(found) == len(set(bits.values())):
            return Column(name, "bit", () if texts == ("0", "1") else texts)
        if category is False:
            return Column(name, "bit")
    if category is False:
        strange = next((w for w in found if bits[w] not in ("0", "1")), "")
        raise DarnError(
            f"{what} has {f'the value {strange!r}' if strange else 'a missing value'} in column {name!r}, not 0 or 1: "
            "add it to the categorical columns, or give categorical = 'auto'."
        )
    numeric = bool(known) and all(_is_number(w) for w in known)
    if not category and numeric and len(known) > FEW:
        values = floats(words[words != ""], name, what)
        edges = np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1)))
        decimals = max((len(w.partition(".")[2]) for w in known if "e" not in w.lower()), default=0)
        return Column(name, "number", missing, tuple(edges.tolist()), min(decimals, 6))
    if len(known) > MOST or (category is None and len(known) > FEW and len(known) > 0.5 * len(words)):
        raise DarnError(
            f"{what} has {len(known)} different values in column {name!r} of {len(words)} rows, which looks like an "
            f"identifier: leave it out with drop = {name!r}."
        )
    values = (*known, *missing)
    # A group of one unit would be a free bit: a constant column has a second, empty category.
    return Column(name, "category", values if len(values) > 1 else (*values, "" if values[0] else "0"))


def is_missing(cells: np.ndarray) -> np.ndarray:
    """Which cells mark a missing value, in one of the usual ways."""
    return np.array([c.strip().lower() in MISSING for c in cells.ravel().tolist()], bool).reshape(cells.shape)


def _words(cells: np.ndarray) -> np.ndarray:
    """Stripped cells, as objects; '' for all missing values."""
    once = {c: c.strip() for c in set(cells.tolist())}
    once = {c: "" if w.lower() in MISSING else w for c, w in once.items()}
    return np.array([once[c] for c in cells.tolist()], dtype=object)


def _is_number(word: str) -> bool:
    try:
        return math.isfinite(float(word)) and "_" not in word
    except ValueError:
        return False


def floats(words: np.ndarray, name: str, what: str) -> np.ndarray:
    """A column of numbers."""
    bad = [w for w in words.tolist() if not _is_number(w)]
    if bad:
        raise DarnError(f"{what} has {bad[0]!r} in column {name!r}, where numbers are expected: correct it.")
    return np.array([float(w) for w in words.tolist()])
