"""The sparse sampler of fDARN: a unit's weights are added to the logits of others only if the unit is on.

A decoder of linear autoregressive and factorial layers without deterministic ones is one linear autoregressive chain
over all its units, top layer first, x last. With n_s active units, a sample takes n_s (n_x + n_h) additions (Section
2.3) and no multiplication. This suits a single CPU core, row by row; the loop is compiled by Numba.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darn.batching import join, row_keys, stream_rows
from darn.errors import DarnError
from darn.inference.given import given_context
from darn.inference.sampling import CHUNK, numbered_parts
from darn.layers import Linear
from darn.model import Stack


class SparseSamples(NamedTuple):
    """Rows drawn, the hidden layers they came from, and the number of additions it took."""

    x: np.ndarray  # (N, n_x) uint8
    h: tuple[np.ndarray, ...]  # (N, n_h^l) uint8; h[0] is h^(1)
    additions: np.ndarray  # (N,) weights added to a logit, counted as they were added


class Chain(NamedTuple):
    """A decoder as one chain over the units of all layers, from the top layer's first to the visible layer's last."""

    b: np.ndarray  # (n,)
    W: np.ndarray  # (m, n) the weights from unit j to unit k, for the m units that have any
    first: np.ndarray  # (m,) unit j adds to the units from first[j] ...
    stop: np.ndarray  # (m,) ... up to stop[j] - 1
    V: np.ndarray  # (n_context, n) the weights of the observed context


def flatten(model: Stack) -> Chain:
    """The model's decoder as one chain; raises DarnError if it is not linear."""
    layers = [_linear(model, l) for l in range(model.n_layers, -1, -1)]  # top-down
    ends = np.cumsum([len(layer.b) for layer in layers])
    starts = ends - [len(layer.b) for layer in layers]
    n, n_context = int(ends[-1]), model.n_context
    b, W, V = np.zeros(n, np.float32), np.zeros((n, n), np.float32), np.zeros((n_context, n), np.float32)
    first, stop = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for i, layer in enumerate(layers):
        own = slice(starts[i], ends[i])
        b[own] = layer.b
        if layer.U is not None:
            # A layer's input is its parents from the nearest up, then the context; the chain has the topmost first.
            parents, U = range(i - 1, -1 if model.skip else max(i - 2, -1), -1), layer.U
            for k in parents:
                part, U = np.split(U, [ends[k] - starts[k]], axis=1)
                W[starts[k] : ends[k], own] = part.T
            V[:, own] = U.T
        stop[own] = ends[-1] if model.skip else ends[min(i + 1, len(ends) - 1)]
        if layer.W is None:
            first[own] = ends[i]
        else:
            W[own, own] = layer.W.T
            first[own] = np.arange(starts[i], ends[i]) + 1
    m = int(starts[-1]) if layers[-1].W is None else n
    return Chain(b, np.ascontiguousarray(W[:m]), first[:m], stop[:m], V)


def _linear(model: Stack, l: int) -> Linear:
    part = model.decoder[l]
    if part.net is not None:
        raise DarnError(
            "the sparse sampler needs a decoder without deterministic layers, such as fDARN's: "
            "use the usual sampler for this model"
        )
    return part.layer.linear()


@cache
def _compiled():
    """The compiled loop over rows and units. Numba is imported when it is first needed."""
    import numba

    def run(b, W, first, stop, V, context, threshold, y, additions):
        a = np.empty_like(b)
        for i in range(len(y)):
            a[:] = b
            count = 0
            for c in range(len(V)):
                if context[i, c] != 0:
                    for k in range(len(b)):
                        a[k] += context[i, c] * V[c, k]
                        count += 1
            for j in range(len(b)):
                on = a[j] > threshold[i, j]
                y[i, j] = on
                if on and j < len(W):
                    # slices that start at 0 vectorise; indices that might be negative do not
                    target, weights = a[first[j] : stop[j]], W[j, first[j] : stop[j]]
                    for k in range(len(target)):
                        target[k] += weights[k]
                        count += 1
            additions[i] = count

    try:  # compiling takes seconds: cache the result if there is a folder for it
        return numba.njit(run, nogil=True, cache=True)
    except RuntimeError:
        return numba.njit(run, nogil=True)


@eqx.filter_jit
def _thresholds(sizes: tuple[int, ...], key, numbers):
    """(rows, n) logits above which each unit is on, from the uniform numbers that `Stack.sample` would draw."""

    def one(key):
        keys = jax.random.split(key, len(sizes))
        top_down = range(len(sizes) - 1, -1, -1)
        u = jnp.concatenate([jax.random.uniform(keys[l], (sizes[l],)) for l in top_down])
        return jnp.log(u) - jnp.log1p(-u)  # u < sigmoid(a) where a is above this: no exponential in the loop

    return jax.vmap(one)(row_keys(key, numbers))


def sample(model: Stack, n: int, *, seed: int = 0, context=None, chunk: int = CHUNK) -> SparseSamples:
    """Draws n rows: those of `sampling.sample` with the same seed, up to rounding.

    Args:
        model: a stack whose decoder is linear, such as fDARN's.
        n: the number of rows.
        seed: as for `sampling.sample`.
        context: (n, n_context), for a model that was trained with one.
        chunk: rows drawn at once.

    Returns:
        The rows, their hidden layers and the additions counted.
    """
    context = given_context(model, context, n)
    given = None if context is None else [((), context)]
    return join(list(sample_parts(model, n, given, seed=seed, chunk=chunk)))


def sample_parts(
    model: Stack,
    n: int,
    given: Iterable[tuple] | None = None,
    *,
    seed: int = 0,
    chunk: int = CHUNK,
    progress: Callable[[int], object] | None = None,
) -> Iterator[SparseSamples]:
    """Draws n rows part by part; arguments as for `sampling.sample_parts`, without hidden layers in `given`."""
    chain, run = flatten(model), _compiled()
    sizes = (model.n_x, *model.n_h)
    if not n:
        x, *h = (np.zeros((0, m), np.uint8) for m in sizes)
        yield SparseSamples(x, tuple(h), np.zeros(0, np.int64))
        return
    key, chunk = jax.random.key(seed), min(chunk, n)

    def draw(numbers, _, h, context):
        rows = len(numbers)
        side = np.zeros((rows, 0), np.float32) if context is None else np.ascontiguousarray(context, np.float32)
        threshold = np.asarray(_thresholds(sizes, key, jnp.asarray(numbers)))
        y, additions = np.zeros((rows, len(chain.b)), np.uint8), np.zeros(rows, np.int64)
        run(*chain, side, threshold, y, additions)
        *h, x = np.split(y, np.cumsum(sizes[::-1])[:-1], axis=1)
        return SparseSamples(x, tuple(h[::-1]), additions)

    yield from stream_rows(draw, chunk, numbered_parts(n, chunk, given), numbered=True, progress=progress)
