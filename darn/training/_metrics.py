"""What training and validation report, and what the choice between weights goes by."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from darn.inference.objective import DescriptionLength
from darn.model import Stack


def metrics_of(dl: DescriptionLength, *, active: bool = True, noise: Array | None = None) -> dict[str, Any]:
    """Nats by name: the bound and its parts; `noise`, the cost of the weights' description; units that are on."""
    # Counting active units at every step would cost a kernel of its own, so training does it only where it matters.
    metrics = {"bound": dl.total, "x_given_h": dl.x_given_h, "h": dl.h}
    metrics |= {} if noise is None else {"noise": noise}
    metrics |= {} if dl.weighted is None else {"weighted": dl.weighted}
    return metrics | ({"active": dl.active} if active else {})


def to_host(metrics: dict[str, Any], n_models: int | None = None) -> list[dict[str, Any]]:
    """Metrics as plain numbers and lists, for each model; `n_models`: the length of their model axis, if any."""
    fetched = jax.device_get(metrics)
    each = [fetched] if n_models is None else [jax.tree.map(lambda v, i=i: v[i], fetched) for i in range(n_models)]
    return [{k: np.asarray(v, np.float64).tolist() for k, v in one.items()} for one in each]


def selection_bound(metrics: dict[str, Any]) -> float:
    """The bound that choices go by: `bound`, or that of several encodings where the decoder learns from these."""
    return metrics.get("weighted", metrics["bound"])


def excess_activity(active: Sequence[float], sparsity: float, n_h: Sequence[int]) -> float:
    """By how much more than a twentieth the activity of some layer is above its target; 0 where there is no target.

    A model that is as sparse as it should be comes before one with a better bound: early in training, before the price
    of an active unit has risen, the code is dense and the bound is low.
    """
    if not sparsity:
        return 0.0
    return max(0.0, float(np.max(np.asarray(active) / (sparsity * np.asarray(n_h)))) - 1.05)


def validation_samples(model: Stack, n_valid: int) -> int:
    """Encodings of each validation row.

    Few rows are scored several times over, so that the choice between epochs is not a matter of luck. Frames of a game
    are large enough to speak for themselves.
    """
    is_random = bool(model.n_layers) or model.trains_by_estimate
    return max(1, min(5000, 200_000_000 // model.row_floats) // n_valid) if is_random else 1
