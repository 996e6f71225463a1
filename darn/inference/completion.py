"""Completion: draws of missing units given the observed ones, and log p(x_missing | x_observed)."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from darn.batching import join, row_keys, rows_within, stream_rows, twice
from darn.devices import everywhere
from darn.errors import InputError
from darn.inference import likelihood
from darn.inference.constrained import Tables
from darn.inference.filling import by_codes, by_states, by_weights
from darn.inference.given import given_context, given_rows
from darn.inference.summary import check_finite
from darn.model import Stack

FEW = 10  # the most missing units that are enumerated
_keys = jax.jit(row_keys)


@dataclass(frozen=True)
class Completions:
    """n draws of every row's missing units, and the likelihood of its observed ones."""

    x: np.ndarray  # (N, n, n_x) uint8; observed units are unchanged
    log_p_observed: np.ndarray  # (N,) log p(x_observed), nats; too low on average unless exact
    method: str  # "exact" | "importance"
    ess: np.ndarray | None = None  # (N,) effective sample size


@dataclass(frozen=True)
class ConditionalLikelihood:
    """log p(x_missing | x_observed) of rows whose missing values are known, nats."""

    log_p: np.ndarray  # (N,)
    method: str
    ess: np.ndarray | None = None  # (N,) of the estimate of log p(x_observed)


def holes(model: Stack, x, missing=None) -> tuple[np.ndarray, np.ndarray]:
    """Returns (rows as uint8 with 0 for NaN, mask of the missing values), from NaN or a mask."""
    x = np.asarray(x)
    nan = np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)
    bits = given_rows(model, np.where(nan, 0, x) if nan.any() else x, bits=True, some=True)
    return bits.astype(np.uint8, copy=False), nan if missing is None else nan | _mask(missing, x.shape)


def _mask(missing, shape: tuple[int, ...]) -> np.ndarray:
    missing = np.asarray(missing)
    if missing.dtype != bool:
        raise InputError(f"the mask of missing units must be an array of bool, not of {missing.dtype}")
    try:
        return np.broadcast_to(missing, shape)
    except ValueError:
        raise InputError(
            f"the mask has shape {missing.shape}, the rows {shape}: give one mask for all rows or one for each"
        ) from None


def complete(
    model: Stack, x, missing=None, *, n: int = 1, context=None, seed: int = 0, n_samples: int = 100, sweeps: int = 5
) -> Completions:
    """Draws the missing units of rows given the observed ones.

    Args:
        model: any stack.
        x: (N, n_x) of 0 and 1; NaN or `missing` marks the units to draw.
        missing: an array of bool, (n_x,) for all rows or (N, n_x).
        n: completions per row.
        context: (N, n_context), for a model that was trained with one.
        seed: of everything random.
        n_samples: codes drawn per row if they cannot all be enumerated.
        sweeps: how often the encoder's input is refined; see `inference.filling`.

    Returns:
        The completions, log p(x_observed) and the method used.

    Raises:
        InputError: if x, the mask or the context does not fit the model.
    """
    x, mask = holes(model, x, missing)
    context = given_context(model, context, len(x))
    if n < 1 or n_samples < 1 or sweeps < 0:
        raise InputError("n and n_samples must be at least 1, and sweeps at least 0")
    options: dict[str, Any] = {"n": n, "seed": seed, "n_samples": n_samples, "sweeps": sweeps}
    found = list(complete_parts(model, [(x, mask, context)], survey(model, [mask]), **options))
    drawn, log_p, ess = join([(f.x, f.log_p_observed, f.ess) for f in found])
    return Completions(drawn, log_p, found[0].method, ess)


@dataclass(frozen=True)
class Survey:
    """What is missing in all rows together, which decides how they are completed."""

    rows: int
    how: str  # "codes" | "enumerate" | "importance"
    states: int  # fillings of all rows together, if they are enumerated

    def times(self, rows: int) -> "Survey":
        """The survey of so many rows like these."""
        return Survey(self.rows * rows, self.how, self.states * rows)


def survey(model: Stack, masks: Iterable[np.ndarray]) -> Survey:
    """Looks at which units are missing.

    Args:
        model: any stack.
        masks: (rows, n_x) of bool for consecutive rows.

    Returns:
        How to complete them.
    """
    rows = most = states = 0
    apart = True
    for mask in masks:
        gone = mask.sum(axis=1)
        rows += len(mask)
        most = max(most, int(gone.max(initial=0)))
        states += int((2 ** np.minimum(gone, FEW)).sum())
        apart = apart and bool(model.decoder[0].layer.separates(mask))
    if likelihood.method_for(model) == "importance":
        return Survey(rows, "importance", 0)
    return Survey(rows, "codes" if apart else "enumerate" if most <= FEW else "importance", states)


