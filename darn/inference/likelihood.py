"""-log p(x): exactly if the codes are few enough, otherwise by importance sampling; streaming, per row."""

import math
import zlib
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from darn.batching import Numbers
from darn.devices import Devices, using
from darn.errors import InputError
from darn.inference.enumeration import exact as exact
from darn.inference.enumeration import exact_parts
from darn.inference.importance import PRECISION as PRECISION
from darn.inference.importance import importance as importance
from darn.inference.importance import importance_parts, settled_parts
from darn.inference.summary import Likelihood as Likelihood
from darn.inference.summary import Scores
from darn.model import Stack

EXACT_LIMIT = 16  # the most stochastic units that `evaluate` enumerates, as in the paper
FEW = 512  # about as many codes as the samples that a row gets

Parts = Iterable[tuple]  # (x, context or None, log density or None) of consecutive rows
Progress = Callable[[int], object]


def method_for(model: Stack) -> str:
    """The method that `evaluate` uses for a model: "exact" or "importance"; the cheaper one, by counted work.

    Codes are enumerated if they are fewer than the samples that would be drawn. If the visible layer is linear in its
    code, 2^16 are cheap, too: what depends on the row, or on the code, is then computed once for all pairs of them. A
    NADE multiplies its hidden units for every pair, and gets as many codes fewer.
    """
    layer = model.decoder[0].layer
    try:
        each = layer.work(np.ones(layer.n, np.float32), None).multiplied / layer.n
    except InputError:  # its work cannot be counted
        each = math.inf
    return "exact" if 2 ** sum(model.n_h) <= max(2**EXACT_LIMIT / (1 + each), FEW) else "importance"


def evaluate(
    model: Stack,
    x,
    *,
    context=None,
    log_density=None,
    precision: float = PRECISION,
    n_samples: int | None = None,
    repeats: int = 10,
    seed: int = 0,
    rows_at_once: int | None = None,
    progress=None,
    devices: Devices = None,
) -> Likelihood:
    """Scores rows: exactly if the codes are few enough (see `method_for`), otherwise by importance sampling.

    Args:
        model: any stack.
        x: (N, n_x) of 0 and 1, or of intensities if the visible layer is factorial.
        context: (N, n_context), for a model that was trained with one.
        log_density: (N,), the density of a table's numbers within their cells, which is added to log p.
        precision: half-width of the 95% interval of -log p, nats; every row gets the samples it needs.
        n_samples: importance samples per row, instead of a precision.
        repeats: how often an estimate with `n_samples` is repeated, for its interval.
        seed: of the importance samples.
        rows_at_once: the most rows in one program; None chooses a fast size.
        progress: called with the number of rows done after each program.
        devices: how many devices to use, or "all"; they do not change the scores.

    Returns:
        -log p and bound, by row and on average.
    """
    options = {"context": context, "log_density": log_density, "rows_at_once": rows_at_once, "progress": progress}
    with using(devices):
        if method_for(model) == "exact":
            return exact(model, x, **options)
        return importance(model, x, precision=precision, n_samples=n_samples, repeats=repeats, seed=seed, **options)


def row_by_row(model: Stack, x, *, precision: float = PRECISION, n_samples: int | None = None) -> np.ndarray:
    """log p of rows where each depends only on the row, not on its place or on the other rows.

    Args:
        model: a stack without context.
        x: (N, n_x) of 0 and 1.
        precision: the most variance of a row's estimate, if its log p cannot be computed exactly.
        n_samples: importance samples per row, instead of a precision.

    Returns:
        (N,), nats.
    """
    if method_for(model) == "exact":
        return exact(model, x).log_p
    options = {"precision": precision, "among": math.inf, "n_samples": n_samples, "repeats": 1}
    return importance(model, x, numbers=own_numbers(x), **options).log_p


def own_numbers(x: np.ndarray) -> np.ndarray:
    """(N,) numbers that follow from each row's bits, to take the place of row numbers."""
    return np.array([zlib.crc32(r.tobytes()) for r in np.packbits(np.asarray(x, np.uint8), axis=1)], np.uint32)


def score_parts(
    model: Stack,
    parts: Parts,
    n: int,
    *,
    method: str,
    precision: float = PRECISION,
    n_samples: int | None = None,
    repeats: int = 10,
    seed: int = 0,
    numbers: Numbers = 0,
    progress: Progress | None = None,
) -> Iterator[Scores]:
    """Scores rows that come in parts, in memory that does not grow with their number.

    The scores are those of `exact` and `importance`, whatever the parts; `summary.Running` sums them up. `parts` may be
    some of the n rows only: given their numbers, they get the scores that they have among all of them.

    Args:
        model: any stack.
        parts: (x, context, log density) of consecutive rows; context None for a model without one; the density of a
            table's numbers within their cells (`darn.data.Rows.log_density`), which is added to log p, or None.
        n: the number of rows in all.
        method: "exact" or "importance".
        precision: as for `evaluate`.
        n_samples: as for `evaluate`.
        repeats: as for `evaluate`.
        seed: of the importance samples.
        numbers: of the rows among the n, which their samples follow from.
        progress: called with the number of rows done after each program.

    Yields:
        The scores of consecutive rows.
    """
    if method == "exact":
        return exact_parts(model, parts, n, None, progress)
    if n_samples is None:
        return settled_parts(model, parts, n, precision, None, seed, None, numbers, progress)
    return importance_parts(model, parts, n, n_samples, repeats, seed, None, numbers, progress)
