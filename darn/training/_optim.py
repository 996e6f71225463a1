"""Optimisers and learning-rate schedules, by name."""

import difflib
import inspect
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from darn.config import Training
from darn.errors import DarnError


class GravesState(NamedTuple):
    """Running mean square, running mean and step of every weight."""

    n: Any
    m: Any
    delta: Any
    step: jax.Array


def rmsprop_graves(learning_rate, decay: float = 0.95, momentum: float = 0.9, eps: float = 1e-4):
    """RMSprop of Graves (2013): centred, the epsilon inside the root, momentum on the step.

    n <- .95 n + .05 g^2;  m <- .95 m + .05 g;  delta <- .9 delta - lr g / sqrt(n - m^2 + 1e-4);  w <- w + delta.
    The epsilon sets a gradient scale of 0.01: the loss is the mean over the minibatch, in nats.
    """

    def init(params):
        zeros = lambda: jax.tree.map(jnp.zeros_like, params)  # noqa: E731
        return GravesState(zeros(), zeros(), zeros(), jnp.zeros((), jnp.int32))

    def update(updates, state, params=None):
        grads = updates
        lr = learning_rate(state.step) if callable(learning_rate) else learning_rate
        n = jax.tree.map(lambda n, g: decay * n + (1 - decay) * g * g, state.n, grads)
        m = jax.tree.map(lambda m, g: decay * m + (1 - decay) * g, state.m, grads)

        def step(delta, g, n, m):
            # n - m^2 is a variance, but rounding may take it below zero
            return momentum * delta - lr * g / jnp.sqrt(jnp.maximum(n - m * m, 0) + eps)

        delta = jax.tree.map(step, state.delta, grads, n, m)
        return delta, GravesState(n, m, delta, state.step + 1)

    return optax.GradientTransformation(init, update)


def make_schedule(config: Training, n_steps: int):
    """The learning rate as a function of the step."""
    lr = config.lr
    if config.schedule == "half":
        parts = [
            optax.constant_schedule(lr),
            optax.linear_schedule(lr, 0.01 * lr, max(n_steps - n_steps // 2, 1)),
        ]
        return optax.join_schedules(parts, [n_steps // 2])
    if config.schedule == "linear":
        return optax.linear_schedule(lr, 0.01 * lr, n_steps)
    if config.schedule == "cosine":
        curve = optax.cosine_decay_schedule(lr, n_steps, alpha=0.01)
        return lambda step: curve(jnp.asarray(step, jnp.float32))  # optax divides the step as it comes
    return optax.constant_schedule(lr)


def optimizer_names() -> list[str]:
    """rmsprop_graves and every optax optimiser that needs nothing but a learning rate on a schedule."""
    # These look alike but want more: a line search, a plain number, or are parts of optimisers and not whole ones.
    others = ("lbfgs", "optimistic_adam", "rprop", "sm3", "schedule_free_adamw", "schedule_free_sgd")

    def fits(f) -> bool:
        try:
            first, *rest = inspect.signature(f).parameters.values()
        except (TypeError, ValueError):
            return False
        return first.name == "learning_rate" and all(p.default is not p.empty for p in rest)

    found = [k for k, f in vars(optax).items() if callable(f) and not inspect.isclass(f) and fits(f)]
    return ["rmsprop_graves", *sorted(k for k in found if k not in others and not k.startswith("scale_by_"))]


def make_optimizer(config: Training, n_steps: int) -> optax.GradientTransformation:
    """The optimiser that the recipe names, on its schedule."""
    schedule = make_schedule(config, n_steps)
    if config.optimizer == "rmsprop_graves":
        return rmsprop_graves(schedule, momentum=config.momentum)
    names = optimizer_names()
    if config.optimizer not in names:
        near = difflib.get_close_matches(config.optimizer, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "; use rmsprop_graves, or an optax optimiser's name"
        raise DarnError(f"there is no optimizer {config.optimizer!r}{hint}")
    return getattr(optax, config.optimizer)(schedule)
