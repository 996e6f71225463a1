"""Grids: the paper's, and any other from the command line."""

import dataclasses
import itertools

from darn.errors import DarnError
from darn.runs.recipe import Recipe, override, parse_field

# Section 5.1: 5 x 7 shapes, three learning rates, 105 models.
PAPER_GRID: dict[str, tuple] = {
    "n_d": tuple((n,) for n in (100, 200, 300, 400, 500)),
    "n_h": tuple((n,) for n in (8, 12, 16, 32, 64, 128, 256)),
    "lr": (2.5e-4, 6.75e-5, 1e-5),
}
# And how each was trained: one learning rate, no price on weights, early stopping.
PAPER_TRAINING: dict = {"schedule": "constant", "patience": 20, "average": 0.0, "l1": 0.0, "weight_decay": 0.0}
_DATA = ("binarize", "threshold", "labels")


def parse_grid(words: list[str]) -> dict[str, tuple]:
    """`lr=1e-3,1e-4 n_h=16,80x12,200+100` as values by field; '+' sets layers apart, ',' the values to try."""
    grid: dict[str, tuple] = {}
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip("-").replace("-", "_")
        if not equals:
            raise DarnError(f"--grid takes fields with values such as lr=1e-3,1e-4, not {word!r}")
        if name in _DATA:
            raise DarnError(f"--grid may not change the data ({name}): the bounds would not be comparable")
        if name in grid:
            raise DarnError(f"--grid names {name} twice: put its values side by side, {name}=v1,v2")
        values = tuple(parse_field(name, v.replace("+", ",")) for v in text.split(","))
        if len(set(values)) < len(values):
            raise DarnError(f"--grid {word} has a value twice")
        grid[name] = values
    return grid


def expand(recipe: Recipe, grid: dict[str, tuple]) -> list[Recipe]:
    """Every combination of the grid's values, the last field the fastest."""
    made = [override(recipe, dict(zip(grid, values))) for values in itertools.product(*grid.values())]
    if len({r.bound_name for r in made}) > 1:
        raise DarnError("--grid may not change weighted, nor with it n_samples: the bounds would not be comparable")
    # a model of a grid is no longer the published one
    return [dataclasses.replace(r, promise=f"a model of a sweep; {recipe.promise}") for r in made]
