"""Completion: what is missing, given what is seen. Several draws a row, and log p(x_missing | x_observed).

Every case is one walk along the visible layer's chain, at a code h: units that are seen are held at their values and
their probabilities multiplied into a weight, units that are missing are drawn. The mean weight over h ~ p(h) is
p(x_observed), whatever the layer; and where no seen unit follows a missing one the weight depends on h alone.

- exact: the codes can be enumerated (or there are none), and either that is so, or the missing units are few enough to
  enumerate as well.
- importance: else. Codes come from the encoder, and what it is fed in the holes is their mean over many fillings: draws
  of the model to begin with, refined by some sweeps of h ~ q(h | filled row), x_missing ~ p(. | h, x_observed). (A
  single filling would tell the encoder more than is known, and its codes would be far too sure.) Then the biases of its
  factorial layers are fitted to the row: they lower the description length of what is seen, by the gradient that
  training uses. The weights p(h) p(x_observed | ...) / q(h) are unbiased for p(x_observed) whatever came before them;
  completions are resampled by them, and their effective sample size is reported.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.nn import logsumexp

from darn.batching import map_rows, row_keys, rows_within
from darn.errors import DarnError
from darn.inference import likelihood
from darn.model import Stack
from darn.nn import softplus

FEW = 10  # missing units that are enumerated
FIT_STEPS, FIT_SAMPLES = 300, 8  # of the encoder's biases to one row


@dataclass(frozen=True)
class Completions:
    """n draws of every row's missing units, and how much the row's seen ones are worth."""

    x: np.ndarray  # (N, n, n_x) uint8; what was seen is as it was
    log_p_observed: np.ndarray  # (N,) log p(x_observed), nats; low in the mean unless exact
    method: str  # "exact" | "importance"
    ess: np.ndarray | None = None  # (N,) effective sample size


@dataclass(frozen=True)
class ConditionalLikelihood:
    """log p(x_missing | x_observed) of rows whose missing values are known, nats."""

    log_p: np.ndarray  # (N,)
    method: str
    ess: np.ndarray | None = None  # (N,) of the estimate of log p(x_observed)


def holes(x, missing=None) -> tuple[np.ndarray, np.ndarray]:
    """(rows with 0 in their holes, mask of the holes): from NaN, or from a mask for all rows or for each."""
    x = np.asarray(x)
    if x.ndim != 2 or not len(x):
        raise DarnError(f"rows to complete must be a table of at least one row, not of shape {x.shape}")
    nan = np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)
    mask = nan if missing is None else nan | _mask(missing, x.shape)
    filled = np.where(nan, 0, x).astype(np.float32)
    if ((filled != 0) & (filled != 1)).any():
        raise DarnError("rows to complete must be 0 and 1, with NaN or a mask where they have holes")
    return filled, mask


def _mask(missing, shape: tuple[int, ...]) -> np.ndarray:
    missing = np.asarray(missing)
    if missing.dtype != bool:
        raise DarnError(f"the mask of missing units must be an array of True and False, not of {missing.dtype}")
    try:
        return np.broadcast_to(missing, shape)
    except ValueError:
        raise DarnError(f"the mask has shape {missing.shape}, the rows {shape}: give one, or one a row") from None


def complete(
    model: Stack, x, missing=None, *, n: int = 1, context=None, seed: int = 0, n_samples: int = 100, sweeps: int = 5
) -> Completions:
    """Draws what is missing in rows, given what is seen.

    Args:
        model: any stack.
        x: (N, n_x) of 0 and 1; NaN, or `missing`, marks the units to be drawn.
        missing: an array of bool, for all rows (n_x,) or for each (N, n_x).
        n: completions of every row.
        context: (N, n_context), for a model that was trained with one.
        seed: of all that is drawn.
        n_samples: codes weighed for every row where they cannot all be enumerated.
        sweeps: how often the filling that the encoder is fed is refined; see above.
    """
    x, mask = holes(x, missing)
    if x.shape[1] != model.n_x:
        raise DarnError(f"the rows have {x.shape[1]} columns, the model {model.n_x}: give rows like its own")
    if n < 1 or n_samples < 1 or sweeps < 0:
        raise DarnError("completions and samples must be at least 1, sweeps at least 0")
    how = _method(model, mask)
    if how == "enumerate":
        return _by_states(model, x, mask, context, n, seed)
    each = 2 ** sum(model.n_h) if how == "codes" else n_samples
    size = rows_within(model.row_floats * each, len(x), 100, 1 << 24)
    program = _by_codes if how == "codes" else _by_weights

    def part(start, x, mask, context):
        return program(model, x, mask, context, row_keys(jax.random.key(seed), start, size), n, each, sweeps)

    side = None if context is None else np.asarray(context, np.float32)
    drawn, log_p, ess = map_rows(part, len(x), size, x, mask, side, numbered=True)
    exact = how == "codes"
    return Completions(drawn, log_p.astype(np.float64), "exact" if exact else "importance", None if exact else ess)


def conditional(
    model: Stack, x, missing, *, context=None, seed: int = 0, n_samples: int = 1000, sweeps: int = 5
) -> ConditionalLikelihood:
    """log p(x_missing | x_observed) = log p(x) - log p(x_observed) of whole rows, of which `missing` is to be guessed.

    Where the codes are too many to enumerate, each term is an importance sampling estimate and low in the mean: the
    second is the harder one, so that the difference comes out too high while the effective sample size is small.
    """
    x = np.asarray(x)
    seen = complete(model, x, missing, context=context, seed=seed, n_samples=n_samples, sweeps=sweeps)
    whole = likelihood.evaluate(model, x, context=context, n_samples=n_samples, repeats=1, seed=seed)
    both = "exact" if seen.method == whole.method == "exact" else "importance"
    return ConditionalLikelihood(whole.log_p - seen.log_p_observed, both, seen.ess)


def _method(model: Stack, mask: np.ndarray) -> str:
    if sum(model.n_h) > likelihood.EXACT_LIMIT:
        return "importance"
    if model.decoder[0].layer.separates(mask):
        return "codes"
    return "enumerate" if mask.sum(axis=1).max() <= FEW else "importance"


def _held(layer, c, x, missing, key):
    """(a row with its holes drawn, log of the product of what its seen units were worth), along the layer's chain.

    Of a layer in several orders one is drawn: in the mean, that is the layer.
    """
    u = jax.random.uniform(jax.random.fold_in(key, 0), (layer.n,))
    order, _ = layer.draw_order(jax.random.fold_in(key, 1))

    def decide(log_w, j, a):
        # `j` may stand for several units side by side, or for none where it is n.
        hole = missing[j]
        y = jnp.where(hole, (u[j] < jax.nn.sigmoid(a)).astype(x.dtype), x[j])
        worth = jnp.where(hole | (j == layer.n), 0, y * a - softplus(a))
        return log_w + jnp.sum(worth), y

    return layer.chain(decide, jnp.zeros(()), c, order=order)


def _fitted(model: Stack) -> list[int]:
    """The encoder layers whose biases can be fitted to a row."""
    return [k for k, part in enumerate(model.encoder) if part.layer.independent]


def _shifted(model: Stack, shift) -> Stack:
    """The model with the biases of these encoder layers moved."""
    if not shift:
        return model
    where = lambda m: [m.encoder[k].layer for k in _fitted(model)]  # noqa: E731
    return eqx.tree_at(where, model, [layer.shifted(s) for layer, s in zip(where(model), shift)])


@eqx.filter_jit
def _by_codes(model, x, missing, context, keys, n, each, sweeps):
    """Exact: every code, weighed by p(h) p(x_observed | h)."""
    m = sum(model.n_h)
    codes = ((jnp.arange(2**m)[:, None] >> jnp.arange(m - 1, -1, -1)[None]) & 1).astype(x.dtype)
    split = lambda code: tuple(jnp.split(code, np.cumsum(model.n_h)[:-1])) if m else ()  # noqa: E731
    layer = model.decoder[0].layer

    def one(x, missing, context, key):
        k_h, k_w, k_x = jax.random.split(key, 3)

        def weigh(code):
            h = split(code)
            return model.log_prior(h, context) + _held(layer, model.above(0, h, context), x, missing, k_w)[1]

        log_w = jax.vmap(weigh)(codes)
        chosen = codes[jax.random.categorical(k_h, log_w, shape=(n,))]

        def fill(code, k):
            return _held(layer, model.above(0, split(code), context), x, missing, k)[0]

        y = jax.vmap(fill)(chosen, jax.random.split(k_x, n))
        return y.astype(jnp.uint8), logsumexp(log_w), jnp.asarray(float(each))

    return jax.vmap(one)(x, missing, context, keys)


@eqx.filter_jit
def _by_weights(model, x, missing, context, keys, n, each, sweeps):
    """Importance resampling, the encoder fed with fillings that the sweeps refine."""
    layer = model.decoder[0].layer

    def one(x, missing, context, key):
        k_start, k_sweeps, k_fit, k_last, k_choice = jax.random.split(key, 5)

        def step(fed, k, shift=None):
            """(a filling, its log weight) by way of a code of the row as `fed` to the encoder."""
            k_h, k_x = jax.random.split(k)
            h = _shifted(model, shift).encode(fed, context, key=k_h)
            y, log_w = _held(layer, model.above(0, h, context), x, missing, k_x)
            # As in training, log q's own weights are held: see `objective.description_length`.
            log_q = _shifted(model, lax.stop_gradient(shift)).log_q(fed, h, context)
            return y, log_w + model.log_prior(h, context) - log_q

        def sweep(y, k):
            return jax.vmap(step)(y, jax.random.split(k, each))[0], None

        draw = lambda k: jnp.where(missing, model.sample(context, key=k)[0], x)  # noqa: E731
        y = jax.vmap(draw)(jax.random.split(k_start, each))
        y, _ = lax.scan(sweep, y, jax.random.split(k_sweeps, sweeps))
        mean = jnp.mean(y, axis=0)

        def length(shift, k):
            return -jnp.mean(jax.vmap(lambda k: step(mean, k, shift)[1])(jax.random.split(k, FIT_SAMPLES)))

        shift = tuple(jnp.zeros(model.encoder[k].layer.n) for k in _fitted(model))
        if shift:
            shift = _descend(length, shift, k_fit)
        y, log_w = jax.vmap(lambda k: step(mean, k, shift))(jax.random.split(k_last, each))
        chosen = y[jax.random.categorical(k_choice, log_w, shape=(n,))]
        ess = jnp.exp(2 * logsumexp(log_w) - logsumexp(2 * log_w))
        return chosen.astype(jnp.uint8), logsumexp(log_w) - jnp.log(float(each)), ess

    return jax.vmap(one)(x, missing, context, keys)


def _descend(loss, start, key):
    """Lowers loss(values, key) from `start` by RMSprop, the steps growing smaller."""
    rate = optax.linear_schedule(0.1, 0.005, FIT_STEPS - 1)
    optimizer = optax.rmsprop(rate, decay=0.9, eps=1e-6, eps_in_sqrt=True)

    def step(carry, key):
        values, state = carry
        updates, state = optimizer.update(jax.grad(loss)(values, key), state)
        return (optax.apply_updates(values, updates), state), None

    return lax.scan(step, (start, optimizer.init(start)), jax.random.split(key, FIT_STEPS))[0][0]


def _by_states(model, x, mask, context, n, seed) -> Completions:
    """Exact: every filling of few holes, each with its exact likelihood."""
    rng = np.random.RandomState(seed)
    drawn = np.repeat(x[:, None].astype(np.uint8), n, axis=1)
    rows, owner = [], []
    for i, (row, holes_here) in enumerate(zip(x, mask)):
        where = np.flatnonzero(holes_here)
        fillings = (np.arange(2 ** len(where))[:, None] >> np.arange(len(where))) & 1
        every = np.repeat(row[None], len(fillings), axis=0)
        every[:, where] = fillings
        rows.append(every)
        owner.append(np.full(len(every), i))
    states, owner = np.concatenate(rows), np.concatenate(owner)
    side = None if context is None else np.asarray(context, np.float32)[owner]
    log_p = likelihood.exact(model, states, context=side).log_p.astype(np.float64)
    total = np.array([np.logaddexp.reduce(log_p[owner == i]) for i in range(len(x))])
    for i in range(len(x)):
        mine = np.flatnonzero(owner == i)
        p = np.exp(log_p[mine] - total[i])
        drawn[i] = states[rng.choice(mine, n, p=p / p.sum())]
    return Completions(drawn, total, "exact")
