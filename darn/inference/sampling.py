"""Exact, independent samples by ancestral sampling, and the way back: codes and reconstructions."""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darn.batching import chunks, pad_rows, row_keys
from darn.model import Stack

CHUNK = 1000  # rows drawn in one program


class Samples(NamedTuple):
    """Rows drawn from a model, the hidden layers they came from, and log p(x, h) if asked for."""

    x: np.ndarray  # (N, n_x) uint8
    h: tuple[np.ndarray, ...]  # (N, n_h^l) uint8, h[0] being h^(1)
    log_p: np.ndarray | None  # (N,) nats


def _fitting(model: Stack, chunk: int, n: int) -> int:
    """As many rows as there are, as are asked for, and as fit into some gigabytes."""
    return max(min(chunk, n, (1 << 28) // model.width), 1)


# Not eqx.filter_jit, which takes a millisecond a call, nor anything else outside the program: on a GPU, 500 rows' time.
@partial(jax.jit, static_argnames=("size", "with_log_p"))
def _draw(model, seed, start, size, h, context, with_log_p):
    key = jax.random.key(seed)

    def one(key, h, context):
        x, h = model.sample(context, key=key, h=h)
        log_p = model.log_p(x, h, context) if with_log_p else None
        return x.astype(jnp.uint8), tuple(y.astype(jnp.uint8) for y in h), log_p

    return jax.vmap(one)(row_keys(key, start, size), h, context)


def sample(
    model: Stack,
    n: int,
    *,
    seed: int = 0,
    h: tuple[np.ndarray, ...] = (),
    context: np.ndarray | None = None,
    log_prob: bool = False,
    chunk: int = CHUNK,
) -> Samples:
    """n rows from the model; the same seed gives the same rows at any chunk size.

    `h`: the topmost hidden layers, (n, n_h) each, if they are given and only the layers below are to be drawn.
    """
    chunk = _fitting(model, chunk, n)
    parts, drawn = [], None
    for start, count in chunks(n, chunk):
        given = tuple(jnp.asarray(pad_rows(y[start : start + count], chunk), jnp.float32) for y in h)
        side = None if context is None else jnp.asarray(pad_rows(context[start : start + count], chunk))
        last, drawn = drawn, _draw(model, np.asarray(seed), np.asarray(start), chunk, given, side, log_prob)
        if last is not None:
            parts.append(jax.device_get(last))  # while the device draws the next
    if drawn is None:
        empty = tuple(np.zeros((0, m), np.uint8) for m in model.n_h)
        return Samples(np.zeros((0, model.n_x), np.uint8), empty, np.zeros(0) if log_prob else None)
    parts.append(jax.device_get(drawn))
    return Samples(*jax.tree.map(lambda *v: np.concatenate(v)[:n], *parts))


class Code(NamedTuple):
    """What a model makes of rows: bits and probabilities of every hidden layer, and the way back to x."""

    h: tuple[np.ndarray, ...]  # (N, n_h^l) uint8
    q: tuple[np.ndarray, ...]  # (N, n_h^l) probability of each unit being on, given the code below; where the encoder
    # is autoregressive, given also the more probable values of the units before it
    x: np.ndarray  # (N, n_x) probability of each visible unit being on, given the code; likewise


@eqx.filter_jit
def _code(model, x, context, key, start, sampled):
    def one(x, context, key):
        h, q = (), ()
        for k, key_k in enumerate(model.encoder_keys(key)):
            layer, c = model.encoder[k].layer, model.below(k, x, h, context)
            y, q_k = layer.most_probable(c)
            h, q = (*h, layer.sample(c, key=key_k) if sampled else y), (*q, q_k)
        back = model.decoder[0].layer.most_probable(model.above(0, h, context))[1]
        return Code(tuple(y.astype(jnp.uint8) for y in h), q, back)

    return jax.vmap(one)(x, context, row_keys(key, start, len(x)))


def encode(
    model: Stack,
    x: np.ndarray,
    *,
    context: np.ndarray | None = None,
    seed: int | None = None,
    chunk: int = CHUNK,
) -> Code:
    """The code of each row (N, n_x): the most probable one unit by unit, or with a `seed` a sample of q(H|x)."""
    key = jax.random.key(0 if seed is None else seed)
    chunk = _fitting(model, chunk, len(x))
    parts = []
    for start, count in chunks(len(x), chunk):
        rows = jnp.asarray(pad_rows(x[start : start + count], chunk), jnp.float32)
        side = None if context is None else jnp.asarray(pad_rows(context[start : start + count], chunk))
        code = _code(model, rows, side, key, jnp.asarray(start), seed is not None)
        parts.append(jax.tree.map(lambda v, count=count: np.asarray(v[:count]), code))
    if not parts:
        empty = tuple(np.zeros((0, m), np.uint8) for m in model.n_h)
        return Code(empty, tuple(e.astype(np.float32) for e in empty), np.zeros((0, model.n_x), np.float32))
    return jax.tree.map(lambda *v: np.concatenate(v), *parts)


@eqx.filter_jit
def _decode(model, h, context):
    return jax.vmap(lambda h, c: model.decoder[0].layer.most_probable(model.above(0, h, c))[1])(h, context)


def decode(model: Stack, h: tuple[np.ndarray, ...], *, context: np.ndarray | None = None, chunk: int = CHUNK):
    """What codes stand for, as `Code.x` gives it: (N, n_x). h: (N, n_h^l) each, h[0] being h^(1)."""
    n = len(h[0])
    chunk = min(chunk, max(n, 1))
    parts = [np.zeros((0, model.n_x), np.float32)]
    for start, count in chunks(n, chunk):
        given = tuple(jnp.asarray(pad_rows(y[start : start + count], chunk), jnp.float32) for y in h)
        side = None if context is None else jnp.asarray(pad_rows(context[start : start + count], chunk))
        parts.append(np.asarray(_decode(model, given, side))[:count])
    return np.concatenate(parts)
