"""A column of a table: the texts of its cells as one of n values, those as bits, and back."""

from __future__ import annotations

import abc
import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np

from darn.data._draws import RowDraws
from darn.data._labels import plain
from darn.data._part import AbstractPart, Refused, Test, ValuePart, allowed_values
from darn.symbols import Coder

GRID = 10  # fractional bits of the edges of cells
MOST_COMPARED = 200  # characters of a text that is looked for among others: the time grows with their square
ONE_HOT = 64  # the most values that may have a unit each; more are numbered in binary


@dataclass(frozen=True)
class AbstractColumn(abc.ABC):
    """How a column's cells become bits. Texts are stripped, and '' is a missing value.

    A text is one of `n` values; a value may stand for many texts, such as the numbers of an interval, with a
    distribution over them. The values have a unit each, exactly one of them on (one-hot), or are numbered in binary.
    """

    name: str
    why: str  # the column was taken for what it is
    optional: bool  # whether values are missing in the training rows
    one_hot: bool
    # Texts that stand for a missing value: first the usual one of the table, then those that do so in this column only.
    missing: tuple[str, ...] = field(default=("",), kw_only=True)

    kind: ClassVar[str]
    exact: ClassVar[bool] = True  # whether the bits determine the text

    # ---------------------------------------------------------------- what a kind of column defines

    @property
    @abc.abstractmethod
    def n(self) -> int:
        """The number of values, without the missing one."""

    @abc.abstractmethod
    def find(self, words: np.ndarray) -> np.ndarray:
        """The value of each text, none of which is missing; -1 if it is none of them."""

    @abc.abstractmethod
    def draw(self, values: np.ndarray, rng: RowDraws) -> list[str]:
        """A text of each value."""

    @abc.abstractmethod
    def value_names(self) -> Sequence[str]:
        """What the values stand for."""

    @abc.abstractmethod
    def describe(self) -> str:
        """The kind of column and its values, in words."""

    @abc.abstractmethod
    def is_sound(self) -> bool:
        """Whether the fields fit each other: those of a forged file need not."""

    @abc.abstractmethod
    def part(self, tests: Sequence[Test]) -> AbstractPart:
        """The texts that pass all tests.

        Raises:
            Refused: The column cannot answer a test.
        """

    def log_density(self, words: np.ndarray, values: np.ndarray) -> np.ndarray:
        """log p(text | value), nats."""
        return np.zeros(len(words))

    # What `darn compress` needs: a text is given by its value and a whole number, its place among the value's texts.

    def places_of(self, words: np.ndarray, values: np.ndarray) -> np.ndarray:
        """The place of each text, or of another text of its value where it has none."""
        return np.zeros(len(words), np.int64)

    def code(self, coder: Coder, values: np.ndarray, place: np.ndarray | None = None) -> np.ndarray:
        """Writes places, or reads them if `place` is None, under p(text | value), and returns them."""
        return np.zeros(len(values), np.int64)

    @abc.abstractmethod
    def written(self, values: np.ndarray, place: np.ndarray) -> list[str]:
        """The texts of these values at these places."""

    def nearest(self, word: str) -> str | None:
        """The known text that is most like an unknown one; None if there is none."""
        return None

    @property
    def scale(self) -> tuple[int, ...] | None:
        """The edges of the values on an axis where the training rows have a standard logistic distribution, as
        multiples of 2^-GRID; None if the values are no cells of numbers that are spelled in binary."""
        return None

    # ---------------------------------------------------------------- values and bits

    @property
    def group(self) -> int | tuple[int, bool] | None:
        """The column's units as `darn.layers.Groups` takes them; None if it has no units."""
        if self.one_hot:
            return self.n + self.optional
        return (self.n - 1, self.optional) if self.size else None

    @property
    def size(self) -> int:
        """The number of units. One value that is never missing needs none."""
        return self.n + self.optional if self.one_hot else max(self.n - 1, 0).bit_length() + self.optional

    @property
    def units(self) -> list[str]:
        if self.one_hot:
            return [f"{self.name}={v}" for v in (*self.value_names(), *["(missing)"] * self.optional)]
        bits = self.size - self.optional
        named = [f"{self.name}, bit {i + 1} of {bits}" for i in range(bits)] if self.n > 2 else [self.name] * bits
        return [f"{self.name} is given"] * self.optional + named

    def to_bits(self, values: np.ndarray) -> np.ndarray:
        """(N, units) of 0 and 1; the value n is the missing one."""
        if self.one_hot:
            return np.eye(self.size, dtype=np.uint8)[values]
        given = values < self.n
        bits = self.size - self.optional
        word = np.where(given, values, 0)[:, None] >> np.arange(bits - 1, -1, -1)[None] & 1
        return np.concatenate([given[:, None]] * self.optional + [word], axis=1).astype(np.uint8)

    def from_bits(self, bits: np.ndarray) -> np.ndarray:
        """The value of each row of bits; n for a missing one."""
        if self.one_hot:
            return bits.argmax(axis=1)
        word = bits[:, int(self.optional) :].astype(np.int64)
        values = word @ (1 << np.arange(word.shape[1] - 1, -1, -1))
        return np.where(bits[:, 0] == 0, self.n, values) if self.optional else values

    def blank(self) -> tuple[np.ndarray, np.ndarray]:
        """(bits, which of them are unknown) of a cell that has a value, but an unknown one."""
        bits, unknown = np.zeros(self.size, np.uint8), np.ones(self.size, bool)
        if self.optional:
            unknown[-1 if self.one_hot else 0] = False
            bits[0] = not self.one_hot
        return bits, unknown

    def decode(self, bits: np.ndarray, rng: RowDraws, part: AbstractPart | None = None) -> list[str]:
        """The texts of rows of bits, drawn from a part of the column if one is given; missing values as the table
        writes them."""
        values = self.from_bits(bits)
        given = values < self.n
        texts = np.full(len(bits), self.missing[0], object)
        texts[given] = (part or self).draw(values[given], rng.take(given))
        return texts.tolist()

    # ---------------------------------------------------------------- files

    def to_json(self) -> dict[str, Any]:
        found = {"kind": self.kind} | asdict(self)
        return {k: v for k, v in found.items() if k != "missing" or v != ("",)}


