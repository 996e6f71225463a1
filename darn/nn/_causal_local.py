"""Causal periodic local connectivity over a grid, and the walk along it in wavefronts."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from darn.nn._base import AbstractCausalMap
from darn.nn._local import Grid, local_product, shear, tile_within, unshear


class CausalLocal(AbstractCausalMap):
    """W y where a unit sees the units before it in a window about its cell: r rows above, r cells to each side.

    The order is that of the grid (see `darn.nn.Local`): row by row, in a row cell by cell, in a cell channel by
    channel. Cell (i, j) sees all channels of cells (i-d, j-r..j+r) for d = 1..r and of (i, j-r..j-1), and of its own
    cell the channels before its own. With one channel and kernel 2r+1 = 15 these are 112 weights.
    """

    W: Float[Array, "P Q r+1 k C C"]  # (phase, row of the window, column of the window, from channel, to channel)
    n: int = eqx.field(static=True)
    grid: Grid = eqx.field(static=True)
    tile: int = eqx.field(static=True)

    def __init__(self, grid: Grid, kernel: int, *, period: int = 1, tile: int = 14):
        if kernel % 2 == 0:
            raise ValueError(f"a causal window has a cell in its middle: its kernel is odd, not {kernel}")
        rows, columns, channels = grid
        self.grid, self.n, self.tile = grid, rows * columns * channels, tile
        P, Q = min(period, rows), min(period, columns)
        self.W = jnp.zeros((P, Q, kernel // 2 + 1, kernel, channels, channels))  # as in `CausalDense`

    @property
    def r(self) -> int:
        return self.W.shape[3] // 2

    @property
    def width(self):
        # The input's windows in `__call__`, or what `chain` keeps: fronts by rows, twice.
        rows, columns, channels = self.grid
        th, tw = (tile_within(p, self.tile, n)[1] for p, n in zip(self.W.shape, self.grid[:2]))
        patches = -(-self.n // (th * tw)) * (th + self.r) * (tw + 2 * self.r)
        return max(patches, 2 * channels * rows * (columns + (self.r + 1) * rows))

    def _sees(self) -> np.ndarray:
        """Which places of the window come before the unit: (r+1, k, C, C)."""
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
        # The cell (i + down, k + aside) has unit j at place (r - down, r - aside) of its window.
        W = self.weights()[
            ((i + down) % P)[:, None], ((k + aside) % Q)[None], (r - down)[:, None], (r - aside)[None], f
        ]
        out = jnp.zeros((rows + r, columns + 2 * r, C), W.dtype)
        return lax.dynamic_update_slice(out, W, (i, k, jnp.zeros_like(k)))[:rows, r : r + columns].reshape(-1)

    def chain(self, a, decide, carry):
        """In wavefronts: cell (i, j) needs row i-d up to column j+r only, so all cells with equal t = j + (r+1) i are
        decided together, channel by channel. `decide` is handed arrays; a unit numbered n in them is no unit, and what
        is decided for it is dropped.
        """
        rows, columns, C = self.grid
        r = self.r
        P, Q = self.W.shape[:2]
        step, k = r + 1, 2 * r + 1
        n_fronts = columns + step * (rows - 1)
        m = min(rows, -(-columns // step))  # cells in the longest front; they are m neighbouring rows
        reach = step * r + r  # how many fronts back the window goes
        # All is kept by front and row, (t, i), with zeros wherever a front has no cell in a row.
        sheared = shear(a.reshape(self.grid), step, n_fronts).swapaxes(0, 1)
        sheared = jnp.pad(sheared, ((0, 0), (0, m - 1), (0, 0)))
        y = jnp.zeros((reach + n_fronts, r + rows + m - 1, C), a.dtype)
        # The phase of cell (i, t - step * i) depends on i and t % Q: a table of the weights by these two.
        i = np.arange(rows + m - 1)
        phase = (i % P)[None], (np.arange(Q)[:, None] - step * i[None]) % Q
        W = self.weights()[phase]  # (Q, rows, r+1, k, C, C)
        own = W[:, :, r, r]
        W = W.reshape(*W.shape[:2], step * k, C, C)[:, :, : r * k + r]

        def front(state, t):
            y, carry = state
            first = jnp.maximum((t - columns + step) // step, 0)  # the topmost row with a cell in this front
            row = first + jnp.arange(m)
            column = t - step * row
            valid = (row < rows) & (column >= 0) & (column < columns)
            zero = jnp.zeros_like(t)

            def at(w):
                return lax.dynamic_slice(w, (t % Q, first, *(zero,) * (w.ndim - 2)), (1, m, *w.shape[2:]))[0]

            back = lax.dynamic_slice(y, (t, first, zero), (reach, m + r, C))
            seen = [back[reach - step * d - r :][:k, r - d : r - d + m] for d in range(r, 0, -1)]
            seen = jnp.concatenate([*seen, back[reach - r :, r:]])  # (places of the window, m, C)
            # As a product and exact: one place that sums what training sums must not round differently.
            total = jnp.einsum("kmc,mkcf->mf", seen, at(W), precision=lax.Precision.HIGHEST)
            logit = lax.dynamic_slice(sheared, (t, first, zero), (1, m, C))[0] + total
            bits, mine = [], at(own)
            for f in range(C):
                unit = jnp.where(valid, (row * columns + column) * C + f, self.n)
                carry, bit = decide(carry, unit, logit[:, f])
                bits.append(jnp.where(valid, bit, jnp.zeros_like(bit)))
                logit = logit + bits[f][:, None] * mine[:, f]
            y = lax.dynamic_update_slice(y, jnp.stack(bits, axis=1)[None], (reach + t, r + first, zero))
            return (y, carry), None

        (y, carry), _ = lax.scan(front, (y, carry), jnp.arange(n_fronts))
        return unshear(y[reach:, r : r + rows].swapaxes(0, 1), step, columns).reshape(-1), carry
