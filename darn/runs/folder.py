"""Run folders: a recipe carried out, and what was left behind for later commands."""

import contextlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from darn import data
from darn.errors import DarnError, FormatError
from darn.files import atomic, cannot_write
from darn.model import Stack
from darn.model_file import load_model
from darn.runs import defaults, pretrained
from darn.runs.provenance import command, commit, device, versions
from darn.runs.recipe import Recipe, fields_of, override, show_field
from darn.training import Fit, compiling, fit
from darn.zoo import build


@dataclass(frozen=True)
class Run:
    """A trained model with what it remembers of its making."""

    path: Path
    model: Stack
    recipe: Recipe
    info: dict  # "recipe", "data", "training", "made"

    @property
    def shape(self) -> tuple[int, int] | None:
        shape = self.info["data"].get("shape")
        return tuple(shape) if shape else None

    @property
    def columns(self) -> list[str] | None:
        return self.info["data"].get("columns")

    @property
    def schema(self) -> data.Schema | None:
        """How the columns of the model's table became units, if it was trained on one with categories."""
        table = self.info["data"].get("table")
        return data.Schema.from_json(table) if table else None

    def splits(self) -> data.Splits:
        """The data the model was trained on."""
        return load_data(self.recipe)

    def rows(self, source: str | None = None, split: str | None = None, *, delimiter: str | None = None) -> data.Rows:
        """Rows to score or encode: a file or set, or if none is given the test rows of the model's own data."""
        r, known = self.recipe, self.info["data"]
        if source is None and not r.data:
            raise DarnError(f"{self.path} was saved without its data: name the rows to use")
        classes = known.get("classes")
        # The published sets are checked when read; of a user's file only the checksum shows a change.
        if source is None and r.data not in data.names() and self.splits().sha256 != known.get("sha256"):
            raise DarnError(
                f"{r.data} has changed since the model was trained on it, so that its test rows may be training rows: "
                "name the rows to use"
            )
        rows = data.load_rows(
            r.data if source is None else source,
            n=self.model.n_x,
            split=split or ("test" if source is None else None),
            binarize=r.binarize,
            threshold=r.threshold,
            seed=r.seed,
            labels=r.labels,
            classes=tuple(classes) if classes else None,
            columns=replace(_columns(r), schema=self.schema, delimiter=delimiter),
        )
        given = 0 if rows.context is None else rows.context.shape[1]
        if given != self.model.n_context:
            raise DarnError(
                f"{source or r.data} comes with {given} context columns, but the model was trained "
                f"with {self.model.n_context}: give rows like those it was trained on"
            )
        return rows


def load(path: str | Path) -> Run:
    """A trained model with what is known of its making.

    Args:
        path: a run folder, a model file, or the name of a pretrained model.

    Returns:
        The run. A model file that was saved without a recipe has a default one, and no data of its own.
    """
    path = Path(path)
    if not path.exists() and ("runs" / path).is_dir():
        raise DarnError(f"there is no model at {path}: did you mean {'runs' / path}?")
    if not path.exists():
        path = pretrained.find(str(path))
    model, info = load_model(path)
    info = {"recipe": Recipe(data="").to_json(), "data": {}} | info
    if not all(isinstance(info[k], dict) for k in ("recipe", "data")):
        raise FormatError(f"{path} carries a damaged recipe: it was not written by darn")
    return Run(path, model, Recipe.from_json(info["recipe"]), info)


def load_data(recipe: Recipe) -> data.Splits:
    """The recipe's data, made binary as it says, and no more of them than it says."""
    splits = data.load(
        recipe.data,
        binarize=recipe.binarize,
        threshold=recipe.threshold,
        seed=recipe.seed,
        labels=recipe.labels,
        columns=_columns(recipe),
    )
    subsample = lambda rows: rows.subsample(recipe.n_rows or len(rows))  # noqa: E731
    return replace(splits, train=subsample(splits.train), valid=subsample(splits.valid))


def sized(recipe: Recipe, given: dict) -> Recipe:
    """The recipe of one's own data, what is not `given` chosen by their size."""
    train = load_data(recipe).train
    return override(recipe, defaults.fields(len(train), train.n, given))


def _columns(recipe: Recipe) -> data.Columns:
    return data.Columns(recipe.categorical, recipe.drop, recipe.weights)


