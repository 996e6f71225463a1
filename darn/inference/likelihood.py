"""-log p(x): exactly by enumerating the code, or by importance sampling, Eq. (16); streaming, per row."""

import math
from dataclasses import dataclass, field, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from darn.batching import map_rows, row_keys, rows_within
from darn.errors import DarnError, InputError
from darn.inference.sampling import as_floats
from darn.inference.weights import draw, lots_at_once, settle
from darn.model import Stack

EXACT_LIMIT = 16  # the most stochastic units that `evaluate` enumerates, as in the paper
FEW = 512  # about as many codes as the samples that a row gets
PRECISION = 0.01  # nats
MAX_ENUMERATED = 30  # the most that `exact` enumerates: beyond this the sum takes years


@dataclass(frozen=True)
class Likelihood:
    """The likelihood of rows, in nats, and how far to trust it.

    `nll` is the mean of -log p (an estimate unless exact); `bound` is the mean expected description length.
    """

    method: str  # "exact" | "importance"
    log_p: np.ndarray  # (N,) nats
    row_bound: np.ndarray  # (N,) expected description length of each row, nats
    nll_ci95: float  # half-width of the interval from the estimator's own noise; 0 if exact
    n_samples: int = 0  # of each row; if every row has its own number, their mean
    repeats: int = 0
    ess: np.ndarray | None = None  # (N,) effective sample size of one repeat
    at: dict[int, float] = field(default_factory=dict)  # nll from the first S/100, S/10, S samples, if S was given
    drawn: np.ndarray | None = None  # (N,) samples of each row, if they were chosen for a precision
    unsettled: int = 0  # rows that need more samples than the limit: their log p may be too low

    @property
    def nll(self) -> float:
        return float(-np.mean(self.log_p, dtype=np.float64))

    @property
    def bound(self) -> float:
        return float(np.mean(self.row_bound, dtype=np.float64))

    @property
    def rows_ci95(self) -> float:
        """Half-width of the interval from the choice of rows."""
        n = len(self.log_p)
        return float(1.96 * np.std(self.log_p, dtype=np.float64, ddof=1) / n**0.5) if n > 1 else math.inf

    def with_density(self, log_density: np.ndarray | None) -> "Likelihood":
        """The likelihood of a table's values: of their bits, and of the numbers within the cells that the bits choose.

        Args:
            log_density: (N,) log p(values | bits), `darn.data.Rows.log_density`; None if the bits determine them.
        """
        if log_density is None:
            return self
        at = {s: v - float(np.mean(log_density)) for s, v in self.at.items()}
        return replace(self, log_p=self.log_p + log_density, row_bound=self.row_bound - log_density, at=at)

    def summary(self) -> dict:
        """Plain numbers, for JSON."""
        out = {
            "method": self.method,
            "rows": len(self.log_p),
            "nll": self.nll,
            "nll_ci95": self.nll_ci95,
            "rows_ci95": self.rows_ci95 if math.isfinite(self.rows_ci95) else None,
            "bound": self.bound,
            "n_samples": self.n_samples,
            "repeats": self.repeats,
        }
        if self.ess is not None:
            out["ess"] = {"mean": float(self.ess.mean()), "min": float(self.ess.min())}
        if self.at:
            out["nll_at"] = {str(s): v for s, v in self.at.items()}
        if self.drawn is not None:
            out["drawn"] = {"least": int(self.drawn.min()), "most": int(self.drawn.max())}
            out["unsettled"] = self.unsettled
        return out


def method_for(model: Stack) -> str:
    """The method that `evaluate` uses for a model: "exact" or "importance"; the cheaper one, by counted work.

    Codes are enumerated if they are fewer than the samples that would be drawn. If the visible layer is linear in its
    code, 2^16 are cheap, too: what depends on the row, or on the code, is then computed once for all pairs of them. A
    NADE multiplies its hidden units for every pair, and gets as many codes fewer.
    """
    layer = model.decoder[0].layer
    try:
        each = layer.work(np.ones(layer.n, np.float32), None).multiplied / layer.n
    except InputError:  # its work cannot be counted
        each = math.inf
    return "exact" if 2 ** sum(model.n_h) <= max(2**EXACT_LIMIT / (1 + each), FEW) else "importance"


