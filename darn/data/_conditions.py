"""Conditions and questions as a user writes them: `sex=Female, age>=40`, `P(income=">50K" | sex=Female)`.

A condition is a column, an operator and a value. Columns and values may be quoted, with " or ', a quote inside being
doubled; a known column needs no quotes whatever its name is.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from darn.data._part import AbstractPart, Refused, Test
from darn.data._schema import Schema
from darn.errors import DarnError

_OPERATOR = re.compile(r"\s*(==|!=|<=|>=|=|<|>)\s*|\s+(not\s+in|in|is\s+missing|is\s+given)\b\s*")
_AFTER_NAME = re.compile(r"\s*(?:[=!<>,|]|$)|\s+(?:in|not|is)\b")
_EXAMPLE = "write for example sex=Female, age>=40, kind in {cat, dog}, weight in 2..9, weight is missing"

Tests = dict[str, tuple[Test, ...]]  # of each column that is tested


@dataclass(frozen=True)
class Question:
    """A question to a table.

    Attributes:
        kind: "probability" of an event, "mean" of a column, or its "distribution".
        column: that is asked about; None for a probability.
        event: the tests whose probability is asked for.
        given: the tests that hold.
        text: as it was asked.
    """

    kind: str
    column: str | None
    event: Tests
    given: Tests
    text: str


def parse_tests(schema: Schema, given: Any) -> Tests:
    """The tests of each column.

    Args:
        schema: of the table.
        given: a text such as "sex=Female, age>=40", several of them, or a mapping from columns to what they are: a
            value, a list of values, a tuple (least, most) with None for no limit, or None for a missing value.

    Raises:
        DarnError: The text cannot be read.
    """
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return {str(name): _of_value(value) for name, value in given.items()}
    found: Tests = {}
    for text in [given] if isinstance(given, str) else given:
        if not isinstance(text, str):
            raise DarnError(f"conditions are a text or a mapping from columns to values, not {text!r}")
        found = both(found, _Scanner(schema, text).tests())
    return found


def parse_question(schema: Schema, text: str) -> Question:
    """A question: P(event | conditions), P(column | conditions) or E(column | conditions).

    Args:
        schema: of the table.
        text: the question; the conditions may be left out.

    Raises:
        DarnError: The text cannot be read.
    """
    found = re.fullmatch(r"\s*([PE])\s*\((.*)\)\s*", text, re.DOTALL)
    if found is None:
        raise DarnError(
            f"{text!r} is not a question: ask P(event), P(column) or E(column), with conditions after a bar, as in "
            "P(tame=1 | animal=cat, weight>=4)"
        )
    scan = _Scanner(schema, found[2], bar=True)
    alone, event = scan.column_alone(), {}
    if alone is None:
        if found[1] == "E":
            raise DarnError(f"{text!r}: E takes the name of a column, as in E(weight | animal=cat)")
        event = scan.tests()
    given = scan.tests() if scan.take("|") else {}
    if not scan.ended:
        raise DarnError(f"cannot read {text!r}: there is a second bar; put quotes around texts with a bar")
    kind = "mean" if found[1] == "E" else "probability" if alone is None else "distribution"
    return Question(kind, alone, event, given, text.strip())


def both(a: Tests, b: Tests) -> Tests:
    """The tests of both."""
    return {name: (*a.get(name, ()), *b.get(name, ())) for name in (*a, *(n for n in b if n not in a))}


def parts_of(schema: Schema, tests: Tests, *, also: Sequence[str] = ()) -> dict[int, AbstractPart]:
    """What the tests allow of each column, by the column's index.

    Args:
        schema: of the table.
        tests: of its columns.
        also: more columns that must exist and be modelled.

    Raises:
        DarnError: Some columns or values are unknown, all of which are named.
    """
    index = {name: i for i, name in enumerate(schema.names)}
    wrong, parts = [], {}
    for name in dict.fromkeys((*also, *tests)):
        if name not in index:
            near = difflib.get_close_matches(name, schema.names, n=1)
            wrong.append(f"there is no column {name!r}" + (f" (did you mean {near[0]!r}?)" if near else ""))
            continue
        column = schema.columns[index[name]]
        try:
            part = column.part(tests.get(name, ()))
        except Refused as e:
            wrong.append(f"column {name!r}: {e}")
            continue
        if name in tests:
            parts[index[name]] = part
    if wrong:
        more = f"; and {len(wrong) - 8} more" if len(wrong) > 8 else ""
        raise DarnError(f"the conditions do not fit the table: {'; '.join(wrong[:8])}{more}")
    return parts


def possible(part: AbstractPart) -> bool:
    """Whether any value passes."""
    return bool(part.weights[: part.column.n + part.column.optional].any())


def check_possible(schema: Schema, tests: Tests, parts: Mapping[int, AbstractPart]) -> None:
    """Refuses tests that no value of a column passes."""
    empty = [i for i, part in parts.items() if not possible(part)]
    if empty:
        said = "; ".join(f"column {schema.names[i]!r} ({described(tests[schema.names[i]])})" for i in empty)
        raise DarnError(f"the conditions are impossible: no value is left in {said}")


def described(tests: Sequence[Test]) -> str:
    """Tests in words."""

    def said(test: Test) -> str:
        if test.op in ("in", "not in"):
            return f"{test.op} {{{', '.join(test.words)}}}"
        return f"in {'..'.join(test.words)}" if test.op == ".." else f"{test.op} {''.join(test.words)}".strip()

    return " and ".join(said(t) for t in tests)


def _of_value(value: Any) -> tuple[Test, ...]:
    if value is None:
        return (Test("is missing"),)
    if isinstance(value, tuple):
        if len(value) != 2 or value == (None, None):
            raise DarnError(f"{value!r} is not a range: give (least, most), None for no limit")
        return tuple(Test(op, (_text(v),)) for op, v in zip((">=", "<="), value) if v is not None)
    if isinstance(value, list | set | frozenset):
        return (Test("in", tuple(_text(v) for v in value)),)
    return (Test("=", (_text(value),)),)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Scanner:
    """Reads conditions from left to right."""

    def __init__(self, schema: Schema, text: str, bar: bool = False):
        self.text, self.at, self.bar, self.schema = text, 0, bar, schema
        self.names = sorted(schema.names, key=len, reverse=True)

    @property
    def ended(self) -> bool:
        return not self.text[self.at :].strip()

    def fail(self, why: str) -> DarnError:
        return DarnError(f"cannot read the conditions {self.text!r}: {why}; {_EXAMPLE}")

    def take(self, mark: str) -> bool:
        """Steps over a mark, if it is next."""
        self.blanks()
        if self.text.startswith(mark, self.at):
            self.at += len(mark)
            return True
        return False

    def blanks(self) -> None:
        self.at += len(self.text) - self.at - len(self.text[self.at :].lstrip())

    def tests(self) -> Tests:
        found: Tests = {}
        while True:
            name, test = self.test()
            found = both(found, {name: (test,)})
            if self.ended or (self.bar and self.text.startswith("|", self.at)):
                return found
            if not self.take(","):
                raise self.fail(f"a comma is missing before {self.text[self.at :].strip()!r}")

    def column_alone(self) -> str | None:
        """The column that stands alone before the bar or the end; None if there is an operator."""
        self.blanks()
        start = self.at
        name = self.name()
        self.blanks()
        if self.ended or self.text.startswith("|", self.at):
            return name
        self.at = start
        return None

    def name(self) -> str:
        self.blanks()
        for name in self.names:
            end = self.at + len(name.strip())
            if name.strip() and self.text.startswith(name.strip(), self.at) and _AFTER_NAME.match(self.text, end):
                self.at = end
                return name
        if self.text[self.at : self.at + 1] in ("'", '"'):
            return self.quoted()
        found = re.compile(r"[^=!<>,|]*?(?=\s*(?:[=!<>,|]|$)|\s+(?:in|not|is)\s)").match(self.text, self.at)
        if found is None or not found[0].strip():
            raise self.fail("the name of a column is missing")
        self.at = found.end()
        return found[0].strip()

    def test(self) -> tuple[str, Test]:
        name = self.name()
        found = _OPERATOR.match(self.text, self.at)
        if found is None:
            quotes = "" if name in self.names else " (a value that has a comma needs double quotes)"
            raise self.fail(f"there is no operator after {name!r}{quotes}")
        self.at = found.end()
        op = " ".join((found[1] or found[2]).split()).replace("==", "=")
        if op in ("is missing", "is given"):
            self.blanks()
            return name, Test(op)
        if op not in ("in", "not in"):
            word = self.value(",|" if self.bar else ",")
            self.check_alone(name, word)
            return name, Test(op, (word,))
        if self.take("{"):
            words = []
            while True:
                words.append(self.value(",}"))
                if self.take("}"):
                    self.blanks()
                    return name, Test(op, tuple(words))
                if not self.take(","):
                    raise self.fail("the brace { is not closed")
        low = self.value(",|" if self.bar else ",", upto="..")
        if op == "not in" or not self.take(".."):
            raise self.fail(f"after {op!r} comes a set {{a, b}}" + " or a range 2..9" * (op == "in"))
        return name, Test("..", (low, self.value(",|" if self.bar else ",")))

    def check_alone(self, name: str, word: str) -> None:
        """Refuses several conditions that are joined by words, taken for one value that no row has."""
        joined = re.search(r"\s(or|and|&&|\|\|)\s", word)
        if joined and not any(c.name == name and c.find(np.array([word], object))[0] >= 0 for c in self.schema.columns):
            if joined[1] in ("and", "&&"):
                raise self.fail(f"conditions are joined by a comma, not by {joined[1]!r}")
            raise self.fail(
                f"there is no {joined[1]!r}: for several values of a column give a set such as {name} in {{a, b}}; "
                "conditions on different columns all have to hold"
            )

    def value(self, stops: str, upto: str | None = None) -> str:
        """A text: quoted, or up to one of the stops."""
        self.blanks()
        if self.text[self.at : self.at + 1] in ("'", '"'):
            found = self.quoted()
            self.blanks()
            return found
        end = next((i for i in range(self.at, len(self.text)) if self.text[i] in stops), len(self.text))
        if upto is not None and 0 <= (cut := self.text.find(upto, self.at)) < end:
            end = cut
        found, self.at = self.text[self.at : end].strip(), end
        if not found:
            raise self.fail('a value is missing (a missing value is "", or write: is missing)')
        return found

    def quoted(self) -> str:
        mark = self.text[self.at]
        found = re.compile(f"{mark}((?:[^{mark}]|{mark}{mark})*){mark}").match(self.text, self.at)
        if found is None:
            raise self.fail(f"a quote {mark} is not closed")
        self.at = found.end()
        return found[1].replace(mark * 2, mark)
