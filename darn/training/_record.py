"""The record of a training, and the plain values of a checkpoint: what a file says of them is checked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from darn.config import Training
from darn.errors import DarnError
from darn.jsonable import FieldError, decode
from darn.training._checkpoint import checkpoint_host
from darn.training._metrics import excess_activity, selection_bound

Metrics = dict[str, float | tuple[float, ...]]


@dataclass
class Record:
    """How the training of one model has gone so far, in plain JSON values.

    Attributes:
        bound: the best validation bound, nats.
        epoch: the epoch it is from.
        excess: by how much the code of that epoch is denser than its target; see `Training.sparsity`.
        epochs: epochs trained.
        since: validations since the best one.
        seconds: training time, divided evenly among models trained together, without compilation and validation.
        stopped: whether it has stopped early, by patience or because it diverged.
        diverged: whether the loss is infinite or NaN.
        history: the metrics of each validation, as in metrics.jsonl.
    """

    bound: float = math.inf
    epoch: int = 0
    excess: float = math.inf
    epochs: int = 0
    since: int = 0
    seconds: float = 0.0
    stopped: bool = False
    diverged: bool = False
    history: list[dict[str, Any]] = field(default_factory=list, repr=False)

    def add(self, row: dict, config: Training, n_h: Sequence[int]) -> bool:
        """Adds a validation; returns whether it is the best so far."""
        self.history.append(row)
        bound = selection_bound(row["valid"])
        excess = excess_activity(row["valid"]["active"], config.sparsity, n_h)
        better = (excess, bound) < (self.excess, self.bound)
        self.since = 0 if better else self.since + 1
        if better:
            self.bound, self.epoch, self.excess = bound, row["epoch"], excess
        return better

    def check_patience(self, patience: int) -> None:
        self.stopped = self.diverged or bool(patience and self.since >= patience)


@dataclass(frozen=True)
class Look:
    """One validation, as in metrics.jsonl: means over rows, nats; lists are by layer."""

    epoch: int
    step: int
    train: Metrics
    valid: Metrics
    price: tuple[float, ...] = ()

    def __post_init__(self):
        if not all(isinstance(metrics.get("bound"), float) for metrics in (self.train, self.valid)):
            raise FieldError("a validation has no bound", "valid")


def read_looks(rows: Any) -> list[Look]:
    """The validations of a file, typed; raises FieldError if training never writes such ones."""
    return list(decode(tuple[Look, ...], rows, "the history"))


@dataclass
class Host:
    """The plain values of a checkpoint."""

    epoch: int
    seen: int
    members: tuple[int, ...]
    records: tuple[Record, ...]
    sums: tuple[dict[str, float | tuple[float, ...]], ...] | None = None
    step: int = 0  # steps of an epoch that has not ended
    partial: tuple[float | tuple[float, ...], ...] | None = None  # sums of its metrics
    batch: tuple[int, ...] | None = None  # the numbers of models that a sweep trains together


def read_host(path: Path) -> Host:
    """The plain values of a checkpoint, typed."""
    try:
        host = decode(Host, checkpoint_host(path), "it")
        for record in host.records:
            read_looks(record.history)
        return host
    except FieldError as e:
        raise DarnError(f"{path} is not a readable checkpoint ({e}): start the run again from the beginning") from e
