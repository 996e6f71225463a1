"""Default architecture and training by the size of the data, and candidates to choose from by validation.

The constants of the fixed default were chosen on the validation rows of Adult, Mushrooms, DNA, OCR letters and Web,
those of the candidates on Mushrooms, DNA, OCR letters and Web.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from darn.config import Architecture, Training


@dataclasses.dataclass(frozen=True)
class Size:
    """The fields for data of at least `rows` rows and at most `columns` columns."""

    rows: int
    columns: float
    n_h: int
    n_d: int
    n_nade: int  # hidden units of a NADE visible layer; 0: a linear one
    lr: float
    steps: int  # the least number of steps
    epochs: int  # the least number of epochs
    decay: float  # weight decay for up to 20,000 rows; for more rows it decreases in proportion


SIZES = (
    # OCR letters: 28.0 nats per validation row in 212 s on two cores, where a linear visible layer had 29.4 in 81 s.
    # The work of a NADE grows with columns times hidden units, so wide tables keep the linear layer.
    Size(20_000, 500, n_h=64, n_d=200, n_nade=100, lr=2e-3, steps=4000, epochs=30, decay=2.5e-4),
    Size(20_000, math.inf, n_h=200, n_d=400, n_nade=0, lr=5e-4, steps=4000, epochs=100, decay=2.5e-5),
    Size(500, math.inf, n_h=32, n_d=100, n_nade=0, lr=2.5e-3, steps=10_000, epochs=20, decay=3e-5),
    # small enough for an exact sum over the codes
    Size(0, math.inf, n_h=8, n_d=32, n_nade=0, lr=2e-3, steps=300, epochs=1, decay=2e-3),
)
VALIDATIONS = 25  # over a whole training
MOST_EPOCHS = 300  # of a candidate
PATIENCE = 6  # of a candidate: it stops after so many validations without improvement


def _size(n_rows: int, n_columns: int, nade: bool) -> Size:
    return next(s for s in SIZES if n_rows >= s.rows and n_columns <= s.columns and (nade or not s.n_nade))


def architecture(n_rows: int, n_columns: int, *, nade: bool = True) -> Architecture:
    """One stochastic layer under an autoregressive prior, over an autoregressive visible layer: Section 5.1.

    Args:
        n_rows: Training rows.
        n_columns: Visible units.
        nade: Whether the visible layer may be a NADE.

    Returns:
        The architecture for data of this size.
    """
    s = _size(n_rows, n_columns, nade)
    shape = Architecture(n_h=(s.n_h,), n_d=(s.n_d,), visible="linear")
    return dataclasses.replace(shape, visible="nade", n_nade=(s.n_nade,)) if s.n_nade else shape


def factors(n_rows: int) -> int:
    """The factors of each cell of a column of numbers, see `darn.layers.Numbers`.

    On held-out training rows of Adult and Occupancy (5,600 and 4,480 rows) three were worth up to 3 nats; more of them,
    or three on diabetes (192 rows), fitted the training rows only.
    """
    return 3 if n_rows >= 2000 else 0


BATCH = 128


def training(n_rows: int, n_columns: int, batch: int = BATCH, *, nade: bool = True) -> Training:
    """A learning rate that falls to zero along a cosine, keeping the weights that validate best along the way.

    Args:
        n_rows: Training rows.
        n_columns: Visible units.
        batch: Rows in a minibatch.
        nade: Whether the visible layer may be a NADE.

    Returns:
        The training for data of this size.
    """
    s = _size(n_rows, n_columns, nade)
    rows = max(n_rows, batch)  # few rows are one batch
    epochs = max(math.ceil(s.steps * batch / rows), s.epochs)
    return Training(
        lr=s.lr,
        schedule="cosine",
        batch=batch,
        epochs=epochs,
        validate_every=_every(epochs),
        weight_decay=s.decay * min(1, 20_000 / rows),
        # There are half as many autoregressive weights as columns squared. The penalty follows how many of them each
        # row has to determine: 2e-3 on DNA (180 columns, 1,260 rows), 1e-4 on Adult (123, 4,500), almost 0 on OCR.
        l1=20 * n_columns / rows**2,
        average=0.99,
        patience=0,
    )


def fields(n_rows: int, n_columns: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a recipe for the user's own data.

    Args:
        n_rows: Training rows.
        n_columns: Visible units.
        given: Fields set by the user, by name.

    Returns:
        All fields of architecture and training: those given, and the defaults for data of this size.
    """
    nade = given.get("visible", "nade") == "nade"
    automatic = vars(architecture(n_rows, n_columns, nade=nade))
    automatic = automatic | vars(training(n_rows, n_columns, given.get("batch", BATCH), nade=nade))
    return automatic | length(given.get("epochs", automatic["epochs"])) | dict(given)


