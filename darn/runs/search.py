"""Choosing a model for the user's own data: a few candidates compared by validation, under a budget.

The budget is given in seconds but spent in steps, whose cost is known for every candidate (`defaults.step_seconds`), so
that the choice depends on the data and the seed, not on the machine.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from darn.config import Architecture
from darn.errors import DarnError
from darn.jsonable import FieldError
from darn.runs import defaults
from darn.runs.fields import show_field
from darn.runs.info import SearchInfo
from darn.runs.recipe import Recipe, override

if TYPE_CHECKING:
    from darn.model import Stack
    from darn.training import Loop

# The fields that name a candidate, where they differ from the default's.
FIELDS = (*(f.name for f in dataclasses.fields(Architecture)), "lr", "batch", "weight_decay", "l1")
LEAST_ROWS = 200  # with fewer, the validation rows cannot tell candidates apart
LEAST_EPOCHS = 4  # a candidate that cannot finish as many within the budget is left out


def _kind(visible: str, n_h: Sequence[int]) -> str:
    """Models of one kind learn at about the same pace."""
    return f"{visible}, {'a' if n_h else 'no'} code"


def _length(kinds: Sequence[str]) -> float:
    """How long a search among candidates of these kinds beside the default takes on two cores, in trainings of one.

    All of them train for an eighth of their time, about half for another eighth, and the best of each kind to the end.
    """
    return 1.5 * len(kinds) / 8 / 2 + 3 / 4 * max(len(set(kinds)), 2) / 2


@dataclass(frozen=True)
class Choice:
    """The outcome of a search.

    Attributes:
        recipe: the best candidate's.
        loop: its finished training.
        record: what is stored with the model: the candidates, their bounds, and which was chosen.
    """

    recipe: Recipe
    loop: "Loop"
    record: dict[str, Any]


def candidates(
    recipe: Recipe,
    given: Mapping[str, Any],
    n_rows: int,
    n_columns: int,
    *,
    code: bool = True,
    seconds: float | None = None,
) -> list[Recipe]:
    """The recipes to choose from, the fixed default first; only that one if there is nothing to search.

    Args:
        recipe: What they have in common; already has the fields in `given`.
        given: Fields set by the user, by name.
        n_rows: Training rows.
        n_columns: Visible units.
        code: Whether every candidate has a code.
        seconds: The budget; None for the usual one, 0 for no search.

    Returns:
        The recipes.
    """
    first = defaults.fields(n_rows, n_columns, given)
    if seconds == 0 or n_rows < LEAST_ROWS or (seconds is None and "epochs" in given):
        return [recipe.replace(**first)]
    others = defaults.others(n_rows, n_columns, code=code)
    others = [first | one | dict(given) for one in others if given.get("visible") in (None, one["visible"])]
    others = [one for n, one in enumerate(others) if one not in (first, *others[:n])]
    fixed = n_rows // first["batch"] * first["epochs"] * defaults.step_seconds(first, n_columns)
    seconds = defaults.usual_seconds(n_rows) if seconds is None else seconds
    kinds = [_kind(one["visible"], one["n_h"]) for one in others]
    each = max(seconds - fixed / 2, seconds / 2) / _length(kinds)  # for the whole training of each
    found = [first]
    for one in others:
        affordable = int(each / (max(n_rows // one["batch"], 1) * defaults.step_seconds(one, n_columns)))
        length = defaults.length(min(one["epochs"], affordable))
        if affordable >= LEAST_EPOCHS:
            found.append(one | length | dict(given))
    return [recipe.replace(**one) for one in found if one is first or _is_possible(recipe.replace(**one))]


def _is_possible(recipe: Recipe) -> bool:
    """Whether a candidate goes together with the fields that the user has given."""
    try:
        return override(recipe, {}) == recipe
    except FieldError:
        return False


def names(recipes: Sequence[Recipe]) -> list[str]:
    """Each candidate by the fields in which it differs from the first."""
    first = recipes[0]

    def shown(k: str, value: Any) -> str:
        if k == "n_h" and not value:
            return "no code"
        return f"{k} {value:.3g}" if isinstance(value, float) else f"{k} {show_field(value)}"

    def name(r: Recipe) -> str:
        return ", ".join(shown(k, r.value(k)) for k in FIELDS if r.value(k) != first.value(k))

    return ["the default", *(name(r) or f"epochs {r.training.epochs}" for r in recipes[1:])]


def asked(recipes: Sequence[Recipe]) -> dict[str, Any]:
    """What is stored with a run whose model is yet to be chosen."""
    tried = [{"name": n, "epochs": r.training.epochs, "valid_bounds": []} for n, r in zip(names(recipes), recipes)]
    return {"default": recipes[0].to_json(), "candidates": tried, "chosen": None, "gain": None}


def is_same(record: SearchInfo | None, recipes: Sequence[Recipe]) -> bool:
    """Whether a run was started with these candidates."""
    if record is None or not recipes:
        return record is None and not recipes
    now = asked(recipes)["candidates"]
    return [(c.name, c.epochs) for c in record.candidates] == [(c["name"], c["epochs"]) for c in now]


def choose(
    recipes: Sequence[Recipe],
    make: "Callable[[Recipe], Stack]",
    train,
    valid,
    *,
    folder: Path | None = None,
    dynamic: bool = False,
    progress: bool = False,
) -> Choice | None:
    """Trains the candidates by successive halving, and chooses the one with the best validation bound.

    Args:
        recipes: The candidates; the first is trained to the end in any case.
        make: Builds the fresh model of a recipe.
        train: The rows to train on, a `darn.data.Rows`.
        valid: The rows to choose by, a `darn.data.Rows`.
        folder: Where to write checkpoints; an interrupted search continues from there as if never stopped.
        dynamic: Whether grey rows are binarised again at every step.
        progress: Whether to show a progress bar, if on a terminal.

    Returns:
        The choice, or None if Ctrl-C ended it early.

    Raises:
        DarnError: Every candidate diverged.
    """
    from darn.training import halve

    with _Bar(len(recipes), progress) as bar:
        contest = halve(
            [lambda r=r: make(r) for r in recipes],
            [r.training for r in recipes],
            train,
            valid,
            kinds=[_kind(r.architecture.visible, r.architecture.n_h) for r in recipes],
            folder=folder,
            dynamic=dynamic,
            report=bar.update,
        )
    if contest is None:
        return None
    best = contest.best
    if not contest.loops[best].records[0].history:
        raise DarnError("every candidate diverged: set a lower learning rate")
    record = asked(recipes)
    for one, bounds in zip(record["candidates"], contest.bounds):
        one["valid_bounds"] = [b if math.isfinite(b) else None for b in bounds]
    first, least = contest.bounds[0][-1], contest.bounds[best][-1]
    record |= {"chosen": best, "gain": first - least if math.isfinite(first) else None}
    return Choice(recipes[best], contest.loops[best], record)


def fit(recipes: Sequence[Recipe], make: "Callable[[Recipe], Stack]", train, valid, *, progress: bool = False):
    """Trains the best of the candidates, in memory.

    Args:
        recipes: The candidates, as `candidates` gives them.
        make: Builds the fresh model of a recipe.
        train: The rows to train on, a `darn.data.Rows`.
        valid: The rows to choose by, a `darn.data.Rows`.
        progress: Whether to show progress bars, if on a terminal.

    Returns:
        (the chosen recipe, how its training went).

    Raises:
        KeyboardInterrupt: Ctrl-C ended the search early.
    """
    from darn import training

    if len(recipes) == 1:
        return recipes[0], training.fit(make(recipes[0]), train, valid, recipes[0].training, progress=progress)
    choice = choose(recipes, make, train, valid, progress=progress)
    if choice is None:
        raise KeyboardInterrupt
    recipe = choice.recipe
    found = training.fit(make(recipe), train, valid, recipe.training, started=choice.loop)
    return recipe, dataclasses.replace(found, search=choice.record)


def statement(record: Mapping[str, Any]) -> str:
    """What was chosen and what it gained, in one sentence."""
    tried, gain = record["candidates"], record["gain"]
    best = tried[record["chosen"]]
    bound = best["valid_bounds"][-1]
    if not record["chosen"]:
        return f"chosen by validation: the default, at {bound:.2f} nats; none of {len(tried) - 1} others was better"
    than = "where the default diverged" if gain is None else f"{gain:.2f} less than the default"
    return f"chosen by validation among {len(tried)}: {best['name']}; {bound:.2f} nats, {than}"


class _Bar:
    """The progress bar of a search: the best bound so far. Silent without a terminal."""

    def __init__(self, n: int, show: bool):
        form = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}{postfix}]"
        self.whole = 1 + 1.5 * n / 8 + 3 / 2  # trainings, about
        self.done: dict[int, float] = {}
        self.best = math.inf
        how = {"bar_format": form, "disable": None if show else True, "dynamic_ncols": True}
        self.bar = tqdm(desc=f"choosing among {n}", total=1.0, **how)

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, kind, *_) -> None:
        if kind is None:
            self.bar.update(1 - self.bar.n)
        self.bar.close()

    def update(self, i: int, loop: "Loop") -> None:
        self.done[i] = loop.epoch / loop.config.epochs
        self.best = min(self.best, loop.records[0].bound)
        self.bar.set_postfix_str(f"{self.best:.2f} nats so far", refresh=False)
        self.bar.update(max(min(sum(self.done.values()) / self.whole, 1) - self.bar.n, 0))
