"""Convolutions over a grid that look up and to the left: at all cells, or at the newest row or cell of a window."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from darn.nn._base import replaced
from darn.nn._fixed_point import Arithmetic
from darn.nn._registry import register, tuning_field
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
    fold: int = tuning_field(default=1)

    def __init__(
        self,
        kernel: tuple[int, int],
        channels: int,
        filters: int,
        *,
        left: bool = False,
        dilation: int = 1,
        fold: int = 1,
        key: PRNGKeyArray,
    ):
        """Fresh weights.

        Args:
            kernel: Rows and columns of the window; an odd number of columns unless `left`.
            channels: Of the input.
            filters: Channels of the output.
            left: The window ends at the cell itself. It then has one row.
            dilation: Cells from one place of the window to the next.
            fold: Adjacent columns that become one column with so many times the channels. The convolution is the same,
                with more multiplications by 0, but an accelerator is far from its speed with a few dozen channels.
            key: Of the weights.
        """
        if left and kernel[0] != 1:
            raise ValueError(f"a window that ends at its cell must have one row, not {kernel[0]}")
        if not left and kernel[1] % 2 == 0:
            raise ValueError(f"the width of the kernel must be odd, not {kernel[1]}")
        self.left, self.dilation, self.integers, self.fold = left, dilation, None, fold
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
        if self.fold == 1 or self.integers is not None:
            return self._convolved(x, self.above, dtype)
        return self._folded(x, dtype)

    def row(self, window: Float[Array, "rows W C"]) -> Float[Array, "W F"]:
        """The convolution in the window's last row.

        Args:
            window: the rows in reach, the last one included.

        Returns:
            The output of every cell of that row.
        """
        return self._convolved(window, 0, jnp.float32)[0]

    def cell(self, window: Float[Array, "cells C"]) -> Float[Array, " F"]:
        """The convolution at the window's last cell; only with `left`.

        Args:
            window: the cells in reach, the last one included.

        Returns:
            The output of that cell.
        """
        how = self.integers or FLOATS
        return how.product(window[:: self.dilation].reshape(-1), self.W[0].reshape(-1, self.W.shape[3]))

    def _convolved(self, x, above, dtype):
        if self.integers is not None:
            return self._product(x, above, self.integers)
        out = lax.conv_general_dilated(
            x[None].astype(dtype),
            self.W.astype(dtype),
            (1, 1),
            ((above, 0), (self.before, self.after)),
            rhs_dilation=(self.dilation, self.dilation),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return out[0].astype(jnp.float32)

    def _folded(self, x, dtype):
        """The same over columns that are `fold` columns each."""
        (kh, kw, C, F), f, d = self.W.shape, self.fold, self.dilation
        # Part b of a column takes the window's k-th place from part `part` of the column that is `at` columns away.
        b, k = np.indices((f, kw))
        at, part = np.divmod(b + d * k - self.before, f)
        step = math.gcd(*(at - at.min()).ravel().tolist()) or 1
        taken = np.zeros(((at.max() - at.min()) // step + 1, f, f, kw), np.float32)
        taken[(at - at.min()) // step, part, b, k] = 1
        # A sum of one weight and zeros, which only full precision leaves as it is.
        W = jnp.einsum("qabk,hkcf->hqacbf", taken, self.W, precision=lax.Precision.HIGHEST)
        rows, columns, _ = x.shape
        wide = -(-columns // f)
        x = jnp.pad(x, ((0, 0), (0, wide * f - columns), (0, 0)))
        out = lax.conv_general_dilated(
            x.reshape(1, rows, wide, f * C).astype(dtype),
            W.reshape(kh, -1, f * C, f * F).astype(dtype),
            (1, 1),
            ((self.above, 0), (-int(at.min()), int(at.max()))),
            rhs_dilation=(d, step),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return out.reshape(rows, wide * f, F)[:, :columns].astype(jnp.float32)

    def _product(self, x, above, how: Integers):
        """The same as a matrix product: not every algorithm for convolutions is exact where its sums would be."""
        (kh, kw, C, F), d = self.W.shape, self.dilation
        rows, columns = x.shape[0] + above - self.above, x.shape[1]
        x = jnp.pad(x, ((above, 0), (self.before, self.after), (0, 0)))
        seen = [x[i * d : i * d + rows, j * d : j * d + columns] for i in range(kh) for j in range(kw)]
        return how.product(jnp.concatenate(seen, axis=-1), self.W.reshape(kh * kw * C, F))
