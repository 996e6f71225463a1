"""Exact, independent samples by ancestral sampling; codes and reconstructions."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darn.batching import Numbers, chunks, join, map_rows, row_keys, rows_within, stream_rows
from darn.devices import Devices, everywhere, using
from darn.errors import InputError
from darn.inference.given import check_count, given_code, given_context, given_rows
from darn.model import Stack

CHUNK = 1000  # rows drawn in one program
ON_GPU = 1 << 15  # the same where a GPU has kernels to draw them: one wave of it takes as long as a tenth of these


class Samples(NamedTuple):
    """Rows drawn from a model, the hidden layers they came from, and log p(x, h) if requested.

    Packed, x and h hold eight bits a byte, as `numpy.packbits` packs each row and `numpy.unpackbits` unpacks it.
    """

    x: np.ndarray  # (N, n_x) uint8
    h: tuple[np.ndarray, ...]  # (N, n_h^l) uint8; h[0] is h^(1)
    log_joint: np.ndarray | None  # (N,) log p(x, h), nats; `likelihood` has log p(x)


class Code(NamedTuple):
    """The codes of rows: bits and probabilities of every hidden layer, and the reconstruction of x."""

    h: tuple[np.ndarray, ...]  # (N, n_h^l) uint8
    q: tuple[np.ndarray, ...]  # (N, n_h^l) probability of each unit being on, given the code below; if the encoder is
    # autoregressive, also given the more probable values of the units before it
    x: np.ndarray  # (N, n_x) probability of each visible unit being on, given the code; likewise


def as_bits(tree):
    return jax.tree.map(lambda y: y.astype(jnp.uint8), tree)


def as_floats(tree):
    return jax.tree.map(lambda y: jnp.asarray(y, jnp.float32), tree)


# Not eqx.filter_jit, whose overhead of a millisecond per call is the time of 500 rows on a GPU.
@partial(jax.jit, static_argnames=("with_log_joint", "packed"))
def _draw(model, seed, numbers, h, context, with_log_joint, packed=False):
    def one(key, h, context):
        x, h = model.sample(context, key=key, h=as_floats(h))
        log_joint = model.log_p(x, h, context) if with_log_joint else None
        return Samples(as_bits(x), as_bits(h), log_joint)

    found = jax.vmap(one)(row_keys(jax.random.key(seed), numbers), h, context)
    if not packed:
        return found
    x, h = jax.tree.map(partial(jnp.packbits, axis=-1), (found.x, found.h))
    return Samples(x, h, found.log_joint)


def sample(
    model: Stack,
    n: int,
    *,
    seed: int = 0,
    h: Sequence = (),
    context=None,
    log_joint: bool = False,
    packed: bool = False,
    chunk: int | None = None,
    devices: Devices = None,
) -> Samples:
    """Draws n rows from the model.

    Args:
        model: any stack.
        n: the number of rows.
        seed: the same seed gives the same rows at any chunk size.
        h: the topmost hidden layers, (n, n_h) each, to draw only the layers below them.
        context: (n, n_context), for a model that was trained with one.
        log_joint: whether to return log p(x, h) of every row.
        packed: whether to return eight bits a byte, see `Samples`: from a GPU they arrive faster.
        chunk: rows drawn at once on a device, if memory allows; None chooses by device.
        devices: how many devices to use, or "all"; they do not change the rows.

    Returns:
        The rows and their hidden layers.
    """
    check_count("the number of rows", n, 0)
    size = n * (model.n_x + sum(model.n_h)) // (8 if packed else 1)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if size > memory:
        raise InputError(
            f"{n:,} rows of this model take {size >> 30:,} GiB, and this machine has {memory >> 30:,} GiB of memory: "
            "draw fewer, or part by part (`sample_parts`)"
        )
    h, context = given_code(model, h, n), given_context(model, context, n)
    given = [(h, context)] if h or context is not None else None
    with using(devices):
        return join(list(sample_parts(model, n, given, seed=seed, log_joint=log_joint, packed=packed, chunk=chunk)))


def sample_parts(
    model: Stack,
    n: int,
    given: Iterable[tuple] | None = None,
    *,
    seed: int = 0,
    log_joint: bool = False,
    packed: bool = False,
    chunk: int | None = None,
    of: int | None = None,
    numbers: Numbers = 0,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Samples]:
    """Draws n rows part by part: the rows of `sample`, in memory that does not grow with n.

    With `of` and `numbers`, they are some of the rows of a larger sample.

    Args:
        model: any stack.
        n: the number of rows.
        given: (h, context) of consecutive rows, as for `sample`; None if the model needs neither.
        seed: the same seed gives the same rows at any chunk size.
        log_joint: whether to return log p(x, h) of every row.
        packed: whether to return eight bits a byte, see `Samples`.
        chunk: rows drawn at once, if memory allows; None chooses by device.
        of: the number of rows in all; None if they are n.
        numbers: of the rows among all of them.
        progress: called with the number of rows done after each program.

    Yields:
        Consecutive rows; one empty part if n is 0.
    """
    if not n:
        x, *h = (np.zeros((0, -(-m // 8) if packed else m), np.uint8) for m in (model.n_x, *model.n_h))
        yield Samples(x, tuple(h), np.zeros(0) if log_joint else None)
        return
    chunk = chunk or (CHUNK if jax.default_backend() == "cpu" else ON_GPU)
    size, model = rows_within(model.row_floats, of or n, chunk), everywhere(model)

    def draw(own, _, h, context):
        return _draw(model, np.asarray(seed), own, h, context, log_joint, packed)

    counted = numbered_parts(n, size, given)
    yield from stream_rows(draw, size, counted, numbered=True, numbers=numbers, progress=progress)


def numbered_parts(n: int, size: int, given: Iterable[tuple] | None) -> Iterator[tuple]:
    """(an empty row for every row, h, context): the rows can be counted even if they need no input."""
    if given is None:
        yield from ((np.zeros((count, 0), np.uint8), (), None) for _, count in chunks(n, size))
        return
    for part in given:
        yield np.zeros((len(jax.tree.leaves(part)[0]), 0), np.uint8), *part


def _back(model, h, context):
    return model.decoder[0].layer.most_probable(model.above(0, h, context))[1]


@eqx.filter_jit
def _code(model, x, context, key, numbers, sampled):
    def one(x, context, key):
        h, q = (), ()
        for k, key_k in enumerate(model.encoder_keys(key)):
            layer, c = model.encoder[k].layer, model.below(k, x, h, context)
            y, q_k = layer.most_probable(c)
            h, q = (*h, layer.sample(c, key=key_k) if sampled else y), (*q, q_k)
        return Code(as_bits(h), q, _back(model, h, context))

    return jax.vmap(one)(as_floats(x), context, row_keys(key, numbers))


def encode(
    model: Stack,
    x,
    *,
    context=None,
    seed: int | None = None,
    chunk: int = CHUNK,
    devices: Devices = None,
) -> Code:
    """Encodes rows.

    Args:
        model: any stack.
        x: (N, n_x) of 0 and 1.
        context: (N, n_context), for a model that was trained with one.
        seed: to sample the code from q(H|x); None takes the most probable value, unit by unit.
        chunk: rows encoded at once on a device, if memory allows.
        devices: how many devices to use, or "all"; they do not change the codes.

    Returns:
        The code of each row, and its reconstruction.
    """
    x = given_rows(model, x)
    context = given_context(model, context, len(x))
    with using(devices):
        return join(list(encode_parts(model, [(x, context)], len(x), seed=seed, chunk=chunk)))


def encode_parts(
    model: Stack,
    parts: Iterable[tuple],
    n: int,
    *,
    seed: int | None = None,
    chunk: int = CHUNK,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Code]:
    """Encodes rows that come in parts: the codes of `encode`, in memory that does not grow with n.

    Args:
        model: any stack.
        parts: (x, context) of consecutive rows, context None for a model without one.
        n: the number of rows.
        seed: as for `encode`.
        chunk: rows encoded at once, if memory allows.
        progress: called with the number of rows done after each program.

    Yields:
        The codes of consecutive rows; one empty part if n is 0.
    """
    if not n:
        empty = tuple(np.zeros((0, m), np.uint8) for m in model.n_h)
        yield Code(empty, tuple(e.astype(np.float32) for e in empty), np.zeros((0, model.n_x), np.float32))
        return
    key, model = jax.random.key(0 if seed is None else seed), everywhere(model)

    def code(numbers, x, context):
        return _code(model, x, context, key, jnp.asarray(numbers), seed is not None)

    yield from stream_rows(code, rows_within(model.row_floats, n, chunk), parts, numbered=True, progress=progress)


@eqx.filter_jit
def _decode(model, h, context):
    return jax.vmap(lambda h, c: _back(model, as_floats(h), c))(h, context)


def decode(model: Stack, h: Sequence, *, context=None, chunk: int = CHUNK) -> np.ndarray:
    """Decodes codes to probabilities of the visible units.

    Args:
        model: any stack with hidden layers.
        h: (N, n_h^l) for each layer; h[0] is h^(1).
        context: (N, n_context), for a model that was trained with one.
        chunk: rows decoded at once, if memory allows.

    Returns:
        (N, n_x), as in `Code.x`.
    """
    n = len(h[0]) if h else 0
    h, context = given_code(model, h, n, whole=True), given_context(model, context, n)
    if not n:
        return np.zeros((0, model.n_x), np.float32)
    size, model = rows_within(model.row_floats, n, chunk), everywhere(model)
    return map_rows(lambda h, context: _decode(model, h, context), n, size, h, context)
