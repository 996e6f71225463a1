"""Completion: draws of missing units given the observed ones, and log p(x_missing | x_observed).

Every case is one walk along the visible layer's chain, given a code h: observed units keep their values, and their
probabilities are multiplied into a weight; missing units are drawn. The mean weight over h ~ p(h) is p(x_observed), for
every layer. If no observed unit depends on a missing one, the weight depends only on h.

- exact: used if the codes can be enumerated (or there are none), and either no observed unit depends on a missing one,
  or there are few enough missing units to enumerate them too.
- importance: used otherwise. Codes come from the encoder, whose input in the missing places is the mean over many
  fillings: draws of the model, refined by a few sweeps of h ~ q(h | filled row), x_missing ~ p(. | h, x_observed). (A
  single filling would make the encoder overconfident.) Then the biases of its factorial layers are fitted to the row:
  they minimise the description length of the observed units, by the gradient that training uses. The weights
  p(h) p(x_observed | ...) / q(h) are unbiased for p(x_observed) whatever the fillings; completions are resampled by
  them, and their effective sample size is reported.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.nn import logsumexp

from darn.batching import join, recut, row_keys, rows_within, stream_rows
from darn.devices import everywhere
from darn.errors import DarnError
from darn.inference import likelihood
from darn.inference.constrained import Tables, held
from darn.inference.summary import check_finite
from darn.model import Stack
from darn.nn import softplus

FEW = 10  # the most missing units that are enumerated
FIT_STEPS, FIT_SAMPLES = 300, 8  # for fitting the encoder's biases to one row


@dataclass(frozen=True)
class Completions:
    """n draws of every row's missing units, and the likelihood of its observed ones."""

    x: np.ndarray  # (N, n, n_x) uint8; observed units are unchanged
    log_p_observed: np.ndarray  # (N,) log p(x_observed), nats; too low on average unless exact
    method: str  # "exact" | "importance"
    ess: np.ndarray | None = None  # (N,) effective sample size


@dataclass(frozen=True)
class ConditionalLikelihood:
    """log p(x_missing | x_observed) of rows whose missing values are known, nats."""

    log_p: np.ndarray  # (N,)
    method: str
    ess: np.ndarray | None = None  # (N,) of the estimate of log p(x_observed)


def holes(x, missing=None) -> tuple[np.ndarray, np.ndarray]:
    """Returns (rows with 0 for missing values, mask of the missing values), from NaN or a mask."""
    x = np.asarray(x)
    if x.ndim != 2 or not len(x):
        raise DarnError(f"rows to complete must be an array of shape (N, n_x) with at least one row, not {x.shape}")
    nan = np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)
    mask = nan if missing is None else nan | _mask(missing, x.shape)
    filled = np.where(nan, 0, x).astype(np.float32)
    if ((filled != 0) & (filled != 1)).any():
        raise DarnError("rows to complete must be 0 and 1, with missing values marked by NaN or a mask")
    return filled, mask


def check_width(model: Stack, x: np.ndarray) -> None:
    """Refuses rows that are not as wide as the model's."""
    if x.shape[1] != model.n_x:
        raise DarnError(f"the rows have {x.shape[1]} columns, but the model has {model.n_x}: give rows of its own kind")


def _mask(missing, shape: tuple[int, ...]) -> np.ndarray:
    missing = np.asarray(missing)
    if missing.dtype != bool:
        raise DarnError(f"the mask of missing units must be an array of bool, not of {missing.dtype}")
    try:
        return np.broadcast_to(missing, shape)
    except ValueError:
        raise DarnError(
            f"the mask has shape {missing.shape}, the rows {shape}: give one mask for all rows or one for each"
        ) from None


def complete(
    model: Stack, x, missing=None, *, n: int = 1, context=None, seed: int = 0, n_samples: int = 100, sweeps: int = 5
) -> Completions:
    """Draws the missing units of rows given the observed ones.

    Args:
        model: any stack.
        x: (N, n_x) of 0 and 1; NaN or `missing` marks the units to draw.
        missing: an array of bool, (n_x,) for all rows or (N, n_x).
        n: completions per row.
        context: (N, n_context), for a model that was trained with one.
        seed: of everything random.
        n_samples: codes drawn per row if they cannot all be enumerated.
        sweeps: how often the encoder's input is refined; see the module's docstring.

    Returns:
        The completions, log p(x_observed) and the method used.

    Raises:
        DarnError: if x or the mask does not fit the model.
    """
    x, mask = holes(x, missing)
    check_width(model, x)
    if n < 1 or n_samples < 1 or sweeps < 0:
        raise DarnError("n and n_samples must be at least 1, and sweeps at least 0")
    side = None if context is None else np.asarray(context, np.float32)
    options: dict[str, Any] = {"n": n, "seed": seed, "n_samples": n_samples, "sweeps": sweeps}
    found = list(complete_parts(model, [(x, mask, side)], survey(model, [mask]), **options))
    drawn, log_p, ess = join([(f.x, f.log_p_observed, f.ess) for f in found])
    return Completions(drawn, log_p, found[0].method, ess)


