"""What to build and how to train it where nobody says: a rule from the size of the data.

The constants were chosen on the validation rows of Adult, Mushrooms, DNA, OCR letters and Web.
"""

import dataclasses
import math
from typing import Any

from darn.config import Architecture, Training


@dataclasses.dataclass(frozen=True)
class Size:
    """What suits data of `rows` rows or more, and of no more than `columns` columns."""

    rows: int
    columns: float
    n_h: int
    n_d: int
    n_nade: int  # hidden units of a NADE visible layer; 0: a linear one
    lr: float
    steps: int  # at least
    epochs: int  # at least
    decay: float  # weight decay of up to 20,000 rows; of more, the less the more they are


SIZES = (
    # OCR letters: 28.0 nats a validation row in 212 s on two cores, where a linear visible layer had 29.4 in 81 s. A
    # NADE's work grows with columns times hidden units, so that wide tables keep the linear layer.
    Size(20_000, 500, n_h=64, n_d=200, n_nade=100, lr=2e-3, steps=4000, epochs=30, decay=2.5e-4),
    Size(20_000, math.inf, n_h=200, n_d=400, n_nade=0, lr=5e-4, steps=4000, epochs=100, decay=2.5e-5),
    Size(500, math.inf, n_h=32, n_d=100, n_nade=0, lr=2.5e-3, steps=10_000, epochs=20, decay=3e-5),
    # small enough for an exact sum over the codes
    Size(0, math.inf, n_h=8, n_d=32, n_nade=0, lr=2e-3, steps=300, epochs=1, decay=2e-3),
)
LOOKS = 25  # at the validation rows, over a whole training


def _size(n_rows: int, n_columns: int, nade: bool) -> Size:
    return next(s for s in SIZES if n_rows >= s.rows and n_columns <= s.columns and (nade or not s.n_nade))


def architecture(n_rows: int, n_columns: int, *, nade: bool = True) -> Architecture:
    """One stochastic layer under an autoregressive prior, over an autoregressive visible layer: Section 5.1.

    `nade`: whether that layer may be a NADE.
    """
    s = _size(n_rows, n_columns, nade)
    shape = Architecture(n_h=(s.n_h,), n_d=(s.n_d,), visible="linear")
    return dataclasses.replace(shape, visible="nade", n_nade=(s.n_nade,)) if s.n_nade else shape


BATCH = 128


def training(n_rows: int, n_columns: int, batch: int = BATCH, *, nade: bool = True) -> Training:
    """One learning-rate curve down to nothing, and the weights that validated best along it."""
    s = _size(n_rows, n_columns, nade)
    rows = max(n_rows, batch)  # few rows are one batch
    epochs = max(math.ceil(s.steps * batch / rows), s.epochs)
    return Training(
        lr=s.lr,
        schedule="cosine",
        batch=batch,
        epochs=epochs,
        weight_decay=s.decay * min(1, 20_000 / rows),
        # Half the squared columns are autoregressive weights. Their price follows how many there are for each row
        # to settle: 2e-3 on DNA (180 columns, 1,260 rows), 1e-4 on Adult (123, 4,500), next to nothing on OCR.
        l1=20 * n_columns / rows**2,
        average=0.99,
        validate_every=max(epochs // LOOKS, 1),
        patience=0,
    )


def fields(n_rows: int, n_columns: int, given: dict[str, Any]) -> dict[str, Any]:
    """A recipe's fields: those given, and for the others what suits data of this size."""
    nade = given.get("visible", "nade") == "nade"
    automatic = dataclasses.asdict(architecture(n_rows, n_columns, nade=nade))
    automatic |= dataclasses.asdict(training(n_rows, n_columns, given.get("batch", BATCH), nade=nade))
    if "epochs" in given:
        automatic["validate_every"] = max(given["epochs"] // LOOKS, 1)
    return automatic | given
