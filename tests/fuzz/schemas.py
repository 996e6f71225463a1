"""Schemas of tables with columns of every kind, forged as they stand in model files and compressed tables."""

import contextlib
import json
from typing import Any

import numpy as np

from darn.data import Schema, parse_tests, parts_of
from darn.data._frame import open_parquet
from darn.data._infer import infer
from darn.errors import DarnError
from fuzz.mutate import NASTY, Rng, nasty
from fuzz.tables import COLUMNS

ODD = [
    "",
    "-",
    "x",
    "7",
    "-1e9",
    "1e999999999",
    "1e-999999999",
    "(3)",
    "+$5",
    "12 %",
    "1,234",
    "2014-02-30",
    "3 May 14",
]
LONGEST = 250_000  # characters of a text that a forged schema makes, where one of its own has 200,000
FORMS = ["%Y", "%c", "%d %b %Y", "%-I:%M %p", "%d.%m.%y", "%" * 50, "{}", "%-d" * 100]
TEXTS = ["(", ".*", "$", "\\", "%s", "()", "+-", ",", "'", "\u202f", "EUR", "a" * 5000, "-", "inf"]


class Schemas:
    """What a command does with a schema: states it, reads rows by it, draws cells, and writes them as Parquet."""

    def __init__(self):
        rng, self.held = np.random.default_rng(0), []
        for make in COLUMNS.values():
            words = make(rng, 60)
            cells = np.array([[w, "ab"[i % 2]] for i, w in enumerate(words)], object)
            schema = infer(["v", "beside"], cells, None, "it")
            self.held.append((json.dumps(schema.to_json()), cells))

    def __call__(self, rng: Rng, folder) -> str:
        text, cells = self.held[int(rng.integers(len(self.held)))]
        columns = json.loads(text)
        for _ in range(int(rng.choice([1, 1, 2]))):
            columns = nasty(rng, columns) if rng.random() < 0.7 else _other_text(rng, columns)
        if not isinstance(columns, list):
            return "refused"  # by those who read the file
        schema = Schema.from_json(columns)
        for line in schema.statement():
            assert len(line) < LONGEST, "a line without an end"
        bits = (rng.random((20, sum(schema.sizes))) < 0.5).astype(np.uint8)
        for column, own in zip(schema.columns, np.split(bits, np.cumsum(schema.sizes)[:-1], axis=1)):
            if column.size:  # bits that spell a value
                own[:] = column.to_bits(rng.integers(0, column.n + column.optional, len(own)))
        drawn = schema.decode(bits)
        assert max(len(cell) for row in drawn for cell in row) < LONGEST, "a cell without an end"
        odd = np.array([[w, "a"] for w in [*ODD, *map(str, NASTY)]], object)
        for rows in (cells, np.array(drawn, object).reshape(len(drawn), -1), odd):
            for unseen in ("nearest", "missing"):
                self.read(schema, rows, unseen)
        name = schema.names[0]
        for test in ("< 5", "= x", "is missing", ">= 2014-01-01"):
            with contextlib.suppress(DarnError):
                parts = parts_of(schema, parse_tests(schema, f'"{name.replace(chr(34), chr(34) * 2)}" {test}'))
                _ = [part.means() for part in parts.values()]
        out = folder / "s.parquet"
        # Commands have a sentence for characters that an encoding lacks.
        with contextlib.suppress(DarnError, UnicodeEncodeError), open_parquet(str(out), schema.columns, []) as put:
            put(drawn)
        return "same" if json.dumps(schema.to_json()) == text else "another"

    def read(self, schema: Schema, rows: np.ndarray, unseen: str) -> None:
        with contextlib.suppress(DarnError):
            found = schema.encode(schema.names, rows[:, : len(schema.names)], "it", unseen=unseen)
            assert not np.isnan(found.log_density).any(), "a density that is no number"


def _other_text(rng: Rng, columns: Any) -> Any:
    """One of the texts that say how a column is written, replaced by another."""
    fields = ("form", "zone", "before", "after", "between", "point", "signs", "missing", "values")
    listed = columns if isinstance(columns, list) else []
    found = [(c, k) for c in listed if isinstance(c, dict) for k in fields if k in c]
    if not found:
        return columns
    column, key = found[int(rng.integers(len(found)))]
    word = str(rng.choice(FORMS if key == "form" else TEXTS))
    column[key] = [word, *ODD] if isinstance(column[key], list) else word
    return columns
