"""Units decided one after the other: how such a walk is compiled."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array


def unrolled() -> bool:
    """Whether a walk is written out. On an accelerator it is: all of it becomes one fused kernel, not several a unit.

    On a CPU a loop is as fast, and compiles in a second where 32 units written out take ten.
    """
    return jax.default_backend() != "cpu"


def in_turn(step: Callable[[Any, Any], tuple[Any, Array]], state: Any, n: int) -> tuple[Any, Array]:
    """(state, outputs stacked) of `step(state, i) -> (state, output)` for i = 0 .. n - 1."""
    if not unrolled():
        return lax.scan(step, state, jnp.arange(n))
    out = []
    for i in range(n):
        state, y = step(state, i)
        out.append(y)
    return state, jnp.stack(out)
