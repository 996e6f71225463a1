"""Recipes: one recipe, one published number. Plain data, no numerics imported."""

from darn.recipes._atari import ATARI_BOUNDS as ATARI_BOUNDS
from darn.recipes._base import Recipe as Recipe
from darn.recipes._base import fields_of as fields_of
from darn.recipes._base import override as override
from darn.recipes._base import parse_field as parse_field
from darn.recipes._base import show_field as show_field
from darn.recipes._grid import PAPER_GRID as PAPER_GRID
from darn.recipes._grid import PAPER_TRAINING as PAPER_TRAINING
from darn.recipes._grid import expand as expand
from darn.recipes._grid import parse_grid as parse_grid
from darn.recipes._paper import FDARN_MULTIPLICATIONS as FDARN_MULTIPLICATIONS
from darn.recipes._paper import MNIST as MNIST
from darn.recipes._paper import NADE_MULTIPLICATIONS as NADE_MULTIPLICATIONS
from darn.recipes._paper import NOT_AT_HAND as NOT_AT_HAND
from darn.recipes._paper import OURS as OURS
from darn.recipes._paper import PAPER as PAPER
from darn.recipes._paper import UCI as UCI
from darn.recipes._paper import Row as Row
from darn.recipes._table import RECIPES as RECIPES
from darn.recipes._table import find as find
