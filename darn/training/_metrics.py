"""The metrics of training and validation, and the criterion that chooses the best weights."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from darn.inference.objective import DescriptionLength
from darn.model import Stack


def metrics_of(dl: DescriptionLength, *, active: bool = True, noise: Array | None = None) -> dict[str, Any]:
    """Nats by name: the bound and its parts, and `noise`, the cost of describing the weights; active units by layer."""
    # Counting active units at every step would cost an extra kernel, so training counts them only if needed.
    metrics = {"bound": dl.total, "x_given_h": dl.x_given_h, "h": dl.h}
    metrics |= {} if noise is None else {"noise": noise}
    metrics |= {} if dl.weighted is None else {"weighted": dl.weighted}
    return metrics | ({"active": dl.active} if active else {})


def to_host(metrics: dict[str, Any], n_models: int | None = None) -> list[dict[str, Any]]:
    """Metrics as plain numbers and lists, for each model; `n_models` is the length of the model axis, if any."""
    fetched = jax.device_get(metrics)
    each = [fetched] if n_models is None else [jax.tree.map(lambda v, i=i: v[i], fetched) for i in range(n_models)]
    return [{k: np.asarray(v, np.float64).tolist() for k, v in one.items()} for one in each]


def selection_bound(metrics: dict[str, Any]) -> float:
    """The bound that models are chosen by: `bound`, or `weighted` if the decoder is trained on that one."""
    return metrics.get("weighted", metrics["bound"])


def excess_activity(active: Sequence[float], sparsity: float, n_h: Sequence[int]) -> float:
    """By how much the activity of any layer exceeds its target by more than 5%; 0 without a target.

    A model that is sparse enough is preferred to one with a better bound: early in training, before the penalty on
    active units has risen, the code is dense and the bound is low.
    """
    if not sparsity:
        return 0.0
    return max(0.0, float(np.max(np.asarray(active) / (sparsity * np.asarray(n_h)))) - 1.05)


def validation_samples(model: Stack, n_valid: int) -> int:
    """The number of encodings of each validation row.

    Small sets are scored several times, so that the choice between epochs is not a matter of luck. Large rows, such as
    Atari frames, need only one.
    """
    is_random = bool(model.n_layers) or model.trains_by_estimate
    return max(1, min(5000, 200_000_000 // model.row_floats) // n_valid) if is_random else 1
