"""-log p(x): exactly by enumerating the code, or by importance sampling, Eq. (16); streaming, per row."""

import math
from dataclasses import dataclass, field

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy import stats

from darn.batching import chunks, pad_rows, row_keys
from darn.errors import DarnError
from darn.model import Stack

EXACT_LIMIT = 16  # stochastic units that `evaluate` enumerates unasked, as in the paper
MAX_ENUMERATED = 30  # beyond this the sum is a matter of years


@dataclass(frozen=True)
class Likelihood:
    """The likelihood of rows, in nats, and how far to trust it.

    `nll` is -log p (an estimate unless exact), `bound` the expected description length: never one for the other.
    """

    method: str  # "exact" | "importance"
    log_p: np.ndarray  # (N,) nats
    row_bound: np.ndarray  # (N,) expected description length of each row, nats
    nll_ci95: float  # half-width from the estimator's own noise; 0 when exact
    n_samples: int = 0
    repeats: int = 0
    ess: np.ndarray | None = None  # (N,) effective sample size of one repeat
    at: dict[int, float] = field(default_factory=dict)  # nll from the first S/100, S/10, S samples

    @property
    def nll(self) -> float:
        return float(-np.mean(self.log_p, dtype=np.float64))

    @property
    def bound(self) -> float:
        return float(np.mean(self.row_bound, dtype=np.float64))

    @property
    def rows_ci95(self) -> float:
        """Half-width from having seen these rows and not others."""
        n = len(self.log_p)
        return float(1.96 * np.std(self.log_p, dtype=np.float64, ddof=1) / n**0.5) if n > 1 else math.inf

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
            out["nll_at"] = {str(s): v for s, v in self.at.items()}
        return out


def method_for(model: Stack) -> str:
    """The name of the function that suits a model when nobody asks for one."""
    return "exact" if sum(model.n_h) <= EXACT_LIMIT else "importance"


def evaluate(model: Stack, x, *, context=None, n_samples: int = 1000, repeats: int = 10, seed: int = 0, **options):
    """Exact where the code is small enough (or there is none), else importance sampling."""
    if method_for(model) == "exact":
        return exact(model, x, context=context, **options)
    return importance(model, x, context=context, n_samples=n_samples, repeats=repeats, seed=seed, **options)


def _some(x) -> None:
    if not len(x):
        raise DarnError("there are no rows to score")


def _rows(x, context, start, count, size):
    rows = jnp.asarray(pad_rows(x[start : start + count], size), jnp.float32)
    side = None if context is None else jnp.asarray(pad_rows(context[start : start + count], size))
    return rows, side


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
    # Rows outside, codes inside: what depends on the code alone is computed once for all rows, and the other way.
    return jax.vmap(jax.vmap(pair, (None, None, 0)), (0, 0, None))(x, context, codes)


@jax.jit
def _accumulate(sums, log_p, log_q):
    # A program of its own: with this sum in it, `_table` ran eight times slower on a CPU (100 rows, 512 codes, 784
    # units, jaxlib 0.10.2). Why is not known; the limit on its size in `exact` was found by trying, too.
    top, total, bound = sums
    log_p, log_q = sum(log_p), sum(log_q, start=jnp.zeros(()))
    new = jnp.maximum(top, jnp.max(log_p, axis=1))
    total = total * jnp.exp(top - new) + jnp.sum(jnp.exp(log_p - new[:, None]), axis=1)
    return new, total, bound + jnp.sum(jnp.exp(log_q) * (log_q - log_p), axis=1)


