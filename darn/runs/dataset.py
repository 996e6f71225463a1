"""The data that a recipe names: read, kept to as many rows as it asks for, and described for the model file."""

import dataclasses

import numpy as np

from darn import data
from darn.errors import DarnError
from darn.runs.recipe import Recipe


def read_data(recipe: Recipe, schema: data.Schema | None = None) -> data.Splits:
    """All of the recipe's data, made binary as it says.

    Args:
        recipe: Names the data and how to read them.
        schema: How a table's columns become units, where a trained model has settled it.

    Returns:
        The three splits, whole: `limit` keeps as many rows as the recipe asks for.
    """
    options = recipe.data
    return data.load(
        options.source,
        binarize=options.binarize,
        threshold=options.threshold,
        seed=recipe.training.seed,
        labels=options.labels,
        columns=columns_of(recipe, schema),
    )


def limit(splits: data.Splits, recipe: Recipe) -> data.Splits:
    """The splits with no more training and validation rows than the recipe asks for."""
    n = recipe.data.n_rows
    if not n:
        return splits
    return dataclasses.replace(splits, train=splits.train.subsample(n), valid=splits.valid.subsample(n))


def load_data(recipe: Recipe) -> data.Splits:
    """The data that the recipe trains on: `read_data`, then `limit`."""
    return limit(read_data(recipe), recipe)


def columns_of(recipe: Recipe, schema: data.Schema | None) -> data.Columns:
    """How the columns of the recipe's tables are read; by the schema, where a trained model has settled it."""
    options = recipe.data
    columns = data.Columns(options.categorical, options.drop, options.weights, options.delimiter, column=options.column)
    return columns if schema is None else dataclasses.replace(columns, schema=schema)


def training_rows(splits: data.Splits, recipe: Recipe) -> data.Rows:
    """The rows to train on: those of `limit`, and how every step moves them.

    With a threshold they are the grey levels, so that an image can move by a fraction of a pixel.

    Raises:
        DarnError: Rows that are no images cannot be moved.
    """
    options, rows = recipe.data, splits.train
    if not options.moved:
        return rows
    if splits.shape is None:
        raise DarnError(f"moved needs images, but the rows of {splits.name} have no image shape: leave out moved")
    threshold = options.threshold if splits.binarize == "threshold" else None
    if threshold is not None:
        grey = dataclasses.replace(options, binarize="intensity")
        rows = limit(read_data(dataclasses.replace(recipe, data=grey)), recipe).train
    moves = data.Moves(splits.shape, options.moved, options.shift, options.turn, options.stretch, threshold)
    return dataclasses.replace(rows, moves=moves)


def describe_data(splits: data.Splits) -> dict:
    """What a model file stores about its data."""
    return {
        "name": splits.name,
        "sha256": splits.sha256,
        "n": splits.train.n,
        "rows": [len(splits.train), len(splits.valid), len(splits.test)],
        "shape": splits.shape,
        "columns": splits.columns,
        "classes": splits.classes,
        "table": None if splits.schema is None else splits.schema.to_json(),
        "delimiter": splits.delimiter,
        "binarize": splits.binarize,
    }


def scored_rows(rows: data.Rows) -> tuple[np.ndarray, np.ndarray | None]:
    """(x, context) as the evaluation functions take them."""
    return rows.unpack(), rows.context
