"""Baselines without gradients: independent Bernoullis, and a mixture of them by EM. Each is a `Stack`."""

from functools import partial
from operator import itemgetter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.nn import logsumexp

from darn.config import Architecture
from darn.data import Rows
from darn.model import Stack
from darn.zoo import build, mixture


def independent(x: np.ndarray) -> Stack:
    """One Bernoulli per column, smoothed by one imaginary row of zeros and one of ones.

    Args:
        x: Training rows, (N, n) of 0 and 1.

    Returns:
        A stack without hidden layers.
    """
    mean = (x.sum(axis=0) + 1) / (len(x) + 2)
    stack = build(Architecture(n_h=(), visible="factorial"), x.shape[1], key=jax.random.key(0))
    a = jnp.asarray(np.log(mean / (1 - mean)), jnp.float32)
    return eqx.tree_at(_biases, stack, a)


def _biases(stack):
    return stack.decoder[0].layer.b


def independent_nll(train: Rows, x: np.ndarray) -> float:
    """The mean -log p, in nats, of rows x (N, n) under `independent` of the training rows, without building a model.

    Args:
        train: the training rows.
        x: (N, n) of 0 and 1.

    Returns:
        Nats per row.
    """
    p = (train.mean() * len(train) + 1) / (len(train) + 2)
    mean = np.mean(x, axis=0, dtype=np.float64)
    return float(-(mean * np.log(p) + (1 - mean) * np.log1p(-p)).sum())


@partial(jax.jit, static_argnames="n_steps")
def _em(log_pi, p, x, prior, strength, n_steps):
    """`n_steps` of EM; components are shrunk towards the column means `prior` by `strength` imaginary rows."""

    def step(_, carry):
        log_pi, p = carry
        joint = log_pi[None] + x @ jnp.log(p).T + (1 - x) @ jnp.log1p(-p).T
        r = jnp.exp(joint - logsumexp(joint, axis=1, keepdims=True))
        mass = jnp.sum(r, axis=0)
        p = (r.T @ x + strength * prior[None]) / (mass[:, None] + strength)
        p = jnp.clip(p, 1e-6, 1 - 1e-6)  # rounding must not make a probability 0 or 1
        return jnp.log((mass + 1) / (len(x) + len(mass))), p

    return lax.fori_loop(0, n_steps, step, (log_pi, p))


@jax.jit
def _mean_log_prob(log_pi, p, x):
    return jnp.mean(logsumexp(log_pi[None] + x @ jnp.log(p).T + (1 - x) @ jnp.log1p(-p).T, axis=1))


def em_mixture(x: np.ndarray, valid: np.ndarray, n_components: int, *, seed: int = 0, strength: float = 1.0) -> Stack:
    """A mixture of Bernoullis by EM, stopped when the validation rows no longer improve.

    Args:
        x: Training rows, (N, n) of 0 and 1.
        valid: Validation rows.
        n_components: Components of the mixture.
        seed: Of the rows at which the components start.
        strength: Imaginary rows by which each component is shrunk towards the column means.

    Returns:
        A stack of one mixture layer.
    """
    rows, held = jnp.asarray(x, jnp.float32), jnp.asarray(valid, jnp.float32)
    mean = (rows.sum(axis=0) + 1) / (len(rows) + 2)
    start = np.random.RandomState(seed).choice(len(x), n_components, replace=n_components > len(x))
    p = 0.5 * mean[None] + 0.5 * jnp.clip(rows[start], 0.05, 0.95)  # each starts at a row, halfway to the mean
    log_pi = jnp.full(n_components, -jnp.log(n_components))
    best = (-np.inf, log_pi, p)
    since = 0
    while since < 3:
        log_pi, p = _em(log_pi, p, rows, mean, strength, 10)
        score = float(_mean_log_prob(log_pi, p, held))
        since = 0 if score > best[0] + 1e-4 else since + 1
        best = max(best, (score, log_pi, p), key=itemgetter(0))
    _, log_pi, p = best
    stack = mixture(x.shape[1], n_components, key=jax.random.key(0))
    return eqx.tree_at(_mixture_weights, stack, (log_pi, jnp.log(p) - jnp.log1p(-p)))


def _mixture_weights(stack):
    return stack.decoder[0].layer.pi, stack.decoder[0].layer.B


def best_mixture(x: np.ndarray, valid: np.ndarray, sizes=(10, 20, 50, 100, 200), *, seed: int = 0) -> tuple[int, Stack]:
    """The mixture whose size is best on the validation rows.

    Args:
        x: Training rows, (N, n) of 0 and 1.
        valid: Validation rows.
        sizes: Numbers of components to try.
        seed: Of each mixture.

    Returns:
        (number of components, the mixture).
    """
    scored = []
    for k in [k for k in sizes if k <= len(x)] or [1]:
        stack = em_mixture(x, valid, k, seed=seed)
        score = jax.vmap(stack.log_p)(jnp.asarray(valid, jnp.float32)).mean()
        scored.append((float(score), k, stack))
    _, k, stack = max(scored, key=itemgetter(0))
    return k, stack