def fitting_code(n: int, optional: bool, most: int = ONE_HOT) -> bool:
    """Whether this many values should be one-hot: not two, which are a bit, and not many."""
    return 2 < n + optional <= most and n > 1


@dataclass(frozen=True)
class Category(AbstractColumn):
    """One of some texts. Ordered ones are in their order; if numbered in binary, the others by frequency."""

    values: tuple[str, ...]
    order: str  # "category" | "ordered category" | "boolean"

    kind: ClassVar[str] = "category"

    @property
    def n(self):
        return len(self.values)

    def find(self, words):
        code = self._codes()
        once = {w: code.get(w, code.get(plain(w), -1)) for w in set(words.tolist())}
        return np.array([once[w] for w in words.tolist()], np.int64)

    def _codes(self) -> dict[str, int]:
        """Each value's number, by its text and, if unambiguous, as a number: 1 for 1.0."""
        same = Counter(plain(v) for v in self.values)
        loose = {plain(v): i for i, v in enumerate(self.values) if same[plain(v)] == 1}
        return loose | {v: i for i, v in enumerate(self.values)}

    def draw(self, values, rng):
        return self.written(values, values)

    def written(self, values, place):
        return [self.values[i] for i in values.tolist()]

    def value_names(self):
        return self.values

    def part(self, tests):
        codes = {w: int(v) for t in tests for w, v in zip(t.known, self.find(np.array(t.known, object))) if v >= 0}
        allowed = allowed_values(self.values, codes, self.order == "ordered category", tests)
        return ValuePart(self, allowed, all(t.keeps_missing for t in tests))

    def describe(self):
        if self.n == 1:
            return f"always {self.values[0][:40]!r}"
        some = ", ".join(repr(v[:40]) for v in self.values[:5])
        return f"{self.order} of {self.n}: {some}{', ...' * (self.n > 5)}"

    def is_sound(self):
        orders = ("category", "ordered category", "boolean")
        return 0 < self.n == len(set(self.values)) and self.order in orders and (self.n > 1 or not self.one_hot)

    def nearest(self, word):
        try:
            near = {v: abs(float(v) - float(word)) for v in self.values}
            return min(near, key=near.__getitem__)
        except ValueError:
            pass
        lower = {v.lower()[:MOST_COMPARED]: v for v in reversed(self.values)}
        for cutoff in (0.6, 0.0):  # few texts need to be compared in full if one is much alike
            if found := difflib.get_close_matches(word.lower()[:MOST_COMPARED], lower, n=1, cutoff=cutoff):
                return lower[found[0]]
        return None


@dataclass(frozen=True)
class Aside(AbstractColumn):
    """A column that is not modelled: an identifier or free text. Its cells are carried along where there are any."""

    numbered: int | None = None  # the first number, if the column counts the rows

    kind: ClassVar[str] = "id"
    exact: ClassVar[bool] = False

    @property
    def n(self):
        return 1

    def find(self, words):
        return np.zeros(len(words), np.int64)

    def draw(self, values, rng):
        if self.numbered is None:
            return [""] * len(values)
        return [str(self.numbered + i) for i in rng.numbers.tolist()]

    def written(self, values, place):
        return [""] * len(values)

    def value_names(self):
        return ("",)

    def part(self, tests):
        raise Refused("it is set aside, so the model knows nothing of it")

    def is_sound(self):
        return not self.optional and not self.one_hot

    def describe(self):
        return "id, set aside: " + ("samples are left empty" if self.numbered is None else "samples are counted")
