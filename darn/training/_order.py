"""The order in which an epoch takes its rows: a function of the seed and the epoch alone."""

import jax
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, UInt32

from darn.devices import host
from darn.random import permutation, permutation_by_numpy, permuted
from darn.shuffle import MANY


def order_of(seed: Int[Array, ""] | int, epoch: Int[Array, ""] | int, n: int) -> Int[Array, " n"]:
    """The order in which an epoch takes n rows."""
    return permutation(_order_key(seed, epoch), n)


def order_at(seed: int, epoch: int, places: UInt32[Array, " N"], n: int) -> Int[Array, " N"]:
    """`order_of(seed, epoch, n)[places]` for more than `MANY` rows, without the whole order."""
    return permuted(_order_key(seed, epoch), places, n)


def _order_key(seed: Int[Array, ""] | int, epoch: Int[Array, ""] | int) -> PRNGKeyArray:
    return jax.random.fold_in(jax.random.split(jax.random.key(seed), 3)[0], epoch)


class Order:
    """The orders in which epochs take n rows, as `order_of`: the whole of one at a time, or no more than is asked for.

    They are computed by the processor: a GPU would do it after all the steps that it has been given before.

    Args:
        seed: of the orders.
        n: the number of rows.
    """

    def __init__(self, seed: int, n: int):
        self._seed, self._n = seed, n
        self._part = jax.jit(order_at, static_argnums=3)
        self._epoch, self._held = -1, np.zeros(0, np.int32)

    def at(self, epoch: int, places: np.ndarray) -> np.ndarray:
        """The rows that an epoch takes at these places."""
        with jax.default_device(host()):
            if self._n > MANY:
                return np.asarray(self._part(self._seed, epoch, places.astype(np.uint32), self._n))
            if epoch != self._epoch:
                self._epoch, self._held = epoch, permutation_by_numpy(_order_key(self._seed, epoch), self._n)
        return self._held[places]
