"""The integer twin of a stack: the same classes with weights on a grid, so that every sum is exact on any machine."""

import hashlib

import equinox as eqx
import jax
import numpy as np

from darn.errors import DarnError
from darn.model import Conditional, Stack
from darn.model_file import describe
from darn.nn import ARITHMETICS, CLIPPED, Arithmetic, TooCoarse, bits


def twin(model: Stack) -> Stack:
    """The integer twin of a stack.

    Args:
        model: a stack without observed context whose layers have an integer twin.

    Returns:
        A stack of the same classes, with rounded weights.

    Raises:
        DarnError: if the model has a context, layers without a twin, or weights too large for exact sums.
    """
    if model.n_context:
        raise DarnError("the codec is for models without an observed context, but this one was trained with labels")
    n = (model.n_x, *model.n_h)
    above = [n[l + 1 :] if model.skip else n[l + 1 : l + 2] for l in range(len(n))]
    below = [n[: k + 1] if model.skip else n[k : k + 1] for k in range(model.n_layers)]
    with jax.enable_x64(True):
        deep = any(part.layer.clips for part in (*model.decoder, *model.encoder))
        for arithmetic in CLIPPED if deep else ARITHMETICS:
            try:
                decoder = [_conditional(part, sum(p), arithmetic) for part, p in zip(model.decoder, above)]
                encoder = [_conditional(part, sum(p), arithmetic) for part, p in zip(model.encoder, below)]
                return Stack(tuple(decoder), tuple(encoder), model.skip, model.n_context)
            except TooCoarse:
                continue
    raise DarnError("the model's weights are too large for exact sums: train it with weight decay")


def _conditional(part: Conditional, n: int, arithmetic: Arithmetic) -> Conditional:
    net, inputs = part.net, bits(n)  # the parents are bits
    if net is not None and n:
        net, inputs = net.quantised(inputs, arithmetic)
    return Conditional(part.layer.quantised(inputs, arithmetic), net)


def dtype_of(twin: Stack) -> str:
    """The float type of the twin: float32 or float64."""
    return str(jax.tree.leaves(eqx.filter(twin, eqx.is_inexact_array))[0].dtype)


def fingerprint(model: Stack, twin: Stack) -> bytes:
    """Eight bytes that identify a model: a hash of its structure and of every number that coding depends on."""
    digest = hashlib.sha256(describe(model)[0].encode())
    for leaf in jax.tree.leaves(eqx.filter(twin, eqx.is_array)):
        digest.update(np.asarray(leaf).astype("<f8").tobytes())
    return digest.digest()[:8]