def evaluate(
    model: Stack,
    x,
    *,
    context=None,
    precision: float = PRECISION,
    n_samples: int | None = None,
    repeats: int = 10,
    seed: int = 0,
    rows_at_once: int | None = None,
    progress=None,
) -> "Likelihood":
    """Scores rows: exactly if the codes are few enough (see `method_for`), otherwise by importance sampling.

    Args:
        model: any stack.
        x: (N, n_x) of 0 and 1, or of intensities if the visible layer is factorial.
        context: (N, n_context), for a model that was trained with one.
        precision: half-width of the 95% interval of -log p, nats; every row gets the samples it needs.
        n_samples: importance samples per row, instead of a precision.
        repeats: how often an estimate with `n_samples` is repeated, for its interval.
        seed: of the importance samples.
        rows_at_once: the most rows in one program; None chooses a fast size.
        progress: called with the number of rows done after each program.

    Returns:
        -log p and bound, by row and on average.
    """
    options = {"context": context, "rows_at_once": rows_at_once, "progress": progress}
    if method_for(model) == "exact":
        return exact(model, x, **options)
    return importance(model, x, precision=precision, n_samples=n_samples, repeats=repeats, seed=seed, **options)


def _checked(model: Stack, x) -> None:
    if np.ndim(x) != 2 or np.shape(x)[1] != model.n_x:
        raise DarnError(f"rows to score must have shape (N, {model.n_x}), like the model's own, not {np.shape(x)}")
    if not len(x):
        raise DarnError("there are no rows to score")


# ---------------------------------------------------------------- exact


@eqx.filter_jit
def _table(model, x, context, first, chunk):
    """log p and log q by layer, (rows, codes) each, for the codes from number `first` on."""
    sizes = np.cumsum(model.n_h)[:-1]
    n = sum(model.n_h)

    def pair(x, context, code):
        h = tuple(jnp.split(code, sizes)) if n else ()
        return model.log_p_layers(x, h, context), model.log_q_layers(x, h, context)

    number = first + jnp.arange(chunk)
    codes = ((number[:, None] >> jnp.arange(n - 1, -1, -1)[None]) & 1).astype(x.dtype)
    # Nested vmaps: what depends only on the code is computed once for all rows, and vice versa.
    return jax.vmap(jax.vmap(pair, (None, None, 0)), (0, 0, None))(x, context, codes)


@jax.jit
def _accumulate(sums, log_p, log_q):
    # A separate program: with this sum inside, `_table` ran eight times slower on a CPU (100 rows, 512 codes, 784
    # units, jaxlib 0.10.2), for reasons unknown. The size limit in `exact` was also found by trial.
    top, total, bound = sums
    log_p, log_q = sum(log_p), sum(log_q, start=jnp.zeros(()))
    new = jnp.maximum(top, jnp.max(log_p, axis=1))
    total = total * jnp.exp(top - new) + jnp.sum(jnp.exp(log_p - new[:, None]), axis=1)
    return new, total, bound + jnp.sum(jnp.exp(log_q) * (log_q - log_p), axis=1)


