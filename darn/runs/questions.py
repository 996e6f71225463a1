"""Questions to the model of a table: probabilities, means and distributions given conditions; rows that meet them."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from darn.data import (
    AbstractPart,
    Question,
    Schema,
    both,
    check_possible,
    parse_question,
    parse_tests,
    parts_of,
    possible,
)
from darn.errors import DarnError
from darn.inference.conditional import Conditional, ConditionalSamples, Weighted
from darn.inference.constrained import Variable
from darn.model import Stack
from darn.runs.run import Run

DRAWS = 20_000  # for an estimate
RARE = 0.1  # an event that is less probable gets draws of its own
FEW = 100  # an effective sample size that is not to be trusted
BLOCK = 10_000  # rows that are chosen together among weighted draws
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
Z = 1.959964  # of a 95% interval


@dataclass(frozen=True)
class Estimate:
    """A number, with its standard error and a 95% interval; both are 0 wide if it is exact."""

    value: float
    se: float = 0.0
    low: float = math.nan
    high: float = math.nan

    def __post_init__(self):
        if math.isnan(self.low):
            object.__setattr__(self, "low", self.value)
            object.__setattr__(self, "high", self.value)

    def __str__(self):
        return f"{self.value:.4g}" + (f" ± {Z * self.se:.2g}" if self.se else "")


@dataclass(frozen=True)
class Answer:
    """The answer to a question.

    Attributes:
        question: as it was asked.
        kind: "probability", "mean" or "distribution".
        method: "exact" or "importance".
        given: the probability of the conditions.
        result: the probability, or the mean of the values that are not missing; None for a distribution of texts.
        values: of a distribution: the probability of each value, or of each cell of a column of numbers.
        quantiles: of a distribution of numbers or dates, as texts.
        missing: the probability that the column's value is missing; None if it never is.
        ess: effective sample size, if the method is not exact.
        draws: how many draws the estimate is made of.
    """

    question: str
    kind: str
    method: str
    given: Estimate
    result: Estimate | None = None
    values: dict[str, Estimate] = field(default_factory=dict)
    quantiles: dict[float, str] = field(default_factory=dict)
    missing: Estimate | None = None
    ess: float | None = None
    draws: int | None = None

    @property
    def doubtful(self) -> bool:
        """Whether the effective sample size is too small to trust the interval."""
        return self.ess is not None and self.ess < FEW


@dataclass(frozen=True)
class GivenRows:
    """Rows that meet conditions, as bits."""

    x: np.ndarray  # (N, n_x) uint8
    method: str  # "exact" | "importance"
    given: float  # the probability of the conditions
    ess: float | None  # effective sample size of the draws that the rows were chosen from
    draws: int | None
    rows: int

    def without_rows(self) -> "GivenRows":
        """How the rows were drawn, to keep where there are many."""
        return replace(self, x=self.x[:0])

    @property
    def sentence(self) -> str:
        """How the rows were drawn."""
        likely = f"the conditions have probability {self.given:.3g}"
        if self.ess is None or self.draws is None:
            return f"drawn exactly; {likely}"
        few = "; many of them are equal, so use them with care" if self.ess < self.rows else ""
        return f"chosen among {self.draws:,} weighted draws, effective sample size {self.ess:,.0f}{few}; {likely}"


def joined(parts: list[GivenRows]) -> GivenRows:
    """All rows, in one part."""
    if len(parts) == 1:
        return parts[0]
    ess, draws = (None if parts[0].ess is None else sum(getattr(p, k) for p in parts) for k in ("ess", "draws"))
    x = np.concatenate([p.x for p in parts])
    given, rows = float(np.mean([p.given for p in parts])), sum(p.rows for p in parts)
    return GivenRows(x, parts[0].method, given, ess, draws, rows)


def ask(
    model: Stack, schema: Schema, question: str, *, given: Any = None, context=None, draws: int = DRAWS, seed: int = 0
) -> Answer:
    """Answers a question to a table.

    Args:
        model: of the table.
        schema: its columns.
        question: P(event | conditions), P(column | conditions) or E(column | conditions); see docs/query.md.
        given: more conditions, as a text or as a mapping from columns to values.
        context: (n_context,), for a model that was trained with one.
        draws: for an estimate, where an exact answer is not feasible.
        seed: of the draws.

    Returns:
        The answer, exact or with its standard error, interval and effective sample size.

    Raises:
        DarnError: The question cannot be read, columns or values are unknown, or the conditions are impossible.
    """
    if draws < 2:
        raise DarnError(f"an estimate needs 2 or more draws, not {draws}")
    q = parse_question(schema, question)
    tests = both(q.given, parse_tests(schema, given))
    parts_of(schema, both(tests, q.event), also=[] if q.column is None else [q.column])  # names all that is wrong
    parts = parts_of(schema, tests)
    check_possible(schema, tests, parts)
    asked = _Asked(model, schema, parts, context, draws, seed)
    if q.kind == "probability":
        return asked.probability(q, parts_of(schema, both(tests, q.event)))
    i = schema.names.index(q.column or "")
    part = parts.get(i) or schema.columns[i].part(())
    return asked.column(q, i, part)


def schema_of(run: Run) -> Schema:
    """The columns of a run's table, or of its plain rows of 0 and 1."""
    if run.schema is not None:
        return run.schema
    if not run.columns:
        raise DarnError("the columns of this model have no names, so no conditions can be given: train it on a table")
    return Schema.of_bits(run.columns)


