"""What a recipe is, and how its fields are changed from the command line."""

import dataclasses
import difflib
import json
import math
from dataclasses import dataclass
from typing import Any

from darn.config import Architecture, Training, option
from darn.errors import DarnError

BINARIZE = ("threshold", "static", "dynamic", "intensity")


@dataclass(frozen=True)
class Recipe(Architecture, Training):
    """Data, architecture and training of one model; every field can be overridden from the command line."""

    data: str = option("digits", "a data set's name, or a file or folder of one's own")
    binarize: str | None = option(None, "how non-binary data become binary", BINARIZE)
    threshold: float = option(0.5, "with binarize=threshold: the intensity from which a unit is on")
    labels: str | None = option(None, "the column to take out as class label and give to every conditional")
    categorical: str | None = option(None, "of a table: 'auto', or the columns to take as categories, by name")
    drop: str | None = option(None, "of a table: columns to leave out, by name")
    weights: str | None = option(None, "of a table: the column that says how much each row counts in training")
    n_rows: int = option(0, "train on no more than so many rows, drawn at random, and validate likewise; 0: on all")
    promise: str = option("", "what the recipe is for: the paper's row, its number, ours")
    paper_nll: float | None = option(None, "the paper's -log p on the test rows, nats")
    paper_bound: float | None = option(None, "the paper's bound on the test rows, nats")

    def tiny(self) -> "Recipe":
        """The same recipe at a size that runs in seconds anywhere; for trying things out, not for its numbers."""
        small = lambda v: tuple(min(n, 8) for n in v)  # noqa: E731
        return dataclasses.replace(
            self,
            n_h=small(self.n_h)[:3],
            n_d=small(self.n_d),
            encoder_d=None if self.encoder_d is None else small(self.encoder_d),
            decoder_d=None if self.decoder_d is None else small(self.decoder_d),
            n_nade=small(self.n_nade),
            n_orderings=min(self.n_orderings, 2),
            n_components=min(self.n_components, 4),
            local=tuple(min(v, 4) if i % 3 == 2 else v for i, v in enumerate(self.local)),
            local_h=tuple(min(v, 2) if i % 3 == 2 else v for i, v in enumerate(self.local_h)),
            n_rows=min(self.n_rows or 1000, 1000),
            epochs=2,
            validate_every=1,
        )

    def to_json(self) -> dict:
        """As plain JSON values."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @staticmethod
    def from_json(values: dict) -> "Recipe":
        """The inverse of `to_json`; fields this version does not know are an error, missing ones take defaults."""
        known = {f.name: f for f in dataclasses.fields(Recipe)}
        extra = sorted(set(values) - set(known))
        if extra:
            raise DarnError(f"the recipe has a field this darn does not know, {extra[0]!r}: upgrade darn")
        fixed: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return Recipe(**fixed)


# Set by the recipe's author, not from the command line.
_PROSE = ("promise", "paper_nll", "paper_bound", "data")


def fields_of() -> list[dataclasses.Field]:
    """The fields that the command line offers."""
    return [f for f in dataclasses.fields(Recipe) if f.name not in _PROSE]


def parse_field(name: str, text: str):
    """The value of field `name` from its text: '500', '80x12' or '200,100' for units, '' for none."""
    f = next((f for f in fields_of() if f.name == name), None)
    if f is None:
        near = difflib.get_close_matches(name, [f.name for f in fields_of()], n=1)
        hint = f"did you mean --{near[0]}?" if near else "`darn train --help` lists the fields"
        raise DarnError(f"there is no field --{name}: {hint}")
    kind = f.type.__name__ if isinstance(f.type, type) else str(f.type)
    choices = f.metadata["choices"]
    try:
        if "None" in kind and text.lower() == "none":
            return None
        if "tuple" in kind:
            return _units(text)
        if kind == "bool":
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.lower()]
        value = {"int": int, "float": float}.get(kind, str)(text)
    except (ValueError, KeyError):
        expected = {"bool": "true or false", "int": "a whole number", "float": "a number"}.get(
            kind, "unit counts such as 500, 200,100 or 80x12"
        )
        raise DarnError(f"--{name} takes {expected}, not {text!r}") from None
    if choices and value not in choices:
        near = difflib.get_close_matches(str(value), choices, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise DarnError(f"--{name} is one of {', '.join(choices)}, not {text!r}{hint}")
    return value


def show_field(value) -> str:
    """A field's value as the command line takes it: the inverse of `parse_field`."""
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "''"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _units(text: str) -> tuple[int, ...]:
    out: list[int] = []
    for part in filter(None, text.replace(" ", "").split(",")):
        size, x, times = part.partition("x")
        numbers = int(size), int(times if x else 1)
        if min(numbers) < 1:
            raise ValueError(text)
        out += [numbers[0]] * numbers[1]
    return tuple(out)


