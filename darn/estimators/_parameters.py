"""Parameters of the estimators: which are fields of a recipe, and what values they take."""

import numbers

import numpy as np

from darn.errors import InputError

# Parameters that are fields of a recipe, and their names there.
FIELDS = {"learning_rate": "lr", "batch_size": "batch"} | {
    name: name for name in ("n_h", "n_d", "visible", "prior", "encoder", "epochs", "weight_decay", "l1", "patience")
}


def is_auto(value) -> bool:
    """Whether the parameter is left to depend on the data."""
    return isinstance(value, str) and value == "auto"


def check(name: str, value, least, *, whole: bool = False, above: bool = False) -> None:
    """Refuses what is not a number of at least `least`, or `above` it."""
    kind = numbers.Integral if whole else numbers.Real
    fits = not isinstance(value, bool) and isinstance(value, kind) and least <= value < np.inf
    if not fits or (above and value == least):
        limit = f" above {least}" if above else f", {least} or more"
        raise InputError(f"{name} must be {'a whole number' if whole else 'a number'}{limit}, not {value!r}")


def check_fraction(name: str, value) -> None:
    """Refuses what is not a number between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < float(value) < 1:
        raise InputError(f"{name} must be between 0 and 1, not {value!r}")


def units(name: str, value) -> tuple[int, ...]:
    """16, (64, 16), 0 or ()."""
    each = (value,) if isinstance(value, numbers.Integral) else value
    sized = np.iterable(each) and not isinstance(each, str)
    if not sized or not all(isinstance(n, numbers.Integral) and int(n) >= 0 for n in each):
        raise InputError(f"{name} must be a number of units, or one for each layer, not {value!r}")
    return tuple(int(n) for n in each if n)
