"""The interfaces of deterministic maps and of causal ones."""

import abc
import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from darn.errors import InputError
from darn.nn._fixed_point import Arithmetic, Inputs, rounded
from darn.nn._turns import COMPILED, AbstractTurns, Decide

M = TypeVar("M", bound=eqx.Module)


@dataclass(frozen=True)
class Work:
    """How many weights a computation uses: multiplied by a real value, or added because a bit is on."""

    multiplied: int = 0
    added: int = 0

    def __add__(self, other: "Work") -> "Work":
        return Work(self.multiplied + other.multiplied, self.added + other.added)

    @property
    def operations(self) -> int:
        return self.multiplied + self.added


def product_work(v: np.ndarray, n_out: int) -> Work:
    """The work of multiplying a matrix of n_out rows by v: additions if v is binary, else multiplications."""
    on = v[v != 0]
    return Work(added=n_out * len(on)) if np.all(on == 1) else Work(multiplied=n_out * len(v))


class Logistic(NamedTuple):
    """An activation as scale * sigmoid(slope * x) + offset."""

    slope: float
    scale: float
    offset: float


class AbstractMap(eqx.Module):
    """A function of one vector, with or without weights."""

    logistic: ClassVar[Logistic | None] = None  # what an activation is, if it is one

    @abc.abstractmethod
    def __call__(self, c: Float[Array, " n_in"]) -> Float[Array, " n_out"]:
        """Maps one example; batches come from `jax.vmap`."""

    @property
    def row_floats(self) -> int:
        """Floats in the largest array inside, if it is larger than the output: see `AbstractBinaryLayer`."""
        return 0

    def quantised(self, inputs: Inputs, arithmetic: Arithmetic) -> tuple["AbstractMap", Inputs]:
        """Returns (the integer twin, a description of its outputs). This default is for linear maps.

        Args:
            inputs: size, grid and range of the input.
            arithmetic: the float type and how its bits are used.
        """
        return rounded(self, lambda sizes: eqx.filter_jit(sizes)(inputs.largest), inputs.grid, arithmetic)

    def work(self, v: np.ndarray) -> Work:
        """The work of mapping v.

        Args:
            v: (n_in,), the input.

        Returns:
            The weights that are multiplied, and those that are added.
        """
        raise InputError(f"the operations of a {type(self).__name__} cannot be counted")

    def matrix(self) -> tuple[np.ndarray, np.ndarray | None]:
        """W and b of a map that computes W c + b."""
        raise InputError(f"a {type(self).__name__} is not a plain matrix product")


def above_zero(carry: Any, units: Any, a: Array) -> tuple[Any, Array]:
    """A `Decide`: units are on where their logits exceed 0."""
    return carry, (a > 0).astype(a.dtype)


class AbstractCausalMap(AbstractMap):
    """A linear map whose output j depends only on inputs before j: the autoregressive part of Eqs. (2) and (5)."""

    n: eqx.AbstractVar[int]

    @abc.abstractmethod
    def outgoing(self, j) -> Float[Array, " n"]:
        """The weights from unit j to every unit, zero up to and including j.

        Args:
            j: the unit's number.

        Returns:
            (n,).
        """

    @abc.abstractmethod
    def walk(self, a: Any, decide: Decide, carry: Any, turns: AbstractTurns) -> tuple[Any, Any]:
        """Decides all units in order, given their logits `a` without the autoregressive part; returns (y, carry).

        Args:
            a: (n,).
            decide: chooses bits from logits, `(carry, units, a) -> (carry, bits)`; see `darn.nn.Decide`.
            carry: any pytree, passed from one call of `decide` to the next.
            turns: whether the walk runs compiled or on the host.

        Returns:
            (y, carry).
        """

    def decided(self, s: Float[Array, " n"]) -> Float[Array, " n"]:
        """y_j = 1 where s_j + W_j y > 0, unit by unit; without a gradient.

        Args:
            s: (n,).

        Returns:
            (n,) of 0 and 1.
        """
        return self.walk(s, above_zero, None, COMPILED)[0]

    @abc.abstractmethod
    def weights(self) -> Array:
        """The autoregressive weights in use, with zeros for the others."""

    def fan_out(self) -> np.ndarray:
        """The number of weights from each unit to others."""
        count = jax.vmap(lambda j: (self.ones().outgoing(j) != 0).sum())
        return np.asarray(count(np.arange(self.n)))

    def ones(self) -> "AbstractCausalMap":
        """The same connections, all with weight 1."""
        return jax.tree.map(lambda w: np.ones_like(w) if eqx.is_inexact_array(w) else w, self)


def replaced(module: M, **fields: Any) -> M:
    """A copy of a module with other values of some fields, static ones included."""
    new = object.__new__(type(module))
    for f in dataclasses.fields(module):  # type: ignore[arg-type]
        object.__setattr__(new, f.name, fields.get(f.name, getattr(module, f.name)))
    return new


def causal_maps(tree: Any) -> list[AbstractCausalMap]:
    """All causal maps inside a pytree of modules."""
    is_causal = lambda m: isinstance(m, AbstractCausalMap)  # noqa: E731
    return [m for m in jax.tree.leaves(tree, is_leaf=is_causal) if is_causal(m)]