@dataclass(frozen=True)
class Survey:
    """What is missing in all rows together, which decides how they are completed."""

    rows: int
    how: str  # "codes" | "enumerate" | "importance"
    states: int  # fillings of all rows together, if they are enumerated


def survey(model: Stack, masks: Iterable[np.ndarray]) -> Survey:
    """Looks at which units are missing.

    Args:
        model: any stack.
        masks: (rows, n_x) of bool for consecutive rows.

    Returns:
        How to complete them.
    """
    rows = most = states = 0
    apart = True
    for mask in masks:
        gone = mask.sum(axis=1)
        rows += len(mask)
        most = max(most, int(gone.max(initial=0)))
        states += int((2 ** np.minimum(gone, FEW)).sum())
        apart = apart and bool(model.decoder[0].layer.separates(mask))
    if likelihood.method_for(model) == "importance":
        return Survey(rows, "importance", 0)
    return Survey(rows, "codes" if apart else "enumerate" if most <= FEW else "importance", states)


def complete_parts(
    model: Stack,
    parts: Iterable[tuple],
    known: Survey,
    *,
    n: int = 1,
    seed: int = 0,
    n_samples: int = 100,
    sweeps: int = 5,
    conditions: Tables | None = None,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Completions]:
    """Completes rows that come in parts: the draws of `complete`, in memory that does not grow with the rows.

    Args:
        model: any stack.
        parts: (x, mask, context) of consecutive rows: float32 of 0 and 1, bool, float32 or None.
        known: the `survey` of their masks.
        n: completions per row.
        seed: of everything random.
        n_samples: as for `complete`.
        sweeps: as for `complete`.
        conditions: that the missing units meet, as `constrained.held` takes them; `known.how` must be "importance".
        progress: called with the number of rows done after each program.

    Returns:
        The completions of consecutive rows.
    """
    if known.how == "enumerate":
        return _by_states(model, parts, known.states, n, seed, progress)
    each = 2 ** sum(model.n_h) if known.how == "codes" else n_samples
    size = rows_within(model.row_floats * each, known.rows, 100, 1 << 24)
    program, model = _by_codes if known.how == "codes" else _by_weights, everywhere(model)

    def part(numbers, x, mask, context):
        keys = row_keys(jax.random.key(seed), numbers)
        return program(model, x, mask, context, keys, n, each, sweeps, conditions)

    exact = known.how == "codes"
    method = "exact" if exact else "importance"

    def completions(drawn, log_p, ess):
        check_finite(log_p)
        return Completions(drawn, log_p.astype(np.float64), method, None if exact else ess)

    return (completions(*found) for found in stream_rows(part, size, parts, numbered=True, progress=progress))


def conditional(
    model: Stack, x, missing, *, context=None, seed: int = 0, n_samples: int = 1000, sweeps: int = 5
) -> ConditionalLikelihood:
    """log p(x_missing | x_observed) = log p(x) - log p(x_observed), for rows whose missing units are known.

    If there are too many codes to enumerate, both terms are importance sampling estimates and too low on average. The
    second is the harder one, so the difference is too high while the effective sample size is small.

    Args:
        model: any stack.
        x: (N, n_x) of 0 and 1.
        missing: an array of bool, (n_x,) for all rows or (N, n_x): the units to predict from the others.
        context: (N, n_context), for a model that was trained with one.
        seed: of everything random.
        n_samples: codes drawn per row if they cannot all be enumerated.
        sweeps: as for `complete`.

    Returns:
        The likelihood of each row's missing units, and the method used.
    """
    filled, mask = holes(x, missing)
    side = None if context is None else np.asarray(context, np.float32)
    read = lambda: [(filled, mask, side)]  # noqa: E731
    options: dict[str, Any] = {"seed": seed, "n_samples": n_samples, "sweeps": sweeps}
    found = list(conditional_parts(model, read, survey(model, [mask]), **options))
    log_p, ess = join([(f.log_p, f.ess) for f in found])
    return ConditionalLikelihood(log_p, found[0].method, ess)


def conditional_parts(
    model: Stack,
    read: Callable[[], Iterable[tuple]],
    known: Survey,
    *,
    seed: int = 0,
    n_samples: int = 1000,
    sweeps: int = 5,
    progress: Callable[[int], object] | None = None,
) -> Iterator[ConditionalLikelihood]:
    """`conditional` for rows that come in parts; `read` gives (x, mask, context) from the first row on, twice."""
    options: dict[str, Any] = {"seed": seed, "n_samples": n_samples}
    how = likelihood.method_for(model)
    rows = ((x, context, None) for x, _, context in read())
    whole = likelihood.score_parts(model, rows, known.rows, method=how, repeats=1, **options)
    seen = complete_parts(model, read(), known, sweeps=sweeps, progress=progress, **options)
    both = "exact" if known.how != "importance" and how == "exact" else "importance"
    observed = recut(((s.log_p_observed, s.ess) for s in seen), 1000)
    for (log_p,), (log_p_observed, ess) in zip(recut(((w.log_p,) for w in whole), 1000), observed):
        yield ConditionalLikelihood(log_p - log_p_observed, both, ess)


