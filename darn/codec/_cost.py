"""The cost of rounding the weights, measured."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darn.codec._ans import LENGTH, REACH, STEP_BITS
from darn.codec._stack import Evaluator
from darn.inference.sampling import encode
from darn.model import Stack

ROWS = 512  # enough: both lengths are of the same rows and codes, so their difference has little noise


@eqx.filter_jit
def _float_lengths(model: Stack, x, h):
    return jax.vmap(lambda x, h: model.log_q(x, h) - model.log_p(x, h))(x, h)


def rounding_cost(model: Stack, twin: Stack, x: np.ndarray) -> float:
    """Nats per row by which the integer twin's description length exceeds the float model's, on the same codes."""
    x = x[:ROWS]
    if not len(x):
        return 0.0
    h = encode(model, x, seed=0).h
    bits, evaluate = np.zeros(len(x)), Evaluator(twin)
    for l, y in enumerate((x, *h)):
        bits += _bits(evaluate.logits("p", l, y, None, h), y)
    for k, y in enumerate(h):
        bits -= _bits(evaluate.logits("q", k, y, x, h[:k]), y)
    as_floats = jax.tree.map(lambda v: jnp.asarray(v, jnp.float32), (x, h))
    return float(np.mean(bits * np.log(2) - np.asarray(_float_lengths(model, *as_floats), np.float64)))


def _bits(a: np.ndarray, y: np.ndarray) -> np.ndarray:
    side = REACH << STEP_BITS
    k = np.clip(np.floor(a.astype(np.float64) * (1 << STEP_BITS) + 0.5), -side, side).astype(np.int64) + side
    return LENGTH[y.T, k].sum(axis=0)
