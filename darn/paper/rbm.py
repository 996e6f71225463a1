"""Restricted Boltzmann machine: contrastive divergence, and log Z by annealed importance sampling.

A baseline of both tables. It is not a `Stack`: its probabilities are known only up to Z, so -log p comes with an
interval from the estimate of log Z.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.nn import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray
from safetensors import safe_open
from safetensors.numpy import save_file

from darn.errors import DarnError
from darn.files import atomic
from darn.jsonable import parse
from darn.model_file import MAX_INFO, UNREADABLE, check, check_header
from darn.nn import softplus

FORMAT = "darn-rbm"


class RBM(eqx.Module):
    """p(x) = exp(-F(x)) / Z, F(x) = -b x - sum_j softplus(c_j + W_j x)."""

    W: Float[Array, "n_h n_x"]
    b: Float[Array, " n_x"]
    c: Float[Array, " n_h"]

    @staticmethod
    def fresh(mean: np.ndarray, n_h: int, *, key: PRNGKeyArray) -> "RBM":
        """Small weights; visible biases at the training rows' means."""
        p = jnp.clip(jnp.asarray(mean, jnp.float32), 1e-3, 1 - 1e-3)
        return RBM(0.01 * jax.random.normal(key, (n_h, len(p))), jnp.log(p) - jnp.log1p(-p), jnp.zeros(n_h))

    def free_energy(self, x: Float[Array, "N n_x"]) -> Float[Array, " N"]:
        return -x @ self.b - jnp.sum(softplus(x @ self.W.T + self.c[None]), axis=1)

    def gibbs(
        self, x: Float[Array, "N n_x"], key: PRNGKeyArray, beta: Array | float = 1.0, base: Array | None = None
    ) -> Array:
        """One step x -> h -> x; `beta` scales weights and hidden biases, and moves the visible ones from `base`."""
        k_h, k_x = jax.random.split(key)
        b = self.b if base is None else (1 - beta) * base + beta * self.b
        h = _bits(k_h, beta * (x @ self.W.T + self.c[None]))
        return _bits(k_x, beta * (h @ self.W) + b[None])


def _bits(key, a):
    return (jax.random.uniform(key, a.shape) < jax.nn.sigmoid(a)).astype(a.dtype)


# ---------------------------------------------------------------- learning


@dataclass(frozen=True)
class Settings:
    """How an RBM is trained. The paper's baseline: 500 units, 25 steps of contrastive divergence."""

    n_h: int = 500
    steps: int = 25
    lr: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 1e-4
    batch: int = 100
    epochs: int = 100
    looks: int = 10  # validations during training, each with an estimate of log Z
    seed: int = 0


