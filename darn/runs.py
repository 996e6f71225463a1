"""Run folders: a recipe carried out, and what was left behind for later commands."""

import dataclasses
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from darn import data
from darn.errors import DarnError
from darn.files import atomic, cannot_write
from darn.model import Stack
from darn.model_file import load_model
from darn.provenance import command, commit, device, versions
from darn.recipes import Recipe
from darn.training import Fit, fit
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

    def splits(self) -> data.Splits:
        """The data the model was trained on."""
        return load_data(self.recipe)

    def rows(self, source: str | None = None, split: str | None = None) -> data.Rows:
        """Rows to score or encode: a file or set, or if none is given the test rows of the model's own data."""
        r = self.recipe
        classes = self.info["data"].get("classes")
        return data.load_rows(
            r.data if source is None else source,
            n=self.model.n_x,
            split=split or ("test" if source is None else None),
            binarize=r.binarize,
            threshold=r.threshold,
            seed=r.seed,
            labels=r.labels,
            classes=tuple(classes) if classes else None,
        )


def open_run(path: str | Path) -> Run:
    """A run from its folder or from a model file alone."""
    model, info = load_model(path)
    if "recipe" not in info or "data" not in info:
        raise DarnError(f"{path} carries no recipe: it was saved from Python without one, so load it there")
    return Run(Path(path), model, Recipe.from_json(info["recipe"]), info)


def load_data(recipe: Recipe) -> data.Splits:
    """The recipe's data, made binary as it says."""
    return data.load(
        recipe.data,
        binarize=recipe.binarize,
        threshold=recipe.threshold,
        seed=recipe.seed,
        labels=recipe.labels,
    )


def new_model(recipe: Recipe, splits: data.Splits) -> Stack:
    """Fresh weights for the recipe, the visible biases at the training rows' means."""
    train = splits.train
    n_context = 0 if train.context is None else train.context.shape[1]
    mean = train.unpack().mean(axis=0)
    return build(recipe, train.n, n_context=n_context, mean=mean, key=jax.random.key(recipe.seed))


def train(recipe: Recipe, out: str | Path, *, resume: bool = False, progress: bool = True) -> Fit:
    """Carries out a recipe into the folder `out`: recipe.json, metrics.jsonl, model and checkpoint."""
    out = Path(out)
    if out.exists() and not resume:
        raise DarnError(f"{out} exists already: choose another --out, or continue it with --resume")
    if resume:
        _check_same(recipe, out)
    splits = load_data(recipe)  # before anything is written: bad data leaves nothing behind
    model = new_model(recipe, splits)
    described = {
        "name": splits.name,
        "sha256": splits.sha256,
        "n": splits.train.n,
        "rows": [len(splits.train), len(splits.valid), len(splits.test)],
        "shape": splits.shape,
        "columns": splits.columns,
        "classes": splits.classes,
        "binarize": splits.binarize,
    }
    made = {"command": command(), "commit": commit(), "versions": versions(), "device": device()}
    info = {"recipe": recipe.to_json(), "data": described, "made": made}
    fresh = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise DarnError(cannot_write(out, e)) from e
    try:
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
        if fresh and not (out / "model.safetensors").exists():
            shutil.rmtree(out, ignore_errors=True)
        raise


def _check_same(recipe: Recipe, out: Path) -> None:
    """Resuming means the same run: a changed field would be another one."""
    saved = out / "recipe.json"
    if not saved.exists():
        if out.exists():
            raise DarnError(f"{out} is not a run folder: there is no recipe.json in it to resume")
        raise DarnError(f"there is no run {out} to resume")
    try:
        before = Recipe.from_json(json.loads(saved.read_text())["recipe"])
    except (ValueError, KeyError, TypeError) as e:
        raise DarnError(f"{saved} is damaged: start the run again under another --out") from e
    for f in dataclasses.fields(Recipe):
        old, new = getattr(before, f.name), getattr(recipe, f.name)
        if old != new and f.name != "checkpoint_every":
            raise DarnError(
                f"{out} was started with --{f.name} {old}, not {new}: resume it with the same fields, "
                "or start another run with another --out"
            )


def scored_rows(rows: data.Rows) -> tuple[np.ndarray, np.ndarray | None]:
    """(x, context) as the evaluation functions take them."""
    return rows.unpack(), rows.context