def length(epochs: int) -> dict[str, int]:
    """The fields of a training of so many epochs."""
    return {"epochs": epochs, "validate_every": _every(epochs)}


def _every(epochs: int) -> int:
    return max(epochs // VALIDATIONS, 1)


# ---------------------------------------------------------------- candidates


def usual_seconds(n_rows: int) -> float:
    """The usual budget of a search, in seconds on two cores: a minute, from 10,000 rows on longer, at most ten."""
    return 60 * min(max(n_rows / 10_000, 1), 10)


def step_seconds(fields: Mapping[str, Any], n_columns: int) -> float:
    """About how long a step takes on one core (measured on an AMD EPYC of 2023): the unit of a search's budget.

    Args:
        fields: Of architecture and training.
        n_columns: Visible units.

    Returns:
        Seconds.
    """
    n_h, n_d = sum(fields["n_h"]), sum(fields["n_d"])
    nets = 2 * (n_columns + n_h) * n_d + n_h * n_h if n_h else 0
    if fields["visible"] == "nade":
        visible = 46 * n_columns * sum(fields["n_nade"]) + n_columns * n_d * bool(n_h)
    else:
        visible = n_columns * n_columns
    return 3e-4 + (nets + visible) * (2.2e-11 * fields["batch"] + 6e-10)


def others(n_rows: int, n_columns: int, *, code: bool = True) -> list[dict[str, Any]]:
    """Fields in which candidates differ from the fixed default, with as many epochs as are of use.

    Args:
        n_rows: Training rows.
        n_columns: Visible units.
        code: Whether every candidate has a code.

    Returns:
        The fields of each candidate.
    """
    l1 = 20 * n_columns / n_rows**2

    def trained(lr: float, batch: int, steps: int, l1: float, weight_decay: float) -> dict[str, Any]:
        epochs = min(math.ceil(steps * batch / n_rows), MOST_EPOCHS)
        penalties = {"l1": l1, "weight_decay": weight_decay}
        return {"lr": lr, "batch": batch, "epochs": epochs, "patience": PATIENCE} | penalties

    def linear(l1: float, weight_decay: float) -> dict[str, Any]:
        return {"visible": "linear", "n_h": (32,), "n_d": (100,)} | trained(5e-3, BATCH, 6000, l1, weight_decay)

    def nade(n_nade: int, n_h: int, weight_decay: float) -> dict[str, Any]:
        units = {"visible": "nade", "n_nade": (n_nade,), "n_h": (n_h,) if n_h else (), "n_d": (100,)}
        # At the same work, batches of 64 were better than of 128: by 0.27 nats on Web.
        return units | trained(4e-3, BATCH // 2, 30_000, 0.0, weight_decay)

    def without_code(n_nade: int) -> dict[str, Any]:
        # A short schedule to its end, where the others stop early at a high learning rate: as many nats on training
        # rows of Adult that were held out, and the income follows more precisely from the other columns.
        steps = max(4000, 30 * n_rows // (BATCH // 2))
        found = nade(n_nade, 0, 0.0) | trained(2e-3, BATCH // 2, steps, 0.0, 2e-4)
        return found | {"average": 0.998, "patience": 0}

    if not code:
        units, n_h = (200, 32) if n_rows >= 8000 else (100, 16)
        return [without_code(units), nade(units, n_h, 2e-4), linear(l1 / 32, 1e-5)]
    if n_rows >= 20_000:
        return [nade(200, 64, 1.5e-4), nade(300, 64, 1.5e-4)]
    # Two train at a time: models of one program are not the first of their kind together, so it is compiled once.
    if n_rows >= 8000:
        return [nade(200, 32, 2e-4), linear(l1 / 32, 1e-5), nade(200, 32, 5e-5)]
    return [
        nade(100, 16, 2e-4),
        linear(2 * l1, 1e-4),
        nade(100, 16, 4e-5),
        linear(l1 / 4, 3e-5),
        linear(l1 / 32, 1e-5),
    ]
