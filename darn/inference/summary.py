"""The likelihood of many rows in a few numbers, from scores that come in parts."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from darn.batching import join
from darn.errors import DarnError

GROUP = 8192  # values summed at once


def check_finite(*values: np.ndarray | float) -> None:
    """Refuses probabilities that the model's weights have made infinite or NaN."""
    if not all(np.isfinite(v).all() for v in values):
        raise DarnError("the model's weights are so large that its probabilities are not finite: train it again")


class Scores(NamedTuple):
    """Scores of a part of the rows, nats."""

    log_p: np.ndarray  # (rows,)
    bound: np.ndarray  # (rows,) expected description length
    ess: np.ndarray | None = None  # (rows,) effective sample size of one repeat
    estimates: np.ndarray | None = None  # (rows, repeats, marks) log p from the first S/100, S/10, S samples, S given
    # If every row got as many samples as it needed:
    variance: np.ndarray | None = None  # (rows,) of log_p
    correction: np.ndarray | None = None  # (rows,) that was added to log p for its bias
    drawn: np.ndarray | None = None  # (rows,) samples that the estimate is made of
    cut: np.ndarray | None = None  # (rows,) whether the row needs more than the limit
    log_density: np.ndarray | None = None  # (rows,) the part of log_p that is `with_density`

    def checked(self) -> "Scores":
        """The scores, if they are finite.

        Raises:
            DarnError: Some of them are not.
        """
        check_finite(self.log_p, self.bound)
        return self

    def with_density(self, log_density: np.ndarray | None) -> "Scores":
        """The scores of a table's values: of their bits, and of the numbers within the cells that the bits choose.

        Args:
            log_density: (rows,) log p(values | bits), `darn.data.Rows.log_density`; None if the bits determine them.
        """
        if log_density is None:
            return self
        at = None if self.estimates is None else self.estimates + log_density[:, None, None]
        log_p, bound = self.log_p + log_density, self.bound - log_density
        return self._replace(log_p=log_p, bound=bound, estimates=at, log_density=log_density)


@dataclass(frozen=True)
class Summary:
    """The likelihood of rows on average, in nats, and how far to trust it.

    `nll` is the mean of -log p (an estimate unless exact); `bound` is the mean expected description length.
    """

    method: str  # "exact" | "importance"
    rows: int
    nll: float
    bound: float
    rows_ci95: float  # half-width of the interval from the choice of rows
    nll_ci95: float  # half-width of the interval from the estimator's own noise; 0 if exact, infinite if unknown
    n_samples: int = 0  # of each row; if every row has its own number, their mean
    repeats: int = 0
    ess_mean: float | None = None  # effective sample size of one repeat
    ess_min: float | None = None
    at: dict[int, float] = field(default_factory=dict)  # nll from the first S/100, S/10, S samples, if S was given
    least_drawn: int | None = None  # samples of a row, if they were chosen for a precision
    most_drawn: int | None = None
    unsettled: int = 0  # rows that need more samples than the limit: their log p may be too low
    log_density: float | None = None  # the mean density of a table's numbers within their cells, which log p includes

    def summary(self) -> dict:
        """Plain numbers, for JSON."""
        out = {
            "method": self.method,
            "rows": self.rows,
            "nll": self.nll,
            "nll_ci95": self.nll_ci95 if math.isfinite(self.nll_ci95) else None,
            "rows_ci95": self.rows_ci95 if math.isfinite(self.rows_ci95) else None,
            "bound": self.bound,
            "n_samples": self.n_samples,
            "repeats": self.repeats,
        }
        if self.ess_mean is not None:
            out["ess"] = {"mean": self.ess_mean, "min": self.ess_min}
        if self.at:
            out["nll_at"] = {str(s): v for s, v in self.at.items()}
        if self.least_drawn is not None:
            out["drawn"] = {"least": self.least_drawn, "most": self.most_drawn}
            out["unsettled"] = self.unsettled
        if self.log_density is not None:
            out["log_density"] = self.log_density
        return out


class Moments:
    """Mean and variance of values that come in parts, the same for any division into parts.

    Values are taken in groups of `GROUP`, whose means and squared deviations are merged in order.
    """

    def __init__(self):
        self._held: list[np.ndarray] = []
        self._waiting = 0
        self._count, self._mean, self._squares = 0, np.zeros(()), np.zeros(())

    def add(self, values: np.ndarray) -> None:
        """Takes more values, along the first axis."""
        values = np.asarray(values)
        while self._waiting + len(values) >= GROUP:
            rest = GROUP - self._waiting
            self._merge(np.concatenate([*self._held, values[:rest]]))
            self._held, self._waiting, values = [], 0, values[rest:]
        if len(values):
            self._held.append(values)
            self._waiting += len(values)

    def _merge(self, group: np.ndarray) -> None:
        self._count, self._mean, self._squares = self._merged(group)

    def _merged(self, group: np.ndarray) -> tuple[int, np.ndarray, np.ndarray]:
        mean = np.asarray(np.mean(group, axis=0, dtype=np.float64))
        squares = np.sum((group.astype(np.float64) - mean) ** 2, axis=0)
        if not self._count:
            return len(group), mean, squares
        count, apart = self._count + len(group), mean - self._mean
        squares = self._squares + squares + apart**2 * (self._count * len(group) / count)
        return count, self._mean + apart * (len(group) / count), squares

    def _all(self) -> tuple[int, np.ndarray, np.ndarray]:
        if not self._held:
            return self._count, self._mean, self._squares
        return self._merged(np.concatenate(self._held))

    @property
    def count(self) -> int:
        return self._count + self._waiting

    @property
    def mean(self) -> np.ndarray:
        return self._all()[1]

    def std(self, ddof: int = 0) -> np.ndarray:
        """The standard deviation."""
        count, _, squares = self._all()
        return np.sqrt(squares / (count - ddof))


