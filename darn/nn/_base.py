"""What a deterministic map is, and what a causal one adds."""

import abc
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from darn.errors import InputError
from darn.nn._fixed_point import Arithmetic, Inputs, rounded
from darn.nn._turns import AbstractTurns, Decide


@dataclass(frozen=True)
class Work:
    """Weights used to compute something: multiplied with a real value, or added because a bit is on."""

    multiplied: int = 0
    added: int = 0

    def __add__(self, other: "Work") -> "Work":
        return Work(self.multiplied + other.multiplied, self.added + other.added)

    @property
    def operations(self) -> int:
        return self.multiplied + self.added


def product_work(v: np.ndarray, n_out: int) -> Work:
    """The work of a product with a matrix of n_out rows: columns added for bits, else every weight multiplied."""
    on = v[v != 0]
    return Work(added=n_out * len(on)) if np.all(on == 1) else Work(multiplied=n_out * len(v))


class AbstractMap(eqx.Module):
    """A function of one vector, with or without weights."""

    @abc.abstractmethod
    def __call__(self, c: Float[Array, " n_in"]) -> Float[Array, " n_out"]:
        """Maps one example; batches come from `jax.vmap`."""

    @property
    def row_floats(self) -> int:
        """Floats of the widest array inside, where that is more than the output: see `AbstractBinaryLayer`."""
        return 0

    def quantised(self, inputs: Inputs, arithmetic: Arithmetic) -> tuple["AbstractMap", Inputs]:
        """(the integer twin, what it puts out). A linear map is one whose weights are rounded."""
        return rounded(self, lambda sizes: sizes(inputs.largest), inputs.grid, arithmetic)

    def work(self, v: np.ndarray) -> Work:
        """What mapping v costs."""
        raise InputError(f"the weights that a {type(self).__name__} uses are not counted")

    def matrix(self) -> tuple[np.ndarray, np.ndarray | None]:
        """(W, b) of a map that is a matrix product."""
        raise InputError(f"a {type(self).__name__} is not a plain matrix product")


class AbstractCausalMap(AbstractMap):
    """A linear map whose output j sees the inputs before j only: the autoregressive part of Eqs. (2) and (5)."""

    n: eqx.AbstractVar[int]

    @abc.abstractmethod
    def outgoing(self, j) -> Float[Array, " n"]:
        """The weights from unit j to every unit, zero up to and including j."""

    @abc.abstractmethod
    def walk(self, a: Any, decide: Decide, carry: Any, turns: AbstractTurns) -> tuple[Any, Any]:
        """(y, carry): decides all units in order, `a` being their logits without the autoregressive part."""

    @abc.abstractmethod
    def weights(self) -> Array:
        """The autoregressive weights that are in use, zeros in place of the others."""

    def fan_out(self) -> np.ndarray:
        """How many weights lead from each unit to others."""
        count = jax.vmap(lambda j: (self.ones().outgoing(j) != 0).sum())
        return np.asarray(count(np.arange(self.n)))

    def ones(self) -> "AbstractCausalMap":
        """The same connections, each with weight 1."""
        return jax.tree.map(lambda w: np.ones_like(w) if eqx.is_inexact_array(w) else w, self)


def causal_maps(tree: Any) -> list[AbstractCausalMap]:
    """The causal maps inside a pytree of modules, wherever they are."""
    is_causal = lambda m: isinstance(m, AbstractCausalMap)  # noqa: E731
    return [m for m in jax.tree.leaves(tree, is_leaf=is_causal) if is_causal(m)]
