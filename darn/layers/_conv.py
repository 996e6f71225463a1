"""Gated causal convolutions over an image: each pixel given all pixels before it, row by row."""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from darn.layers._base import bias_field, bits_log_prob
from darn.layers._context import context_field, context_map
from darn.layers._orders import AbstractReorderable
from darn.nn import (
    COMPILED,
    FLOATS,
    AbstractMap,
    CausalConvolution,
    Floats,
    GatedBlock,
    Grid,
    GridWindow,
    Integers,
    register,
    replaced,
    tuning_field,
)

_BIASES = ("b", "gates", "e", "V", "of_row", "of_column")


class Given(NamedTuple):
    """What a walk is given: the layer in its order, and the context."""

    gates: Array  # (blocks, 2, 2C) biases of the blocks' gates
    b: Array  # (n,)
    cells: Array | None
    context: Any  # as the layer takes it; within a walk (#H, #W, C)


class Above(NamedTuple):
    """The inputs of the next row."""

    pixels: Array  # the last rows, as the first convolution sees them
    blocks: tuple[GridWindow, ...]


class Line(NamedTuple):
    """What the rows above give to every cell of a row."""

    links: Array  # (1 + blocks, W, C) from the stream v to h
    gates: Array  # (blocks, W, 2C) biases of the gates of h


class Before(NamedTuple):
    """The inputs of the next cell of a row."""

    pixels: Array
    blocks: tuple[GridWindow, ...]