def parts_for(schema: Schema, given: Any) -> dict[int, AbstractPart]:
    """What conditions allow of the columns, by their index; see `given_rows`."""
    tests = parse_tests(schema, given)
    parts = parts_of(schema, tests)
    check_possible(schema, tests, parts)
    return parts


def given_rows(
    model: Stack,
    schema: Schema,
    parts: Mapping[int, AbstractPart],
    n: int,
    *,
    context=None,
    seed: int = 0,
    progress: Callable[[int], object] | None = None,
) -> Iterator[GivenRows]:
    """Draws rows that meet conditions, in parts.

    Args:
        model: of the table.
        schema: its columns.
        parts: the conditions, from `parts_for`.
        n: the number of rows, at least 1.
        context: (n_context,), for a model that was trained with one.
        seed: of everything random.
        progress: called with the number of draws done after each program.

    Yields:
        The rows as bits, exact and independent or chosen among draws by their weights; `Schema.decode` takes the parts.
    """
    variables, factor = variables_of(schema, parts)
    conditional = Conditional(model, variables, context=context)
    for block, start in enumerate(range(0, n, BLOCK)):
        own = int(np.random.SeedSequence([seed, block]).generate_state(1)[0] >> 1) if block else seed
        found: ConditionalSamples = conditional.sample(min(BLOCK, n - start), seed=own, progress=progress)
        given = factor * math.exp(found.log_p)
        yield GivenRows(found.x, found.method, given, found.ess, found.draws, len(found.x))


def variables_of(schema: Schema, parts: Mapping[int, AbstractPart]) -> tuple[list[Variable], float]:
    """The columns as variables of the visible units, and the probability of conditions on columns without units."""
    variables, factor, start = [], 1.0, 0
    for i, c in enumerate(schema.columns):
        values = np.arange(c.n + c.optional)
        weights = parts[i].weights[: len(values)] if i in parts else np.ones(len(values))
        if c.size:
            variables.append(Variable(start, c.to_bits(values), weights))
        else:
            factor *= float(weights[0])
        start += c.size
    return variables, factor


