"""Recipes: one recipe, one published number. Plain data, no numerics imported."""

from darn.recipes._atari import ATARI_BOUNDS as ATARI_BOUNDS
from darn.recipes._base import Recipe as Recipe
from darn.recipes._base import fields_of as fields_of
from darn.recipes._base import override as override
from darn.recipes._base import parse_field as parse_field
from darn.recipes._base import show_field as show_field
from darn.recipes._table import RECIPES as RECIPES
from darn.recipes._table import find as find
