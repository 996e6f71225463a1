"""-log p(x): exactly by enumerating the code, or by importance sampling, Eq. (16); streaming, per row."""

import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from darn.batching import join, recut, row_keys, row_numbers, rows_within, stream_rows
from darn.devices import Devices, everywhere, using
from darn.errors import DarnError, InputError
from darn.inference.sampling import as_floats
from darn.inference.summary import Running, Scores, Summary, marks
from darn.inference.weights import BLOCK, DRAWS, draw, lots_at_once, settle
from darn.model import Stack

EXACT_LIMIT = 16  # the most stochastic units that `evaluate` enumerates, as in the paper
FEW = 512  # about as many codes as the samples that a row gets
PRECISION = 0.01  # nats
MAX_ENUMERATED = 30  # the most that `exact` enumerates: beyond this the sum takes years

Parts = Iterable[tuple]  # (x, context or None, log density or None) of consecutive rows
Progress = Callable[[int], object]


@dataclass(frozen=True)
class Likelihood(Summary):
    """The likelihood of rows, in nats: the summary, and the scores of each row."""

    log_p: np.ndarray = field(kw_only=True)  # (N,) nats
    row_bound: np.ndarray = field(kw_only=True)  # (N,) expected description length of each row, nats
    ess: np.ndarray | None = field(kw_only=True)  # (N,) effective sample size of one repeat
    drawn: np.ndarray | None = field(kw_only=True)  # (N,) samples of each row, if they were chosen for a precision


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
    log_density=None,
    precision: float = PRECISION,
    n_samples: int | None = None,
    repeats: int = 10,
    seed: int = 0,
    rows_at_once: int | None = None,
    progress=None,
    devices: Devices = None,
) -> "Likelihood":
    """Scores rows: exactly if the codes are few enough (see `method_for`), otherwise by importance sampling.

    Args:
        model: any stack.
        x: (N, n_x) of 0 and 1, or of intensities if the visible layer is factorial.
        context: (N, n_context), for a model that was trained with one.
        log_density: (N,), the density of a table's numbers within their cells, which is added to log p.
        precision: half-width of the 95% interval of -log p, nats; every row gets the samples it needs.
        n_samples: importance samples per row, instead of a precision.
        repeats: how often an estimate with `n_samples` is repeated, for its interval.
        seed: of the importance samples.
        rows_at_once: the most rows in one program; None chooses a fast size.
        progress: called with the number of rows done after each program.
        devices: how many devices to use, or "all"; they do not change the scores.

    Returns:
        -log p and bound, by row and on average.
    """
    options = {"context": context, "log_density": log_density, "rows_at_once": rows_at_once, "progress": progress}
    with using(devices):
        if method_for(model) == "exact":
            return exact(model, x, **options)
        return importance(model, x, precision=precision, n_samples=n_samples, repeats=repeats, seed=seed, **options)


def row_by_row(model: Stack, x, *, precision: float = PRECISION, n_samples: int | None = None) -> np.ndarray:
    """log p of rows where each depends only on the row, not on its place or on the other rows.

    Args:
        model: a stack without context.
        x: (N, n_x) of 0 and 1.
        precision: the most variance of a row's estimate, if its log p cannot be computed exactly.
        n_samples: importance samples per row, instead of a precision.

    Returns:
        (N,), nats.
    """
    if method_for(model) == "exact":
        return exact(model, x).log_p
    own = np.array([zlib.crc32(r.tobytes()) for r in np.packbits(np.asarray(x, np.uint8), axis=1)], np.uint32)
    options = {"precision": precision, "among": math.inf, "n_samples": n_samples, "repeats": 1}
    return importance(model, x, numbers=own, **options).log_p


def score_parts(
    model: Stack,
    parts: Parts,
    n: int,
    *,
    method: str,
    precision: float = PRECISION,
    n_samples: int | None = None,
    repeats: int = 10,
    seed: int = 0,
    progress: Progress | None = None,
) -> Iterator[Scores]:
    """Scores rows that come in parts, in memory that does not grow with their number.

    The scores are those of `exact` and `importance`, whatever the parts; `summary.Running` sums them up.

    Args:
        model: any stack.
        parts: (x, context, log density) of consecutive rows; context None for a model without one; the density of a
            table's numbers within their cells (`darn.data.Rows.log_density`), which is added to log p, or None.
        n: the number of rows.
        method: "exact" or "importance".
        precision: as for `evaluate`.
        n_samples: as for `evaluate`.
        repeats: as for `evaluate`.
        seed: of the importance samples.
        progress: called with the number of rows done after each program.

    Yields:
        The scores of consecutive rows.
    """
    if method == "exact":
        return _exact_parts(model, parts, n, None, progress)
    numbered = ((x, context, None, density) for x, context, density in parts)
    if n_samples is None:
        return _settled_parts(model, numbered, n, precision, None, seed, None, progress)
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
    rows = join(found)
    sides = {"row_bound": rows.bound, "ess": rows.ess, "drawn": rows.drawn}
    return Likelihood(**vars(running.summary()), log_p=rows.log_p, **sides)


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


