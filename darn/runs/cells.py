"""Missing cells one by one: the probabilities of their values, their means, and the most probable completion."""

from collections.abc import Iterator

import numpy as np

from darn.data import AbstractPart, Schema
from darn.inference.constrained import Variable
from darn.inference.most_probable import MostProbable, most_probable
from darn.runs.folder import Run
from darn.runs.holes import Holes
from darn.runs.questions import variables_of

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


class _Middle(AbstractPart):
    """The median of each value's texts."""

    def __init__(self, part: AbstractPart):
        self.column, self.weights, self._part = part.column, part.weights, part
        self._texts: dict[int, str] = {}

    def draw(self, values, rng):
        for v in set(values.tolist()) - self._texts.keys():
            text = self._part.quantile(np.eye(self.column.n)[v], 0.5)
            self._texts[v] = self.column.draw(np.array([v]), rng)[0] if text is None else text
        return [self._texts[v] for v in values.tolist()]

    def means(self):
        return self._part.means()


def probabilities(schema: Schema, part: Holes, drawn: np.ndarray, first: int) -> Iterator[list[str]]:
    """The lines of a table with the probabilities of every missing cell's values, the most probable first.

    Args:
        schema: of the table, or of plain rows.
        part: rows with units missing.
        drawn: (N, n, n_x) completions of them: a probability is a frequency among the n.
        first: the number of the first row, counted from 1.

    Yields:
        Texts as in `HEADER`; the mean is that of a number, and empty otherwise.
    """
    start = 0
    for c in schema.columns:
        units = slice(start, start + c.size)
        start += c.size
        rows = np.flatnonzero(part.mask[:, units].any(axis=1))
        if not len(rows):
            continue
        means, names = c.part(()).means(), [*c.value_names(), ""]
        for i in rows.tolist():
            values = c.from_bits(drawn[i][:, units])
            count = np.bincount(values, minlength=c.n + 1) / len(values)
            mean = "" if means is None else f"{means[values[values < c.n]].mean():.6g}" if (values < c.n).any() else ""
            for v in np.argsort(-count, kind="stable").tolist():
                if count[v]:
                    yield [str(first + i), c.name, names[v], f"{count[v]:.6g}", mean]
