"""The three ways to draw missing units given the observed ones.

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
from collections.abc import Iterator
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.nn import logsumexp

from darn.inference import likelihood
from darn.inference.constrained import held
from darn.inference.sampling import as_floats
from darn.model import Stack
from darn.nn import softplus
from darn.random import uniform

FIT_STEPS, FIT_SAMPLES = 300, 8  # for fitting the encoder's biases to one row


def drawn_given(layer, c, x, missing, key):
    """Returns (the row with its missing units drawn, the summed log-probability of its observed units).

    If the layer has several orders, one is drawn: on average, that is the layer.
    """
    u = uniform(jax.random.fold_in(key, 0), layer.n)
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


@partial(jax.jit, static_argnames="n")
def by_codes(model, x, missing, context, keys, n):
    """Exact: every code, weighted by p(h) p(x_observed | h)."""
    x, m = as_floats(x), sum(model.n_h)
    codes = ((jnp.arange(2**m)[:, None] >> jnp.arange(m - 1, -1, -1)[None]) & 1).astype(x.dtype)
    split = lambda code: tuple(jnp.split(code, np.cumsum(model.n_h)[:-1])) if m else ()  # noqa: E731
    layer = model.decoder[0].layer

    def one(x, missing, context, key):
        k_h, k_x = jax.random.split(key)

        def weigh(code):
            h = split(code)
            return model.log_prior(h, context) + layer.log_prob_of(x, ~missing, model.above(0, h, context))

        log_w = jax.vmap(weigh)(codes)
        chosen = codes[jax.random.categorical(k_h, log_w, shape=(n,))]

        def fill(code, k):
            return drawn_given(layer, model.above(0, split(code), context), x, missing, k)[0]

        y = jax.vmap(fill)(chosen, jax.random.split(k_x, n))
        return y.astype(jnp.uint8), logsumexp(log_w), jnp.asarray(float(len(codes)))

    return jax.vmap(one)(x, missing, context, keys)


@eqx.filter_jit
def by_weights(model, x, missing, context, keys, n, each, sweeps, conditions=None):
    """Importance resampling; the encoder's input is the mean of fillings that the sweeps refine."""
    x, layer = as_floats(x), model.decoder[0].layer

    def one(x, missing, context, key):
        k_start, k_sweeps, k_fit, k_last, k_choice = jax.random.split(key, 5)

        def step(fed, k, shift=None):
            """Returns (a filling, its log weight) for a code drawn from the encoder given `fed`."""
            k_h, k_x = jax.random.split(k)
            h = _shifted(model, shift).encode(fed, context, key=k_h)
            c = model.above(0, h, context)
            if conditions is None:
                y, log_w = drawn_given(layer, c, x, missing, k_x)
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


def by_states(model, parts, total: int, n: int, seed: int, progress) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Exact: every filling of a few missing units, with its exact likelihood; draws and log p of consecutive rows."""
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
            yield np.stack(drawn), np.array(totals)
            if progress is not None:
                progress(len(drawn))
