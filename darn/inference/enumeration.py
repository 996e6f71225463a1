"""-log p(x) exactly, by enumerating the code; streaming, per row."""

import math
from collections.abc import Iterable, Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darn.batching import rows_within, stream_rows
from darn.devices import everywhere
from darn.errors import DarnError
from darn.inference.given import given_context, given_rows
from darn.inference.sampling import as_floats
from darn.inference.summary import Likelihood, Running, Scores, whole
from darn.model import Stack

MAX_ENUMERATED = 30  # stochastic units: beyond this the sum takes years


@eqx.filter_jit
def _table(model, x, context, first, chunk):
    """log p and log q by layer, (rows, codes) each, for the codes from number `first` on."""
    sizes = np.cumsum(model.n_h)[:-1]
    n = sum(model.n_h)

    def pair(x, context, code):
        h = tuple(jnp.split(code, sizes)) if n else ()
        return model.log_p_layers(x, h, context), model.log_q_layers(x, h, context)

    x, number = as_floats(x), first + jnp.arange(chunk)
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


@jax.jit
def _finished(top, total, bound):
    return top + jnp.log(total), bound


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
    x = given_rows(model, x, some=True)
    context = given_context(model, context, len(x))
    found = exact_parts(model, [(x, context, log_density)], len(x), rows_at_once, progress)
    return whole(found, Running("exact"))


def exact_parts(
    model: Stack, parts: Iterable[tuple], rows: int, rows_at_once: int | None, progress
) -> Iterator[Scores]:
    """`exact` for rows that come in parts: (x, context, log density)."""
    n = sum(model.n_h)
    if n > MAX_ENUMERATED:
        raise DarnError(f"the model has {n} stochastic units, too many to sum 2^{n} codes: use importance sampling")
    floats = 1 << (24 if jax.default_backend() == "cpu" else 28)  # logits at once; a CPU slows down beyond this
    pairs = max(floats // model.row_floats, 1)
    codes = 2 ** min(n, int(math.log2(pairs)) // 2 + 1)  # about as many codes as rows
    # More rows at once are no faster, and a program's shape is the same for any larger number of rows.
    most = rows_at_once or (1 << (10 if jax.default_backend() == "cpu" else 14))
    size = rows_within(codes * model.row_floats, rows, most, floats, digits=3)  # rows may cost much: little padding
    model = everywhere(model)

    def table(x, context):
        zero = np.zeros(len(x), np.float32)
        sums = (zero - np.float32(1e30), zero, zero)
        for first in range(0, 2**n, codes):
            sums = _accumulate(sums, *_table(model, x, context, np.asarray(first, np.int32), codes))
        return _finished(*sums)

    found = stream_rows(table, size, parts, beside=True, progress=progress)
    return (Scores(log_p, bound).checked().with_density(density) for (log_p, bound), density in found)