@partial(jax.jit, static_argnames="settings", donate_argnums=(0, 1))
def _epoch(rbm: RBM, velocity: RBM, x: Array, epoch, settings: Settings):
    s = settings
    n_batches = max(len(x) // s.batch, 1)
    batch = min(s.batch, len(x))
    key = jax.random.fold_in(jax.random.key(s.seed), epoch)
    order = jax.random.permutation(key, len(x))[: n_batches * batch].reshape(n_batches, batch)
    rate = s.lr * (1 - epoch / s.epochs)  # falls to zero, which averages the last weights

    def step(carry, chosen):
        rbm, velocity = carry
        index, key = chosen
        rows = x[index].astype(jnp.float32)
        negative = lax.fori_loop(0, s.steps, lambda i, v: rbm.gibbs(v, jax.random.fold_in(key, i)), rows)
        # The gradient of -log p is that of F at the data minus that of F at the model's own rows.
        gap = lambda m: jnp.mean(m.free_energy(rows)) - jnp.mean(m.free_energy(negative))  # noqa: E731
        g = jax.grad(gap)(rbm)
        g = eqx.tree_at(lambda m: m.W, g, g.W + s.weight_decay * rbm.W)
        velocity = jax.tree.map(lambda v, d: s.momentum * v - rate * d, velocity, g)
        return (jax.tree.map(jnp.add, rbm, velocity), velocity), None

    return lax.scan(step, (rbm, velocity), (order, jax.random.split(key, n_batches)))[0]


def fit(x: np.ndarray, valid: np.ndarray, settings: Settings, *, progress: Callable | None = None) -> tuple[RBM, dict]:
    """Trains by contrastive divergence and keeps the machine with the lowest validation -log p.

    Args:
        x: Training rows (N, n_x).
        valid: Validation rows.
        settings: Units, steps, learning rate and the rest.
        progress: Called with (epoch, validation -log p) after each validation.

    Returns:
        The RBM, and a record of the training: "valid_nll", "epoch", "epochs" and "history".
    """
    mean = x.mean(axis=0)
    rbm = RBM.fresh(mean, settings.n_h, key=jax.random.key(settings.seed))
    velocity = jax.tree.map(jnp.zeros_like, rbm)
    rows = jnp.asarray(x, jnp.uint8)
    best, history, every = None, [], max(settings.epochs // settings.looks, 1)
    for epoch in range(settings.epochs):
        rbm, velocity = _epoch(rbm, velocity, rows, jnp.asarray(epoch), settings)
        if (epoch + 1) % every == 0 or epoch + 1 == settings.epochs:
            z = log_z(rbm, mean, chains=100, temperatures=1000, seed=settings.seed)
            nll = float(mean_free_energy(rbm, valid)) + z.value
            history.append({"epoch": epoch + 1, "valid": {"nll": nll, "log_z": z.value}})
            if not math.isfinite(nll):
                raise DarnError(
                    f"the RBM diverged in epoch {epoch + 1}: try a lower learning rate than {settings.lr:g}"
                )
            if best is None or nll < best[0]:
                best = (nll, epoch + 1, jax.tree.map(jnp.copy, rbm))
            if progress is not None:
                progress(epoch + 1, nll)
    assert best is not None
    return best[2], {"valid_nll": best[0], "epoch": best[1], "epochs": settings.epochs, "history": history}


def mean_free_energy(rbm: RBM, x: np.ndarray) -> float:
    """The mean of F over rows, in chunks."""
    one = jax.jit(lambda m, v: m.free_energy(v))
    parts = [np.asarray(one(rbm, jnp.asarray(x[i : i + 1000], jnp.float32))) for i in range(0, len(x), 1000)]
    return float(np.concatenate(parts).mean(dtype=np.float64))


# ---------------------------------------------------------------- log Z


@dataclass(frozen=True)
class LogZ:
    """An estimate of log Z with its 95% interval, from the spread of the importance weights."""

    value: float
    low: float
    high: float
    chains: int
    temperatures: int
    ess: float


@partial(jax.jit, static_argnames=("chains", "temperatures"))
def _anneal(rbm: RBM, base, key, chains: int, temperatures: int):
    """log w of every chain, annealed in small steps from independent units with biases `base` to the machine."""
    betas = jnp.linspace(0.0, 1.0, temperatures + 1)

    def log_f(x, beta):  # the unnormalised log-probability at a temperature
        hidden = jnp.sum(softplus(beta * (x @ rbm.W.T + rbm.c[None])), axis=1)
        return x @ ((1 - beta) * base + beta * rbm.b) + hidden

    def step(carry, k):
        x, log_w = carry
        log_w = log_w + log_f(x, betas[k]) - log_f(x, betas[k - 1])
        return (rbm.gibbs(x, jax.random.fold_in(key, k), betas[k], base), log_w), None

    x = _bits(key, jnp.broadcast_to(base, (chains, len(base))))
    (_, log_w), _ = lax.scan(step, (x, jnp.zeros(chains)), jnp.arange(1, temperatures + 1))
    return log_w


def log_z(rbm: RBM, mean: np.ndarray, *, chains: int = 1000, temperatures: int = 10_000, seed: int = 0) -> LogZ:
    """log Z by annealed importance sampling (Neal, 2001; Salakhutdinov & Murray, 2008).

    The mean weight is unbiased for Z, so its logarithm is a little low on average, which makes -log p look better than
    it is; more temperatures reduce the effect.

    Args:
        rbm: The machine.
        mean: Mean of the training rows, where the annealing starts.
        chains: Importance weights.
        temperatures: Steps from independent units to the machine.
        seed: Of the random numbers.
    """
    p = np.clip(np.asarray(mean, np.float64), 1e-3, 1 - 1e-3)
    base = jnp.asarray(np.log(p) - np.log1p(-p), jnp.float32)
    log_w = np.asarray(_anneal(rbm, base, jax.random.key(seed), chains, temperatures), np.float64)
    start = float(np.logaddexp(0, np.asarray(base, np.float64)).sum()) + len(rbm.c) * math.log(2)
    top = log_w.max()
    w = np.exp(log_w - top)
    error = 1.96 * w.std(ddof=1) / len(w) ** 0.5
    value = start + top + math.log(w.mean())
    low = start + top + math.log(max(w.mean() - error, w.min() / len(w)))
    return LogZ(value, low, start + top + math.log(w.mean() + error), chains, temperatures, w.sum() ** 2 / (w**2).sum())


def exact_log_z(rbm: RBM) -> float:
    """log Z by the sum over all states of the smaller side, which may have up to 20 units."""
    W, b, c = (np.asarray(v, np.float64) for v in (rbm.W, rbm.b, rbm.c))
    if len(c) < len(b):
        W, b, c = W.T, c, b
    n = len(b)
    if n > 20:
        raise DarnError(f"log Z of {n} units cannot be enumerated: use annealed importance sampling")
    total = -np.inf
    for first in range(0, 2**n, 4096):
        number = np.arange(first, min(first + 4096, 2**n))
        states = (number[:, None] >> np.arange(n)[None]) & 1
        terms = states @ b + np.logaddexp(0, states @ W.T + c[None]).sum(axis=1)
        total = np.logaddexp(total, float(logsumexp(jnp.asarray(terms - terms.max()))) + terms.max())
    return float(total)


# ---------------------------------------------------------------- files


def save(path: str | Path, rbm: RBM, info: dict, *, dtype: str = "float32") -> None:
    """Writes an RBM with `info`, any JSON value."""
    arrays = {k: np.asarray(getattr(rbm, k)).astype(dtype) for k in ("W", "b", "c")}
    with atomic(path) as temporary:
        save_file(arrays, temporary, metadata={"format": FORMAT, "info": json.dumps(info)})


def is_rbm(path: str | Path) -> bool:
    """Whether `save` wrote this file."""
    try:
        check_header(path)  # and refuses a pipe
        with safe_open(path, framework="np") as f:
            return (f.metadata() or {}).get("format") == FORMAT
    except (*UNREADABLE, DarnError):
        return False


def load(path: str | Path) -> tuple[RBM, dict]:
    """Returns (the RBM, the info saved with it)."""
    try:
        check_header(path)
        with safe_open(path, framework="np") as f:
            head = f.metadata() or {}
            if head.get("format") != FORMAT:
                raise DarnError(f"{path} is not an RBM that darn wrote")
            arrays = {k: jnp.asarray(f.get_tensor(k), jnp.float32) for k in ("W", "b", "c")}
        info, machine = parse(head["info"], "its info", MAX_INFO), RBM(**arrays)
        check(machine)
        if not isinstance(info, dict) or not all(np.isfinite(a).all() for a in arrays.values()):
            raise ValueError("not an object, or weights that are not finite")
        return machine, info
    except (*UNREADABLE, KeyError) as e:
        raise DarnError(f"{path} is not a readable RBM: it is damaged, truncated or another file") from e
