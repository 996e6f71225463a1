"""What to build and how to train it where nobody says: a rule from the size of the data.

The constants were chosen on the validation rows of Adult, Mushrooms, DNA, OCR letters and Web.
"""

import math

from darn.config import Architecture, Training

# From so many rows on: stochastic units, deterministic units.
SIZES = ((10_000, 64, 200), (500, 32, 100), (0, 8, 32))
LOOKS = 30  # at the validation rows, over a whole training


def architecture(n_rows: int, n_columns: int) -> Architecture:
    """One stochastic layer under an autoregressive prior, over an autoregressive visible layer: Section 5.1."""
    n_h, n_d = next((h, d) for least, h, d in SIZES if n_rows >= least)
    return Architecture(n_h=(n_h,), n_d=(n_d,), visible="linear")


def training(n_rows: int, n_columns: int, batch: int = 128) -> Training:
    """One learning-rate curve down to nothing, and the weights that validated best along it."""
    steps_per_epoch = max(math.ceil(n_rows / batch), 1)
    steps = 300 if n_rows < 500 else 3000
    epochs = max(math.ceil(steps / steps_per_epoch), 10)
    return Training(
        lr=1e-3,
        schedule="cosine",
        batch=batch,
        epochs=epochs,
        weight_decay=0.3 / max(n_rows, 1),
        average=0.99,
        validate_every=max(epochs // LOOKS, 1),
        patience=0,
    )