def exact(model: Stack, x, *, context=None, rows_at_once: int | None = None, progress=None) -> Likelihood:
    """-log p(x) = -log sum_h p(x,h) and the expected bound, by enumerating the codes.

    Memory is bounded by one table of rows by codes, however large 2^n_h is.

    Args:
        model: a stack with at most 30 stochastic units.
        x: (N, n_x) of 0 and 1, or of intensities if the visible layer is factorial.
        context: (N, n_context), for a model that was trained with one.
        rows_at_once: the most rows in a table; None chooses a fast size.
        progress: called with the number of rows done after each table.

    Returns:
        -log p and bound, by row and on average.
    """
    _checked(model, x)
    n = sum(model.n_h)
    if n > MAX_ENUMERATED:
        raise DarnError(f"the model has {n} stochastic units, too many to sum 2^{n} codes: use importance sampling")
    floats = 1 << (24 if jax.default_backend() == "cpu" else 28)  # logits at once; a CPU slows down beyond this
    pairs = max(floats // model.row_floats, 1)
    codes = 2 ** min(n, int(math.log2(pairs)) // 2 + 1)  # about as many codes as rows
    size = rows_within(codes * model.row_floats, len(x), rows_at_once or len(x), floats)

    def table(x, context):
        x, sums = as_floats(x), (jnp.full(size, -1e30), jnp.zeros(size), jnp.zeros(size))
        for first in range(0, 2**n, codes):
            sums = _accumulate(sums, *_table(model, x, context, jnp.asarray(first), codes))
        return sums[0] + jnp.log(sums[1]), sums[2]

    log_p, bound = map_rows(table, len(x), size, x, context, progress=progress)
    return Likelihood("exact", log_p, bound, 0.0)


# ---------------------------------------------------------------- importance sampling


def _add(sums, log_p, log_q, number, stop):
    """Adds the samples numbered below `stop` to each row's running sums of the weights w = p(x,h)/q(h|x)."""
    drawn, top, total, squares, bound = sums
    log_w = sum(log_p) - sum(log_q, start=jnp.zeros(()))
    valid = (number < stop)[None]
    masked = jnp.where(valid, log_w, -jnp.inf)
    new = jnp.maximum(top, jnp.max(masked, axis=1))
    shrink, w = jnp.exp(top - new), jnp.exp(masked - new[:, None])
    total = total * shrink + jnp.sum(w, axis=1)
    squares = squares * shrink**2 + jnp.sum(w * w, axis=1)
    end = jnp.minimum(drawn + len(number), stop)
    count = (end - drawn).astype(log_w.dtype)
    mean = jnp.sum(jnp.where(valid, -log_w, 0), axis=1) / count
    bound = bound + (mean - bound) * (count / end.astype(log_w.dtype))  # a running mean: a sum outgrows float32
    return end, new, total, squares, bound


@eqx.filter_jit
def _weigh_in_one(model, x, context, keys, stop, chunk, sums):
    def body(sums):
        number = sums[0] + jnp.arange(chunk)
        return _add(sums, *draw(model, x, context, keys, number), number, stop)

    return lax.while_loop(lambda sums: sums[0] < stop, body, sums)


_draw_alone, _add_alone = eqx.filter_jit(draw), jax.jit(_add)


def _weigh(model, x, context, keys, stop, chunk, sums):
    """The running sums after sample number `stop` of every row."""
    if jax.default_backend() != "cpu":
        return _weigh_in_one(model, x, context, keys, jnp.asarray(stop, jnp.int32), chunk, sums)
    while sums[0] < stop:  # two programs on a CPU: see `_accumulate`
        number = sums[0] + jnp.arange(chunk)
        parts = _draw_alone(model, x, context, keys, number)
        sums = _add_alone(sums, *parts, number, jnp.asarray(stop, jnp.int32))
    return sums


def importance(
    model: Stack,
    x,
    *,
    context=None,
    precision: float = PRECISION,
    among: float | int | None = None,
    n_samples: int | None = None,
    repeats: int = 10,
    seed: int = 0,
    rows_at_once: int | None = None,
    numbers: np.ndarray | None = None,
    progress=None,
) -> Likelihood:
    """-log p(x) by Eq. (16), from samples of q(H|x): as many as a precision needs, or S per row, repeated R times.

    With S samples, the estimate of log p is too low on average (Jensen), the more so the fewer samples. The interval
    over repeats shows its noise, not this bias; the effective sample size and the values at S/100 and S/10 show the
    bias.

    For a precision, each row gets the samples that its own weights need (`weights.settle`), the leading bias is
    corrected, and the interval covers both the noise and half of that correction. Rows that need more than 8,192
    samples are `unsettled`: their log p may be too low, and the interval too narrow.

    Args:
        model: any stack.
        x: (N, n_x), as for `exact`.
        context: (N, n_context), for a model that was trained with one.
        precision: half-width of the 95% interval of the mean -log p, nats, and the most variance of a row.
        among: the number of rows that the mean is over; None means N, infinity that rows do not depend on their number.
        n_samples: S, instead of a precision.
        repeats: R, for a given S.
        seed: of the samples. A row's samples depend only on the seed and the row's number.
        rows_at_once: the most rows in one program; None chooses a fast size.
        numbers: (N,) uint32, the rows' numbers; None numbers them by position.
        progress: called with the number of rows done after each program, for every repeat.

    Returns:
        -log p and bound, by row and on average.
    """
    _checked(model, x)
    if n_samples is None:
        numbers = np.arange(len(x), dtype=np.uint32) if numbers is None else numbers
        # With this variance v of every row, the interval 1.96 sqrt(v/N) + v/4 is as wide as requested: see `ci95`.
        variance = precision * min(1.0, (among or len(x)) * precision / 2.5**2)
        size = lots_at_once(model, len(x), rows_at_once)
        options = {"context": context, "numbers": numbers, "size": size, "progress": progress}
        found = settle(model, x, variance=variance, seed=seed, **options)
        drawn = {"drawn": found.drawn, "unsettled": int(found.cut.sum())}
        S = round(found.drawn.mean())
        return Likelihood("importance", found.log_p, found.bound, found.ci95, S, 1, found.ess, **drawn)
    # As much as fits a CPU's cache, or half a gigabyte per array on an accelerator.
    floats = 1 << (21 if jax.default_backend() == "cpu" else 27)
    # Four samples of a row share what depends only on the row, such as a NADE's running sums: 1.5 times as fast. Atari
    # frames are too large for that; there, many rows at once are better.
    fours = floats // (4 * model.row_floats)
    size = rows_within(model.row_floats, len(x), min(rows_at_once or 100, fours if fours >= 8 else len(x)))
    chunk = max(min(floats // (model.row_floats * size), n_samples), 1)
    marks = sorted({max(n_samples // 100, 1), max(n_samples // 10, 1), n_samples})

    def weigh(start, bits, side, own):
        bits, repeated = as_floats(bits), []
        for r in range(repeats):
            key = jax.random.fold_in(jax.random.key(seed), r)
            fold = jax.vmap(jax.random.fold_in, (None, 0))
            keys = row_keys(key, start, size) if own is None else fold(key, jnp.asarray(own))
            zero = jnp.zeros(size)
            sums, at = (jnp.asarray(0, jnp.int32), jnp.full(size, -1e30), zero, zero, zero), []
            for mark in marks:
                sums = _weigh(model, bits, side, keys, mark, chunk, sums)
                at.append(np.asarray(sums[1] + jnp.log(sums[2])) - np.log(mark))
            total, squares, mean = (np.asarray(v, np.float64) for v in sums[2:])
            repeated.append((np.stack(at, axis=-1), total**2 / squares, mean))
            if progress is not None:
                progress(min(size, len(x) - start))
        return jax.tree.map(lambda *v: np.stack(v, axis=1), *repeated)

    # (N, R, marks), (N, R), (N, R)
    estimates, ess, bound = map_rows(weigh, len(x), size, x, context, numbers, numbered=True)
    estimates, ess, bound = estimates.transpose(1, 2, 0), ess.mean(axis=1), bound.mean(axis=1)
    each = -estimates[:, -1].mean(axis=1)  # the nll of every repeat
    if repeats > 1:
        from scipy.special import stdtrit  # scipy.stats takes a second to import

        half = stdtrit(repeats - 1, 0.975) * each.std(ddof=1) / repeats**0.5
    else:  # one repeat: the delta method, var(log mean w) = var(w) / (S mean(w)^2)
        half = 1.96 * np.sqrt(np.sum(np.maximum(1 / ess - 1 / n_samples, 0))) / len(x)
    at = {int(s): float(-estimates[:, i].mean()) for i, s in enumerate(marks)}
    return Likelihood("importance", estimates[:, -1].mean(axis=0), bound, float(half), n_samples, repeats, ess, at)
