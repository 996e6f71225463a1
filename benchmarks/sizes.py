"""The models that are measured, with random rows in place of a data set."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import equinox as eqx
import jax
import numpy as np

from darn import zoo
from darn.model import Stack


@dataclass(frozen=True)
class Size:
    """A DARN of one stochastic layer with a tanh layer each way."""

    name: str
    n_x: int
    n_h: int
    n_d: int
    visible: str
    density: float  # share of ones in the rows

    def fresh(self, seed: int) -> Stack:
        """As training starts."""
        build = lambda key: zoo.darn(self.n_x, self.n_h, self.n_d, self.visible, key=key)  # noqa: E731
        return jit_cheaply(build)(jax.random.key(seed))

    def random(self, seed: int, scale: float = 0.05) -> Stack:
        """With no weight at zero, as after training."""
        return jit_cheaply(partial(scrambled, scale=scale))(self.fresh(seed), jax.random.key(seed + 1))

    @property
    def products(self) -> dict[str, int]:
        """Multiply-adds: of the code alone (the prior), of x given a code, of the code given x, of x given x."""
        return {
            "h": self.n_h * (self.n_h - 1) // 2,
            "x_given_h": self.n_h * self.n_d + self.n_d * self.n_x,
            "h_given_x": self.n_x * self.n_d + self.n_d * self.n_h,
            "x": self.n_x * (self.n_x - 1) // 2 if self.visible == "linear" else 0,
        }

    @property
    def weights(self) -> int:
        """About how many weights there are: a matrix below its diagonal counts as whole."""
        p = self.products
        return p["x_given_h"] + p["h_given_x"] + 2 * (p["h"] + p["x"])

    def rows(self, n: int, seed: int) -> np.ndarray:
        """n rows of random bits, uint8."""
        return (np.random.default_rng(seed).random((n, self.n_x)) < self.density).astype(np.uint8)


UCI = Size("112/100/32 linear", 112, 32, 100, "linear", 0.2)  # as Mushrooms: 22 of 112 on
MNIST = Size("784/500/500 factorial", 784, 500, 500, "factorial", 0.13)  # binarised MNIST: 13%
SMALL = (
    Size("12/8/5 linear", 12, 5, 8, "linear", 0.2),
    Size("20/8/6 factorial", 20, 6, 8, "factorial", 0.13),
)


def jit_cheaply(f: Callable) -> Callable:
    """jit for what runs in an instant and takes seconds to compile."""
    on_cpu = jax.default_backend() == "cpu"
    return jax.jit(f, compiler_options={"xla_backend_optimization_level": 0} if on_cpu else None)


def scrambled(model: Stack, key, scale: float) -> Stack:
    """The model with noise added to every weight, so that none stays at zero."""
    weights, rest = eqx.partition(model, eqx.is_inexact_array)
    leaves, tree = jax.tree.flatten(weights)
    keys = jax.random.split(key, len(leaves))
    leaves = [w + scale * jax.random.normal(k, w.shape) for w, k in zip(leaves, keys)]
    return eqx.combine(jax.tree.unflatten(tree, leaves), rest)


def with_leaves(model: Stack, where: Callable[[Stack], dict], leaves: dict) -> Stack:
    """The model with the leaves that `where` names replaced."""
    return eqx.tree_at(lambda m: list(where(m).values()), model, [leaves[k] for k in where(model)])
