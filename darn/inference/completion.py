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
from jax import lax
from jax.nn import logsumexp

from darn.batching import chunks, pad_rows, row_keys
from darn.errors import DarnError
from darn.inference import likelihood
from darn.layers import AbstractAutoregressive, EoNADE, Factorial, OneHot
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
class Conditional:
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
    try:
        mask = nan if missing is None else np.broadcast_to(np.asarray(missing, bool), x.shape) | nan
    except ValueError:
        shape = np.asarray(missing).shape
        raise DarnError(f"the mask has shape {shape}, the rows {x.shape}: give one, or one a row") from None
    filled = np.where(nan, 0, x).astype(np.float32)
    if ((filled != 0) & (filled != 1)).any():
        raise DarnError("rows to complete must be 0 and 1, with NaN or a mask where they have holes")
    return filled, mask


def complete(
    model: Stack, x, missing=None, *, n: int = 1, context=None, seed: int = 0, n_samples: int = 100, sweeps: int = 5
) -> Completions:
    """n completions of every row; x: (N, n_x) with NaN, or with `missing` True, where a unit is to be drawn."""
    x, mask = holes(x, missing)
    if x.shape[1] != model.n_x:
        raise DarnError(f"the rows have {x.shape[1]} columns, the model {model.n_x}: give rows like its own")
    if n < 1 or n_samples < 1 or sweeps < 0:
        raise DarnError("completions and samples must be at least 1, sweeps at least 0")
    how = _method(model, mask)
    if how == "enumerate":
        return _by_states(model, x, mask, context, n, seed)
    width = max(part.layer.width for part in (*model.decoder, *model.encoder))
    each = 2 ** sum(model.n_h) if how == "codes" else n_samples
    size = max(min((1 << 24) // (width * each), 100, len(x)), 1)
    parts = []
    for start, count in chunks(len(x), size):
        here = slice(start, start + count)
        rows = jnp.asarray(pad_rows(x[here], size)), jnp.asarray(pad_rows(mask[here], size))
        side = None if context is None else jnp.asarray(pad_rows(np.asarray(context)[here], size), jnp.float32)
        keys = row_keys(jax.random.key(seed), start, size)
        found = (_by_codes if how == "codes" else _by_weights)(model, *rows, side, keys, n, each, sweeps)
        parts.append(jax.tree.map(lambda v, count=count: np.asarray(v)[:count], found))
    drawn, log_p, ess = jax.tree.map(lambda *v: np.concatenate(v), *parts)
    exact = how == "codes"
    return Completions(drawn, log_p.astype(np.float64), "exact" if exact else "importance", None if exact else ess)


def conditional(
    model: Stack, x, missing, *, context=None, seed: int = 0, n_samples: int = 1000, sweeps: int = 5
) -> Conditional:
    """log p(x_missing | x_observed) = log p(x) - log p(x_observed) of whole rows, of which `missing` is to be guessed.

    Where the codes are too many to enumerate, each term is an importance sampling estimate and low in the mean: the
    second is the harder one, so that the difference comes out too high while the effective sample size is small.
    """
    x = np.asarray(x)
    seen = complete(model, x, missing, context=context, seed=seed, n_samples=n_samples, sweeps=sweeps)
    whole = likelihood.evaluate(model, x, context=context, n_samples=n_samples, repeats=1, seed=seed)
    both = "exact" if seen.method == whole.method == "exact" else "importance"
    return Conditional(whole.log_p - seen.log_p_observed, both, seen.ess)


def _method(model: Stack, mask: np.ndarray) -> str:
    layer = model.decoder[0].layer
    if sum(model.n_h) > likelihood.EXACT_LIMIT:
        return "importance"
    if isinstance(layer, Factorial):
        return "codes"
    if isinstance(layer, OneHot) and isinstance(layer.layer, Factorial):
        ends = np.cumsum(layer.groups)
        parts = [mask[:, e - g : e] for e, g in zip(ends, layer.groups)]
        if all((p.all(axis=1) | ~p.any(axis=1)).all() for p in parts):
            return "codes"
    after = np.cumsum(mask, axis=1) > 0
    if isinstance(layer, AbstractAutoregressive) and not (after & ~mask).any():
        return "codes"
    return "enumerate" if mask.sum(axis=1).max() <= FEW else "importance"


def _held(layer, c, x, missing, key):
    """(a row with its holes drawn, log of the product of what its seen units were worth), along the layer's chain."""
    u = jax.random.uniform(jax.random.fold_in(key, 0), (layer.n,))
    if isinstance(layer, Factorial):
        a = layer.logits(c)
        y = jnp.where(missing, (u < jax.nn.sigmoid(a)).astype(x.dtype), x)
        return y, jnp.sum(jnp.where(missing, 0, x * a - softplus(a)))
    if isinstance(layer, EoNADE):  # one of its orders at random: in the mean, that is the layer
        order = layer.orders[jax.random.randint(jax.random.fold_in(key, 1), (), 0, len(layer.orders))]
        y, log_w = _held(layer.core.given(c).reordered(order), None, x[order], missing[order], key)
        return jnp.zeros_like(y).at[order].set(y), log_w

    def decide(log_w, j, a):
        y = jnp.where(missing[j], (u[j] < jax.nn.sigmoid(a)).astype(x.dtype), x[j])
        unseen = missing[j] | (j >= layer.n)  # where units are decided side by side, n stands for no unit
        return log_w + jnp.sum(jnp.where(unseen, 0, y * a - softplus(a))), y

    return layer.chain(decide, jnp.zeros(()), c)


def _log_prior(model, h, context):
    """log p(h)."""
    layers = enumerate(model.decoder[1:], start=1)
    return sum((part.layer.log_prob(h[l - 1], model.above(l, h, context)) for l, part in layers), start=jnp.zeros(()))


def _shifted(model: Stack, shift) -> Stack:
    """The model with its factorial encoder layers' biases moved."""
    if not shift:
        return model
    where = lambda m: [p.layer.b for p in m.encoder if isinstance(p.layer, Factorial)]  # noqa: E731
    return eqx.tree_at(where, model, [b + s for b, s in zip(where(model), shift)])


@eqx.filter_jit
def _by_codes(model, x, missing, context, keys, n, each, sweeps):
    """Exact: every code, weighed by p(h) p(x_observed | h)."""
    m = sum(model.n_h)
    codes = ((jnp.arange(2**m)[:, None] >> jnp.arange(m - 1, -1, -1)[None]) & 1).astype(x.dtype)
    split = lambda code: tuple(jnp.split(code, np.cumsum(model.n_h)[:-1])) if m else ()  # noqa: E731
    layer = model.decoder[0].layer

    def one(x, missing, context, key):
        k_h, k_x = jax.random.split(key)

        def weigh(code):
            h = split(code)
            return _log_prior(model, h, context) + _held(layer, model.above(0, h, context), x, missing, k_x)[1]

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
            log_q = _shifted(model, lax.stop_gradient(shift)).log_q(h, fed, context)
            return y, log_w + _log_prior(model, h, context) - log_q

        def sweep(y, k):
            return jax.vmap(step)(y, jax.random.split(k, each))[0], None

        draw = lambda k: jnp.where(missing, model.sample(context, key=k)[0], x)  # noqa: E731
        y = jax.vmap(draw)(jax.random.split(k_start, each))
        y, _ = lax.scan(sweep, y, jax.random.split(k_sweeps, sweeps))
        mean = jnp.mean(y, axis=0)

        def length(shift, k):
            return -jnp.mean(jax.vmap(lambda k: step(mean, k, shift)[1])(jax.random.split(k, FIT_SAMPLES)))

        def improve(carry, k_rate):  # RMSprop
            shift, square = carry
            g = jax.grad(length)(shift, k_rate[0])
            square = jax.tree.map(lambda v, g: 0.9 * v + 0.1 * g * g, square, g)
            move = lambda s, g, v: s - k_rate[1] * g / jnp.sqrt(v + 1e-6)  # noqa: E731
            return (jax.tree.map(move, shift, g, square), square), None

        shift = tuple(jnp.zeros(part.layer.n) for part in model.encoder if isinstance(part.layer, Factorial))
        if shift:
            steps = jax.random.split(k_fit, FIT_STEPS), jnp.linspace(0.1, 0.005, FIT_STEPS)
            shift = lax.scan(improve, (shift, shift), steps)[0][0]
        y, log_w = jax.vmap(lambda k: step(mean, k, shift))(jax.random.split(k_last, each))
        chosen = y[jax.random.categorical(k_choice, log_w, shape=(n,))]
        ess = jnp.exp(2 * logsumexp(log_w) - logsumexp(2 * log_w))
        return chosen.astype(jnp.uint8), logsumexp(log_w) - jnp.log(float(each)), ess

    return jax.vmap(one)(x, missing, context, keys)


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