def exact(
    model: Stack, x, *, context=None, log_density=None, rows_at_once: int | None = None, progress=None
) -> Likelihood:
    """-log p(x) = -log sum_h p(x,h) and the expected bound, by enumerating the codes.

    Memory is bounded by one table of rows by codes, however large 2^n_h is.

    Args:
        model: a stack with at most 30 stochastic units.
        x: (N, n_x) of 0 and 1, or of intensities if the visible layer is factorial.
        context: (N, n_context), for a model that was trained with one.
        log_density: (N,), the density of a table's numbers within their cells, which is added to log p.
        rows_at_once: the most rows in a table; None chooses a fast size.
        progress: called with the number of rows done after each table.

    Returns:
        -log p and bound, by row and on average.
    """
    _checked(model, x)
    found = _exact_parts(model, [(x, context, log_density)], len(x), rows_at_once, progress)
    return _whole(found, Running("exact"))


def _exact_parts(model: Stack, parts: Parts, rows: int, rows_at_once: int | None, progress) -> Iterator[Scores]:
    n = sum(model.n_h)
    if n > MAX_ENUMERATED:
        raise DarnError(f"the model has {n} stochastic units, too many to sum 2^{n} codes: use importance sampling")
    floats = 1 << (24 if jax.default_backend() == "cpu" else 28)  # logits at once; a CPU slows down beyond this
    pairs = max(floats // model.row_floats, 1)
    codes = 2 ** min(n, int(math.log2(pairs)) // 2 + 1)  # about as many codes as rows
    size = rows_within(codes * model.row_floats, rows, rows_at_once or rows, floats)
    model = everywhere(model)

    def table(x, context):
        x, sums = as_floats(x), (jnp.full(len(x), -1e30), jnp.zeros(len(x)), jnp.zeros(len(x)))
        for first in range(0, 2**n, codes):
            sums = _accumulate(sums, *_table(model, x, context, jnp.asarray(first), codes))
        return sums[0] + jnp.log(sums[1]), sums[2]

    found = stream_rows(table, size, parts, beside=True, progress=progress)
    return (Scores(log_p, bound).checked().with_density(density) for (log_p, bound), density in found)


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


def _weigh(model, x, context, keys, done, stop, chunk, sums):
    """The running sums after sample number `stop` of every row; they have those before number `done`."""
    if jax.default_backend() != "cpu":
        return _weigh_in_one(model, x, context, keys, jnp.asarray(stop, jnp.int32), chunk, sums)
    for first in range(done, stop, chunk):  # two programs on a CPU: see `_accumulate`
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
    _checked(model, x)
    parts = [(x, context, numbers, log_density)]
    if n_samples is None:
        found = _settled_parts(model, parts, len(x), precision, among, seed, rows_at_once, progress)
    else:
        found = _importance_parts(model, parts, len(x), n_samples, repeats, seed, rows_at_once, progress)
    return _whole(found, Running("importance", n_samples, repeats))


def _settled_parts(
    model: Stack, parts: Iterable[tuple], n: int, precision: float, among, seed: int, rows_at_once, progress
) -> Iterator[Scores]:
    """`parts` are (x, context, numbers, log density)."""
    # With this variance v of every row, the interval 1.96 sqrt(v/N) + v/4 is as wide as requested: see `Running`.
    variance = precision * min(1.0, (among or n) * precision / 2.5**2)
    size = lots_at_once(model, n, rows_at_once)
    start = 0
    for x, context, own, density in recut(parts, BLOCK):
        numbers = row_numbers(start, len(x)) if own is None else own
        found = settle(model, x, context=context, variance=variance, seed=seed, numbers=numbers, size=size)
        start += len(x)
        if progress is not None:
            progress(len(x))
        yield found.checked().with_density(density)


def _importance_parts(
    model: Stack, parts: Iterable[tuple], n: int, n_samples: int, repeats: int, seed: int, rows_at_once, progress
) -> Iterator[Scores]:
    """`parts` are (x, context, numbers, log density)."""
    # As much as fits a CPU's cache, or half a gigabyte per array on an accelerator.
    floats = 1 << (21 if jax.default_backend() == "cpu" else 27)
    # Many samples of a row share what depends only on the row, such as the running sums of a large NADE. Atari frames
    # are too large for that, and small models fill the cache with many rows.
    shared = floats // (DRAWS * model.row_floats)
    size = rows_within(model.row_floats, n, min(rows_at_once or 100, shared if 1 <= shared < 8 else n))
    # A chunk ends at each of the marks, of which the last but one is a tenth of the samples.
    fits, tenth = max(floats // (model.row_floats * size), 1), max(n_samples // 10, min(n_samples, 8))
    chunk = -(-tenth // -(-tenth // fits))
    model = everywhere(model)

    def weigh(numbers, bits, side, own):
        # Nothing here waits for a result, so that the next rows are weighed on another core of a CPU.
        bits, repeated = as_floats(bits), []
        for r in range(repeats):
            keys = row_keys(jax.random.fold_in(jax.random.key(seed), r), numbers if own is None else own)
            zero = jnp.zeros(len(bits))
            sums, done, at = (jnp.asarray(0, jnp.int32), jnp.full(len(bits), -1e30), zero, zero, zero), 0, []
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
        for _ in range(0 if progress is None else repeats):
            progress(count)

    found = stream_rows(weigh, size, parts, numbered=True, beside=True, progress=done_with)
    return (scores(repeated).checked().with_density(density) for repeated, density in found)