@register("conv")
class CausalConv(AbstractReorderable):
    """p(y_j = 1 | y_1..j-1, c) by a net of causal convolutions (PixelCNN) over a grid of bits.

    Two streams of C channels: v knows the rows above a cell, h also the cells to its left. Each starts from the pixels,
    +1 or -1 inside the grid and 0 outside, and passes through gated residual blocks; a hidden layer in every cell then
    gives the logits of the cell's channels, one after the other. A context is mapped to C channels in every cell, or
    the same in all cells; it is added to v, and in every block to the biases of the gates. With `places`, the context
    also has C channels that are learned for each row and for each column of the grid.

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
    integers: Integers | None = eqx.field(static=True, default=None)  # in an integer twin
    of_row: Float[Array, "H C"] | None = None  # added to the context
    of_column: Float[Array, "W C"] | None = None
    again: bool = tuning_field(default=False)  # whether a backward pass computes the blocks again

    def __init__(
        self,
        grid: Grid,
        n_c: int = 0,
        *,
        channels: int = 32,
        n_blocks: int = 4,
        dilations: Sequence[int] = (1,),
        first: tuple[int, int, int] = (2, 7, 3),
        width: int = 5,
        reach: int = 3,
        dropout: float = 0.0,
        n_told: int = 1,
        places: bool = False,
        again: bool = False,
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
            first: Rows and columns above a cell that the stream v starts from, and cells to the left for h.
            width: Columns that a convolution of v sees.
            reach: Cells that a convolution of h sees.
            dropout: Fraction of activations dropped in a training step.
            n_told: Orders that the layer can tell apart; see `Orders`.
            places: Whether the context tells the row and the column of a cell.
            again: Whether a backward pass computes the blocks again, which saves most of the memory.
            U: From the context to C channels in each cell, or to C channels for all cells.
            key: Of the weights.
        """
        rows, columns, D = grid
        k = jax.random.split(key, 7)
        self.grid, self.n, self.rate = grid, rows * columns * D, float(dropout)
        self.b = jnp.zeros(self.n)
        self.U = U if U is not None else context_map(n_c, rows * columns * channels, k[0])
        self.up = CausalConvolution(first[:2], D + 1, channels, key=k[1])
        self.left = CausalConvolution((1, first[2]), D + 1, channels, left=True, key=k[2])
        self.link = CausalConvolution((1, 1), channels, channels, key=k[3])
        sizes = {"width": width, "reach": reach}
        self.blocks = tuple(
            GatedBlock(channels, dilation=dilations[l % len(dilations)], **sizes, key=k_l)
            for l, k_l in enumerate(jax.random.split(k[4], n_blocks))
        )
        self.gates = jnp.zeros((n_told, n_blocks, 2, 2 * channels))
        steer = jax.random.normal(k[6], (n_blocks, channels, 4 * channels)) / channels**0.5
        self.of_row = jnp.zeros((rows, channels)) if places else None
        self.of_column = jnp.zeros((columns, channels)) if places else None
        self.steer = steer if self.is_told else None
        self.head = jax.random.normal(k[5], (channels, channels)) / channels**0.5
        self.e = jnp.zeros(channels)
        self.V = jnp.zeros((D, channels))
        self.R = jnp.zeros((D, channels))
        self.cells = None
        self.integers, self.again = None, again

    def __check_init__(self):
        (rows, columns, D), C = self.grid, len(self.e)
        first = tuple(f.W.shape[2:] for f in (self.up, self.left, self.link))
        if first != ((D + 1, C), (D + 1, C), (C, C)) or any(block.b.shape[1] != C for block in self.blocks):
            raise ValueError(f"the convolutions of the layer are not all of {C} channels over pixels of {D} bits")
        if self.steer is not None and self.steer.shape != (len(self.blocks), C, 4 * C):
            raise ValueError("the map from the context to the gates does not fit the blocks")
        if self.V.shape != (D, C) or self.R.shape != (D, C) or self.gates.shape[1] != len(self.blocks):
            raise ValueError("the hidden layer or the gates do not fit the convolutions")
        places = tuple(None if w is None else w.shape for w in (self.of_row, self.of_column))
        if places not in ((None, None), ((rows, C), (columns, C))):
            raise ValueError("the rows and columns of the grid do not fit the convolutions")
        if (self.steer is not None) != self.is_told:
            raise ValueError("a context comes with a map to the gates")

    @property
    def is_told(self) -> bool:
        """Whether cells differ in what they are given besides the pixels."""
        return self.U is not None or self.of_row is not None

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

    @property
    def how(self) -> Floats | Integers:
        """The arithmetic of everything between the convolutions."""
        return self.integers or FLOATS

    def _logits(self, y, c, order, *, key=None, dtype: Any = jnp.float32):
        rows, columns, _ = self.grid
        how, elu = self.how, self.how.elu
        x = y.reshape(self.grid)
        pixels = jnp.concatenate([2 * x - 1, jnp.ones((rows, columns, 1), x.dtype)], axis=-1)
        down = jnp.pad(pixels, ((1, 0), (0, 0), (0, 0)))[:rows]
        right = jnp.pad(pixels, ((0, 0), (1, 0), (0, 0)))[:, :columns]
        context = self._context(c, self.cells)
        v = how.stream(how.total(self.up(down, dtype), context))
        h = how.stream(how.total(self.left(right, dtype), self.link(elu(v), dtype)))
        keys = [None] * len(self.blocks) if key is None else jax.random.split(key, len(self.blocks))

        def through(l, v, h, context, bias, k):
            bias = self._steered(context, bias, l, dtype)
            return self.blocks[l](v, h, bias, rate=self.rate, key=k, dtype=dtype, how=how)

        if self.again:
            through = jax.checkpoint(through, static_argnums=0)
        for l, (bias, k) in enumerate(zip(self.gates[order], keys, strict=True)):
            v, h = through(l, v, h, context, bias, k)
        hidden = how.total(how.product(elu(h), self.head), self.e[None, None])
        # Each channel of a cell is given the channels before it.
        own = x[..., None] * self.V[None, None]
        hidden = hidden[:, :, None] + jnp.cumsum(own, axis=2) - own
        return how.total(self.b, how.weighed(elu(hidden), self.R[None, None]).reshape(-1))

    def _steered(self, context: Float[Array, "*cells C"], bias: Float[Array, "2 2*C"], l: int, dtype=jnp.float32):
        """The biases of block l's gates in cells of the given context: (*cells, 2, 2C)."""
        cells = (1,) * (context.ndim - 1)
        if self.steer is None:
            return bias.reshape(*cells, *bias.shape)
        steer, seen = self.steer[l], self.how.elu(context)
        if self.integers is None:
            added = (seen.astype(dtype) @ steer.astype(dtype)).astype(jnp.float32)
        else:
            added = self.how.product(seen, steer)
        return self.how.total(bias.reshape(*cells, *bias.shape), added.reshape(*context.shape[:-1], *bias.shape))

    def _context(self, c, cells) -> Float[Array, "#H #W C"]:
        """The context of every cell, as C channels; zeros without a context. `cells`: as the field."""
        rows, columns, _ = self.grid
        channels = len(self.e)
        if not self.is_told:
            return jnp.zeros((1, 1, channels), self.e.dtype)
        terms = []
        if self.U is not None:
            if c is None:
                raise ValueError("this layer was built with a context: pass one")
            given = self.U(c)
            if given.size not in (channels, rows * columns * channels):
                raise ValueError(
                    f"the context map has {given.size} outputs for {rows * columns} cells of {channels} channels"
                )
            one = given.size == channels
            terms.append(given.reshape((1, 1, channels) if one else (rows, columns, channels)))
        if self.of_row is not None and self.of_column is not None:
            terms += [self.of_row[:, None], self.of_column[None]]
        given = self.how.stream(self.how.total(*terms))
        if given.size == channels and len(terms) == 1:
            return given
        given = given.reshape(rows * columns, channels)
        if cells is not None:  # each once, which spares a GPU atomic additions in the gradient
            given = given.at[cells].get(unique_indices=True)
        return given.reshape(rows, columns, channels)

    # ---------------------------------------------------------------- row by row, cell by cell

    def start(self, c=None, *, order=0):
        """The layer in its order, and the context."""
        return Given(self.gates[order], self.b, self.cells, c)

    def walk(self, state, decide, carry, turns=COMPILED):
        rows, columns, D = self.grid
        given, top = turns.call(_enter, self, 0, turns.hold(state))

        def one_row(above_carry, i):
            above, carry = above_carry
            above, line, before, none = turns.call(_begin_row, self, i, given, above)

            def one_cell(before_carry, j):
                before, last, carry = before_carry
                before, hidden, a = turns.call(_begin_cell, self, (i, j), given, line, before, last)
                bits = []
                for f in range(D):
                    carry, bit = decide(carry, (i * columns + j) * D + f, turns.fetch(a))
                    bits.append(bit)
                    if f < D - 1:
                        hidden, a = turns.call(_next_channel, self, (i, j, f), given, hidden, turns.hold(bit))
                bits = turns.xp.stack(bits)
                return (before, turns.hold(bits), carry), bits

            (_, _, carry), bits = turns.scan(one_cell, (before, none, carry), columns)
            return (turns.call(_end_row, self, i, above, turns.hold(bits)), carry), bits

        (_, carry), y = turns.scan(one_row, (top, carry), rows)
        return y.reshape(self.n, *y.shape[3:]), carry

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
        # The widest are the gates' inputs, several streams being alive at a time; in an integer twin, windows.
        rows, columns, _ = self.grid
        seen = 4 if self.integers is None else max(f.W.shape[0] * f.W.shape[1] for b in self.blocks for f in b.up)
        return max(seen * rows * columns * len(self.e), 0 if self.U is None else self.U.row_floats)

    @property
    def clips(self):
        return True

    def quantised(self, c, arithmetic):
        how = Integers.of(arithmetic)
        weights = lambda W: how.weights(W, arithmetic)  # noqa: E731
        return replaced(
            self,
            integers=how,
            U=None if self.U is None else self.U.quantised(c, arithmetic)[0],
            up=self.up.quantised(how, arithmetic),
            left=self.left.quantised(how, arithmetic),
            link=self.link.quantised(how, arithmetic),
            blocks=tuple(block.quantised(how, arithmetic) for block in self.blocks),
            head=weights(self.head),
            steer=None if self.steer is None else jnp.stack([weights(W) for W in self.steer]),
            R=weights(self.R.T).T,
            **{k: how.bias(w, arithmetic) for k in _BIASES if (w := getattr(self, k)) is not None},
        )


