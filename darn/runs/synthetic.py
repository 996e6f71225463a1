"""Synthetic rows of a table: decoding bits to the table's columns, and counting copies of training rows."""

import numpy as np

from darn.errors import DarnError
from darn.runs.folder import Run


def table(run: Run, x: np.ndarray, context: np.ndarray | None = None, *, seed: int = 0):
    """Returns (column names, rows of texts) of sampled bits; the class, if one was given, is the last column."""
    assert run.schema is not None
    names, rows = list(run.schema.names), run.schema.decode(x, seed)
    classes = run.about.data.classes
    if classes and context is not None:
        label = run.recipe.data.labels or ""
        names.append("label" if label.lstrip("-").isdigit() else label)
        rows = [[*row, classes[k]] for row, k in zip(rows, context.argmax(axis=1).tolist())]
    return names, rows


def copies(run: Run, x: np.ndarray) -> dict | None:
    """The fraction of rows that equal a training row, and the fraction of held-out rows that do.

    Rows are compared as bits (numbers in the same bin are equal). A model that memorised rows produces more copies than
    there are among held-out rows. None if the training data are no longer available.
    """
    try:
        splits = run.splits()
    except DarnError:
        return None
    if splits.sha256 != run.about.data.sha256 or not len(x):
        return None
    seen = {r.tobytes() for r in splits.train.values}
    fraction = lambda packed: float(np.mean([r.tobytes() in seen for r in packed]))  # noqa: E731
    held_out = np.concatenate([splits.valid.values, splits.test.values])
    return {
        "sampled": fraction(np.packbits(x, axis=1)),
        "held_out": fraction(held_out),
        "train_rows": len(splits.train),
    }


def sentence(found: dict) -> str:
    return (
        f"{found['sampled']:.1%} of them equal one of the {found['train_rows']:,} training rows, as do "
        f"{found['held_out']:.1%} of the held-out rows"
    )
