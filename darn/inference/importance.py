"""-log p(x) by importance sampling, Eq. (16); streaming, per row."""

from collections.abc import Iterable, Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from darn.batching import Numbers, recut, row_keys, row_numbers, rows_within, stream_rows
from darn.devices import everywhere
from darn.errors import InputError
from darn.inference.given import given_context, given_rows
from darn.inference.sampling import as_floats
from darn.inference.summary import Likelihood, Running, Scores, marks, whole
from darn.inference.weights import BLOCK, DRAWS, draw, lots_at_once, settle
from darn.model import Stack

PRECISION = 0.01  # nats


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


@jax.jit
def _keys(key, repeat, numbers):
    return row_keys(jax.random.fold_in(key, repeat), numbers)


def _weigh(model, x, context, keys, done, stop, chunk, sums):
    """The running sums after sample number `stop` of every row; they have those before number `done`."""
    if jax.default_backend() != "cpu":
        return _weigh_in_one(model, x, context, keys, jnp.asarray(stop, jnp.int32), chunk, sums)
    for first in range(done, stop, chunk):  # two programs on a CPU: see `enumeration._accumulate`
        number = np.arange(first, first + chunk, dtype=np.int32)
        parts = _draw_alone(model, x, context, keys, number)
        sums = _add_alone(sums, *parts, number, np.asarray(stop, np.int32))
    return sums


def importance(
    model: Stack,
    x,
    *,
    context=None,
    log_density=None,
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
        log_density: (N,), the density of a table's numbers within their cells, which is added to log p.
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
    if not precision > 0 or (n_samples is not None and n_samples < 1) or repeats < 1:
        raise InputError("the precision must be above 0, n_samples and repeats at least 1")
    x = given_rows(model, x, some=True)
    context = given_context(model, context, len(x))
    parts, own = [(x, context, log_density)], 0 if numbers is None else numbers
    if n_samples is None:
        found = settled_parts(model, parts, len(x), precision, among, seed, rows_at_once, own, progress)
    else:
        found = importance_parts(model, parts, len(x), n_samples, repeats, seed, rows_at_once, own, progress)
    return whole(found, Running("importance", n_samples, repeats))


def settled_parts(
    model: Stack,
    parts: Iterable[tuple],
    n: int,
    precision: float,
    among: float | int | None,
    seed: int,
    rows_at_once: int | None,
    numbers: Numbers,
    progress,
) -> Iterator[Scores]:
    """`importance` to a precision, for rows that come in parts: (x, context, log density)."""
    # With this variance v of every row, the interval 1.96 sqrt(v/N) + v/4 is as wide as requested: see `Running`.
    variance = precision * min(1.0, (among or n) * precision / 2.5**2)
    size = lots_at_once(model, n, rows_at_once)
    start = 0
    for x, context, density in recut(parts, BLOCK):
        own = row_numbers(start, len(x), numbers)
        found = settle(model, x, context=context, variance=variance, seed=seed, numbers=own, size=size)
        start += len(x)
        if progress is not None:
            progress(len(x))
        yield found.checked().with_density(density)


def importance_parts(
    model: Stack,
    parts: Iterable[tuple],
    n: int,
    n_samples: int,
    repeats: int,
    seed: int,
    rows_at_once: int | None,
    numbers: Numbers,
    progress,
) -> Iterator[Scores]:
    """`importance` with S samples, for rows that come in parts: (x, context, log density)."""
    # As much as fits a CPU's cache, or half a gigabyte per array on an accelerator.
    floats = 1 << (21 if jax.default_backend() == "cpu" else 27)
    # Many samples of a row share what depends only on the row, such as the running sums of a large NADE. Atari frames
    # are too large for that, and small models fill the cache with many rows.
    shared = floats // 8 < DRAWS * model.row_floats <= floats
    floats *= 2 if shared else 1
    size = rows_within(
        model.row_floats, n, min(rows_at_once or 100, floats // (DRAWS * model.row_floats) if shared else n)
    )
    # A chunk ends at each of the marks, of which the last but one is a tenth of the samples.
    fits, tenth = max(floats // (model.row_floats * size), 1), max(n_samples // 10, min(n_samples, 8))
    chunk = -(-tenth // -(-tenth // fits))
    key, model = jax.random.key(seed), everywhere(model)

    def weigh(own, bits, side):
        # Nothing here waits for a result, so that the next rows are weighed on another core of a CPU.
        bits, repeated = as_floats(bits), []
        for r in range(repeats):
            keys, zero = _keys(key, np.asarray(r, np.int32), own), np.zeros(len(bits), np.float32)
            sums, done, at = (np.asarray(0, np.int32), zero - np.float32(1e30), zero, zero, zero), 0, []
            for mark in marks(n_samples):
                sums = _weigh(model, bits, side, keys, done, mark, chunk, sums)
                done = mark
                at.append(sums[1] + jnp.log(sums[2]))
            repeated.append((at, sums[2:]))
        return repeated

    def scores(repeated) -> Scores:
        found = []
        for at, sums in repeated:
            total, squares, mean = (np.asarray(v, np.float64) for v in sums)
            logs = [a - np.log(mark) for a, mark in zip(at, marks(n_samples), strict=True)]
            found.append((np.stack(logs, axis=-1), total**2 / squares, mean))
        # (rows, repeats, marks), (rows, repeats), (rows, repeats)
        estimates, ess, bound = jax.tree.map(lambda *v: np.stack(v, axis=1), *found)
        return Scores(estimates[:, :, -1].mean(axis=1), bound.mean(axis=1), ess.mean(axis=1), estimates)

    def done_with(count: int) -> None:
        if progress is not None:
            for _ in range(repeats):
                progress(count)

    found = stream_rows(weigh, size, parts, numbered=True, numbers=numbers, beside=True, progress=done_with)
    return (scores(repeated).checked().with_density(density) for repeated, density in found)
