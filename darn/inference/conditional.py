"""Rows given conditions: the probability of the conditions, and draws of rows that meet them, without rejection.

Given a code h, one constrained walk (`constrained`) draws a row and its weight. The mean weight over h ~ p(h) is the
probability of the conditions, and rows drawn by their weights follow the conditional distribution.

- codes: exact. The codes can be enumerated (or there are none), and the weight depends only on the code: no variable
  under a condition depends on one that is drawn.
- states: exact. There are few enough values of the variables under a condition, and of those that they depend on, to
  enumerate them together with the codes.
- importance: otherwise. Codes are drawn from p(h); the weights never exceed 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid

from darn.batching import map_rows, row_keys, rows_within
from darn.devices import everywhere
from darn.errors import DarnError
from darn.inference import likelihood
from darn.inference.constrained import Variable, constrained, make_tables
from darn.inference.sampling import CHUNK, as_floats
from darn.inference.summary import check_finite
from darn.model import Stack

MOST_STATES = 1 << 16  # values times codes that are enumerated
PILOT = 1000  # draws that tell how many more are needed
ENOUGH = 2  # times as large as the number of rows, the effective sample size should be
MOST_DRAWS = 200  # for a row
_OF_CODES = 2**32 - 1  # separates the keys of codes from those of rows


@dataclass(frozen=True)
class Weighted:
    """Draws with weights, whose mean is the probability of the conditions."""

    x: np.ndarray  # (N, n_x) uint8
    log_w: np.ndarray  # (N,)

    @property
    def w(self) -> np.ndarray:
        """The weights, divided by the largest."""
        return np.exp(self.log_w - self.log_w.max())

    @property
    def ess(self) -> float:
        """The effective sample size."""
        return float(self.w.sum() ** 2 / (self.w**2).sum())

    @property
    def log_p(self) -> float:
        """The log of the mean weight."""
        return float(self.log_w.max() + np.log(self.w.mean()))

    @property
    def relative_variance(self) -> float:
        """Of the mean weight, divided by its square."""
        return max(1 / self.ess - 1 / len(self.w), 0.0)


@dataclass(frozen=True)
class ConditionalSamples:
    """Rows that meet the conditions."""

    x: np.ndarray  # (N, n_x) uint8
    method: str  # "exact" | "importance"
    log_p: float  # of the conditions, nats
    ess: float | None = None  # effective sample size of the draws that the rows were chosen from
    draws: int | None = None  # their number


class Conditional:
    """A model under conditions.

    Args:
        model: any stack.
        variables: all variables of the visible units, in order, each with the weights of its values.
        context: (n_context,), for a model that was trained with one.
        exact: whether to enumerate where that is feasible.
    """

    def __init__(self, model: Stack, variables: Sequence[Variable], *, context=None, exact: bool = True):
        self.model, self.variables = model, tuple(variables)
        self.context = None if context is None else jnp.asarray(context, jnp.float32)
        ends = [0, *(v.units.stop for v in variables)]
        if [v.start for v in variables] != ends[:-1] or ends[-1] != model.n_x:
            raise DarnError(f"the variables must spell the model's {model.n_x} units, in order")
        if model.n_context != (0 if context is None else len(context)):
            raise DarnError(f"the model has a context of {model.n_context} units: give one of them")
        self.tables, self._settled = make_tables(self.variables, model.n_x)
        self.how, self._listed = self._choose() if exact else ("importance", ())
        self._found: tuple | None = None

    @property
    def method(self) -> str:
        return "importance" if self.how == "importance" else "exact"

    def _choose(self) -> tuple[str, tuple[Variable, ...]]:
        """How to compute, and the variables whose values are enumerated."""
        layer = self.model.decoder[0].layer
        held = [v for v in self.variables if v.conditioned]
        if likelihood.method_for(self.model) == "importance":
            return "importance", ()

        def independent(missing: list[Variable]) -> bool:
            return bool(layer.separates(self._mask(missing)[None]))

        free = [v for v in self.variables if not v.conditioned]
        several = [v for v in held if np.count_nonzero(v.weights) > 1]
        if self._settled and all(independent([*free, v]) for v in several) and independent(free):
            return "codes", ()
        last = max((i for i, v in enumerate(self.variables) if v.conditioned), default=-1)
        for listed in (held, self.variables[: last + 1], self.variables):
            inside = {v.start for v in listed}
            if independent([v for v in self.variables if v.start not in inside]) or len(listed) == len(self.variables):
                states = np.prod([float(np.count_nonzero(v.weights)) for v in listed])
                fits = states * 2.0 ** sum(self.model.n_h) <= MOST_STATES
                return ("states", tuple(listed)) if fits else ("importance", ())
        return "importance", ()

    def _mask(self, variables: Sequence[Variable]) -> np.ndarray:
        """(n_x,) True for their units."""
        mask = np.zeros(self.model.n_x, bool)
        for v in variables:
            mask[v.units] = True
        return mask

    # ---------------------------------------------------------------- exact

    def _exact(self) -> tuple:
        """(log weights of every code, or of every state and code; the states), once."""
        if self._found is None:
            m, model = sum(self.model.n_h), everywhere(self.model)
            codes = ((np.arange(2**m)[:, None] >> np.arange(m - 1, -1, -1)[None]) & 1).astype(np.float32)
            if self.how == "codes":
                _, log_w = self._drawn(codes, 0)  # the weight does not depend on what is drawn
                prior = lambda codes: _log_prior(model, codes, self.context)  # noqa: E731
                log_w = log_w + map_rows(prior, len(codes), self._size, codes).astype(np.float64)
                self._found = log_w, None, codes
            else:
                states, weight = _states(self._listed, self.model.n_x)
                mask = self._mask(self._listed)
                size = rows_within(self.model.row_floats * len(codes), len(states), CHUNK, 1 << 24)
                part = lambda x: _weigh_states(model, x, mask, bool(mask.all()), codes, self.context)  # noqa: E731
                log_p = np.asarray(map_rows(part, len(states), size, states), np.float64)
                self._found = log_p + np.log(weight)[:, None], states, codes
        return self._found

    @property
    def log_p(self) -> float:
        """The log-probability of the conditions, nats; exact methods only."""
        log_w = self._exact()[0]
        check_finite(log_w.max())
        return float(np.logaddexp.reduce(log_w.ravel()))

    # ---------------------------------------------------------------- draws

    def draw(self, n: int, *, seed: int = 0, progress=None) -> Weighted:
        """n independent draws with their weights, of codes from p(h).

        Args:
            n: the number of draws.
            seed: of everything random.
            progress: called with the number of draws done after each program.
        """
        key, model = jax.random.fold_in(jax.random.key(seed), _OF_CODES), everywhere(self.model)
        draw = lambda numbers, _: _codes(model, key, numbers, self.context)  # noqa: E731
        codes = map_rows(draw, n, self._size, np.zeros((n, 0), np.uint8), numbered=True)
        found = Weighted(*self._drawn(codes, seed, progress=progress))
        check_finite(found.log_w)
        return found

    @property
    def _size(self) -> int:
        """Rows in a program: one size, as far as memory allows, so that few are compiled."""
        return rows_within(self.model.row_floats * self.tables.width, CHUNK, CHUNK)

    def _drawn(self, codes: np.ndarray, seed: int, tables=None, y=None, known=None, progress=None):
        """(rows, log weights) of these codes."""
        tables, key, model = tables or self.tables, jax.random.key(seed), everywhere(self.model)
        y = np.zeros((len(codes), self.model.n_x), np.float32) if y is None else y
        known = np.zeros(self.model.n_x, bool) if known is None else known

        def part(numbers, codes, y):
            return _rows(model, tables, codes, y, known, key, numbers, self.context)

        x, log_w = map_rows(part, len(codes), self._size, codes, y, numbered=True, progress=progress)
        return x, np.asarray(log_w, np.float64)

    def sample(self, n: int, *, seed: int = 0, draws: int | None = None, progress=None) -> ConditionalSamples:
        """Rows that meet the conditions: independent and exact, or chosen among weighted draws.

        Args:
            n: the number of rows.
            seed: of everything random.
            draws: how many to choose from, if the method is not exact; None takes as many as make the effective sample
                size about twice the number of rows, within limits.
            progress: called with the number of draws done after each program.

        Returns:
            The rows, the probability of the conditions, and the effective sample size.
        """
        rng = np.random.default_rng([seed, n])
        if self.method == "exact":
            log_w, states, codes = self._exact()
            log_p = self.log_p
            p = np.exp(log_w - log_p).ravel()
            chosen = rng.choice(len(p), n, p=p / p.sum())
            h = codes[chosen % len(codes)]
            if states is None:
                x, _ = self._drawn(h, seed, progress=progress)
            else:
                free = make_tables([v.only(np.ones(len(v.codes))) for v in self.variables], self.model.n_x)[0]
                y, known = states[chosen // len(codes)], self._mask(self._listed)
                x, _ = self._drawn(h, seed, free, y, known, progress)
            return ConditionalSamples(x, "exact", log_p)
        if draws is None:
            share = self.draw(PILOT, seed=seed + 1).ess / PILOT
            draws = int(min(ENOUGH * n / share, MOST_DRAWS * n)) + PILOT
        found = self.draw(draws, seed=seed, progress=progress)
        # Systematic resampling: a draw with a share s of all weights is taken s n times, rounded up or down.
        place = (rng.random() + np.arange(n)) / n
        total = np.cumsum(found.w)
        chosen = np.minimum(np.searchsorted(total, place * total[-1], side="right"), draws - 1)
        x = found.x[rng.permutation(chosen)]
        return ConditionalSamples(x, "importance", found.log_p, found.ess, draws)


def _states(listed: Sequence[Variable], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Every combination of values that can be, as rows (states, n), and their weights."""
    states, weight = np.zeros((1, n), np.float32), np.ones(1)
    for v in listed:
        can = np.flatnonzero(v.weights)
        states, weight = np.repeat(states, len(can), axis=0), np.repeat(weight, len(can))
        which = np.tile(can, len(states) // len(can))
        states[:, v.units] = v.codes[which]
        weight = weight * v.weights[which]
    return states, weight


def _split(model, code):
    return tuple(jnp.split(code, np.cumsum(model.n_h)[:-1])) if model.n_h else ()


@eqx.filter_jit
def _codes(model, key, numbers, context):
    """Codes drawn from p(h), (rows, n_h)."""
    flat = lambda key: jnp.concatenate([jnp.zeros(0), *model.sample_code(context, key=key)])  # noqa: E731
    return jax.vmap(flat)(row_keys(key, numbers))


@eqx.filter_jit
def _log_prior(model, codes, context):
    return jax.vmap(lambda code: model.log_prior(_split(model, code), context))(codes)


@eqx.filter_jit
def _rows(model, tables, codes, y, known, key, numbers, context):
    """A row of each code, and its log weight."""

    def one(code, y, key):
        c = model.above(0, _split(model, code), context)
        y, log_w = constrained(model.decoder[0].layer, c, tables, key, y, known)
        return y.astype(jnp.uint8), log_w

    return jax.vmap(one)(codes, y, row_keys(key, numbers))


@eqx.filter_jit
def _weigh_states(model, x, mask, whole, codes, context):
    layer = model.decoder[0].layer

    def pair(x, code):
        h = _split(model, code)
        c = model.above(0, h, context)
        if whole:
            return model.log_prior(h, context) + layer.log_prob(x, c)
        a = layer.logits(x, c)
        each = log_sigmoid(jnp.where(x > 0.5, a, -a))
        return model.log_prior(h, context) + jnp.sum(jnp.where(mask, each, 0))

    return jax.vmap(jax.vmap(pair, (None, 0)), (0, None))(as_floats(x), codes)
