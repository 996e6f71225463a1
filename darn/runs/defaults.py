"""Default architecture and training, chosen by the size of the data.

The constants were chosen on the validation rows of Adult, Mushrooms, DNA, OCR letters and Web.
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
        weight_decay=s.decay * min(1, 20_000 / rows),
        # There are half as many autoregressive weights as columns squared. The penalty follows how many of them each
        # row has to determine: 2e-3 on DNA (180 columns, 1,260 rows), 1e-4 on Adult (123, 4,500), almost 0 on OCR.
        l1=20 * n_columns / rows**2,
        average=0.99,
        validate_every=max(epochs // VALIDATIONS, 1),
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
    if "epochs" in given:
        automatic["validate_every"] = max(given["epochs"] // VALIDATIONS, 1)
    return automatic | dict(given)