def exact(model: Stack, x, *, context=None, progress=None) -> Likelihood:
    """-log p(x) = -log sum_h p(x,h) and the expected bound, by enumeration. x: (N, n_x) of 0/1 or intensities.

    Memory is that of the layers over one table of rows by codes, whatever 2^n_h is.
    """
    _some(x)
    n = sum(model.n_h)
    if n > MAX_ENUMERATED:
        raise DarnError(f"the model has {n} stochastic units: 2^{n} codes cannot be summed; use importance sampling")
    floats = 1 << (24 if jax.default_backend() == "cpu" else 28)  # logits at once; a CPU slows down beyond this
    pairs = max(floats // model.width, 1)
    chunk = 2 ** min(n, int(math.log2(pairs)) // 2 + 1)  # about as many codes as rows
    size = max(min(pairs // chunk, len(x)), 1)
    log_p, bound = [], []
    for start, count in chunks(len(x), size):
        rows = _rows(x, context, start, count, size)
        sums = (jnp.full(size, -1e30), jnp.zeros(size), jnp.zeros(size))
        for first in range(0, 2**n, chunk):
            sums = _accumulate(sums, *_table(model, *rows, jnp.asarray(first), chunk))
        log_p.append(np.asarray(sums[0] + jnp.log(sums[1]))[:count])
        bound.append(np.asarray(sums[2])[:count])
        if progress is not None:
            progress(count)
    return Likelihood("exact", np.concatenate(log_p), np.concatenate(bound), 0.0)


# ---------------------------------------------------------------- importance sampling


def _draw(model, x, context, keys, number):
    """log p and log q by layer, (rows, samples) each, of the samples with these numbers."""

    def one(key, x, context, i):
        h = model.encode(x, context, key=jax.random.fold_in(key, i))
        return model.log_p_layers(x, h, context), model.log_q_layers(x, h, context)

    return jax.vmap(jax.vmap(one, (None, None, None, 0)), (0, 0, 0, None))(keys, x, context, number)


def _add(sums, log_p, log_q, number, goal):
    """Adds the samples numbered below `goal` to each row's running sums of the weights w = p(x,h)/q(h|x)."""
    drawn, top, total, squares, bound = sums
    log_w = sum(log_p) - sum(log_q, start=jnp.zeros(()))
    valid = (number < goal)[None]
    masked = jnp.where(valid, log_w, -jnp.inf)
    new = jnp.maximum(top, jnp.max(masked, axis=1))
    shrink, w = jnp.exp(top - new), jnp.exp(masked - new[:, None])
    total = total * shrink + jnp.sum(w, axis=1)
    squares = squares * shrink**2 + jnp.sum(w * w, axis=1)
    end = jnp.minimum(drawn + len(number), goal)
    count = (end - drawn).astype(log_w.dtype)
    mean = jnp.sum(jnp.where(valid, -log_w, 0), axis=1) / count
    bound = bound + (mean - bound) * (count / end.astype(log_w.dtype))  # a running mean: a sum outgrows float32
    return end, new, total, squares, bound


@eqx.filter_jit
def _weigh_in_one(model, x, context, keys, goal, chunk, sums):
    def body(sums):
        number = sums[0] + jnp.arange(chunk)
        return _add(sums, *_draw(model, x, context, keys, number), number, goal)

    return lax.while_loop(lambda sums: sums[0] < goal, body, sums)


_draw_alone, _add_alone = eqx.filter_jit(_draw), jax.jit(_add)


def _weigh(model, x, context, keys, goal, chunk, sums):
    """The running sums after sample number `goal` of every row."""
    if jax.default_backend() != "cpu":
        return _weigh_in_one(model, x, context, keys, jnp.asarray(goal, jnp.int32), chunk, sums)
    while sums[0] < goal:  # two programs on a CPU: see `_accumulate`
        number = sums[0] + jnp.arange(chunk)
        parts = _draw_alone(model, x, context, keys, number)
        sums = _add_alone(sums, *parts, number, jnp.asarray(goal, jnp.int32))
    return sums


def importance(
    model: Stack,
    x,
    *,
    context=None,
    n_samples: int = 1000,
    repeats: int = 10,
    seed: int = 0,
    rows_at_once: int = 100,
    numbers: np.ndarray | None = None,
    progress=None,
) -> Likelihood:
    """-log p(x) by Eq. (16) with S samples of q(H|x) a row, repeated R times.

    The samples of a row follow from the seed and its number: its place, or what `numbers` (uint32) says.

    The estimate of log p is low in the mean (Jensen), the more so the fewer samples: the interval over repeats shows
    noise, not this bias. The effective sample size and the values at S/100 and S/10 show it.
    """
    _some(x)
    # At once: what fits a CPU's cache, or half a gigabyte an array on an accelerator.
    floats = 1 << (21 if jax.default_backend() == "cpu" else 27)
    # Four samples of a row share what depends on the row alone, as a NADE's running sums: 1.5 times as fast. Frames of
    # a game are too wide for that; there many rows are better than few.
    fours = floats // (4 * model.width)
    size = max(min(rows_at_once, len(x), fours if fours >= 8 else (1 << 28) // model.width), 1)
    chunk = max(min(floats // (model.width * size), n_samples), 1)
    marks = sorted({max(n_samples // 100, 1), max(n_samples // 10, 1), n_samples})
    estimates = np.zeros((repeats, len(marks), len(x)))
    bound, ess = np.zeros(len(x)), np.zeros(len(x))
    for start, count in chunks(len(x), size):
        here = slice(start, start + count)
        rows, side = _rows(x, context, start, count, size)
        for r in range(repeats):
            key = jax.random.fold_in(jax.random.key(seed), r)
            own = None if numbers is None else jnp.asarray(pad_rows(numbers[here], size))
            keys = row_keys(key, start, size) if own is None else jax.vmap(jax.random.fold_in, (None, 0))(key, own)
            zero = jnp.zeros(size)
            carry = (jnp.asarray(0, jnp.int32), jnp.full(size, -1e30), zero, zero, zero)
            for i, goal in enumerate(marks):
                carry = _weigh(model, rows, side, keys, goal, chunk, carry)
                estimates[r, i, here] = np.asarray(carry[1] + jnp.log(carry[2]))[:count] - np.log(goal)
            total, squares, mean = (np.asarray(v, np.float64)[:count] for v in carry[2:])
            ess[here] += total**2 / squares / repeats
            bound[here] += mean / repeats
            if progress is not None:
                progress(count)
    each = -estimates[:, -1].mean(axis=1)  # the nll of every repeat
    if repeats > 1:
        half = stats.t.ppf(0.975, repeats - 1) * each.std(ddof=1) / repeats**0.5
    else:  # one repeat: the delta method, var(log mean w) = var(w) / (S mean(w)^2)
        half = 1.96 * np.sqrt(np.sum(np.maximum(1 / ess - 1 / n_samples, 0))) / len(x)
    at = {int(s): float(-estimates[:, i].mean()) for i, s in enumerate(marks)}
    return Likelihood("importance", estimates[:, -1].mean(axis=0), bound, float(half), n_samples, repeats, ess, at)
