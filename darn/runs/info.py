"""What a model file or a recipe.json says about a run, typed: recipe, data, provenance."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from darn.data import Schema
from darn.errors import DarnError, FormatError
from darn.jsonable import FieldError, decode
from darn.model import Stack
from darn.runs.recipe import Recipe

MAX_JSON = 32 << 20  # bytes of a recipe.json, metrics.jsonl or sweep.json


@dataclass(frozen=True)
class DataInfo:
    """The data that a model was trained on."""

    name: str | None = None
    sha256: str | None = None
    n: int | None = None
    rows: tuple[int, ...] | None = None  # in train, valid and test
    shape: tuple[int, int] | None = None  # rows and columns of an image
    columns: tuple[str, ...] | None = None  # names of the visible units
    classes: tuple[str, ...] | None = None
    table: tuple[Any, ...] | None = None  # how a table's columns became units, as `Schema.from_json` takes them
    delimiter: str | None = None  # of the table, if it is a text
    binarize: str | None = None

    @cached_property
    def schema(self) -> Schema | None:
        return Schema.from_json(self.table) if self.table else None


@dataclass(frozen=True)
class TrainingInfo:
    """How training went."""

    epoch: int | None = None
    valid_bound: float | None = None
    epochs: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Made:
    """Where, when and by what a model was made."""

    command: str | None = None
    commit: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    device: str | None = None


@dataclass(frozen=True)
class Tried:
    """A candidate of a search."""

    name: str  # the fields in which it differs from the default
    epochs: int  # of its whole training
    valid_bounds: tuple[float | None, ...] = ()  # at each comparison


@dataclass(frozen=True)
class SearchInfo:
    """The search that chose a recipe."""

    default: Recipe  # the first candidate
    candidates: tuple[Tried, ...]
    chosen: int | None = None  # None while the search is under way
    gain: float | None = None  # nats per validation row, over the default

    def __post_init__(self):
        if self.chosen is None:
            return
        bounds = self.candidates[self.chosen].valid_bounds if 0 <= self.chosen < len(self.candidates) else ()
        if not bounds or bounds[-1] is None:
            raise FieldError("the search has not compared the candidate that it chose", "chosen")


@dataclass(frozen=True)
class TableEstimatorInfo:
    """A `TableDARN`: its parameters, and the library and the types of its frames."""

    params: dict[str, Any] = field(default_factory=dict)
    library: str = "pandas"
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Info:
    """The parts of a model's info that darn uses."""

    recipe: Recipe = field(default_factory=lambda: Recipe().replace(source=""))
    data: DataInfo = field(default_factory=DataInfo)
    training: TrainingInfo = field(default_factory=TrainingInfo)
    made: Made = field(default_factory=Made)
    estimator: dict[str, Any] = field(default_factory=dict)  # parameters of the scikit-learn face
    table_estimator: TableEstimatorInfo = field(default_factory=TableEstimatorInfo)
    search: SearchInfo | None = None


def read_info(found: Mapping[str, Any], model: Stack | None = None) -> Info:
    """The info as typed values.

    Args:
        found: The JSON of a model file, perhaps forged; parts that darn does not know are left out.
        model: The model it came with, whose number of units the names and shapes must match.

    Raises:
        FormatError: A value is of the wrong type, or does not fit the model.
    """
    try:
        recipe = Recipe.from_json(found["recipe"]) if "recipe" in found else Info().recipe
        rest = decode(Info, {k: v for k, v in found.items() if k != "recipe"}, "the info", strict=False)
        info = dataclasses.replace(rest, recipe=recipe)
        schema = info.data.schema
        _check_texts(info.data)
    except DarnError as e:
        raise FormatError(f"{e}; darn did not write this") from e
    if model is not None:
        _check_fit(info.data, schema, model)
    return info


def _check_texts(data: DataInfo) -> None:
    """Names that become the header of a table can be written: JSON can escape half a character, no file can hold it."""
    try:
        json.dumps([data.columns, data.classes, data.table, data.delimiter], ensure_ascii=False).encode()
    except UnicodeEncodeError as e:
        raise FormatError("a name of its data has half a character") from e


def _check_fit(data: DataInfo, schema: Schema | None, model: Stack) -> None:
    wrong = {
        "shape": data.shape is not None and (min(data.shape) < 1 or data.shape[0] * data.shape[1] != model.n_x),
        "columns": data.columns is not None and len(data.columns) != model.n_x,
        "table": schema is not None and sum(schema.sizes) != model.n_x,
        "classes": data.classes is not None and len(data.classes) > model.n_context > 0,
        "delimiter": data.delimiter is not None and (len(data.delimiter) != 1 or data.delimiter in '"\r\n'),
    }
    for name, is_wrong in wrong.items():
        if is_wrong:
            raise FormatError(f"the {name} of its data do not fit the model's {model.n_x} units")
