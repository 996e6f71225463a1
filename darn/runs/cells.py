"""Missing cells one by one: the probabilities of their values, their means, and the most probable completion."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from darn.data import AbstractPart, Schema, Test, both, check_possible, parse_tests, parts_of
from darn.errors import DarnError
from darn.inference.completion import Survey
from darn.inference.constrained import Tables, Variable, make_tables
from darn.inference.most_probable import MostProbable, most_probable
from darn.runs.holes import Holes, HoleSource
from darn.runs.questions import schema_of, variables_of
from darn.runs.run import Run

HEADER = ["row", "column", "value", "probability", "mean"]


def variables(run: Run) -> list[Variable]:
    """The variables that a run's visible units spell: its columns, or single bits."""
    if run.schema is not None:
        return variables_of(run.schema, {})[0]
    return [Variable(j, np.array([[0], [1]]), np.ones(2)) for j in range(run.model.n_x)]


def best(run: Run, part: Holes, drawn: np.ndarray, *, n_samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The most probable completion of each row.

    Args:
        run: the model.
        part: rows with units missing.
        drawn: (N, n, n_x) completions of them.
        n_samples: importance samples of log p, if the codes cannot all be enumerated.
        seed: of those.

    Returns:
        ((N, n_x) rows, (rows with holes,) whether all completions were compared exactly).
    """
    x, holed = drawn[:, 0].copy(), part.holed
    if not holed.any():
        return x, np.zeros(0, bool)
    side = None if part.context is None else np.asarray(part.context[holed], np.float32)
    options = {"context": side, "n_samples": n_samples, "seed": seed}
    found: MostProbable = most_probable(run.model, variables(run), part.mask[holed], drawn[holed], **options)
    x[holed] = found.x
    return x, found.exact


def medians(schema: Schema | None) -> dict[int, AbstractPart]:
    """Each column as its values' middles, for `Schema.decode`: of numbers, the median of a cell."""
    return {} if schema is None else {i: _Middle(c.part(())) for i, c in enumerate(schema.columns) if c.size}


def conditions(
    run: Run, given: Any, source: HoleSource, known: Survey
) -> tuple[Survey, Tables, dict[int, AbstractPart]]:
    """Conditions on the missing cells of rows.

    Args:
        run: the model.
        given: the conditions, as `darn.data.parse_tests` takes them.
        source: the rows.
        known: their survey.

    Returns:
        (how the rows are completed, the conditions for `completion.complete_parts`, and for `Schema.decode`).

    Raises:
        DarnError: The conditions cannot be read or met, or known cells do not meet them.
    """
    schema = schema_of(run)
    tests = parse_tests(schema, given)
    tests = both(tests, {name: (Test("is given"),) for name in tests})  # since missing cells are filled in
    parts = parts_of(schema, tests)
    check_possible(schema, tests, parts)
    before, wrong = 0, []
    for holes in source.read():
        wrong += [(before + r + 1, name, text) for r, name, text in _contradictions(schema, parts, holes)]
        before += len(holes.x)
    if wrong:
        said = ", ".join(f"{text!r} in column {name!r} of row {r}" for r, name, text in wrong[:3])
        more = f" and {len(wrong) - 3:,} more" if len(wrong) > 3 else ""
        raise DarnError(f"known cells do not meet the conditions: {said}{more}; leave out these rows, or conditions")
    tables, _ = make_tables(variables_of(schema, parts)[0], run.model.n_x, most=0)
    return replace(known, how="importance"), tables, parts


def _contradictions(schema: Schema, parts: Mapping[int, AbstractPart], part: Holes) -> Iterator[tuple[int, str, str]]:
    """(row, column, text) of known cells that do not meet the conditions."""
    starts = np.cumsum([0, *schema.sizes])
    for i, allowed in parts.items():
        c, units = schema.columns[i], slice(starts[i], starts[i + 1])
        rows = np.flatnonzero(~part.mask[:, units].any(axis=1))
        if part.table is not None and part.cells is not None:
            j = part.table.names.index(c.name) if c.name in part.table.names else None
            if j is None:
                continue
            rows = rows[~part.cells[rows, j]]
            words = np.array([w.strip() for w in part.table.cells[rows, j].tolist()], object)
        else:
            words = np.array(c.value_names(), object)[c.from_bits(part.x[rows][:, units].astype(np.uint8))]
        for k in np.flatnonzero(~allowed.allows(words)) if len(words) else ():
            yield int(rows[k]), c.name, words[k]


class _Middle(AbstractPart):
    """The median of each value's texts."""

    def __init__(self, part: AbstractPart):
        self.column, self.weights, self._part = part.column, part.weights, part
        self._texts: dict[int, str] = {}

    def draw(self, values, rng):
        for v in set(values.tolist()) - self._texts.keys():
            text = self._part.quantile(np.eye(self.column.n)[v], 0.5)
            self._texts[v] = (
                self.column.draw(np.array([v]), rng.take(np.flatnonzero(values == v)[:1]))[0] if text is None else text
            )
        return [self._texts[v] for v in values.tolist()]

    def allows(self, words):
        return self._part.allows(words)

    def means(self):
        return self._part.means()


def probabilities(
    schema: Schema, part: Holes, drawn: np.ndarray, first: int, within: Mapping[int, AbstractPart]
) -> Iterator[list[str]]:
    """The lines of a table with the probabilities of every missing cell's values, the most probable first.

    Args:
        schema: of the table, or of plain rows.
        part: rows with units missing.
        drawn: (N, n, n_x) completions of them: a probability is a frequency among the n.
        first: the number of the first row, counted from 1.
        within: what conditions allow of some columns, by their index.

    Yields:
        Texts as in `HEADER`; the mean is that of a number, and empty otherwise.
    """
    start = 0
    for k, c in enumerate(schema.columns):
        units = slice(start, start + c.size)
        start += c.size
        rows = np.flatnonzero(_gone(part, c.name, units))
        if not len(rows) or c.name not in schema.modelled:
            continue
        means, names = (within.get(k) or c.part(())).means(), [*c.value_names(), ""]
        for i in rows.tolist():
            values = c.from_bits(drawn[i][:, units])
            count = np.bincount(values, minlength=c.n + 1) / len(values)
            mean = "" if means is None else f"{means[values[values < c.n]].mean():.6g}" if (values < c.n).any() else ""
            for v in np.argsort(-count, kind="stable").tolist():
                if count[v]:
                    yield [str(first + i), c.name, names[v], f"{count[v]:.6g}", mean]


def _gone(part: Holes, name: str, units: slice) -> np.ndarray:
    """In which rows a column's cell is missing; a column of one value has no units."""
    if units.start < units.stop or part.table is None or part.cells is None or name not in part.table.names:
        return np.asarray(part.mask[:, units].any(axis=1))
    return np.asarray(part.cells[:, part.table.names.index(name)])