def complete_parts(
    model: Stack,
    parts: Iterable[tuple],
    known: Survey,
    *,
    n: int = 1,
    seed: int = 0,
    n_samples: int = 100,
    sweeps: int = 5,
    conditions: Tables | None = None,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Completions]:
    """Completes rows that come in parts: the draws of `complete`, in memory that does not grow with the rows.

    Args:
        model: any stack.
        parts: (x, mask, context) of consecutive rows: uint8 of 0 and 1, bool, float32 or None.
        known: the `survey` of their masks.
        n: completions per row.
        seed: of everything random.
        n_samples: as for `complete`.
        sweeps: as for `complete`.
        conditions: that the missing units meet, as `constrained.held` takes them; `known.how` must be "importance".
        progress: called with the number of rows done after each program.

    Returns:
        The completions of consecutive rows.
    """
    if known.how == "enumerate":
        found = by_states(model, parts, known.states, n, seed, progress)
        return (Completions(drawn, log_p, "exact") for drawn, log_p in found)
    each = 2 ** sum(model.n_h) if known.how == "codes" else n_samples
    size = rows_within(model.row_floats * each, known.rows, 100, 1 << 24)
    model, exact = everywhere(model), known.how == "codes"
    key = jax.random.key(seed)

    def part(numbers, x, mask, context):
        keys = _keys(key, numbers)
        if exact:
            return by_codes(model, x, mask, context, keys, n)
        return by_weights(model, x, mask, context, keys, n, each, sweeps, conditions)

    method = "exact" if exact else "importance"

    def completions(drawn, log_p, ess):
        check_finite(log_p)
        return Completions(drawn, log_p.astype(np.float64), method, None if exact else ess)

    return (completions(*found) for found in stream_rows(part, size, parts, numbered=True, progress=progress))


def conditional(
    model: Stack, x, missing, *, context=None, seed: int = 0, n_samples: int = 1000, sweeps: int = 5
) -> ConditionalLikelihood:
    """log p(x_missing | x_observed) = log p(x) - log p(x_observed), for rows whose missing units are known.

    If there are too many codes to enumerate, both terms are importance sampling estimates and too low on average. The
    second is the harder one, so the difference is too high while the effective sample size is small.

    Args:
        model: any stack.
        x: (N, n_x) of 0 and 1.
        missing: an array of bool, (n_x,) for all rows or (N, n_x): the units to predict from the others.
        context: (N, n_context), for a model that was trained with one.
        seed: of everything random.
        n_samples: codes drawn per row if they cannot all be enumerated.
        sweeps: as for `complete`.

    Returns:
        The likelihood of each row's missing units, and the method used.
    """
    x, mask = holes(model, given_rows(model, x, bits=True), missing)
    context = given_context(model, context, len(x))
    options: dict[str, Any] = {"seed": seed, "n_samples": n_samples, "sweeps": sweeps}
    both = conditional_parts(model, [(x, mask, context)], survey(model, [mask]), **options)
    found = [likelihood for _, likelihood in both]
    log_p, ess = join([(f.log_p, f.ess) for f in found])
    return ConditionalLikelihood(log_p, found[0].method, ess)


def conditional_parts(
    model: Stack,
    parts: Iterable[tuple],
    known: Survey,
    *,
    seed: int = 0,
    n_samples: int = 1000,
    **options: Any,
) -> Iterator[tuple[Completions, ConditionalLikelihood]]:
    """`complete_parts` and `conditional` at once, for rows whose missing units have their values.

    Args:
        model: any stack.
        parts: as for `complete_parts`.
        known: as for `complete_parts`.
        seed: of everything random.
        n_samples: as for `complete`.
        **options: of `complete_parts`.

    Yields:
        Both for consecutive rows.
    """
    how = likelihood.method_for(model)
    to_fill, to_score = twice(parts)
    rows = ((x, context, None) for x, _, context in to_score)
    scored = likelihood.score_parts(model, rows, known.rows, method=how, repeats=1, seed=seed, n_samples=n_samples)
    whole = itertools.chain.from_iterable(part.log_p for part in scored)
    for found in complete_parts(model, to_fill, known, seed=seed, n_samples=n_samples, **options):
        count = len(found.x)
        log_p = np.fromiter(itertools.islice(whole, count), np.float64, count)
        yield found, ConditionalLikelihood(log_p - found.log_p_observed, found.method, found.ess)
