"""The cost of rounding the weights, measured."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darn.codec._choice import in_bits
from darn.codec._evaluate import Evaluator
from darn.inference.sampling import encode
from darn.model import Stack

ROWS = 512  # enough: both lengths are of the same rows and codes, so their difference has little noise
FLOATS = 1 << 22  # a large model gets fewer rows, or measuring would take longer than compressing


@eqx.filter_jit
def _float_lengths(model: Stack, x, h):
    return jax.vmap(lambda x, h: model.log_q(x, h) - model.log_p(x, h))(x, h)


def rounding_cost(model: Stack, twin: Stack, x: np.ndarray) -> float:
    """Nats per row by which the integer twin's description length exceeds the float model's, on the same codes."""
    x = x[: max(min(ROWS, FLOATS // model.row_floats), 4)]
    if not len(x):
        return 0.0
    h = encode(model, x, seed=0).h
    bits, evaluate = np.zeros(len(x)), Evaluator(twin)
    for l, y in enumerate((x, *h)):
        bits += in_bits(evaluate.lengths("p", l, y, None, h)[1])
    for k, y in enumerate(h):
        bits -= in_bits(evaluate.lengths("q", k, y, x, h[:k])[1])
    as_floats = jax.tree.map(lambda v: jnp.asarray(v, jnp.float32), (x, h))
    return float(np.mean(bits * np.log(2) - np.asarray(_float_lengths(model, *as_floats), np.float64)))
