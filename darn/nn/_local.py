"""Periodic local connectivity (Gregor & LeCun, 2010), section 2.2: maps between grids, and their exact adjoints.

A grid is (rows, columns, channels). Its units are numbered row by row, within a row cell by cell, and within a cell
channel by channel: unit (i * columns + j) * channels + f is channel f of cell (i, j).

Cell (i, j) of the output has the weights of its phase (i % P, j % P), where P is the period: 1 is a convolution, the
size of the grid (or more) gives every cell its own weights. The phases of a `tile` share one window of the input, so
that the product is one batched matrix product over the P^2 / tile^2 tiles of a period (a period shorter than the tile
is repeated to fill it). A larger tile repeats less of the input in memory and makes the matrices wider, but with more
zeros; the result is the same.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from darn.nn._base import AbstractMap
from darn.nn._products import products
from darn.nn._registry import register, tuning_field

Grid = tuple[int, int, int]  # rows, columns, channels


def shear(x: Array, step: int, width: int) -> Array:
    """(n, k, ...) to (n, width, ...), row i moved right by i * step; width is at least k + (n - 1) * step.

    Only by padding and reshaping, so that it and its transpose are copies without indexing.
    """
    n = x.shape[0]
    x = jnp.pad(x, [(0, 0), (0, width + step - x.shape[1])] + [(0, 0)] * (x.ndim - 2))
    return x.reshape(n * (width + step), *x.shape[2:])[: n * width].reshape(n, width, *x.shape[2:])


def unshear(x: Array, step: int, k: int) -> Array:
    """The inverse of `shear`: (n, width, ...) to (n, k, ...)."""
    n, width = x.shape[:2]
    x = jnp.pad(x.reshape(n * width, *x.shape[2:]), [(0, n * step)] + [(0, 0)] * (x.ndim - 2))
    return x.reshape(n, width + step, *x.shape[1:])[:, :k]


def windows(x: Array, axis: int, n: int, step: int, width: int) -> Array:
    """n windows of `width` along `axis`, `step` apart, with a new axis for the position in a window, zero-padded."""
    m = -(-width // step)
    length = (n + m - 1) * step
    x = lax.slice_in_dim(x, 0, min(length, x.shape[axis]), axis=axis)
    x = jnp.pad(x, [(0, length - s if a == axis else 0) for a, s in enumerate(x.shape)])
    x = x.reshape(*x.shape[:axis], n + m - 1, step, *x.shape[axis + 1 :])
    # Overlapping windows are concatenated from neighbouring blocks: the transpose of a gather is a slow scatter-add.
    x = jnp.concatenate([lax.slice_in_dim(x, k, k + n, axis=axis) for k in range(m)], axis=axis + 1)
    return lax.slice_in_dim(x, 0, width, axis=axis + 1)


def tile_within(period: int, tile: int, size: int) -> tuple[int, int]:
    """Returns (how often a period smaller than `tile` is repeated, the side of the tiles that divide it)."""
    times = max(min(tile, size) // period, 1)
    return times, next(t for t in range(min(tile, times * period), 0, -1) if times * period % t == 0)


def local_product(
    x: Float[Array, "H W C"],
    W: Float[Array, "P Q kh kw C F"],
    size: tuple[int, int],
    *,
    stride: int,
    before: tuple[int, int],
    tile: int,
) -> Float[Array, "Ho Wo F"]:
    """Output (i, j) applies the kernel of its phase to the input window at (i, j) * stride - before, zero-padded."""
    (down, th), (across, tw) = (tile_within(p, tile, n) for p, n in zip(W.shape, size))
    W = jnp.tile(W, (down, across, 1, 1, 1, 1))
    P, Q, kh, kw, C, F = W.shape
    gh, gw = P // th, Q // tw  # tiles in a period
    bh, bw = -(-size[0] // P), -(-size[1] // Q)  # periods in the output
    wh, ww = (th - 1) * stride + kh, (tw - 1) * stride + kw
    x = jnp.pad(x, ((before[0], 0), (before[1], 0), (0, 0)))
    x = windows(x, 0, bh * gh, th * stride, wh)
    x = windows(x, 2, bw * gw, tw * stride, ww)
    x = x.reshape(bh, gh, wh, bw, gw, ww, C).transpose(1, 4, 0, 3, 2, 5, 6).reshape(gh * gw, bh * bw, wh * ww * C)
    V = W.reshape(gh, th, gw, tw, kh, kw, C, F).transpose(1, 4, 3, 5, 0, 2, 6, 7)  # (th, kh, tw, kw, gh, gw, C, F)
    V = shear(V, stride, wh).transpose(2, 3, 0, 1, 4, 5, 6, 7)  # (tw, kw, th, wh, ...)
    V = shear(V, stride, ww).transpose(4, 5, 3, 1, 6, 2, 0, 7)  # (gh, gw, wh, ww, C, th, tw, F)
    y = products(x, V.reshape(gh * gw, wh * ww * C, th * tw * F))
    y = y.reshape(gh, gw, bh, bw, th, tw, F).transpose(2, 0, 4, 3, 1, 5, 6)
    return y.reshape(bh * P, bw * Q, F)[: size[0], : size[1]]


@register("local")
class Local(AbstractMap):
    """A locally connected map: cell (i, j) of the output sees a window of the input around (i, j) * stride.

    The output has ceil(H / stride) x ceil(W / stride) cells of `filters` channels. Zero padding is as symmetric as
    possible, as in a "SAME" convolution. Biases have the same period as the weights.

    Args:
        grid: rows, columns and channels of the input.
        kernel: cells of the window on a side.
        filters: channels of the output.
        stride: cells of the input from one cell of the output to the next.
        period: cells after which the weights repeat; 1 is a convolution.
        tile: cells computed together, which changes the speed alone.
        bias: whether to add a bias.
        key: of the initial weights.
    """

    W: Float[Array, "P Q k k C F"]
    b: Float[Array, " P*Q*F"] | None
    grid: Grid = eqx.field(static=True)  # of the input
    stride: int = eqx.field(static=True)
    tile: int = tuning_field(default=2)

    def __init__(
        self,
        grid: Grid,
        kernel: int,
        filters: int,
        *,
        stride: int = 1,
        period: int = 1,
        tile: int = 2,
        bias: bool = True,
        key: PRNGKeyArray,
    ):
        self.grid, self.stride, self.tile = grid, stride, tile
        P, Q = (min(period, -(-s // stride)) for s in grid[:2])
        shape = (P, Q, kernel, kernel, grid[2], filters)
        self.W = jax.random.normal(key, shape) / (kernel * kernel * grid[2]) ** 0.5
        self.b = jnp.zeros(P * Q * filters) if bias else None

    @property
    def out(self) -> Grid:
        """The grid of the output."""
        return -(-self.grid[0] // self.stride), -(-self.grid[1] // self.stride), self.W.shape[5]

    @property
    def row_floats(self):
        cells = self.out[0] * self.out[1]
        sides = (tile_within(p, self.tile, n)[1] for p, n in zip(self.W.shape, self.out[:2]))
        return cells * self.grid[2] * math.prod(-(-self.W.shape[2] // t) + self.stride for t in sides)

    def mirrored(self, *, channels: int = 1, bias: bool = True, key: PRNGKeyArray) -> "LocalTranspose":
        """The map in the opposite direction, with weights of its own and `channels` outputs for every input of this.

        Args:
            channels: output channels.
            bias: whether it adds a bias.
            key: of the weights.

        Returns:
            The new map.
        """
        if channels == 1:
            return LocalTranspose(self, bias=bias, key=key)
        like, key = jax.random.split(key)
        *phases, kernel, _, C, filters = self.W.shape
        grid, period = (*self.grid[:2], C * channels), max(phases)  # the shorter one is that of a short side
        return LocalTranspose(
            Local(grid, kernel, filters, stride=self.stride, period=period, bias=False, key=like), bias=bias, key=key
        )

    def product(self, x: Float[Array, "H W C"]) -> Float[Array, "Ho Wo F"]:
        """W x, the linear part, on grids.

        Args:
            x: (rows, columns, channels).

        Returns:
            (rows, columns, filters).
        """
        k, s = self.W.shape[2], self.stride
        rows, columns, _ = self.out
        above, left = (max((n - 1) * s + k - m, 0) // 2 for n, m in zip((rows, columns), self.grid))
        return local_product(x, self.W, (rows, columns), stride=s, before=(above, left), tile=self.tile)

    def __call__(self, c):
        out = self.product(c.reshape(self.grid))
        if self.b is not None:
            P, Q, F = self.W.shape[0], self.W.shape[1], self.W.shape[5]
            times = (-(-out.shape[0] // P), -(-out.shape[1] // Q), 1)
            out = out + jnp.tile(self.b.reshape(P, Q, F), times)[: out.shape[0], : out.shape[1]]
        return out.reshape(-1)


@register("local-transpose")
class LocalTranspose(AbstractMap):
    """The exact adjoint of a `Local` without its bias, for the decoder: <L x, y> = <x, L^T y>.

    Args:
        of: the map; the adjoint has weights of its own, in its shape.
        bias: whether to add a bias.
        key: of the initial weights.
    """

    of: Local
    b: Float[Array, " C"] | None  # one per channel of the output

    def __init__(self, of: Local, *, bias: bool = True, key: PRNGKeyArray):
        """A transpose with its own weights, of the same shape as those of `of`."""
        k, F = of.W.shape[2], of.W.shape[5]
        seen = max(k / of.stride, 1) ** 2 * F  # units that each output sees
        W = jax.random.normal(key, of.W.shape) / seen**0.5
        self.of = eqx.tree_at(lambda m: (m.W, m.b), of, (W, None), is_leaf=lambda v: v is None)
        self.b = jnp.zeros(of.grid[2]) if bias else None

    @property
    def C(self) -> int:
        """Channels of the output; the name is the dimension of `b`."""
        return self.of.grid[2]

    @property
    def row_floats(self):
        return self.of.row_floats

    def __call__(self, c):
        like = jax.ShapeDtypeStruct(self.of.grid, c.dtype)
        (out,) = jax.linear_transpose(self.of.product, like)(c.reshape(self.of.out))
        if self.b is not None:
            out = out + self.b[None, None]
        return out.reshape(-1)
