"""What to build and how to train it where nobody says: a rule from the size of the data.

The constants were chosen on the validation rows of Adult, Mushrooms, DNA, OCR letters and Web.
"""

import dataclasses
import math
from typing import Any

from darn.config import Architecture, Training

# From so many rows on: stochastic units, deterministic units, learning rate, steps at least, epochs at least.
SIZES = (
    (20_000, 200, 400, 5e-4, 4000, 100),
    (500, 32, 100, 2.5e-3, 4000, 20),
    (0, 8, 32, 2e-3, 300, 1),  # small enough for an exact sum over the codes
)
LOOKS = 25  # at the validation rows, over a whole training


def _size(n_rows: int) -> tuple:
    return next(tuple(rest) for least, *rest in SIZES if n_rows >= least)


def architecture(n_rows: int, n_columns: int) -> Architecture:
    """One stochastic layer under an autoregressive prior, over an autoregressive visible layer: Section 5.1."""
    n_h, n_d, *_ = _size(n_rows)
    return Architecture(n_h=(n_h,), n_d=(n_d,), visible="linear")


BATCH = 128


def training(n_rows: int, n_columns: int, batch: int = BATCH) -> Training:
    """One learning-rate curve down to nothing, and the weights that validated best along it."""
    _, _, lr, steps, epochs = _size(n_rows)
    rows = max(n_rows, batch)  # few rows are one batch
    epochs = max(math.ceil(steps * batch / rows), epochs)
    return Training(
        lr=lr,
        schedule="cosine",
        batch=batch,
        epochs=epochs,
        weight_decay=0.5 / rows,
        # Half the squared columns are autoregressive weights. Their price follows how many there are for each row
        # to settle: 2e-3 on DNA (180 columns, 1,260 rows), 1e-4 on Adult (123, 4,500), next to nothing on OCR.
        l1=20 * n_columns / rows**2,
        average=0.99,
        validate_every=max(epochs // LOOKS, 1),
        patience=0,
    )


def fields(n_rows: int, n_columns: int, given: dict[str, Any]) -> dict[str, Any]:
    """A recipe's fields: those given, and for the others what suits data of this size."""
    automatic = dataclasses.asdict(architecture(n_rows, n_columns))
    automatic |= dataclasses.asdict(training(n_rows, n_columns, given.get("batch", BATCH)))
    if "epochs" in given:
        automatic["validate_every"] = max(given["epochs"] // LOOKS, 1)
    return automatic | given
