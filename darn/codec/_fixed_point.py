"""The integer twin of a stack: the same classes with weights on a grid, so that every sum is exact.

Weights are multiples of 2^-k, and activations become tables whose entries are multiples of 2^-t. Then every product is
a multiple of one power of two, and as long as the sum of the absolute products stays below 2^24 (float32) or 2^53
(float64) such units, every partial sum is exact: no order of summation, number of threads, fused multiply-add or
device can change a bit. That bound is checked, in exact arithmetic, as k is chosen: as large as it allows.
"""

import dataclasses
import hashlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darn.codec import _tables
from darn.errors import DarnError
from darn.layers import NADE, AbstractBinaryLayer, Factorial, LinearAutoregressive, OneHot
from darn.layers._base import plus_context
from darn.model import Conditional, Stack
from darn.model_file import describe
from darn.nn import AbstractMap, Net, ReLU, Sigmoid, Tanh

MOST = 20  # fractional bits of a weight: more would be finer than the float32 it came from is sure of


@dataclasses.dataclass(frozen=True)
class Arithmetic:
    """A kind of float, and how its bits are shared out."""

    dtype: str
    bits: int  # integers up to 2^bits are exact
    table_bits: int  # t: activations are multiples of 2^-t
    least: int  # fewer fractional bits than this in any weight: take the next arithmetic


# Float32 where it will do: twice as fast, and exact on devices that have no float64 worth the name.
ARITHMETICS = (Arithmetic("float32", 24, 8, 7), Arithmetic("float64", 53, 16, 4))
_STEP_BITS, _REACH = 10, 12  # tables are over multiples of 2^-10 up to +-12, where tanh is 1 to 2^-33


class Table(AbstractMap):
    """A pointwise function by look-up: its argument rounded to multiples of 2^-10 and clipped to the table."""

    values: jax.Array

    def __call__(self, c):
        side = _REACH << _STEP_BITS
        i = jnp.clip(jnp.round(c * (1 << _STEP_BITS)), -side, side).astype(jnp.int32) + side
        return self.values[i]


class RoundedReLU(AbstractMap):
    """max(c, 0) rounded to multiples of 2^-bits."""

    bits: int = eqx.field(static=True)

    def __call__(self, c):
        unit = 1 << self.bits
        return jnp.round(jnp.maximum(c, 0) * unit) / unit


class _TooCoarse(Exception):
    """The sums cannot be kept exact with enough bits to the weights."""


def twin(model: Stack) -> Stack:
    """The integer twin of a stack of factorial, linear autoregressive and NADE layers, or one-hot groups over them."""
    if model.n_context:
        raise DarnError("the codec is for models without an observed context, and this one was trained with one")
    n = (model.n_x, *model.n_h)
    above = [n[l + 1 :] if model.skip else n[l + 1 : l + 2] for l in range(len(n))]
    below = [n[: k + 1] if model.skip else n[k : k + 1] for k in range(model.n_layers)]
    with jax.enable_x64(True):
        for arithmetic in ARITHMETICS:
            try:
                decoder = [_conditional(part, sum(p), arithmetic) for part, p in zip(model.decoder, above)]
                encoder = [_conditional(part, sum(p), arithmetic) for part, p in zip(model.encoder, below)]
                return Stack(tuple(decoder), tuple(encoder), model.skip, model.n_context)
            except _TooCoarse:
                continue
    raise DarnError("the model's weights are too large for exact sums: train it again with --weight_decay")


def dtype_of(model: Stack) -> str:
    """float32 or float64: what the twin computes in."""
    return str(jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))[0].dtype)


def fingerprint(model: Stack, twin: Stack) -> bytes:
    """Eight bytes that tell models apart: the structure and every number that coding depends on."""
    digest = hashlib.sha256(describe(model)[0].encode())
    for leaf in jax.tree.leaves(eqx.filter(twin, eqx.is_array)):
        digest.update(np.asarray(leaf).astype("<f8").tobytes())
    return digest.digest()[:8]


# ---------------------------------------------------------------- by parts


class _Inputs(NamedTuple):
    """What a sum is over: n numbers, multiples of 2^-grid, none larger than `most`."""

    n: int
    grid: int
    most: float

    @property
    def largest(self) -> jax.Array:
        return jnp.full(self.n, self.most)


def _conditional(part: Conditional, n: int, arithmetic: Arithmetic) -> Conditional:
    net, inputs = part.net, _Inputs(n, 0, 1.0)  # the parents are bits
    if net is not None and n:
        net, inputs = _net(net, inputs, arithmetic)
    return Conditional(_layer(part.layer, inputs, arithmetic), net)


