"""Synthetic rows of a table: bits back to the table's own columns, and how many of them are copies."""

import numpy as np

from darn.errors import DarnError
from darn.runs.folder import Run


def table(run: Run, x: np.ndarray, context: np.ndarray | None = None, *, seed: int = 0):
    """(names, rows of words) of sampled bits; a class that was given comes last, under its column's name."""
    assert run.schema is not None
    names, rows = list(run.schema.names), run.schema.decode(x, seed)
    classes = run.info["data"].get("classes")
    if classes and context is not None:
        label = run.recipe.data.labels or ""
        names.append("label" if label.lstrip("-").isdigit() else label)
        rows = [[*row, classes[k]] for row, k in zip(rows, context.argmax(axis=1).tolist())]
    return names, rows


def copies(run: Run, x: np.ndarray) -> dict | None:
    """The share of rows that are training rows, beside the share of rows never trained on that are.

    Both are of bits (numbers count as the same within a bin). A model that learned the rows by heart copies more than
    chance does; the held-out rows show what chance does. None where the training data are no longer at hand.
    """
    try:
        splits = run.splits()
    except DarnError:
        return None
    if splits.sha256 != run.info["data"].get("sha256") or not len(x):
        return None
    seen = {r.tobytes() for r in splits.train.values}
    share = lambda packed: float(np.mean([r.tobytes() in seen for r in packed]))  # noqa: E731
    held_out = np.concatenate([splits.valid.values, splits.test.values])
    return {"sampled": share(np.packbits(x, axis=1)), "held_out": share(held_out), "train_rows": len(splits.train)}


def sentence(found: dict) -> str:
    return (
        f"{found['sampled']:.1%} of them equal one of the {found['train_rows']:,} training rows, as do "
        f"{found['held_out']:.1%} of the rows held out"
    )
