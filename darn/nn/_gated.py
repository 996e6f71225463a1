"""A gated residual block in two streams (van den Oord et al., 2016): rows above, and this row to the left."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from darn.nn._causal_conv import CausalConvolution
from darn.nn._fixed_point import Arithmetic
from darn.nn._registry import register
from darn.nn._streams import FLOATS, Floats, Integers


class GridWindow(NamedTuple):
    """The inputs of a block's two convolutions in one stream that are still needed, the newest last."""

    first: Array
    second: Array


def dropout(x: Array, rate: float, key: PRNGKeyArray) -> Array:
    """x with random entries set to 0 and the others scaled to keep the mean.

    The rate is rounded to a multiple of 1/256, below 1.
    """
    # One random byte per entry is enough, and four times cheaper than a word.
    keep = max(256 - round(256 * rate), 1)
    if keep == 256:  # a byte cannot be compared with it
        return x
    words = jax.random.bits(key, (-(-x.size // 4),), jnp.uint32)
    kept = lax.bitcast_convert_type(words, jnp.uint8).reshape(-1)[: x.size].reshape(x.shape) < keep
    return jnp.where(kept, x * (256 / keep), 0)


@register("gated-block")
class GatedBlock(eqx.Module):
    """v + gate(up2(elu(up1(elu v)))) and h + gate(left2(elu(left1(elu h) + link(elu v)))).

    The stream v of a cell knows rows above alone, h also the cells to the left: with both there is no blind spot.
    """

    up: tuple[CausalConvolution, CausalConvolution]
    left: tuple[CausalConvolution, CausalConvolution]
    link: CausalConvolution  # from v to h, within a cell
    b: Float[Array, "2 C"]  # between the two convolutions of v and of h

    def __init__(self, channels: int, *, width: int = 5, reach: int = 3, dilation: int = 1, key: PRNGKeyArray):
        """Fresh weights.

        Args:
            channels: Of each stream.
            width: Columns that a convolution of v sees, an odd number; of two rows.
            reach: Cells that a convolution of h sees, its own included.
            dilation: Of the first convolution in each stream.
            key: Of the weights.
        """
        k = jax.random.split(key, 5)
        C = channels
        self.up = (
            CausalConvolution((2, width), C, C, dilation=dilation, key=k[0]),
            CausalConvolution((2, width), C, 2 * C, key=k[1]),
        )
        self.left = (
            CausalConvolution((1, reach), C, C, left=True, dilation=dilation, key=k[2]),
            CausalConvolution((1, reach), C, 2 * C, left=True, key=k[3]),
        )
        self.link = CausalConvolution((1, 1), C, C, key=k[4])
        self.b = jnp.zeros((2, C))

    def __check_init__(self):
        C = self.b.shape[1]
        narrow, wide = (C, C), (C, 2 * C)
        expected = (*(narrow, wide) * 2, narrow)
        if tuple(f.W.shape[2:] for f in (*self.up, *self.left, self.link)) != expected:
            raise ValueError(f"the convolutions of a gated block are not all of {C} channels")

    def __call__(
        self,
        v: Float[Array, "H W C"],
        h: Float[Array, "H W C"],
        bias: Float[Array, "#H #W 2 2*C"],
        *,
        rate: float = 0.0,
        key: PRNGKeyArray | None = None,
        dtype=jnp.float32,
        how: Floats | Integers = FLOATS,
    ) -> tuple[Array, Array]:
        """Both streams after the block, at every cell.

        Args:
            v: What is known of the rows above.
            h: What is known of the row to the left.
            bias: Of the gates of v and of h, in every cell or the same in all.
            rate: Of dropout, where there is a key.
            key: Of dropout; None for none.
            dtype: What convolutions are computed in; sums of the streams are in float32.
            how: In floats or, in an integer twin, in integers.

        Returns:
            The new v and h.
        """
        k_v, k_h = (None, None) if key is None else jax.random.split(key)
        drop = lambda x, k: x if k is None else dropout(x, rate, k)  # noqa: E731
        up, left, b, elu = self.up, self.left, self.b[:, None, None], how.elu
        inside = how.total(up[0](elu(v), dtype), b[0])
        v = how.stream(v + how.gate(how.total(up[1](drop(elu(inside), k_v), dtype), bias[..., 0, :])))
        inside = how.total(left[0](elu(h), dtype), self.link(elu(v), dtype), b[1])
        h = how.stream(h + how.gate(how.total(left[1](drop(elu(inside), k_h), dtype), bias[..., 1, :])))
        return v, h

    def quantised(self, how: Integers, arithmetic: Arithmetic) -> "GatedBlock":
        """The integer twin, for the codec.

        Args:
            how: the grid of its streams.
            arithmetic: the float type and how its bits are used.

        Returns:
            The twin.
        """
        twin = lambda f: f.quantised(how, arithmetic)  # noqa: E731
        parts = (tuple(map(twin, self.up)), tuple(map(twin, self.left)), twin(self.link), how.bias(self.b, arithmetic))
        return eqx.tree_at(lambda m: (m.up, m.left, m.link, m.b), self, parts)

    def above(self, columns: int) -> GridWindow:
        """The window of v before the first row of a grid.

        Args:
            columns: of the grid.

        Returns:
            Zeros for every row in reach.
        """
        return GridWindow(*(jnp.zeros((f.above, columns, f.W.shape[2])) for f in self.up))

    def before(self) -> GridWindow:
        """The window of h before the first cell of a row."""
        return GridWindow(*(jnp.zeros((f.before, f.W.shape[2])) for f in self.left))

    def row(
        self,
        window: GridWindow,
        v: Float[Array, "W C"],
        bias: Float[Array, "#W 2*C"],
        how: Floats | Integers = FLOATS,
    ) -> tuple[GridWindow, Array, Array]:
        """Returns (the window, v after the block, the input to h) of the next row.

        Args:
            window: the rows in reach above.
            v: of the row, before the block.
            bias: of the gates of v.
            how: in floats, or in an integer twin in integers.
        """
        first = jnp.concatenate([window.first, how.elu(v)[None]])
        inside = how.total(self.up[0].row(first), self.b[:1])
        second = jnp.concatenate([window.second, how.elu(inside)[None]])
        v = how.stream(v + how.gate(how.total(self.up[1].row(second), bias)))
        return GridWindow(first[1:], second[1:]), v, self.link.row(how.elu(v)[None])

    def cell(
        self,
        window: GridWindow,
        h: Float[Array, " C"],
        given: Float[Array, " C"],
        bias: Float[Array, " 2*C"],
        how: Floats | Integers = FLOATS,
    ) -> tuple[GridWindow, Array]:
        """Returns (the window, h after the block) of the next cell of a row.

        Args:
            window: the cells in reach to the left.
            h: of the cell, before the block.
            given: the input from v at this cell.
            bias: of the gates of h.
            how: in floats, or in an integer twin in integers.
        """
        first = jnp.concatenate([window.first, how.elu(h)[None]])
        inside = how.total(self.left[0].cell(first), given, self.b[1])
        second = jnp.concatenate([window.second, how.elu(inside)[None]])
        h = how.stream(h + how.gate(how.total(self.left[1].cell(second), bias)))
        return GridWindow(first[1:], second[1:]), h
