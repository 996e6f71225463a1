"""Gated causal convolutions over an image: each pixel given all pixels before it, row by row."""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.nn import elu
from jaxtyping import Array, Float, Int, PRNGKeyArray

from darn.layers._base import bias_field, bits_log_prob, context_field, context_map
from darn.layers._orders import AbstractReorderable
from darn.nn import COMPILED, AbstractMap, CausalConvolution, GatedBlock, Grid, GridWindow, register


class Above(NamedTuple):
    """The inputs of the next row."""

    pixels: Array  # the last rows, as the first convolution sees them
    blocks: tuple[GridWindow, ...]


class Before(NamedTuple):
    """The inputs of the next cell of a row."""

    pixels: Array
    blocks: tuple[GridWindow, ...]


class Walk(NamedTuple):
    """The state of a walk within a row."""

    context: Array  # (H, W, C)
    above: Above  # including the current row
    links: Array  # (1 + blocks, W, C) from the stream v of this row to h
    gates: Array  # (blocks, W, 2C) biases of the gates of h in this row
    before: Before  # including the current cell
    hidden: Array  # of the current cell, with its channels so far
    row: Array  # (W, D) the bits of this row so far


@register("conv")
class CausalConv(AbstractReorderable):
    """p(y_j = 1 | y_1..j-1, c) by a net of causal convolutions (PixelCNN) over a grid of bits.

    Two streams of C channels: v knows the rows above a cell, h also the cells to its left. Each starts from the pixels,
    +1 or -1 inside the grid and 0 outside, and passes through gated residual blocks; a hidden layer in every cell then
    gives the logits of the cell's channels, one after the other. A context is mapped to C channels in every cell, or
    the same in all cells; it is added to v, and in every block to the biases of the gates.

    In training, dropout within the blocks; on an accelerator, convolutions in bfloat16 and all else in float32.
    """

    by_name: ClassVar[bool] = False  # it needs a grid
    b: Float[Array, " n"] = bias_field()
    U: AbstractMap | None = context_field()
    up: CausalConvolution  # from the pixels to v
    left: CausalConvolution  # from the pixels to h
    link: CausalConvolution  # from v to h
    blocks: tuple[GatedBlock, ...]
    head: Float[Array, "C C"]  # from h to the hidden layer of a cell
    gates: Float[Array, "K L 2 2*C"]  # biases of the blocks' gates in each of K orders
    steer: Float[Array, "L C 4*C"] | None  # from the context of a cell to its gates in every block
    e: Float[Array, " C"]  # of the hidden layer
    V: Float[Array, "D C"]  # from a cell's own channels to its hidden layer
    R: Float[Array, "D C"]  # from the hidden layer to logits
    cells: Int[Array, " n_cells"] | None  # the grid's cells in the layer's order, for the context; None: unchanged
    n: int = eqx.field(static=True)
    grid: Grid = eqx.field(static=True)
    rate: float = eqx.field(static=True)

    def __init__(
        self,
        grid: Grid,
        n_c: int = 0,
        *,
        channels: int = 32,
        n_blocks: int = 4,
        dilations: Sequence[int] = (1,),
        first: tuple[int, int] = (2, 7),
        width: int = 5,
        reach: int = 3,
        dropout: float = 0.0,
        n_told: int = 1,
        U: AbstractMap | None = None,
        key: PRNGKeyArray,
    ):
        """Fresh weights; at first, the logits are the biases.

        Args:
            grid: Rows, columns and channels (bits of a cell).
            n_c: Units of the context, unless a map `U` is given.
            channels: C, of each stream.
            n_blocks: Residual blocks.
            dilations: Of the blocks, repeated cyclically.
            first: Rows and columns above a cell that the stream v starts from.
            width: Columns that a convolution of v sees.
            reach: Cells that a convolution of h sees.
            dropout: Fraction of activations dropped in a training step.
            n_told: Orders that the layer can tell apart; see `Orders`.
            U: From the context to C channels in each cell, or to C channels for all cells.
            key: Of the weights.
        """
        rows, columns, D = grid
        k = jax.random.split(key, 7)
        self.grid, self.n, self.rate = grid, rows * columns * D, float(dropout)
        self.b = jnp.zeros(self.n)
        self.U = U if U is not None else context_map(n_c, rows * columns * channels, k[0])
        self.up = CausalConvolution(first, D + 1, channels, key=k[1])
        self.left = CausalConvolution((1, reach), D + 1, channels, left=True, key=k[2])
        self.link = CausalConvolution((1, 1), channels, channels, key=k[3])
        self.blocks = tuple(
            GatedBlock(channels, width=width, reach=reach, dilation=dilations[l % len(dilations)], key=k_l)
            for l, k_l in enumerate(jax.random.split(k[4], n_blocks))
        )
        self.gates = jnp.zeros((n_told, n_blocks, 2, 2 * channels))
        steer = jax.random.normal(k[6], (n_blocks, channels, 4 * channels)) / channels**0.5
        self.steer = None if self.U is None else steer
        self.head = jax.random.normal(k[5], (channels, channels)) / channels**0.5
        self.e = jnp.zeros(channels)
        self.V = jnp.zeros((D, channels))
        self.R = jnp.zeros((D, channels))
        self.cells = None

    def __check_init__(self):
        D, C = self.grid[2], len(self.e)
        first = tuple(f.W.shape[2:] for f in (self.up, self.left, self.link))
        if first != ((D + 1, C), (D + 1, C), (C, C)) or any(block.b.shape[1] != C for block in self.blocks):
            raise ValueError(f"the convolutions of the layer are not all of {C} channels over pixels of {D} bits")
        if self.steer is not None and self.steer.shape != (len(self.blocks), C, 4 * C):
            raise ValueError("the map from the context to the gates does not fit the blocks")
        if self.V.shape != (D, C) or self.R.shape != (D, C) or self.gates.shape[1] != len(self.blocks):
            raise ValueError("the hidden layer or the gates do not fit the convolutions")

    # ---------------------------------------------------------------- all cells at once

    def logits(self, y, c=None, *, order=0):
        return self._logits(y, c, order)

    def training_log_prob(self, y, c=None, *, key: PRNGKeyArray):
        """With dropout, and in bfloat16 on an accelerator."""
        return bits_log_prob(y, self._logits(y, c, 0, key=key if self.rate else None, dtype=_quick()))

    def validation_log_prob(self, y, c=None, *, key: PRNGKeyArray):
        """In the arithmetic of training, without dropout."""
        return bits_log_prob(y, self._logits(y, c, 0, dtype=_quick()))

    @property
    def trains_by_estimate(self):
        return self.rate > 0

    def _logits(self, y, c, order, *, key=None, dtype: Any = jnp.float32):
        rows, columns, _ = self.grid
        x = y.reshape(self.grid)
        pixels = jnp.concatenate([2 * x - 1, jnp.ones((rows, columns, 1), x.dtype)], axis=-1)
        down = jnp.pad(pixels, ((1, 0), (0, 0), (0, 0)))[:rows]
        right = jnp.pad(pixels, ((0, 0), (1, 0), (0, 0)))[:, :columns]
        context = self._context(c)
        v = self.up(down, dtype) + context
        h = self.left(right, dtype) + self.link(elu(v), dtype)
        keys = [None] * len(self.blocks) if key is None else jax.random.split(key, len(self.blocks))
        for l, (block, bias, k) in enumerate(zip(self.blocks, self.gates[order], keys, strict=True)):
            v, h = block(v, h, self._steered(context, bias, l, dtype), rate=self.rate, key=k, dtype=dtype)
        hidden = elu(h) @ self.head + self.e[None, None]
        # Each channel of a cell is given the channels before it.
        own = x[..., None] * self.V[None, None]
        hidden = hidden[:, :, None] + jnp.cumsum(own, axis=2) - own
        return self.b + jnp.sum(elu(hidden) * self.R[None, None], axis=-1).reshape(-1)

    def _steered(self, context: Float[Array, "*cells C"], bias: Float[Array, "2 2*C"], l: int, dtype=jnp.float32):
        """The biases of block l's gates in cells of the given context: (*cells, 2, 2C)."""
        cells = (1,) * (context.ndim - 1)
        if self.steer is None:
            return bias.reshape(*cells, *bias.shape)
        added = (elu(context).astype(dtype) @ self.steer[l].astype(dtype)).astype(jnp.float32)
        return bias.reshape(*cells, *bias.shape) + added.reshape(*context.shape[:-1], *bias.shape)

    def _context(self, c) -> Float[Array, "#H #W C"]:
        """The context of every cell, as C channels; zeros without a context."""
        rows, columns, _ = self.grid
        channels = len(self.e)
        if self.U is None:
            return jnp.zeros((1, 1, channels))
        if c is None:
            raise ValueError("this layer was built with a context: pass one")
        given = self.U(c)
        if given.size == channels:
            return given[None, None]
        if given.size != rows * columns * channels:
            raise ValueError(
                f"the context map has {given.size} outputs for {rows * columns} cells of {channels} channels"
            )
        given = given.reshape(rows * columns, channels)
        if self.cells is not None:  # each once, which spares a GPU atomic additions in the gradient
            given = given.at[self.cells].get(unique_indices=True)
        return given.reshape(rows, columns, channels)

    # ---------------------------------------------------------------- row by row, cell by cell

    def start(self, c=None, *, order=0):
        """The gates' biases, and the walk at its first cell."""
        rows, columns, _ = self.grid
        context = jnp.broadcast_to(self._context(c), (rows, columns, len(self.e)))
        gates = self.gates[order]
        return gates, self._begin_cell(self._begin_row(gates, context, self._top(), 0))

    def walk(self, state, decide, carry, turns=COMPILED):
        if turns.xp is not jnp:
            return turns.one_by_one(self, state, decide, carry)
        rows, columns, D = self.grid
        gates, first = state

        def one_row(above_carry, i):
            above, carry = above_carry
            now = self._begin_row(gates, first.context, above, i)

            def one_cell(now_carry, j):
                now, carry = now_carry
                now = self._begin_cell(now, j)
                for f in range(D):
                    unit = (i * columns + j) * D + f
                    carry, bit = decide(carry, unit, self._read(now, unit, f))
                    now = self._write(now, j, f, bit)
                return (self._end_cell(now, j), carry), None

            (now, carry), _ = turns.scan(one_cell, (now, carry), columns)
            return (self._end_row(now), carry), now.row

        (_, carry), y = turns.scan(one_row, (self._top(), carry), rows)
        return y.reshape(-1), carry

    def read(self, state, j):
        return self._read(state[1], j, j % self.grid[2])

    def write(self, state, j, y_j):
        rows, columns, D = self.grid
        gates, now = state
        cell, f = j // D, j % D
        i, column = cell // columns, cell % columns

        def next_row(now):
            return self._begin_row(gates, now.context, self._end_row(now), jnp.minimum(i + 1, rows - 1))

        def next_cell(now):
            now = self._end_cell(now, column)
            now = lax.cond(column == columns - 1, next_row, lambda now: now, now)
            return self._begin_cell(now, (column + 1) % columns)

        now = self._write(now, column, f, y_j)
        return gates, lax.cond(f == D - 1, next_cell, lambda now: now, now)

    def _top(self) -> Above:
        """What is above the first row."""
        _, columns, D = self.grid
        pixels = jnp.zeros((self.up.above + 1, columns, D + 1))
        return Above(pixels, tuple(block.above(columns) for block in self.blocks))

    def _begin_row(self, gates, context, above: Above, i) -> Walk:
        """Row i before its first cell: everything that depends only on the rows above."""
        _, columns, D = self.grid
        v = self.up.row(above.pixels) + context[i]
        links, windows, of_h = [self.link.row(elu(v)[None])], [], []
        for l, (block, window, bias) in enumerate(zip(self.blocks, above.blocks, gates, strict=True)):
            bias = self._steered(context[i], bias, l)
            window, v, link = block.row(window, v, bias[:, 0])
            windows.append(window)
            links.append(link)
            of_h.append(jnp.broadcast_to(bias[:, 1], (columns, bias.shape[-1])))
        # `left` sees cells before its own, so its window is one cell longer than what it keeps.
        before = Before(jnp.zeros((self.left.before + 1, D + 1)), tuple(block.before() for block in self.blocks))
        above = Above(above.pixels, tuple(windows))
        hidden = jnp.zeros(len(self.e))
        return Walk(context, above, jnp.stack(links), jnp.stack(of_h), before, hidden, jnp.zeros((columns, D)))

    def _begin_cell(self, now: Walk, j=0) -> Walk:
        """Cell j of the row before its first channel."""
        given, gates = now.links[:, j], now.gates[:, j]
        h = self.left.cell(now.before.pixels) + given[0]
        windows = []
        for block, window, link, bias in zip(self.blocks, now.before.blocks, given[1:], gates, strict=True):
            window, h = block.cell(window, h, link, bias)
            windows.append(window)
        hidden = elu(h) @ self.head + self.e
        return now._replace(before=Before(now.before.pixels, tuple(windows)), hidden=hidden)

    def _read(self, now: Walk, unit, f) -> Float[Array, ""]:
        return self.b[unit] + jnp.sum(elu(now.hidden) * self.R[f])

    def _write(self, now: Walk, j, f, bit) -> Walk:
        return now._replace(hidden=now.hidden + bit * self.V[f], row=now.row.at[j, f].set(bit))

    def _end_cell(self, now: Walk, j) -> Walk:
        pixel = _pixels(now.row[j])
        pixels = jnp.concatenate([now.before.pixels[1:], pixel[None]])
        return now._replace(before=now.before._replace(pixels=pixels))

    def _end_row(self, now: Walk) -> Above:
        pixels = jax.vmap(_pixels)(now.row)
        return now.above._replace(pixels=jnp.concatenate([now.above.pixels[1:], pixels[None]]))

    # ---------------------------------------------------------------- orders, sizes

    @property
    def n_told(self):
        return len(self.gates)

    def in_order(self, k, places):
        D = self.grid[2]
        cells = places[::D] // D if self.cells is None else self.cells[places[::D] // D]
        told = (self.gates[k][None], self.b[places], cells)
        return eqx.tree_at(lambda m: (m.gates, m.b, m.cells), self, told, is_leaf=lambda v: v is None)

    @property
    def row_floats(self):
        # The widest are the gates' inputs; several streams are alive at a time.
        rows, columns, _ = self.grid
        return max(4 * rows * columns * len(self.e), 0 if self.U is None else self.U.row_floats)


def _pixels(x: Float[Array, " D"]) -> Float[Array, " D+1"]:
    """A cell as the first convolutions see it."""
    return jnp.append(2 * x - 1, jnp.ones((), x.dtype))


def _quick() -> Any:
    """The float type of convolutions where rounding does no harm."""
    return jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16
