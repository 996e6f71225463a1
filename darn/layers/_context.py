"""The context's part of a layer: U c, added to the logits."""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from darn.nn import AbstractMap, Dense, Work


def context_field() -> Any:
    """A field whose weights read the context: the last axis of its arrays runs over the context's units."""
    return eqx.field(metadata={"role": "context"})


def context_map(n_c: int, n: int, key: PRNGKeyArray | None) -> Dense | None:
    """The fully connected U of a layer of n units with n_c context units; None without a context.

    Args:
        n_c: units of the context.
        n: units of the layer.
        key: of the weights.
    """
    if not n_c:
        return None
    if key is None:
        raise ValueError("a layer with a context needs a key for its weights")
    return Dense(n_c, n, bias=False, key=key)


def plus_context(a: Array, U: AbstractMap | None, c: Array | None) -> Array:
    """a + U c, or `a` without a context.

    Args:
        a: (n,), logits.
        U: the map from the context; None for none.
        c: (n_c,), the context; None without one.

    Returns:
        (n,).
    """
    if U is None:
        return a
    if c is None:
        raise ValueError("this layer was built with a context: pass one")
    add = U(c)
    if add.shape != a.shape:  # no broadcasting: a map with one output would be added to every unit
        raise ValueError(f"the context map has {add.shape[0]} outputs for {a.shape[0]} units")
    return a + add


def context_work(U: AbstractMap | None, c: np.ndarray | None) -> Work:
    """The work of computing U c."""
    return Work() if U is None or c is None else U.work(c)


def context_matrix(b: Array, U: AbstractMap | None) -> tuple[np.ndarray, np.ndarray | None]:
    """b and U of b + U c, with U's own bias added to b."""
    if U is None:
        return np.asarray(b), None
    W, more = U.matrix()
    return np.asarray(b) if more is None else np.asarray(b) + more, W
