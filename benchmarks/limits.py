"""What the machine can do at most, measured in the same run, and how much of it a way of working reaches."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


class Share(NamedTuple):
    """How much of the machine's limit a rate reaches."""

    value: float
    limit: str  # "products", "bytes" or "turns"


@dataclass(frozen=True)
class Needs:
    """What a unit of work takes at least, whoever does it."""

    products: float = 0.0  # multiply-adds of matrix products
    bytes: float = 0.0  # to and from memory
    turns: float = 0.0  # steps that must wait for each other


@dataclass(frozen=True)
class Limits:
    """The most that the machine does in a second, in float32."""

    products: float
    bytes: float
    turns: float

    @classmethod
    def measured(cls, *, quick: bool = False, repeats: int = 5) -> "Limits":
        """By a large matrix product, a copy of a large array, and a loop whose steps do nearly nothing."""
        n, length, steps = (256, 1 << 18, 100) if quick else (2048, 1 << 26, 10_000)
        a, long = jnp.ones((n, n), jnp.float32), jnp.ones(length, jnp.float32)
        product = jax.jit(lambda a: jnp.matmul(a, a, precision=lax.Precision.HIGHEST))
        copy = jax.jit(lambda v: v + 1)
        loop = jax.jit(lambda v: lax.fori_loop(0, steps, lambda i, v: v * v, v))

        def rate(amount: float, f: Callable, v) -> float:
            jax.block_until_ready(f(v))  # compiles
            seconds = []
            for _ in range(repeats):
                start = time.perf_counter()
                jax.block_until_ready(f(v))
                seconds.append(time.perf_counter() - start)
            return amount / statistics.median(seconds)

        return cls(
            rate(n**3, product, a), rate(2 * 4 * length, copy, long), rate(steps, loop, jnp.ones((), jnp.float32))
        )

    def share(self, rate: float, needs: Needs) -> Share | None:
        """How much of the nearest limit this rate uses; None if nothing is known to be needed."""
        used = {name: rate * getattr(needs, name) / getattr(self, name) for name in ("products", "bytes", "turns")}
        name = max(used, key=lambda k: used[k])
        return Share(used[name], name) if used[name] else None
