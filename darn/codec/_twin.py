"""The integer twin of a stack: the same classes with weights on a grid, so that every sum is exact on any machine."""

import hashlib
from collections.abc import Sequence

import equinox as eqx
import jax
import numpy as np

from darn.errors import DarnError
from darn.model import Conditional, Stack
from darn.model_file import describe
from darn.nn import ARITHMETICS, CLIPPED, Arithmetic, TooCoarse, bits, replaced


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
        arithmetics = CLIPPED if deep else ARITHMETICS
        decoder = [_conditional(part, sum(p), arithmetics) for part, p in zip(model.decoder, above)]
        encoder = [_conditional(part, sum(p), arithmetics) for part, p in zip(model.encoder, below)]
        return Stack(tuple(decoder), tuple(encoder), model.skip, model.n_context)


def _conditional(part: Conditional, n: int, arithmetics: Sequence[Arithmetic]) -> Conditional:
    """The twin of a conditional in the first arithmetic that is fine enough for it: its parents and units are bits."""
    for arithmetic in arithmetics:
        net, inputs = part.net, bits(n)
        try:
            if net is not None and n:
                net, inputs = net.quantised(inputs, arithmetic)
            return Conditional(part.layer.quantised(inputs, arithmetic), net)
        except TooCoarse:
            continue
    raise DarnError("the model's weights are too large for exact sums: train it with weight decay")


def alone(twin: Stack, side: str, l: int) -> Stack:
    """A stack with one of its conditionals, decoder[l] of side "p" or encoder[l] of side "q", and None for others."""

    def keep(own: str, parts: Sequence[Conditional]) -> tuple:
        return tuple(part if (own, k) == (side, l) else None for k, part in enumerate(parts))

    return replaced(twin, decoder=keep("p", twin.decoder), encoder=keep("q", twin.encoder))


def dtype_of(twin: Stack) -> str:
    """The float type of a conditional's twin, float32 or float64; see `alone`."""
    return str(jax.tree.leaves(eqx.filter(twin, eqx.is_inexact_array))[0].dtype)


def fingerprint(model: Stack, twin: Stack) -> bytes:
    """Eight bytes that identify a model: a hash of its structure and of every number that coding depends on."""
    digest = hashlib.sha256(describe(model)[0].encode())
    for leaf in jax.tree.leaves(eqx.filter(twin, eqx.is_array)):
        digest.update(np.asarray(leaf).astype("<f8").tobytes())
    return digest.digest()[:8]
