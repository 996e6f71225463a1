"""What the code of a row costs, and whether it carries anything."""

from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darn.batching import map_rows, row_keys
from darn.devices import everywhere
from darn.inference import sampling
from darn.inference.objective import description_length
from darn.model import Stack

ENCODINGS = 20  # of each row, for the parts of its description length
ROWS = 1000  # enough to see whether codes differ
LEAST = 0.05  # nats: a code that costs less than this on average says next to nothing about its row


@eqx.filter_jit
def _lengths(model, x, context, key, numbers, n, code_alone):
    def one(x, context, key):
        dl = jax.vmap(lambda k: description_length(model, x, context, key=k))(jax.random.split(key, n))
        h = jnp.stack([jnp.mean(v) for v in dl.h]) if dl.h else jnp.zeros(0)
        return h if code_alone else (jnp.mean(dl.x_given_h), h)  # what is not returned is not computed

    return jax.vmap(one)(x, context, row_keys(key, numbers))


def lengths(model: Stack, x, context=None, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """L(x|h) (N,) and L(h) by layer (N, n_layers) of each row, means over encodings."""
    return _mean_lengths(model, x, context, seed, code_alone=False)


def _mean_lengths(model, x, context, seed, *, code_alone):
    key, n = jax.random.fold_in(jax.random.key(seed), 1), ENCODINGS if model.n_layers else 1
    size, model = max(1, 4_000_000 // (n * model.n_x)), everywhere(model)

    def part(numbers, x, context):
        return _lengths(model, sampling.as_floats(x), context, key, jnp.asarray(numbers), n, code_alone)

    return map_rows(part, len(x), min(size, len(x)), x, context, numbered=True)


@dataclass(frozen=True)
class CodeUse:
    """How much the codes of some rows say about them."""

    nats: float  # L(h), the mean over rows: at least the mutual information of row and code
    distinct: int  # most probable codes
    rows: int

    @property
    def idle(self) -> bool:
        """Whether all rows have one code, or codes that cost nothing."""
        return self.rows > 1 and (self.nats < LEAST or self.distinct == 1)

    @property
    def warning(self) -> str:
        """What an idle code is, and what to do about it; '' for a code in use."""
        if not self.idle:
            return ""
        many = "1 code" if self.distinct == 1 else f"{self.distinct:,} codes"
        return (
            f"the code is idle: {self.rows:,} rows have {many}, at {max(self.nats, 0.0):.2f} nats per row; the visible "
            "layer does all the work; train with a factorial visible layer for codes that tell rows apart, or without "
            "hidden units for a model as good without a code"
        )


def code_use(lengths: np.ndarray, h: Sequence[np.ndarray]) -> CodeUse:
    """What L(h) by layer (N, n_layers) and the most probable codes (N, n_h) of each layer say."""
    codes = np.packbits(np.concatenate(h, axis=1), axis=1)
    return CodeUse(float(lengths.sum(axis=1).mean()), len({c.tobytes() for c in codes}), len(codes))


def measure(model: Stack, x, context=None) -> CodeUse | None:
    """The use of the code on the first rows, `ROWS` at most; None for a model without one."""
    if not model.n_layers or not len(x):
        return None
    x, context = x[:ROWS], None if context is None else context[:ROWS]
    return code_use(_mean_lengths(model, x, context, 0, code_alone=True), sampling.encode(model, x, context=context).h)