# The parts of a walk, for one row of an array of rows; on the host, each is a program of its own.


def _enter(layer: CausalConv, _, given: Given) -> tuple[Given, Above]:
    """The context of every cell, and what is above the first row."""
    _, columns, D = layer.grid
    given = given._replace(context=layer._context(given.context, given.cells))
    pixels = jnp.zeros((layer.up.above + 1, columns, D + 1), layer.e.dtype)
    return given, Above(pixels, tuple(block.above(columns) for block in layer.blocks))


def _begin_row(layer: CausalConv, i, given: Given, above: Above) -> tuple[Above, Line, Before, Array]:
    """Row i before its first cell: everything that depends only on the rows above. Last, bits of no cell."""
    _, columns, D = layer.grid
    how, elu = layer.how, layer.how.elu
    context = given.context[jnp.minimum(i, len(given.context) - 1)]
    v = how.stream(how.total(layer.up.row(above.pixels), context))
    links, windows, of_h = [layer.link.row(elu(v)[None])], [], []
    for l, (block, window, bias) in enumerate(zip(layer.blocks, above.blocks, given.gates, strict=True)):
        bias = layer._steered(context, bias, l)
        window, v, link = block.row(window, v, bias[:, 0], how)
        windows.append(window)
        links.append(link)
        of_h.append(jnp.broadcast_to(bias[:, 1], (columns, bias.shape[-1])))
    # `left` sees cells before its own, so its window is one cell longer than what it keeps.
    pixels = jnp.zeros((layer.left.before + 1, D + 1), layer.e.dtype)
    before = Before(pixels, tuple(block.before() for block in layer.blocks))
    return Above(above.pixels, tuple(windows)), Line(jnp.stack(links), jnp.stack(of_h)), before, pixels[0, :D]


