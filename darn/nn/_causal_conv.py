"""Convolutions over a grid that look up and to the left: at all cells, or at the newest row or cell of a window."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from darn.errors import InputError
from darn.nn._base import replaced
from darn.nn._fixed_point import Arithmetic
from darn.nn._registry import register
from darn.nn._streams import FLOATS, Integers


@register("causal-convolution")
class CausalConvolution(eqx.Module):
    """A linear convolution whose window ends at the cell's own row, and with `left` at its own cell.

    Without `left` the window reaches as far to the right as to the left: for what is computed from rows above alone.
    Zeros stand beyond the edges. A dilation d takes every d-th cell of a window d times as large.

    Walking along a grid, the inputs still in reach are kept and the newest is added at the end of the window: `row` and
    `cell` then give what the whole convolution has there.
    """

    W: Float[Array, "kh kw C F"]
    left: bool = eqx.field(static=True)
    dilation: int = eqx.field(static=True)
    integers: Integers | None = eqx.field(static=True, default=None)  # in an integer twin

    def __init__(
        self,
        kernel: tuple[int, int],
        channels: int,
        filters: int,
        *,
        left: bool = False,
        dilation: int = 1,
        key: PRNGKeyArray,
    ):
        """Fresh weights.

        Args:
            kernel: Rows and columns of the window; an odd number of columns unless `left`.
            channels: Of the input.
            filters: Channels of the output.
            left: The window ends at the cell itself. It then has one row.
            dilation: Cells from one place of the window to the next.
            key: Of the weights.
        """
        if left and kernel[0] != 1:
            raise ValueError(f"a window that ends at its cell must have one row, not {kernel[0]}")
        if not left and kernel[1] % 2 == 0:
            raise InputError(f"the width of the kernel must be odd, not {kernel[1]}")
        self.left, self.dilation, self.integers = left, dilation, None
        self.W = jax.random.normal(key, (*kernel, channels, filters)) / (kernel[0] * kernel[1] * channels) ** 0.5

    @property
    def above(self) -> int:
        """The number of rows above a cell that it sees."""
        return (self.W.shape[0] - 1) * self.dilation

    @property
    def before(self) -> int:
        """The number of cells to the left that a cell sees."""
        reach = (self.W.shape[1] - 1) * self.dilation
        return reach if self.left else reach // 2

    @property
    def after(self) -> int:
        """The number of cells to the right that a cell sees."""
        return 0 if self.left else self.before

    def quantised(self, how: Integers, arithmetic: Arithmetic) -> "CausalConvolution":
        """The integer twin, for the codec.

        Args:
            how: the grid of its streams.
            arithmetic: the float type and how its bits are used.

        Returns:
            The twin.
        """
        return replaced(self, W=how.weights(self.W, arithmetic), integers=how)

    def __call__(self, x: Float[Array, "H W C"], dtype=jnp.float32) -> Float[Array, "H W F"]:
        """The convolution at every cell, computed in `dtype`."""
        return self._convolved(x, self.above, self.dilation, dtype)

    def row(self, window: Float[Array, "rows W C"]) -> Float[Array, "W F"]:
        """The convolution in the window's last row.

        Args:
            window: the rows in reach, the last one included.

        Returns:
            The output of every cell of that row.
        """
        # Only the rows that it sees, next to each other.
        return self._convolved(window[:: self.dilation], 0, 1, jnp.float32)[0]

    def cell(self, window: Float[Array, "cells C"]) -> Float[Array, " F"]:
        """The convolution at the window's last cell; only with `left`.

        Args:
            window: the cells in reach, the last one included.

        Returns:
            The output of that cell.
        """
        how = self.integers or FLOATS
        return how.product(window[:: self.dilation].reshape(-1), self.W[0].reshape(-1, self.W.shape[3]))

    def _convolved(self, x, above, down, dtype):
        """With so many rows of zeros on top, and every `down`-th row in the window."""
        if self.integers is not None:
            return self._product(x, above, down, self.integers)
        rows, columns = x.shape[0] + above - (self.W.shape[0] - 1) * down, x.shape[1]
        x = jnp.pad(x.astype(dtype), ((above, 0), (self.before, self.after), (0, 0)))
        # A dilated convolution is many small ones, each over every d-th row and column: on a GPU, cuDNN's own dilation
        # takes twenty times as long.
        parts = _taken_apart(x, down, self.dilation)
        parts = lax.conv_general_dilated(
            parts, self.W.astype(dtype), (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return _put_together(parts, down, self.dilation)[:rows, :columns].astype(jnp.float32)

    def _product(self, x, above, down, how: Integers):
        """The same as a matrix product: not every algorithm for convolutions is exact where its sums would be."""
        (kh, kw, C, F), d = self.W.shape, self.dilation
        rows, columns = x.shape[0] + above - (kh - 1) * down, x.shape[1]
        x = jnp.pad(x, ((above, 0), (self.before, self.after), (0, 0)))
        seen = [x[i * down : i * down + rows, j * d : j * d + columns] for i in range(kh) for j in range(kw)]
        return how.product(jnp.concatenate(seen, axis=-1), self.W.reshape(kh * kw * C, F))


def _taken_apart(x: Float[Array, "H W C"], down: int, across: int) -> Float[Array, "parts h w C"]:
    """The grids of every `down`-th row and every `across`-th column, padded at their ends to one size."""
    (rows, columns, C) = x.shape
    x = jnp.pad(x, ((0, -rows % down), (0, -columns % across), (0, 0)))
    x = x.reshape(-(-rows // down), down, -(-columns // across), across, C)
    return x.transpose(1, 3, 0, 2, 4).reshape(down * across, *x.shape[::2])


def _put_together(parts: Float[Array, "parts h w F"], down: int, across: int) -> Float[Array, "H W F"]:
    """The inverse of `_taken_apart`."""
    _, rows, columns, F = parts.shape
    x = parts.reshape(down, across, rows, columns, F).transpose(2, 0, 3, 1, 4)
    return x.reshape(rows * down, columns * across, F)