def describe_data(splits: data.Splits) -> dict:
    """What a model remembers of its data."""
    return {
        "name": splits.name,
        "sha256": splits.sha256,
        "n": splits.train.n,
        "rows": [len(splits.train), len(splits.valid), len(splits.test)],
        "shape": splits.shape,
        "columns": splits.columns,
        "classes": splits.classes,
        "table": None if splits.schema is None else splits.schema.to_json(),
        "binarize": splits.binarize,
    }


def maker(splits: data.Splits) -> Callable[[Recipe, PRNGKeyArray], Stack]:
    """What builds a recipe's fresh model for these data, the visible biases at the training rows' means."""
    train = splits.train
    options = {
        "n_context": 0 if train.context is None else train.context.shape[1],
        "mean": train.mean(),
        "shape": splits.shape,
        "groups": None if splits.schema is None else splits.schema.groups,
    }

    def make(recipe: Recipe, key: PRNGKeyArray) -> Stack:
        # Most pixels of a screen never change: at one in a thousand each, they alone would cost more than the game.
        rarest = 1 / (len(train) + 2) if recipe.is_local else 1e-3
        return build(recipe, train.n, **options, rarest=rarest, key=key)

    return make


def new_model(recipe: Recipe, splits: data.Splits) -> Stack:
    """Fresh weights for the recipe."""
    make = maker(splits)
    # As one program: weight by weight, every new shape would compile several small ones.
    start = jax.jit(lambda key: make(recipe, key), compiler_options=compiling(0))
    return start(jax.random.key(recipe.seed))


def train(recipe: Recipe, out: str | Path, *, resume: bool = False, progress: bool = True) -> Fit:
    """Carries out a recipe into the folder `out`: recipe.json, metrics.jsonl, model and checkpoint."""
    out = Path(out)
    if out.exists() and not resume:
        raise DarnError(f"{out} exists already: choose another --out, or continue it with --resume")
    before = _started(out) if resume else None
    if before is not None:
        _check_same(recipe, Recipe.from_json(before["recipe"]), out)
    splits = load_data(recipe)  # before anything is written: bad data leaves nothing behind
    if before is not None and before["data"].get("sha256") != splits.sha256:
        raise DarnError(f"{recipe.data} has changed since {out} was started: start another run with another --out")
    model = new_model(recipe, splits)
    made = {"command": command(), "commit": commit(), "versions": versions(), "device": device()}
    info = before or {"recipe": recipe.to_json(), "data": describe_data(splits), "made": made}
    new = [p for p in (out, *out.parents) if not p.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise DarnError(cannot_write(out, e)) from e
    try:
        if not resume:
            with atomic(out / "recipe.json") as f:
                f.write_text(json.dumps(info, indent=1) + "\n")
        return fit(
            model,
            splits.train,
            splits.valid,
            recipe,
            folder=out,
            info=info,
            resume=resume,
            dynamic=recipe.binarize == "dynamic" and splits.train.grey,
            progress=progress,
        )
    except BaseException:
        # A folder in which nothing was learned would only be in the way of the next try.
        if not resume and not (out / "model.safetensors").exists():
            shutil.rmtree(out, ignore_errors=True)
            with contextlib.suppress(OSError):
                for folder in new[1:]:
                    folder.rmdir()
        raise


def _started(out: Path) -> dict:
    """What the run in `out` was started with."""
    saved = out / "recipe.json"
    if not saved.exists():
        if out.exists():
            raise DarnError(f"{out} is not a run folder: there is no recipe.json in it to resume")
        raise DarnError(f"there is no run {out} to resume")
    try:
        before = json.loads(saved.read_text())
        return {"recipe": before["recipe"], "data": before["data"], "made": before["made"]}
    except (ValueError, KeyError, TypeError) as e:
        raise DarnError(f"{saved} is damaged: start the run again under another --out") from e


def _check_same(recipe: Recipe, before: Recipe, out: Path) -> None:
    """Resuming means the same run: a changed field would be another one."""
    if before.data != recipe.data:
        raise DarnError(f"{out} was started on {before.data}, not on {recipe.data}: choose another --out")
    for f in fields_of():
        old, new = (show_field(getattr(r, f.name)) for r in (before, recipe))
        if old != new and f.name != "checkpoint_every":
            raise DarnError(
                f"{out} was started with --{f.name} {old}, not {new}: resume it with the same fields, "
                "or start another run with another --out"
            )


def scored_rows(rows: data.Rows) -> tuple[np.ndarray, np.ndarray | None]:
    """(x, context) as the evaluation functions take them."""
    return rows.unpack(), rows.context
