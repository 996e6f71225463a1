"""Images that a training step moves at random, so that a net learns more than the rows themselves."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from darn.data import Moves

_MOVES = 0x30FE  # separates these keys from those of the row's bits


def moved(x: Float[Array, " n"], key: PRNGKeyArray, *, moves: Moves, grey: bool) -> Float[Array, " n"]:
    """An image as one step sees it: shifted, turned about its middle and stretched, or with some luck as it is.

    Args:
        x: The image, row by row; beyond its edges it is 0.
        key: Of the row.
        moves: By how much at most.
        grey: Whether values between pixels are interpolated; otherwise a pixel takes the nearest one.

    Returns:
        The image.
    """
    u = jax.random.uniform(jax.random.fold_in(key, _MOVES), (6,))
    shift, stretch, turn = 2 * u[:2] - 1, 1 + moves.stretch * (2 * u[2:4] - 1), moves.turn * (2 * u[4] - 1)
    rows, columns = moves.shape
    middle = np.asarray([[(rows - 1) / 2], [(columns - 1) / 2]], np.float32)
    places = np.indices(moves.shape, np.float32).reshape(2, -1) - middle
    cos, sin = jnp.cos(jnp.deg2rad(turn)), jnp.sin(jnp.deg2rad(turn))
    turned = jnp.stack([cos * places[0] - sin * places[1], sin * places[0] + cos * places[1]])
    source = turned * stretch[:, None] + moves.shift * shift[:, None] + middle
    image = x.reshape(rows, columns)
    out = _between(image, source) if grey else _pixel(image, jnp.round(source))
    return jnp.where(u[5] < moves.share, out, x)


def _between(image: Float[Array, "H W"], places: Float[Array, "2 n"]) -> Float[Array, " n"]:
    """The image between its pixels: each of the four around a place counts by how near it is."""
    corner = jnp.floor(places)
    (down, right), total = places - corner, jnp.zeros(places.shape[1])
    for i in (0, 1):
        for j in (0, 1):
            weight = (down if i else 1 - down) * (right if j else 1 - right)
            total += weight * _pixel(image, corner + np.asarray([[i], [j]], np.float32))
    return total


def _pixel(image: Float[Array, "H W"], places: Float[Array, "2 n"]) -> Float[Array, " n"]:
    """The pixels at whole places; 0 beyond the edges."""
    i, j = places.astype(jnp.int32)
    inside = (i >= 0) & (i < image.shape[0]) & (j >= 0) & (j < image.shape[1])
    return jnp.where(inside, image[jnp.clip(i, 0, image.shape[0] - 1), jnp.clip(j, 0, image.shape[1] - 1)], 0)
