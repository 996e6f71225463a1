"""Grids: the paper's, and any other from the command line."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from darn.config import DataOptions
from darn.errors import DarnError
from darn.runs.fields import parse_field
from darn.runs.recipe import Recipe, override

# Section 5.1: 5 x 7 shapes, three learning rates, 105 models.
PAPER_GRID: dict[str, tuple] = {
    "n_d": tuple((n,) for n in (100, 200, 300, 400, 500)),
    "n_h": tuple((n,) for n in (8, 12, 16, 32, 64, 128, 256)),
    "lr": (2.5e-4, 6.75e-5, 1e-5),
}
# And how each was trained: one learning rate, no penalty on weights, early stopping.
PAPER_TRAINING: dict = {"schedule": "constant", "patience": 20, "average": 0.0, "l1": 0.0, "weight_decay": 0.0}
_DATA = tuple(f.name for f in dataclasses.fields(DataOptions))


def parse_grid(words: Sequence[str]) -> dict[str, tuple]:
    """The values to try, by field name.

    Args:
        words: Such as `lr=1e-3,1e-4` and `n_h=16,80x12,200+100`; ',' separates values, '+' the layers within one.

    Returns:
        The values of each field.

    Raises:
        DarnError: A word is not of this form, names a field twice or a field of the data.
    """
    grid: dict[str, tuple] = {}
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip("-").replace("-", "_")
        if not equals:
            raise DarnError(f"a grid takes fields with values such as lr=1e-3,1e-4, not {word!r}")
        if name in _DATA:
            raise DarnError(f"a grid may not change the data ({name}): the bounds would not be comparable")
        if name in grid:
            raise DarnError(f"the grid names {name} twice: put its values side by side, {name}=v1,v2")
        values = tuple(parse_field(name, v.replace("+", ",")) for v in text.split(","))
        if len(set(values)) < len(values):
            raise DarnError(f"the grid has a value twice: {word}")
        grid[name] = values
    return grid


def expand(recipe: Recipe, grid: Mapping[str, tuple]) -> list[Recipe]:
    """Every combination of the grid's values.

    Args:
        recipe: What they have in common.
        grid: The values to try, by field name.

    Returns:
        A recipe for each combination; the last field of the grid varies fastest.
    """
    made = [override(recipe, dict(zip(grid, values))) for values in itertools.product(*grid.values())]
    if len({r.training.bound_name for r in made}) > 1:
        raise DarnError("a grid may not change weighted, nor n_samples with it: the bounds would not be comparable")
    # a model of a grid is no longer the published one
    return [r.replace(description=f"a model of a sweep; {recipe.description}") for r in made]
