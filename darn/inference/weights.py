"""Importance weights w = p(x,h) / q(h|x): draws of them, and as many for each row as its estimate needs."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from darn.batching import chunks, join, rows_within, stream_rows
from darn.devices import everywhere
from darn.inference.sampling import as_floats
from darn.inference.summary import Scores
from darn.model import Stack

DRAWS = 64  # the samples of a row are drawn in lots of this many
LIMIT = 8192  # the most that a row's estimate is made of
BLOCK = 1000  # rows settled together: with all their weights they take at most 32 MB


def draw(model: Stack, x, context, keys, number):
    """log p and log q by layer, (rows, samples) each, for the samples with these numbers."""

    def one(key, x, context, i):
        h = model.encode(x, context, key=jax.random.fold_in(key, i))
        return model.log_p_layers(x, h, context), model.log_q_layers(x, h, context)

    return jax.vmap(jax.vmap(one, (None, None, None, 0)), (0, 0, 0, None))(keys, x, context, number)


@eqx.filter_jit
def _draw_lots(model, x, context, seed, stage, number, lot):
    key = jax.random.fold_in(jax.random.key(seed), stage)
    keys = jax.vmap(lambda n, l: jax.random.fold_in(jax.random.fold_in(key, n), l))(number, lot)
    return draw(model, as_floats(x), context, keys, jnp.arange(DRAWS))


class _Sums(NamedTuple):
    """Of each row's weights, divided by the row's largest: how many, the mean, the variance; and the mean of log w."""

    n: np.ndarray
    top: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    log_w: np.ndarray

    @property
    def cv2(self) -> np.ndarray:
        """The squared coefficient of variation: S samples give log p a variance of cv2 / S."""
        return self.variance / self.mean**2


def settle(model: Stack, x, *, context=None, variance: float, seed: int, numbers: np.ndarray, size: int) -> Scores:
    """log p of rows, each from as many samples as give it this variance, within a limit.

    A row's samples are counted in advance, by pilot draws that are then discarded: the estimate is made of fresh ones,
    so that it cannot stop at a moment that favours it. A second pilot, half as large as the first one asks for, sees
    the rare large weights that 64 samples may miss.

    Args:
        model: any stack.
        x: (N, n_x), rows to settle together: all their weights are in memory.
        context: (N, n_context), or None.
        variance: of every row's log p, nats^2.
        seed: of the samples; a row's samples depend only on the seed and the row's number.
        numbers: (N,) the rows' numbers.
        size: lots in one program.

    Returns:
        The estimates, with their leading bias -variance / 2 (Jensen) corrected.
    """

    def round_of(stage, rows, samples):
        """Fresh weights: `samples[i]` of them for row rows[i]."""
        lots = samples // DRAWS
        starts = np.cumsum(lots) - lots
        row = np.repeat(rows, lots)
        lot = (np.arange(len(row)) - np.repeat(starts, lots)).astype(np.uint32)

        def part(x, context, number, lot):
            return _draw_lots(model, x, context, np.asarray(seed), np.asarray(stage), number, lot)

        def lots_in_parts():
            for start, count in chunks(len(row), BLOCK):
                here = row[start : start + count]
                side = None if context is None else context[here]
                yield x[here], side, numbers[here], lot[start : start + count]

        log_p, log_q = join(list(stream_rows(part, size, lots_in_parts())))
        log_w = np.sum([*log_p, *(-part for part in log_q)], axis=0, dtype=np.float64)
        return _sums(np.asarray(log_w), starts, samples)

    every, model = np.arange(len(x)), everywhere(model)
    pilot = round_of(0, every, np.full(len(x), DRAWS))
    need = pilot.cv2 / variance
    more = np.flatnonzero(need > DRAWS)
    if len(more):
        second = round_of(1, more, _whole(np.minimum(need[more] / 2, LIMIT / 8)))
        need[more] = np.maximum(need[more], second.cv2 / variance)
    found = round_of(2, every, _whole(np.minimum(need, LIMIT)))
    own = found.cv2 / found.n
    log_p, ess = found.top + np.log(found.mean) + own / 2, found.n / (1 + found.cv2)
    more = {"variance": own, "correction": own / 2, "drawn": found.n, "cut": need > LIMIT}
    return Scores(log_p, -found.log_w, ess, **more)


def lots_at_once(model: Stack, n: int, most: int | None) -> int:
    """How many of n rows' lots to draw in one program: as fits a CPU's cache, or half a gigabyte of an accelerator."""
    cpu = jax.default_backend() == "cpu"
    most = min(most or BLOCK, 128 if cpu else 4096)
    return rows_within(DRAWS * model.row_floats, n, most, 1 << (21 if cpu else 27))


def _whole(samples: np.ndarray) -> np.ndarray:
    """At least this many samples, in whole lots."""
    return DRAWS * np.maximum(np.ceil(np.nan_to_num(samples) / DRAWS), 1).astype(int)


def _sums(log_w: np.ndarray, starts: np.ndarray, samples: np.ndarray) -> _Sums:
    """The sums over each row's lots (lots, DRAWS), which begin at `starts`; in double precision."""
    lots = samples // DRAWS
    top = np.maximum.reduceat(log_w.max(axis=1), starts)
    w = np.exp(log_w - np.repeat(top, lots)[:, None])

    def mean(v):
        return np.add.reduceat(v.sum(axis=1), starts) / samples

    middle = mean(w)
    spread = mean((w - np.repeat(middle, lots)[:, None]) ** 2) * samples / (samples - 1)
    return _Sums(samples, top, middle, spread, mean(log_w))