def _net(net: AbstractMap, inputs: _Inputs, arithmetic: Arithmetic) -> tuple[Net, _Inputs]:
    """The net's twin, and what it puts out."""
    maps = []
    for f in net.maps if isinstance(net, Net) else (net,):
        if isinstance(f, Tanh | Sigmoid | ReLU):
            f, inputs = _activation(f, inputs, arithmetic)
        else:
            f, inputs = _rounded(f, lambda g, inputs=inputs: g(inputs.largest), inputs.grid, arithmetic)
        maps.append(f)
    return Net(tuple(maps)), inputs


def _activation(f: AbstractMap, inputs: _Inputs, arithmetic: Arithmetic) -> tuple[AbstractMap, _Inputs]:
    t = arithmetic.table_bits
    if isinstance(f, ReLU):
        return RoundedReLU(t), _Inputs(inputs.n, t, inputs.most + 2.0**-t)
    name = "tanh" if isinstance(f, Tanh) else "sigmoid"
    table = _tables.activation(name, _STEP_BITS, _REACH, t)
    return Table(jnp.asarray(table, arithmetic.dtype)), _Inputs(inputs.n, t, 1.0)


def _layer(layer: AbstractBinaryLayer, c: _Inputs, arithmetic: Arithmetic) -> Any:
    if isinstance(layer, Factorial):
        return _rounded(layer, lambda g: g.logits(c.largest), c.grid, arithmetic)[0]
    if isinstance(layer, LinearAutoregressive):
        return _rounded(layer, lambda g: g.logits(jnp.ones(g.n), c.largest), c.grid, arithmetic)[0]
    if isinstance(layer, NADE):
        return _nade(layer, c, arithmetic)
    if isinstance(layer, OneHot):  # what a group has settled is certain, in any arithmetic
        return OneHot(_layer(layer.layer, c, arithmetic), layer.groups)
    raise DarnError(
        f"the codec is for factorial, linear and NADE layers, and this model has a layer of the kind "
        f"{type(layer).__name__}: train one without it"
    )


def _nade(layer: NADE, c: _Inputs, arithmetic: Arithmetic) -> NADE:
    # Two sums on two grids: the running one inside the activation, and the logits that read the hidden units out.
    def running(g):
        sums = plus_context(g["e"], g["A"], c.largest) + g["V"].sum(0)
        return sums if g["M"] is None else sums + g["M"].sum(0)

    inner, sums = _rounded({s: getattr(layer, s) for s in ("e", "A", "V", "M")}, running, c.grid, arithmetic)
    act, hidden = _activation(layer.act, sums, arithmetic)
    net, top = _net(layer.net, hidden, arithmetic)

    def logits(g):
        return plus_context(g["b"], g["U"], c.largest) + g["R"] @ top.largest

    finest = max(c.grid, top.grid)
    outer, _ = _rounded({s: getattr(layer, s) for s in ("b", "U", "R")}, logits, finest, arithmetic)
    fields = {f.name: getattr(layer, f.name) for f in dataclasses.fields(layer)} | inner | outer
    new = object.__new__(NADE)
    for name, value in (fields | {"act": act, "net": net}).items():
        object.__setattr__(new, name, value)
    return new


def _rounded(module: Any, sums: Callable[[Any], jax.Array], grid: int, arithmetic: Arithmetic) -> tuple[Any, _Inputs]:
    """(the module with weights that are multiples of 2^-k, what its sums are as inputs of another).

    `sums(|module|)` are the sums of the absolute products, the inputs being as large as they get; inputs are multiples
    of 2^-grid. In units of 2^-(grid + k) these must stay below 2^bits, and k is the largest that lets them.
    """
    weights, rest = eqx.partition(module, eqx.is_inexact_array)
    if not all(np.isfinite(w).all() for w in jax.tree.leaves(weights)):
        raise DarnError("the model has weights that are not finite numbers: its training went wrong")
    k = MOST
    while k >= arithmetic.least:
        whole = jax.tree.map(lambda w, k=k: np.rint(np.ldexp(np.asarray(w, np.float64), k)), weights)
        # In whole numbers, so that the sums of the check are exact as well (or far beyond the bound).
        sizes = jax.tree.map(lambda w: jnp.asarray(np.abs(w)), whole)
        found = np.asarray(sums(eqx.combine(sizes, rest)), np.float64)
        most = float(found.max(initial=0))
        excess = int(math.frexp(math.ldexp(most, grid))[1]) - arithmetic.bits
        if excess <= 0:
            values = jax.tree.map(lambda w, k=k: jnp.asarray(np.ldexp(w, -k), arithmetic.dtype), whole)
            return eqx.combine(values, rest), _Inputs(found.size, grid + k, math.ldexp(most, -k))
        k -= excess
    raise _TooCoarse