def _begin_cell(
    layer: CausalConv, at, given: Given, line: Line, before: Before, last: Float[Array, " D"]
) -> tuple[Before, Array, Array]:
    """(what was before this cell, its hidden layer, the logit of its first channel), given the bits of the last."""
    i, j = at
    how = layer.how
    pixel = jnp.where(j > 0, _pixels(last), 0)  # the first cell has none before it
    pixels = jnp.concatenate([before.pixels[1:], pixel[None]])
    links, gates = line.links[:, j], line.gates[:, j]
    h = how.stream(how.total(layer.left.cell(pixels), links[0]))
    windows = []
    for block, window, link, bias in zip(layer.blocks, before.blocks, links[1:], gates, strict=True):
        window, h = block.cell(window, h, link, bias, how)
        windows.append(window)
    hidden = how.total(how.product(how.elu(h), layer.head), layer.e)
    return Before(pixels, tuple(windows)), hidden, _logit(layer, i, j, 0, given, hidden)


def _next_channel(layer: CausalConv, at, given: Given, hidden: Array, bit: Array) -> tuple[Array, Array]:
    """(hidden layer, logit of channel f + 1) of a cell, given the bit of channel f."""
    i, j, f = at
    hidden = hidden + bit * layer.V[f]
    return hidden, _logit(layer, i, j, f + 1, given, hidden)


def _logit(layer: CausalConv, i, j, f, given: Given, hidden: Array) -> Float[Array, ""]:
    _, columns, D = layer.grid
    how = layer.how
    return how.total(given.b[(i * columns + j) * D + f], how.weighed(how.elu(hidden), layer.R[f]))


def _end_row(layer: CausalConv, _, above: Above, bits: Float[Array, "W D"]) -> Above:
    return above._replace(pixels=jnp.concatenate([above.pixels[1:], jax.vmap(_pixels)(bits)[None]]))


def _pixels(x: Float[Array, " D"]) -> Float[Array, " D+1"]:
    """A cell as the first convolutions see it."""
    return jnp.append(2 * x - 1, jnp.ones((), x.dtype))


def _quick() -> Any:
    """The float type of convolutions where rounding does no harm."""
    return jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16