# (field, holds, what it must be): what no type can say.
_RANGES = [
    ("lr", lambda v: 0 < v < math.inf, "above 0"),
    ("batch", lambda v: v >= 1, "at least 1"),
    ("epochs", lambda v: v >= 1, "at least 1"),
    ("validate_every", lambda v: v >= 1, "at least 1"),
    ("n_samples", lambda v: v >= 1, "at least 1"),
    ("n_orderings", lambda v: v >= 1, "at least 1"),
    ("n_components", lambda v: v >= 1, "at least 1"),
    ("n_nade", lambda v: len(v) >= 1, "at least one layer"),
    ("average", lambda v: 0 <= v < 1, "between 0 and 1"),
    ("momentum", lambda v: 0 <= v < 1, "between 0 and 1"),
    ("sparsity", lambda v: 0 <= v < 1, "between 0 and 1"),
    ("threshold", lambda v: 0 < v <= 1, "between 0 and 1"),
    ("n_rows", lambda v: v >= 0, "0 or more"),
    ("seed", lambda v: 0 <= v < 2**31, "a number from 0 to 2147483647"),
    ("checkpoint_every", lambda v: v >= 0, "0 or more"),
    ("patience", lambda v: v >= 0, "0 or more"),
    ("period", lambda v: v >= 1, "at least 1"),
    ("local", lambda v: len(v) % 3 == 0, "kernel,stride,filters for each layer"),
    ("local_h", lambda v: len(v) % 3 == 0, "kernel,stride,filters for each layer"),
    ("ar", lambda v: len(v) == 2 and v[0] % 2 == 1, "an odd kernel and a period, such as 15,14"),
    ("ar_h", lambda v: len(v) == 2 and v[0] % 2 == 1, "an odd kernel and a period, such as 7,8"),
    ("weight_decay", lambda v: 0 <= v < math.inf, "0 or more"),
    ("l1", lambda v: 0 <= v < math.inf, "0 or more"),
    ("noise_sigma", lambda v: 0 < v < math.inf, "above 0"),
    ("noise_lr", lambda v: 0 <= v < 1, "between 0 and 1"),
    ("warmup", lambda v: 0 <= v <= 1, "between 0 and 1"),
    ("noise_warmup", lambda v: 0 <= v <= 1, "between 0 and 1"),
]


def override(recipe: Recipe, values: dict) -> Recipe:
    """The recipe with some fields changed, checked as a whole."""
    recipe = dataclasses.replace(recipe, **values)
    for name, holds, what in _RANGES:
        if not holds(getattr(recipe, name)):
            raise DarnError(f"--{name} must be {what}, not {getattr(recipe, name)}")
    if recipe.binarize == "intensity" and recipe.visible != "factorial":
        raise DarnError("intensities need --visible factorial: the other layers are over bits")
    factorial = recipe.encoder == "factorial"
    if recipe.log_q == "entropy" and not factorial:
        raise DarnError("--log_q entropy needs --encoder factorial: other encoders have no closed form")
    if recipe.log_q == "entropy" and recipe.estimator not in ("darn", "straight_through"):
        raise DarnError(f"--log_q entropy goes with --estimator darn or straight_through, not {recipe.estimator}")
    if recipe.decay_on == "encoder" and not (recipe.n_h or recipe.local_h):
        raise DarnError("--decay_on encoder needs a stochastic layer: give --n_h")
    if recipe.weighted and not (recipe.n_h or recipe.local_h):
        raise DarnError("--weighted needs a stochastic layer: give --n_h")
    if recipe.weighted and (recipe.n_samples < 2 or recipe.estimator not in ("darn", "straight_through")):
        raise DarnError("--weighted needs --n_samples 2 or more, and --estimator darn or straight_through")
    if recipe.weighted and "eonade" in (recipe.visible, recipe.prior):
        raise DarnError("--weighted does not go with eonade layers: their training has no log p(x, h), but an estimate")
    if recipe.sparsity and not (recipe.n_h or recipe.local_h):
        raise DarnError("--sparsity needs a stochastic layer: give --n_h")
    if recipe.estimator == "disarm" and not factorial:
        raise DarnError("--estimator disarm needs --encoder factorial")
    if recipe.is_local:
        if recipe.visible not in ("grid", "factorial"):
            raise DarnError(f"local layers go with --visible grid or factorial, not {recipe.visible}")
        for name, usual in (("encoder", "factorial"), ("skip", False), ("labels", None)):
            if getattr(recipe, name) != usual:
                raise DarnError(f"--{name} does not go with local layers or --visible grid: leave it out")
    return recipe