class _Asked:
    """Draws under the conditions of a question, or exact sums."""

    def __init__(self, model, schema: Schema, parts: Mapping[int, AbstractPart], context, draws: int, seed: int):
        self.model, self.schema, self.parts, self.context = model, schema, parts, context
        self.n, self.seed = draws, seed
        self.conditional, self.factor = self.under(parts)

    def under(self, parts: Mapping[int, AbstractPart]) -> tuple[Conditional, float]:
        variables, factor = variables_of(self.schema, parts)
        return Conditional(self.model, variables, context=self.context), factor

    def drawn(self) -> Weighted:
        """Draws that meet the conditions; with equal weights if they are exact."""
        if self.conditional.method == "exact":
            found = self.conditional.sample(self.n, seed=self.seed)
            return Weighted(found.x, np.full(self.n, found.log_p))
        return self.conditional.draw(self.n, seed=self.seed)

    def given(self, found: Weighted | None) -> Estimate:
        if self.conditional.method == "exact" or found is None:
            return Estimate(self.factor * math.exp(self.conditional.log_p))
        return _log_normal(math.log(self.factor) + found.log_p, found.relative_variance)

    def values(self, x: np.ndarray, i: int) -> np.ndarray:
        """The value of column i in each row."""
        start = sum(self.schema.sizes[:i])
        c = self.schema.columns[i]
        return c.from_bits(x[:, start : start + c.size]) if c.size else np.zeros(len(x), int)

    # ---------------------------------------------------------------- the probability of an event

    def probability(self, q: Question, event: Mapping[int, AbstractPart]) -> Answer:
        if not all(possible(part) for part in event.values()):
            found = None if self.conditional.method == "exact" else self.drawn()
            return Answer(q.text, q.kind, "exact", self.given(found), Estimate(0.0))
        both_of, factor = self.under(event)
        exact = both_of.method == "exact"
        if exact and self.conditional.method == "exact":
            p = factor / self.factor * math.exp(both_of.log_p - self.conditional.log_p)
            return Answer(q.text, q.kind, "exact", self.given(None), Estimate(min(p, 1.0)))
        found = self.drawn()
        share = np.full(len(found.x), 1.0)
        for i, part in event.items():
            before = self.parts[i].weights if i in self.parts else np.ones(len(part.weights))
            ratio = np.divide(part.weights, before, out=np.zeros(len(before)), where=before > 0)
            share = share * ratio[self.values(found.x, i)]
        result, ess = _mean(found, share, bounded=True), found.ess
        if result.value < RARE:  # few draws are of the event: it gets its own
            if exact:
                log_p, variance = both_of.log_p, 0.0
            else:
                own = both_of.draw(self.n, seed=self.seed + 1)
                log_p, variance, ess = own.log_p, own.relative_variance, min(ess, own.ess)
            whole = 0.0 if self.conditional.method == "exact" else found.relative_variance
            result = _log_normal(math.log(factor / self.factor) + log_p - found.log_p, variance + whole)
        return Answer(q.text, q.kind, "importance", self.given(found), result, ess=ess, draws=len(found.x))

    # ---------------------------------------------------------------- the mean or distribution of a column

    def column(self, q: Question, i: int, part: AbstractPart) -> Answer:
        c, means = self.schema.columns[i], part.means()
        if q.kind == "mean" and means is None:
            raise DarnError(f"column {c.name!r} does not hold numbers, so it has no mean: ask P({c.name})")
        exact = self._exact(i, part)
        found = None if exact is not None else self.drawn()
        if exact is not None:
            p, each = exact, [Estimate(float(v)) for v in exact]
        else:
            assert found is not None
            values = self.values(found.x, i)
            each = [_mean(found, values == v, bounded=True) for v in range(c.n + c.optional)]
            p = np.array([e.value for e in each])
        inside = p[: c.n] / max(p[: c.n].sum(), 1e-300)
        result = None
        if means is not None and p[: c.n].any():
            clean = np.where(inside > 0, np.nan_to_num(means), 0.0)
            if found is None:
                result = Estimate(float(inside @ clean))
            else:
                there = self.values(found.x, i) < c.n
                held = Weighted(found.x[there], found.log_w[there])
                result = _mean(held, clean[self.values(held.x, i)])
        names = dict(zip(c.value_names(), each)) if q.kind == "distribution" else {}
        quantiles = {}
        if q.kind == "distribution" and p[: c.n].any():
            quantiles = {level: text for level in LEVELS if (text := part.quantile(inside, level)) is not None}
        ess, draws = (None, None) if found is None else (found.ess, len(found.x))
        method, missing = "exact" if found is None else "importance", each[-1] if c.optional else None
        return Answer(q.text, q.kind, method, self.given(found), result, names, quantiles, missing, ess, draws)

    def _exact(self, i: int, part: AbstractPart) -> np.ndarray | None:
        """The probability of each value of column i, if it is feasible."""
        c = self.schema.columns[i]
        if self.conditional.method != "exact":
            return None
        if not c.size:
            return np.ones(1)
        at = [j for j, other in enumerate(self.schema.columns) if other.size].index(i)
        variables, log_p = list(self.conditional.variables), []
        weights = variables[at].weights
        for v in range(len(weights)):
            if not weights[v]:
                log_p.append(-math.inf)
                continue
            variables[at] = variables[at].only(np.where(np.arange(len(weights)) == v, weights, 0))
            one = Conditional(self.model, variables, context=self.context)
            if one.method != "exact":
                return None
            log_p.append(one.log_p)
        p = np.exp(np.array(log_p) - max(log_p))
        return p / p.sum()


def _mean(found: Weighted, f: np.ndarray, bounded: bool = False) -> Estimate:
    """The weighted mean of f, by the draws' weights; `bounded`: it is a probability.

    The standard error is that of a ratio of two means. The interval of a probability is Wilson's, for as many draws as
    have the standard error, so it is not empty where no draw, or every draw, is of the event.
    """
    w, f = found.w, np.asarray(f, np.float64)
    mean = float(w @ f / w.sum())
    se = float(np.sqrt(w**2 @ (f - mean) ** 2) / w.sum() * np.sqrt(len(w) / (len(w) - 1)))
    if not bounded:
        return Estimate(mean, se, mean - Z * se, mean + Z * se)
    n = min(found.ess, mean * (1 - mean) / se**2) if se > 0 else found.ess
    middle, half = mean + Z**2 / (2 * n), Z * math.sqrt(max(mean * (1 - mean), 0) / n + Z**2 / (4 * n**2))
    low, high = ((middle + side * half) / (1 + Z**2 / n) for side in (-1, 1))
    return Estimate(mean, se, max(low, 0.0), min(high, 1.0))


def _log_normal(log_p: float, relative_variance: float) -> Estimate:
    """A probability whose logarithm has this variance."""
    p, s = min(math.exp(log_p), 1.0), math.sqrt(relative_variance)
    return Estimate(p, p * s, p * math.exp(-Z * s), min(p * math.exp(Z * s), 1.0))