def _held(layer, c, x, missing, key):
    """Returns (the row with its missing units drawn, the summed log-probability of its observed units).

    If the layer has several orders, one is drawn: on average, that is the layer.
    """
    u = jax.random.uniform(jax.random.fold_in(key, 0), (layer.n,))
    order, _ = layer.draw_order(jax.random.fold_in(key, 1))

    def decide(log_w, j, a):
        # `j` may be an array of units; n stands for no unit.
        hole = missing[j]
        y = jnp.where(hole, (u[j] < jax.nn.sigmoid(a)).astype(x.dtype), x[j])
        worth = jnp.where(hole | (j == layer.n), 0, y * a - softplus(a))
        return log_w + jnp.sum(worth), y

    return layer.chain(decide, jnp.zeros(()), c, order=order)


def _fitted(model: Stack) -> list[int]:
    """The encoder layers whose biases can be fitted to a row."""
    return [k for k, part in enumerate(model.encoder) if part.layer.independent]


def _shifted(model: Stack, shift) -> Stack:
    """The model with the biases of its fitted encoder layers moved."""
    if not shift:
        return model
    where = lambda m: [m.encoder[k].layer for k in _fitted(model)]  # noqa: E731
    return eqx.tree_at(where, model, [layer.shifted(s) for layer, s in zip(where(model), shift)])


@eqx.filter_jit
def _by_codes(model, x, missing, context, keys, n, each, sweeps, conditions=None):
    """Exact: every code, weighted by p(h) p(x_observed | h)."""
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
def _by_weights(model, x, missing, context, keys, n, each, sweeps, conditions=None):
    """Importance resampling; the encoder's input is the mean of fillings that the sweeps refine."""
    layer = model.decoder[0].layer

    def one(x, missing, context, key):
        k_start, k_sweeps, k_fit, k_last, k_choice = jax.random.split(key, 5)

        def step(fed, k, shift=None):
            """Returns (a filling, its log weight) for a code drawn from the encoder given `fed`."""
            k_h, k_x = jax.random.split(k)
            h = _shifted(model, shift).encode(fed, context, key=k_h)
            c = model.above(0, h, context)
            if conditions is None:
                y, log_w = _held(layer, c, x, missing, k_x)
            else:
                y, log_w = held(layer, c, conditions, x, missing, k_x)
            # As in training, the weights inside log q are frozen: see `objective.description_length`.
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
    """Minimises loss(values, key) from `start` by RMSprop with a decreasing learning rate."""
    rate = optax.linear_schedule(0.1, 0.005, FIT_STEPS - 1)
    optimizer = optax.rmsprop(rate, decay=0.9, eps=1e-6, eps_in_sqrt=True)

    def step(carry, key):
        values, state = carry
        updates, state = optimizer.update(jax.grad(loss)(values, key), state)
        return (optax.apply_updates(values, updates), state), None

    return lax.scan(step, (start, optimizer.init(start)), jax.random.split(key, FIT_STEPS))[0][0]


def _by_states(model, parts, total: int, n: int, seed: int, progress) -> Iterator[Completions]:
    """Exact: every filling of a few missing units, with its exact likelihood."""
    rng = np.random.RandomState(seed)
    waiting: deque[np.ndarray] = deque()  # the fillings of each row whose likelihoods are not known yet

    def fillings():
        for x, mask, context in parts:
            for i, (row, gone) in enumerate(zip(x, mask)):
                where = np.flatnonzero(gone)
                every = np.repeat(row[None], 2 ** len(where), axis=0)
                every[:, where] = (np.arange(len(every))[:, None] >> np.arange(len(where))) & 1
                waiting.append(every)
                yield every, None if context is None else np.repeat(context[i][None], len(every), axis=0), None

    held = np.zeros(0)
    for scored in likelihood.score_parts(model, fillings(), total, method="exact"):
        held = np.concatenate([held, scored.log_p.astype(np.float64)])
        drawn, totals = [], []
        while waiting and len(waiting[0]) <= len(held):
            every = waiting.popleft()
            log_p, held = held[: len(every)], held[len(every) :]
            totals.append(np.logaddexp.reduce(log_p))
            p = np.exp(log_p - totals[-1])
            drawn.append(every[rng.choice(len(every), n, p=p / p.sum())].astype(np.uint8))
        if drawn:
            yield Completions(np.stack(drawn), np.array(totals), "exact")
            if progress is not None:
                progress(len(drawn))
