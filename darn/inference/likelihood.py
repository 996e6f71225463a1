"""-log p(x): exactly by enumerating the code, or by importance sampling, Eq. (16); streaming, per row."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from darn.batching import join, row_keys, rows_within, stream_rows
from darn.errors import DarnError
from darn.inference.sampling import as_floats
from darn.inference.summary import Running, Scores, Summary, marks
from darn.model import Stack

EXACT_LIMIT = 16  # the most stochastic units that `evaluate` enumerates, as in the paper
MAX_ENUMERATED = 30  # the most that `exact` enumerates: beyond this the sum takes years

Parts = Iterable[tuple]  # (x, context or None) of consecutive rows
Progress = Callable[[int], object]


@dataclass(frozen=True)
class Likelihood(Summary):
    """The likelihood of rows, in nats: the summary, and the scores of each row."""

    log_p: np.ndarray = field(kw_only=True)  # (N,) nats
    row_bound: np.ndarray = field(kw_only=True)  # (N,) expected description length of each row, nats
    ess: np.ndarray | None = field(kw_only=True)  # (N,) effective sample size of one repeat


def method_for(model: Stack) -> str:
    """The method that `evaluate` uses for a model: "exact" or "importance"."""
    return "exact" if sum(model.n_h) <= EXACT_LIMIT else "importance"


def evaluate(
    model: Stack,
    x,
    *,
    context=None,
    n_samples: int = 1000,
    repeats: int = 10,
    seed: int = 0,
    rows_at_once: int | None = None,
    progress=None,
) -> "Likelihood":
    """Scores rows: exactly if the model has at most 16 stochastic units, otherwise by importance sampling.

    Args:
        model: any stack.
        x: (N, n_x) of 0 and 1, or of intensities if the visible layer is factorial.
        context: (N, n_context), for a model that was trained with one.
        n_samples: importance samples per row.
        repeats: how often the estimate is repeated, for its interval.
        seed: of the importance samples.
        rows_at_once: the most rows in one program; None chooses a fast size.
        progress: called with the number of rows done after each program.

    Returns:
        -log p and bound, by row and on average.
    """
    options = {"context": context, "rows_at_once": rows_at_once, "progress": progress}
    if method_for(model) == "exact":
        return exact(model, x, **options)
    return importance(model, x, n_samples=n_samples, repeats=repeats, seed=seed, **options)


def score_parts(
    model: Stack,
    parts: Parts,
    n: int,
    *,
    method: str,
    n_samples: int = 1000,
    repeats: int = 10,
    seed: int = 0,
    progress: Progress | None = None,
) -> Iterator[Scores]:
    """Scores rows that come in parts, in memory that does not grow with their number.

    The scores are those of `exact` and `importance`, whatever the parts; `summary.Running` sums them up.

    Args:
        model: any stack.
        parts: (x, context) of consecutive rows, context None for a model without one.
        n: the number of rows.
        method: "exact" or "importance".
        n_samples: importance samples per row.
        repeats: how often the estimate is repeated.
        seed: of the importance samples.
        progress: called with the number of rows done after each program.

    Yields:
        The scores of consecutive rows.
    """
    if method == "exact":
        return _exact_parts(model, parts, n, None, progress)
    numbered = ((*part, None) for part in parts)
    return _importance_parts(model, numbered, n, n_samples, repeats, seed, None, progress)


def _checked(model: Stack, x) -> None:
    if np.ndim(x) != 2 or np.shape(x)[1] != model.n_x:
        raise DarnError(f"rows to score must have shape (N, {model.n_x}), like the model's own, not {np.shape(x)}")
    if not len(x):
        raise DarnError("there are no rows to score")


def _whole(parts: Iterator[Scores], running: Running) -> Likelihood:
    """The scores of all rows in memory."""
    found = []
    for part in parts:
        running.add(part)
        found.append(part._replace(estimates=None))
    log_p, bound, ess, _ = join(found)
    return Likelihood(**vars(running.summary()), log_p=log_p, row_bound=bound, ess=ess)


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
    return _whole(_exact_parts(model, [(x, context)], len(x), rows_at_once, progress), Running("exact"))


def _exact_parts(model: Stack, parts: Parts, rows: int, rows_at_once: int | None, progress) -> Iterator[Scores]:
    n = sum(model.n_h)
    if n > MAX_ENUMERATED:
        raise DarnError(f"the model has {n} stochastic units, too many to sum 2^{n} codes: use importance sampling")
    floats = 1 << (24 if jax.default_backend() == "cpu" else 28)  # logits at once; a CPU slows down beyond this
    pairs = max(floats // model.row_floats, 1)
    codes = 2 ** min(n, int(math.log2(pairs)) // 2 + 1)  # about as many codes as rows
    size = rows_within(codes * model.row_floats, rows, rows_at_once or rows, floats)

    def table(x, context):
        x, sums = as_floats(x), (jnp.full(size, -1e30), jnp.zeros(size), jnp.zeros(size))
        for first in range(0, 2**n, codes):
            sums = _accumulate(sums, *_table(model, x, context, jnp.asarray(first), codes))
        return sums[0] + jnp.log(sums[1]), sums[2]

    return (Scores(*found) for found in stream_rows(table, size, parts, progress=progress))


# ---------------------------------------------------------------- importance sampling


def _draw(model, x, context, keys, number):
    """log p and log q by layer, (rows, samples) each, for the samples with these numbers."""

    def one(key, x, context, i):
        h = model.encode(x, context, key=jax.random.fold_in(key, i))
        return model.log_p_layers(x, h, context), model.log_q_layers(x, h, context)

    return jax.vmap(jax.vmap(one, (None, None, None, 0)), (0, 0, 0, None))(keys, x, context, number)


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
        return _add(sums, *_draw(model, x, context, keys, number), number, stop)

    return lax.while_loop(lambda sums: sums[0] < stop, body, sums)


_draw_alone, _add_alone = eqx.filter_jit(_draw), jax.jit(_add)


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
    n_samples: int = 1000,
    repeats: int = 10,
    seed: int = 0,
    rows_at_once: int | None = None,
    numbers: np.ndarray | None = None,
    progress=None,
) -> Likelihood:
    """-log p(x) by Eq. (16), with S samples of q(H|x) per row, repeated R times.

    The estimate of log p is too low on average (Jensen), the more so the fewer samples. The interval over repeats shows
    its noise, not this bias; the effective sample size and the values at S/100 and S/10 show the bias.

    Args:
        model: any stack.
        x: (N, n_x), as for `exact`.
        context: (N, n_context), for a model that was trained with one.
        n_samples: S.
        repeats: R.
        seed: of the samples. A row's samples depend only on the seed and the row's number.
        rows_at_once: the most rows in one program; None means 100.
        numbers: (N,) uint32, the rows' numbers; None numbers them by position.
        progress: called with the number of rows done after each program.

    Returns:
        -log p and bound, by row and on average.
    """
    _checked(model, x)
    options = n_samples, repeats, seed, rows_at_once, progress
    parts = _importance_parts(model, [(x, context, numbers)], len(x), *options)
    return _whole(parts, Running("importance", n_samples, repeats))


def _importance_parts(
    model: Stack, parts: Iterable[tuple], n: int, n_samples: int, repeats: int, seed: int, rows_at_once, progress
) -> Iterator[Scores]:
    """`parts` are (x, context, numbers)."""
    # As much as fits a CPU's cache, or half a gigabyte per array on an accelerator.
    floats = 1 << (21 if jax.default_backend() == "cpu" else 27)
    # Four samples of a row share what depends only on the row, such as a NADE's running sums: 1.5 times as fast. Atari
    # frames are too large for that; there, many rows at once are better.
    fours = floats // (4 * model.row_floats)
    size = rows_within(model.row_floats, n, min(rows_at_once or 100, fours if fours >= 8 else n))
    chunk = max(min(floats // (model.row_floats * size), n_samples), 1)
    left = n

    def weigh(start, bits, side, own):
        nonlocal left
        bits, repeated = as_floats(bits), []
        for r in range(repeats):
            key = jax.random.fold_in(jax.random.key(seed), r)
            fold = jax.vmap(jax.random.fold_in, (None, 0))
            keys = row_keys(key, start, size) if own is None else fold(key, jnp.asarray(own))
            zero = jnp.zeros(size)
            sums, at = (jnp.asarray(0, jnp.int32), jnp.full(size, -1e30), zero, zero, zero), []
            for mark in marks(n_samples):
                sums = _weigh(model, bits, side, keys, mark, chunk, sums)
                at.append(np.asarray(sums[1] + jnp.log(sums[2])) - np.log(mark))
            total, squares, mean = (np.asarray(v, np.float64) for v in sums[2:])
            repeated.append((np.stack(at, axis=-1), total**2 / squares, mean))
            if progress is not None:
                progress(min(size, left))
        left -= size
        # (rows, repeats, marks), (rows, repeats), (rows, repeats)
        estimates, ess, bound = jax.tree.map(lambda *v: np.stack(v, axis=1), *repeated)
        return Scores(estimates[:, :, -1].mean(axis=1), bound.mean(axis=1), ess.mean(axis=1), estimates)

    return stream_rows(weigh, size, parts, numbered=True)
