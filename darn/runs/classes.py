"""The classes that rows are drawn from, for models trained with labels."""

from collections.abc import Callable

import numpy as np

from darn.errors import DarnError
from darn.runs.run import Run


def label_contexts(run: Run, label: str | None) -> Callable[[np.ndarray], np.ndarray] | None:
    """A function from the numbers of rows to their contexts; None for a model without one.

    Args:
        run: the model.
        label: the class of all rows; None for every class in turn.
    """
    classes = list(run.about.data.classes or ())
    if label is not None and not classes:
        raise DarnError("this model was trained without labels, so there is no class to choose")
    if run.model.n_context != len(classes):
        raise DarnError("this model needs an observed context for every row: sample it from Python")
    if not classes:
        return None
    if label is not None and label not in classes:
        raise DarnError(f"there is no class {label!r}: choose one of {', '.join(classes)}")

    def contexts(numbers: np.ndarray) -> np.ndarray:
        chosen = numbers % len(classes) if label is None else np.full(len(numbers), classes.index(label))
        return np.eye(len(classes), dtype=np.float32)[chosen]

    return contexts


def one_context(run: Run, contexts: Callable[[np.ndarray], np.ndarray] | None, label: str | None) -> np.ndarray | None:
    """The context of all rows; None for a model without one."""
    if contexts is None:
        return None
    if label is None:
        classes = ", ".join(run.about.data.classes or ())
        raise DarnError(f"conditions are for one class: choose one (label = one of {classes})")
    return contexts(np.zeros(1, np.int64))[0]
