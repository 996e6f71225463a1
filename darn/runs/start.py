"""What a run starts from: settings that suit the size of the data, and fresh weights."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
from jaxtyping import PRNGKeyArray

from darn import data
from darn.config import Architecture
from darn.model import Stack
from darn.runs import defaults, search
from darn.runs.dataset import limit
from darn.runs.recipe import Recipe, override
from darn.zoo import build

if TYPE_CHECKING:  # only training needs it, and it takes a tenth of a command's start
    from darn.training import Make


def sized(recipe: Recipe, given: Mapping[str, Any], splits: data.Splits) -> Recipe:
    """The recipe with the fields that the user did not give chosen by the size of the data.

    Args:
        recipe: Already has the fields in `given`.
        given: Those fields, by name.
        splits: The whole data.

    Returns:
        The recipe with the other fields chosen.
    """
    train = limit(splits, recipe).train
    return override(recipe, defaults.fields(len(train), train.n, given))


def candidates(
    recipe: Recipe, given: Mapping[str, Any], splits: data.Splits, seconds: float | None = None
) -> list[Recipe]:
    """The recipes to choose from by validation, that of `sized` first; only that one if there is no choice.

    Args:
        recipe: Already has the fields in `given`.
        given: Those fields, by name.
        splits: The whole data.
        seconds: The budget of the choice; None for the usual one, 0 for none.

    Returns:
        The recipes.
    """
    train = limit(splits, recipe).train
    # The columns of a table are often modelled as well without a code.
    return search.candidates(recipe, given, len(train), train.n, code=splits.schema is None, seconds=seconds)


def maker(splits: data.Splits) -> "Make":
    """The function that builds a fresh model for these data, with visible biases from the training means."""
    mean = splits.train.mean()

    def make(architecture: Architecture, key: PRNGKeyArray) -> Stack:
        return build(architecture, splits.train.n, mean=mean, key=key, **_build_options(architecture, splits))

    return make


def _build_options(architecture: Architecture, splits: data.Splits) -> dict[str, Any]:
    """What `build` has to know of the data, apart from numbers."""
    context, schema = splits.train.context, splits.schema
    return {
        "n_context": 0 if context is None else context.shape[1],
        "shape": None if splits.shape is None else tuple(splits.shape),
        "groups": None if schema is None else tuple(schema.groups),
        "numbers": () if schema is None else schema.numbers,
        "factors": defaults.factors(len(splits.train)),
        # Most pixels of a screen never change: at one in a thousand each, they would cost more than all the others.
        "rarest": 1 / (len(splits.train) + 2) if architecture.is_local else 1e-3,
    }


def new_model(recipe: Recipe, splits: data.Splits) -> Stack:
    """Fresh weights for the recipe."""
    from darn.training import compiling

    architecture, train = recipe.architecture, splits.train
    options = _build_options(architecture, splits)
    # As one program: otherwise every new shape would compile several small ones.
    start = jax.jit(build, static_argnums=(0, 1), static_argnames=tuple(options), compiler_options=compiling(0))
    return start(architecture, train.n, mean=train.mean(), key=jax.random.key(recipe.training.seed), **options)
