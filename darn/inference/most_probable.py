"""The most probable completion of rows with missing units."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from darn.inference import likelihood
from darn.inference.constrained import Variable
from darn.model import Stack

MOST = 1024  # fillings of a row that are all compared


class MostProbable(NamedTuple):
    """The best filling of every row that was looked at."""

    x: np.ndarray  # (N, n_x) uint8
    log_p: np.ndarray  # (N,) log p(x) of it, nats
    exact: np.ndarray  # (N,) bool: all fillings were compared, by their exact probabilities


def most_probable(
    model: Stack, variables: Sequence[Variable], missing, drawn, *, context=None, n_samples: int = 100, seed: int = 0
) -> MostProbable:
    """The filling of each row's missing units that is most probable together.

    If there are few, all of them are compared, otherwise those that were drawn.

    Args:
        model: any stack.
        variables: all variables of the visible units, in order.
        missing: (N, n_x) of bool.
        drawn: (N, n, n_x) completions of each row.
        context: (N, n_context), for a model that was trained with one.
        n_samples: importance samples of log p, if the codes cannot all be enumerated.
        seed: of those.

    Returns:
        The best filling of each row.
    """
    candidates, whole = zip(*(_candidates(variables, gone, x) for gone, x in zip(np.asarray(missing), drawn)))
    sizes = [len(c) for c in candidates]
    side = None if context is None else np.repeat(context, sizes, axis=0)
    rows = np.concatenate(candidates).astype(np.uint8)
    options = {"context": side, "n_samples": n_samples, "repeats": 1, "seed": seed}
    log_p = np.split(likelihood.evaluate(model, rows, **options).log_p, np.cumsum(sizes)[:-1])
    best = [int(np.argmax(v)) for v in log_p]
    exact = np.array(whole) & (likelihood.method_for(model) == "exact")
    x = np.stack([c[k] for c, k in zip(candidates, best)]).astype(np.uint8)
    return MostProbable(x, np.array([v[k] for v, k in zip(log_p, best)], np.float64), exact)


def _candidates(variables: Sequence[Variable], gone: np.ndarray, drawn: np.ndarray) -> tuple[np.ndarray, bool]:
    """(fillings to compare, whether they are all there are)."""
    open_ = [v for v in variables if gone[v.units].any()]
    fits = [v.codes[(gone[v.units] | (v.codes == drawn[0, v.units])).all(axis=1)] for v in open_]
    if np.prod([float(len(codes)) for codes in fits]) > MOST:
        return np.unique(drawn, axis=0), False
    every = drawn[:1]
    for v, codes in zip(open_, fits):
        every = np.repeat(every, len(codes), axis=0)
        every[:, v.units] = np.tile(codes, (len(every) // len(codes), 1))
    return every, True