class Running:
    """Takes scores part by part and sums them up: memory does not grow with the rows.

    Args:
        method: how the rows are scored, "exact" or "importance".
        n_samples: importance samples per row; None if every row has its own number.
        repeats: of the estimate, for a given number of samples.
    """

    def __init__(self, method: str, n_samples: int | None = None, repeats: int = 0):
        self.method, self.n_samples, self.repeats = method, n_samples, repeats
        self._log_p, self._bound, self._density, self._ess, self._noise = (Moments() for _ in range(5))
        self._estimates, self._correction, self._drawn = (Moments() for _ in range(3))
        self._least, self._range, self._unsettled = math.inf, (2**62, 0), 0

    def add(self, part: Scores) -> None:
        """Takes the scores of more rows."""
        self._log_p.add(part.log_p)
        self._bound.add(part.bound)
        if part.log_density is not None:
            self._density.add(part.log_density)
        if part.ess is None:
            return
        self._ess.add(part.ess)
        self._least = min(self._least, float(part.ess.min()))
        if part.estimates is not None and self.n_samples is not None:
            # The delta method: var(log mean w) = var(w) / (S mean(w)^2)
            self._noise.add(np.maximum(1 / part.ess - 1 / self.n_samples, 0))
            self._estimates.add(part.estimates)
        if part.variance is not None:
            assert part.correction is not None
            assert part.drawn is not None
            assert part.cut is not None
            self._noise.add(part.variance)
            self._correction.add(part.correction)
            self._drawn.add(part.drawn)
            least, most = self._range
            self._range = min(least, int(part.drawn.min())), max(most, int(part.drawn.max()))
            self._unsettled += int(part.cut.sum())

    def summary(self) -> Summary:
        """The likelihood of the rows so far."""
        n = self._log_p.count
        among = float(1.96 * self._log_p.std(ddof=1) / n**0.5) if n > 1 else math.inf
        means = self.method, n, float(-self._log_p.mean), float(self._bound.mean), among
        density = float(self._density.mean) if self._density.count else None
        if self.method == "exact":
            return Summary(*means, 0.0, log_density=density)
        ess, half = (float(self._ess.mean), self._least), float(1.96 * np.sqrt(self._noise.mean * n) / n)
        if self.n_samples is None:  # the noise, and half of the correction, which is an estimate
            half += float(self._correction.mean) / 2
            drawn = *self._range, self._unsettled
            return Summary(*means, half, round(float(self._drawn.mean)), 1, *ess, {}, *drawn, density)
        each = -self._estimates.mean  # (repeats, marks)
        if self.n_samples == self.repeats == 1:  # one weight says nothing of how much they differ
            half = math.inf
        if self.repeats > 1:
            from scipy.special import stdtrit  # scipy.stats takes a second to import

            half = float(stdtrit(self.repeats - 1, 0.975) * each[:, -1].std(ddof=1) / self.repeats**0.5)
        at = dict(zip(marks(self.n_samples), each.mean(axis=0).tolist()))
        return Summary(*means, half, self.n_samples, self.repeats, *ess, at, log_density=density)


def marks(n_samples: int) -> list[int]:
    """After how many samples the estimate is recorded, to show its bias."""
    return sorted({max(n_samples // 100, 1), max(n_samples // 10, 1), n_samples})


@dataclass(frozen=True)
class Likelihood(Summary):
    """The likelihood of rows, in nats: the summary, and the scores of each row."""

    log_p: np.ndarray = field(kw_only=True)  # (N,) nats
    row_bound: np.ndarray = field(kw_only=True)  # (N,) expected description length of each row, nats
    ess: np.ndarray | None = field(kw_only=True)  # (N,) effective sample size of one repeat
    drawn: np.ndarray | None = field(kw_only=True)  # (N,) samples of each row, if they were chosen for a precision


def whole(parts: Iterator[Scores], running: Running) -> Likelihood:
    """The scores of all rows, held in memory."""
    found = []
    for part in parts:
        running.add(part)
        found.append(part._replace(estimates=None))
    rows = join(found)
    sides = {"row_bound": rows.bound, "ess": rows.ess, "drawn": rows.drawn}
    return Likelihood(**vars(running.summary()), log_p=rows.log_p, **sides)
