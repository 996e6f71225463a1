"""Causal periodic local connectivity over a grid, and the walk along it in wavefronts."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from darn.errors import InputError
from darn.nn._base import AbstractCausalMap
from darn.nn._local import Grid, local_product, shear, tile_within, unshear
from darn.nn._registry import register, tuning_field


@register("causal-local")
class CausalLocal(AbstractCausalMap):
    """W y where a unit sees the units before it in a window around its cell: r rows above, r cells to each side.

    The order is that of the grid (see `darn.nn.Local`): row by row, within a row cell by cell, within a cell channel by
    channel. Cell (i, j) sees all channels of the cells (i-d, j-r..j+r) for d = 1..r and (i, j-r..j-1), and in its own
    cell the channels before its own. With one channel and kernel 2r+1 = 15 these are 112 weights.

    Args:
        grid: rows, columns and channels.
        kernel: cells of the window on a side, 2r+1.
        period: cells after which the weights repeat; 1 is a convolution.
        tile: cells computed together, which changes the speed alone.
        block: units of a wavefront decided together, which changes the speed alone.
    """

    W: Float[Array, "P Q r+1 k C C"]  # (phase, row of the window, column of the window, from channel, to channel)
    n: int = eqx.field(static=True)
    grid: Grid = eqx.field(static=True)
    tile: int = tuning_field(default=14)
    block: int = tuning_field(default=8)

    def __init__(self, grid: Grid, kernel: int, *, period: int = 1, tile: int = 14, block: int = 8):
        if kernel % 2 == 0:
            raise InputError(f"the kernel of a causal window must be odd, not {kernel}")
        rows, columns, channels = grid
        self.grid, self.n, self.tile, self.block = grid, rows * columns * channels, tile, block
        P, Q = min(period, rows), min(period, columns)
        self.W = jnp.zeros((P, Q, kernel // 2 + 1, kernel, channels, channels))  # as in `CausalDense`

    def __check_init__(self):
        if self.n != math.prod(self.grid) or any(p > size for p, size in zip(self.W.shape[:2], self.grid)):
            raise ValueError("a map over a grid needs one unit per channel of each cell, and a period within the grid")

    @property
    def r(self) -> int:
        return self.W.shape[3] // 2

    @property
    def row_floats(self):
        # The input windows of `__call__`, or the state of `walk`: two arrays of steps by rows of blocks.
        rows, columns, channels = self.grid
        th, tw = (tile_within(p, self.tile, n)[1] for p, n in zip(self.W.shape, self.grid[:2]))
        patches = -(-self.n // (th * tw)) * (th + self.r) * (tw + 2 * self.r)
        return max(patches, 2 * channels * rows * (columns + 2 * rows * self._block()))

    def _sees(self) -> np.ndarray:
        """Which positions of the window come before the unit: (r+1, k, C, C)."""
        r, C = self.r, self.grid[2]
        sees = np.zeros((r + 1, 2 * r + 1, C, C), bool)
        sees[:r] = True
        sees[r, :r] = True
        sees[r, r] = np.triu(np.ones((C, C), bool), 1)
        return sees

    def weights(self):
        return jnp.where(jnp.asarray(self._sees())[None, None], self.W, 0)

    def __call__(self, y):
        x = y.reshape(self.grid)
        r = self.r
        out = local_product(x, self.weights(), self.grid[:2], stride=1, before=(r, r), tile=self.tile)
        return out.reshape(-1)

    def outgoing(self, j):
        rows, columns, C = self.grid
        r = self.r
        P, Q = self.W.shape[:2]
        cell, f = j // C, j % C
        i, k = cell // columns, cell % columns
        down, aside = jnp.arange(r + 1), jnp.arange(-r, r + 1)
        # The cell (i + down, k + aside) has unit j at position (r - down, r - aside) of its window.
        W = self.weights()[
            ((i + down) % P)[:, None], ((k + aside) % Q)[None], (r - down)[:, None], (r - aside)[None], f
        ]
        out = jnp.zeros((rows + r, columns + 2 * r, C), W.dtype)
        return lax.dynamic_update_slice(out, W, (i, k, jnp.zeros_like(k)))[:rows, r : r + columns].reshape(-1)

    def walk(self, a, decide, carry, turns):
        # Two algorithms: a compiled program is fast with few large steps of one shape, the host with few additions.
        walk = self._in_wavefronts if turns.xp is jnp else self._unit_by_unit
        return walk(a, decide, carry, turns)

    def _in_wavefronts(self, a, decide, carry, turns):
        """In wavefronts of blocks.

        A block is w >= r cells of one row. It depends on no block of the rows above beyond the one right of its own
        column, so all blocks (i, J) with equal t = J + 2 i are decided together: one product for everything before
        them, then each along its own cells. For 209 x 159 pixels and r = 7 this takes 436 steps; pixel by pixel takes
        33,231, and wavefronts of single pixels, j + (r+1) i, take 1,823.
        """
        rows, columns, C = self.grid
        r, w = self.r, self._block()
        across = -(-columns // w)  # blocks in a row
        n_steps = across + 2 * (rows - 1)
        m = min(rows, -(-across // 2))  # blocks decided together, of m neighbouring rows
        reach = 2 * r + 1  # how many steps back the window reaches
        # Arrays are indexed by step and row, (t, i), with zeros where a step has no block in a row.
        blocks = jnp.pad(a.reshape(self.grid), ((0, 0), (0, across * w - columns), (0, 0))).reshape(rows, across, w, C)
        before = jnp.pad(shear(blocks, 2, n_steps).swapaxes(0, 1), ((0, 0), (0, m - 1), (0, 0), (0, 0)))
        y = jnp.zeros((reach + n_steps, r + rows + m - 1, w, C), a.dtype)
        W, own = self._block_weights(rows + m - 1)
        phases = W.shape[0]
        cell = jnp.arange(w * C) // C

        def step(state, t):
            y, carry = state
            first = jnp.maximum((t - across + 2) // 2, 0)  # the topmost row with a block in this step
            row = first + jnp.arange(m)
            column = (t - 2 * row)[:, None] * w + cell[None]
            valid = (row[:, None] < rows) & (column >= 0) & (column < columns)
            unit = jnp.where(valid, (row[:, None] * columns + column) * C + jnp.arange(w * C)[None] % C, self.n)

            def at(table, t):
                return lax.dynamic_slice(table, (t, first, *(0,) * (table.ndim - 2)), (1, m, *table.shape[2:]))[0]

            back = lax.dynamic_slice(y, (t, first, 0, 0), (reach, m + r, w, C))
            seen = [back[reach + b - 2 * d, r - d : r - d + m] for d in range(r, 0, -1) for b in (-1, 0, 1)]
            seen = jnp.stack([*seen, back[reach - 1, r:]], axis=1).reshape(m, -1)
            # In full precision, since it must equal the sum used for scoring.
            total = jnp.einsum("mk,mko->mo", seen, at(W, t % phases), precision=lax.Precision.HIGHEST)
            logit = at(before, t).reshape(m, w * C) + total
            mine = at(own, t % phases)

            def one_unit(state, o):
                carry, logit = state
                carry, bit = decide(carry, unit[:, o], logit[:, o])
                bit = jnp.where(valid[:, o], bit, jnp.zeros_like(bit))
                return (carry, logit + bit[:, None] * mine[:, o]), bit

            (carry, _), bits = turns.written_out(one_unit, (carry, logit), w * C)
            new = bits.swapaxes(0, 1).reshape(1, m, w, C)
            return (lax.dynamic_update_slice(y, new, (reach + t, r + first, 0, 0)), carry), None

        (y, carry), _ = lax.scan(step, (y, carry), jnp.arange(n_steps))
        y = unshear(y[reach:, r : r + rows].swapaxes(0, 1), 2, across)
        return y.reshape(rows, across * w, C)[:, :columns].reshape(-1), carry

    def _unit_by_unit(self, a, decide, carry, turns):
        """A unit that is on adds its weights to the logits of the units that see it; most units are off."""
        W = turns.array(self.weights())
        P, Q, down, k, C, _ = W.shape
        (rows, columns, _), r, n_rows = self.grid, self.r, a.shape[1]
        below, aside = np.arange(down), np.arange(-r, r + 1)
        place = r - below[:, None], r - aside[None]  # this cell's position in the window of the cell (below, aside)
        onto = {
            (p, q): W[((p + below) % P)[:, None], ((q + aside) % Q)[None], *place] for p in range(P) for q in range(Q)
        }  # (below, aside, from channel, to channel)
        logits = np.zeros((rows + r, columns + 2 * r, C, n_rows), a.dtype)  # with a margin beyond the edges
        logits[:rows, r : r + columns] = a.reshape(rows, columns, C, n_rows)
        y = np.empty((rows, columns, C, n_rows), a.dtype)
        for unit, (i, j, f) in enumerate(np.ndindex(self.grid)):
            carry, y[i, j, f] = decide(carry, unit, logits[i, j + r, f])
            on = np.flatnonzero(y[i, j, f])
            if len(on):
                logits[i : i + down, j : j + k, :, on] += onto[i % P, j % Q][:, :, f, :, None]
        return y.reshape(-1, n_rows), carry

    def _block(self) -> int:
        """Cells in a block: at least r, and about 32 units, since the loop over them may be unrolled."""
        return max(self.r, min(self.block, self.grid[1], 32 // self.grid[2]), 1)

    def _block_weights(self, n_rows: int) -> tuple[Array, Array]:
        """The weights to a block from the blocks it sees, and from within.

        The first array, (phases, rows, units seen, w * C), is from the three nearest blocks in each of the r rows
        above, then the one to its left; the second, (phases, rows, w * C, w * C), from within. The phase of block
        (i, t - 2 i) depends on i and on t % phases.
        """
        P, Q, _, _, C, _ = self.W.shape
        r, w = self.r, self._block()
        phases = Q // math.gcd(w, Q)
        to = np.arange(w)
        # Sources by (block, cell in it), each at a row of the window and a column that depends on the target.
        places = [(r - d, b) for d in range(r, 0, -1) for b in (-1, 0, 1)] + [(r, -1), (r, 0)]
        window_row = np.array([a for a, _ in places])[:, None, None]
        aside = np.array([b * w for _, b in places])[:, None, None] + to[None, :, None] - to[None, None]
        column = (np.arange(phases)[:, None] * w + to[None]) % Q
        W = self.weights()[:, column]  # (P, phases, to, window row, window column, C, C)
        index = (to[None, None], window_row, np.clip(aside + r, 0, 2 * r))
        W = W[:, :, *np.broadcast_arrays(*index)]  # (P, phases, block, from, to, C, C)
        W = jnp.where(jnp.asarray(np.abs(aside) <= r)[None, None, ..., None, None], W, 0)
        W = W.swapaxes(4, 5).reshape(P, phases, len(places), w * C, w * C)
        i = np.arange(n_rows)
        W = W[(i % P)[None], (np.arange(phases)[:, None] - 2 * i[None]) % phases]
        return W[:, :, :-1].reshape(phases, n_rows, -1, w * C), W[:, :, -1]
