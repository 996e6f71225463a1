"""Optimisers and learning-rate schedules, by name."""

import difflib
import inspect
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import optax

from darn.errors import DarnError

# Optimisers that treat every weight by itself, so that devices can share their work.
BY_WEIGHT = ("rmsprop_graves", "adabelief", "adagrad", "adam", "adamax", "adamw", "amsgrad", "lion", "nadam", "radam")
BY_WEIGHT += ("rmsprop", "sgd", "yogi")

LearningRate = Any  # a number, a scalar array, or a function of the step


def make_schedule(name: str, lr: Any, n_steps: int) -> Callable[[Any], Any]:
    """The learning rate as a function of the step.

    Args:
        name: `Training.schedule`.
        lr: the initial learning rate, a number or a scalar array.
        n_steps: steps of the whole run.

    Returns:
        A function of the step.
    """
    if name == "half":
        parts = [
            optax.constant_schedule(lr),
            optax.linear_schedule(lr, 0.01 * lr, max(n_steps - n_steps // 2, 1)),
        ]
        return optax.join_schedules(parts, [n_steps // 2])
    if name == "linear":
        return optax.linear_schedule(lr, 0.01 * lr, n_steps)
    if name == "cosine":
        curve = optax.cosine_decay_schedule(lr, n_steps, alpha=0.01)
        return lambda step: curve(jnp.asarray(step, jnp.float32))  # optax divides the step as it comes
    return optax.constant_schedule(lr)


def optimizer_names() -> list[str]:
    """rmsprop_graves and every optax optimiser that needs only a learning rate."""
    # These have a similar signature but need a line search or a constant rate, or are only parts of optimisers.
    others = ("lbfgs", "optimistic_adam", "rprop", "sm3", "schedule_free_adamw", "schedule_free_sgd")

    def fits(f) -> bool:
        try:
            first, *rest = inspect.signature(f).parameters.values()
        except (TypeError, ValueError):
            return False
        return first.name == "learning_rate" and all(p.default is not p.empty for p in rest)

    offered = [k for k, f in vars(optax).items() if callable(f) and not inspect.isclass(f) and fits(f)]
    return ["rmsprop_graves", *sorted(k for k in offered if k not in others and not k.startswith("scale_by_"))]


def make_optimizer(name: str, lr: LearningRate, momentum: Any = 0.9) -> optax.GradientTransformation:
    """The optimiser of a given name.

    `rmsprop_graves` is RMSprop as defined by Graves (2013): centred, epsilon inside the root, momentum on the step. Its
    epsilon sets a gradient scale of 0.01, which assumes that the loss is the mean over the minibatch, in nats.

    Args:
        name: `Training.optimizer`.
        lr: the learning rate, a number or a function of the step.
        momentum: of rmsprop_graves; other optimisers keep their own.

    Returns:
        An optax gradient transformation.
    """
    if name == "rmsprop_graves":
        return optax.rmsprop(lr, decay=0.95, eps=1e-4, eps_in_sqrt=True, centered=True, momentum=momentum)
    names = optimizer_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "; use rmsprop_graves, or an optax optimiser's name"
        raise DarnError(f"there is no optimizer {name!r}{hint}")
    return getattr(optax, name)(lr)
