"""A uniform mixture of one layer in several orders of its units, such as the rotations of an image."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.nn import logsumexp
from jaxtyping import Array, Int, PRNGKeyArray

from darn.layers._base import AbstractBinaryLayer
from darn.nn import COMPILED, AbstractTurns, Decide, Grid, register, replaced


class AbstractReorderable(AbstractBinaryLayer):
    """A layer whose units can be decided in several orders, with one set of weights."""

    @property
    @abc.abstractmethod
    def n_told(self) -> int:
        """The number of orders that the layer can tell apart."""

    @abc.abstractmethod
    def in_order(self, k: Any, places: Int[Array, " n"]) -> "AbstractReorderable":
        """The layer in order number k.

        Args:
            k: Which order, below `n_told`: the weights may depend on it.
            places: The units in that order.

        Returns:
            A layer over the reordered units, its j-th unit being this one's unit places[j].
        """


def symmetries(grid: Grid) -> np.ndarray:
    """The rotations and reflections of a grid, each as an order of its units: (K, n), the grid's own order first.

    Eight for a square, four for other grids, fewer where a side is one cell. Channels stay with their cell.
    """
    cells = np.arange(np.prod(grid)).reshape(grid)
    found = [np.rot90(part, turns) for turns in range(4) for part in (cells, cells.transpose(1, 0, 2))]
    found = [part.ravel() for part in found if part.shape == cells.shape]
    _, first = np.unique(np.stack(found), axis=0, return_index=True)
    return np.stack([found[i] for i in sorted(first)])


def check_orders(places: Int[Array, "K n"]) -> None:
    """Raises a ValueError unless each row is a permutation of the units; a model file may say anything."""
    if not isinstance(places, Tracer) and (np.sort(places, axis=1) != np.arange(places.shape[1])).any():
        raise ValueError("every order must contain each unit exactly once")


def in_places(places: Int[Array, "K n"], order: Any, turns: AbstractTurns, decide: Decide, walk: Callable):
    """A walk along chains that decide the units in other places.

    Args:
        places: The units in each order.
        order: Which of them; on the host an array with that of each row.
        turns: How the walk runs.
        decide: Takes units; on the host, an array with that of each row.
        walk: Walks with a `decide` that takes places in the order; returns (y, carry).

    Returns:
        (y, carry), the units in their own places.
    """
    if turns.xp is jnp:
        # The number n stands for no unit, in every order.
        units = jnp.append(places[order], jnp.asarray(places.shape[1], places.dtype))
        y, carry = walk(lambda carry, j, a: decide(carry, units[j], a))
        return jnp.zeros_like(y).at[units[:-1]].set(y), carry
    units = np.asarray(places)[order].T  # (n, rows)
    alone = len(places) == 1  # one order for all rows, whose units are decided by number
    y, carry = walk(lambda carry, j, a: decide(carry, units[j, 0] if alone and len(units[j]) else units[j], a))
    found = np.empty_like(y)
    np.put_along_axis(found, units, y, axis=0)
    return found, carry


@register("orders")
class Orders(AbstractBinaryLayer):
    """p(y | c) = (1/K) sum_k p_k(y | c), the same layer in each of K orders of its units.

    Args:
        core: the layer, in the first order.
        places: (K, n), the unit at each place of each order.
    """

    by_name: ClassVar[bool] = False  # it wraps another layer
    core: AbstractReorderable
    places: Int[Array, "K n"]
    n: int = eqx.field(static=True)

    def __init__(self, core: AbstractReorderable, places: np.ndarray | Array):
        """A mixture of orders.

        Args:
            core: The layer.
            places: The orders, each a permutation of the layer's units; see `symmetries`.
        """
        self.core, self.n = core, core.n
        self.places = jnp.asarray(places, jnp.int32)

    def __check_init__(self):
        check_orders(self.places)
        if self.core.n_told != len(self.places):
            raise ValueError(f"the layer can tell {self.core.n_told} orders apart, but has {len(self.places)}")

    @property
    def n_orders(self):
        return len(self.places)

    @property
    def trains_by_estimate(self):
        return True

    def _at(self, order) -> tuple[Array, AbstractReorderable]:
        places = self.places[order]
        return places, self.core.in_order(order, places)

    def logits(self, y, c=None, *, order=0):
        places, core = self._at(order)
        a = core.logits(y[places], c)
        return jnp.zeros_like(a).at[places].set(a)

    def start(self, c=None, *, order=0):
        """The order, and the state of the layer in that order."""
        _, core = self._at(order)
        return jnp.asarray(order), core.start(c)

    def sequence(self, order=0):
        return self.places[order]

    def walk(self, state, decide, carry, turns=COMPILED):
        order, state = state
        return in_places(self.places, order, turns, decide, lambda own: self.core.walk(state, own, carry, turns))

    def log_prob(self, y, c=None):
        def in_order(k):
            places, core = self._at(k)
            return core.log_prob(y[places], c)

        return logsumexp(lax.map(in_order, jnp.arange(self.n_orders))) - jnp.log(self.n_orders)

    def training_log_prob(self, y, c=None, *, key: PRNGKeyArray):
        """log p(y | c) in one order drawn at random; on average at most log p(y | c)."""
        order, key = self.draw_order(key)
        places, core = self._at(order)
        return core.training_log_prob(y[places], c, key=key)

    def validation_log_prob(self, y, c=None, *, key: PRNGKeyArray):
        """As in training, in one order drawn at random, at 1/K of the cost of log p(y | c)."""
        order, key = self.draw_order(key)
        places, core = self._at(order)
        return core.validation_log_prob(y[places], c, key=key)

    def quantised(self, c, arithmetic):
        return replaced(self, core=self.core.quantised(c, arithmetic))

    @property
    def clips(self):
        return self.core.clips

    def with_bias(self, mean):
        return eqx.tree_at(lambda m: m.core, self, self.core.with_bias(mean))

    @property
    def title(self):
        return self.core.title

    @property
    def row_floats(self):
        return self.core.row_floats
