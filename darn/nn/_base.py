"""What a deterministic map is, and what a causal one adds."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float

# (carry, j, a_j) -> (carry, y_j): choose the bit of unit j from its logit. The sampler compares with a uniform
# number; a decoder pops the bit from a file. `j` and `a_j` may be arrays where units are decided side by side; in
# them a j of n, one beyond the last unit, stands for no unit.
Decide = Callable[[Any, Any, Array], tuple[Any, Array]]


class AbstractMap(eqx.Module):
    """A function of one vector, with or without weights."""

    @abc.abstractmethod
    def __call__(self, c: Float[Array, " n_in"]) -> Float[Array, " n_out"]:
        """Maps one example; batches come from `jax.vmap`."""

    @property
    def width(self) -> int:
        """Floats of the widest array inside, where that is more than the output: see `AbstractBinaryLayer.width`."""
        return 0


class AbstractCausalMap(AbstractMap):
    """A linear map whose output j sees the inputs before j only: the autoregressive part of Eqs. (2) and (5)."""

    n: eqx.AbstractVar[int]

    @abc.abstractmethod
    def outgoing(self, j) -> Float[Array, " n"]:
        """The weights from unit j to every unit, zero up to and including j."""

    @abc.abstractmethod
    def chain(self, a: Float[Array, " n"], decide: Decide, carry: Any) -> tuple[Float[Array, " n"], Any]:
        """Decides all units in order, `a` being their logits without the autoregressive part."""

    @abc.abstractmethod
    def weights(self) -> Array:
        """The autoregressive weights that are in use, for penalties on them."""


def causal_maps(tree: Any) -> list[AbstractCausalMap]:
    """The causal maps inside a pytree; their `weights()` are the autoregressive weights in use."""
    is_causal = lambda m: isinstance(m, AbstractCausalMap)  # noqa: E731
    return [m for m in jax.tree.leaves(tree, is_leaf=is_causal) if is_causal(m)]
