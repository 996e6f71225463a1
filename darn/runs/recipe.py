"""A recipe: data, architecture and training of one model under one name."""

import dataclasses
import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from darn.config import Architecture, DataOptions, LocalLayer, Training
from darn.errors import DarnError
from darn.jsonable import FieldError, decode
from darn.runs.values import check_values

PARTS = {"architecture": Architecture, "training": Training, "data": DataOptions}
_PART_OF = {f.name: part for part, kind in PARTS.items() for f in dataclasses.fields(kind)}
_PROSE = ("description", "paper_nll", "paper_bound")


@dataclass(frozen=True)
class Recipe:
    """Data, architecture and training of one model, what it is for, and the paper's figures for it.

    Field names are unique across the parts, so `value`, `replace` and the command line need only the field's name.
    """

    architecture: Architecture = field(default_factory=Architecture)
    training: Training = field(default_factory=Training)
    data: DataOptions = field(default_factory=DataOptions)
    description: str = ""  # the paper's row and its number, or another purpose
    paper_nll: float | None = None  # the paper's -log p on the test rows, nats
    paper_bound: float | None = None  # the paper's bound on the test rows, nats

    def value(self, name: str) -> Any:
        """The value of a field of any part, such as `recipe.value("lr")`.

        Args:
            name: the field's name.

        Returns:
            Its value.
        """
        return getattr(getattr(self, part_of(name)), name)

    def replace(self, **fields: Any) -> "Recipe":
        """The recipe with fields changed, each by its own name: `recipe.replace(n_h=(8,), lr=1e-3)`.

        Args:
            **fields: Fields of any part, or `description`, `paper_nll`, `paper_bound`.

        Returns:
            The new recipe, unchecked; `override` also checks it.
        """
        own = {k: v for k, v in fields.items() if k in _PROSE}
        by_part: dict[str, dict] = {}
        for name, value in fields.items():
            if name not in own:
                by_part.setdefault(part_of(name), {})[name] = value
        parts = {part: dataclasses.replace(getattr(self, part), **values) for part, values in by_part.items()}
        return dataclasses.replace(self, **parts, **own)

    def tiny(self) -> "Recipe":
        """The same recipe at a size that runs in seconds on any machine; for trials, not for results."""
        a = self.architecture
        most = 100 if a.is_local else 1000  # a row of a layer over a grid takes many times the work
        return self.replace(
            n_h=_at_most(8, a.n_h)[:3],
            n_d=_at_most(8, a.n_d),
            encoder_d=None if a.encoder_d is None else _at_most(8, a.encoder_d),
            decoder_d=None if a.decoder_d is None else _at_most(8, a.decoder_d),
            n_nade=_at_most(8, a.n_nade),
            n_orderings=min(a.n_orderings, 2),
            n_components=min(a.n_components, 4),
            conv_channels=min(a.conv_channels, 4),
            conv_blocks=min(a.conv_blocks, 1),
            local=_fewer_filters(4, a.local),
            local_h=_fewer_filters(2, a.local_h),
            n_rows=min(self.data.n_rows or most, most),
            epochs=2,
            validate_every=1,
        )

    def to_json(self) -> dict:
        """The recipe as plain JSON values, nested as the parts are."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @staticmethod
    def from_json(values: Any) -> "Recipe":
        """The inverse of `to_json`.

        Args:
            values: What `json.loads` gave.

        Returns:
            The recipe; missing fields take their defaults.

        Raises:
            DarnError: A field is unknown, of the wrong type or out of range.
        """
        try:
            return decode(Recipe, values, "the recipe", check=check_values)
        except FieldError as e:
            raise DarnError(f"not a readable recipe: {e}") from e


def _at_most(n: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(min(size, n) for size in sizes)


def _fewer_filters(n: int, layers: tuple[LocalLayer, ...]) -> tuple[LocalLayer, ...]:
    return tuple(dataclasses.replace(layer, filters=min(layer.filters, n)) for layer in layers)


def part_of(name: str) -> str:
    """The part of a recipe that has the field: "architecture", "training" or "data"."""
    if name not in _PART_OF:
        near = difflib.get_close_matches(name, _PART_OF, n=1)
        hint = f"did you mean {near[0]}?" if near else "`darn recipes NAME` lists the fields of a recipe"
        raise FieldError(f"there is no field {name}: {hint}", name, *near)
    return _PART_OF[name]


def override(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """The recipe with some fields changed, checked as a whole.

    Args:
        recipe: Any recipe.
        values: New values by field name.

    Returns:
        The changed recipe.

    Raises:
        FieldError: A field is unknown or out of range, or two fields contradict each other.
    """
    recipe = recipe.replace(**values)
    for part in PARTS:
        check_values(getattr(recipe, part))
    _check_windows(recipe.architecture)
    _check_objective(recipe)
    _check_stochastic(recipe)
    if recipe.architecture.is_local:
        _check_local(recipe)
    return recipe


def _check_windows(a: Architecture) -> None:
    if not a.n_nade:
        raise FieldError("n_nade must have at least one layer", "n_nade")
    if not a.conv_dilations:
        raise FieldError("conv_dilations must have at least one entry", "conv_dilations")
    if a.conv_start.columns % 2 == 0:
        raise FieldError("conv_start must have an odd number of columns, such as 2/7/3", "conv_start")
    for name in ("ar", "ar_h"):
        if getattr(a, name).kernel % 2 == 0:
            raise FieldError(f"{name} must have an odd kernel, such as 15/14", name)


def _check_objective(recipe: Recipe) -> None:
    a, t = recipe.architecture, recipe.training
    if t.warmup and t.warmup_steps:
        raise FieldError("warmup and warmup_steps are the same in two units: leave one out", "warmup", "warmup_steps")
    if recipe.data.binarize == "intensity" and a.visible != "factorial":
        raise FieldError("intensities need visible factorial: the other layers are over bits", "visible")
    if t.log_q == "entropy" and a.encoder != "factorial":
        raise FieldError(
            "log_q entropy needs encoder factorial: other encoders have no closed form", "log_q", "encoder"
        )
    if t.log_q == "entropy" and t.estimator not in ("darn", "straight_through"):
        raise FieldError(
            f"log_q entropy needs estimator darn or straight_through, not {t.estimator}", "log_q", "estimator"
        )
    if t.estimator == "disarm" and a.encoder != "factorial":
        raise FieldError("estimator disarm needs encoder factorial", "estimator", "encoder")
    if t.weighted and (t.n_samples < 2 or t.estimator not in ("darn", "straight_through")):
        raise FieldError(
            "weighted needs n_samples 2 or more, and estimator darn or straight_through",
            *("weighted", "n_samples", "estimator"),
        )
    if t.weighted and "eonade" in (a.visible, a.prior):
        raise FieldError(
            "weighted does not work with eonade layers: they train on an estimate of log p(x, h)", "weighted"
        )
    if a.dropout and a.visible != "conv" and "eonade" not in (a.visible, a.prior):
        raise FieldError("dropout needs visible conv or eonade", "dropout", "visible")
    if a.orders != "one" and a.visible != "conv":
        raise FieldError("orders needs visible conv", "orders", "visible")
    if t.weighted and (a.dropout or a.orders != "one"):
        raise FieldError(
            "weighted needs log p(x, h) itself: leave out dropout and train in one order",
            *("weighted", "dropout", "orders"),
        )


def _check_stochastic(recipe: Recipe) -> None:
    if recipe.architecture.is_stochastic:
        return
    t = recipe.training
    for name, used in (("decay_on", t.decay_on == "encoder"), ("weighted", t.weighted), ("sparsity", t.sparsity)):
        if used:
            value = " encoder" if name == "decay_on" else ""
            raise FieldError(f"{name}{value} needs a stochastic layer: give n_h", name, "n_h")


def _check_local(recipe: Recipe) -> None:
    if recipe.architecture.visible not in ("grid", "conv", "factorial"):
        visible = recipe.architecture.visible
        raise FieldError(f"local layers need visible grid, conv or factorial, not {visible}", "visible")
    for name, usual in (("encoder", "factorial"), ("skip", False), ("labels", None)):
        if recipe.value(name) != usual:
            raise FieldError(f"{name} cannot be combined with local layers or visible grid: leave it out", name)
