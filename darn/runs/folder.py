"""Training a recipe in a run folder."""

import contextlib
import dataclasses
import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import jax

from darn import data
from darn.devices import check_same, first, in_first, is_first
from darn.errors import DarnError
from darn.files import atomic, locked
from darn.model import Stack
from darn.runs import search
from darn.runs.dataset import describe_data, limit, read_data, training_rows
from darn.runs.place import WRITTEN, is_new
from darn.runs.provenance import command, commit, device, versions
from darn.runs.recipe import Recipe
from darn.runs.resume import read_started
from darn.runs.start import new_model

if TYPE_CHECKING:  # only training needs it, and it takes a tenth of a command's start
    from darn.training import Fit


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    splits: data.Splits | None = None,
    candidates: Sequence[Recipe] = (),
    resume: bool = False,
    progress: bool = True,
) -> "Fit":
    """Trains a recipe in a folder: recipe.json, metrics.jsonl, model.safetensors and checkpoint.safetensors.

    Args:
        recipe: What to train.
        out: The folder; unused, or with `resume` that of an interrupted run of the same recipe.
        splits: The recipe's data as `read_data` gave them, if they have been read already.
        candidates: Recipes of the same data, `recipe` first: the one that validates best is trained.
        resume: Continue the run in `out` as if it had never stopped.
        progress: Show a progress bar.

    Returns:
        The trained model and how training went; no epochs, if it was interrupted while choosing a candidate.

    Raises:
        DarnError: The folder is in use, the data cannot be used, or the run to resume is a different one.
    """
    out = Path(out)
    candidates = candidates if len(candidates) > 1 else ()
    if candidates and jax.process_count() > 1:
        raise DarnError("a model is chosen in one process: choose it first, then train it in several")
    check_same({"versions": versions(), "options": recipe.to_json()})
    before = first(lambda: read_started(recipe, out, candidates)) if resume else None
    if not resume:
        first(lambda: _check_unused(out))
    # Read before anything is written, so that bad data leave nothing behind.
    splits = limit(read_data(recipe) if splits is None else splits, recipe)
    if before is not None and before["data"].get("sha256") != splits.sha256:
        raise DarnError(
            f"{recipe.data.source} has changed since {out} was started: start another run in another folder"
        )
    model = new_model(recipe, splits)
    created = [p for p in (out, *out.parents) if not p.exists()]
    with in_first(locked(out, WRITTEN)):
        if not resume:
            first(lambda: _check_unused(out))  # another process may have started a run there meanwhile
        try:
            return _train(recipe, candidates, out, model, splits, before, progress)
        except BaseException as e:
            # A folder in which nothing was learned would only be in the way of the next attempt, unless another process
            # was lost: that run is to be resumed.
            own = jax.process_count() == 1 or isinstance(e, DarnError | KeyboardInterrupt)
            if own and is_first() and not resume and not (out / "model.safetensors").exists():
                _discard(out, created)
            raise


def _train(
    recipe: Recipe,
    candidates: Sequence[Recipe],
    out: Path,
    model: Stack,
    splits: data.Splits,
    before: dict | None,
    progress: bool,
) -> "Fit":
    from darn.training import Fit, fit

    def write() -> None:
        with atomic(out / "recipe.json") as f:
            f.write_text(json.dumps(info, indent=1) + "\n")

    made = {"command": command(), "commit": commit(), "versions": versions(), "device": device()}
    info = before or {"recipe": recipe.to_json(), "data": describe_data(splits), "made": made}
    dynamic = recipe.data.binarize == "dynamic" and splits.train.grey
    if before is None:
        info |= {"search": search.asked(candidates)} if candidates else {}
        first(write)
    if candidates and info["search"]["chosen"] is None:
        make = lambda r: new_model(r, splits)  # noqa: E731
        rows = training_rows(splits, recipe), splits.valid
        choice = search.choose(candidates, make, *rows, folder=out / "search", dynamic=dynamic, progress=progress)
        if choice is None:
            return Fit(model, math.inf, 0, 0, 0.0, 0, interrupted=True)
        choice.loop.save(out / "checkpoint.safetensors")
        info |= {"recipe": choice.recipe.to_json(), "search": choice.record}
        first(write)
    if candidates:
        shutil.rmtree(out / "search", ignore_errors=True)
        recipe = candidates[info["search"]["chosen"]]
        model = new_model(recipe, splits)
    found = fit(
        model,
        training_rows(splits, recipe),
        splits.valid,
        recipe.training,
        folder=out,
        info=info,
        resume=before is not None or bool(candidates),
        dynamic=dynamic,
        progress=progress,
    )
    return dataclasses.replace(found, search=info.get("search"))


def _check_unused(out: Path) -> None:
    if not is_new(out):
        raise DarnError(f"{out} exists already: choose another folder, or resume the run in it")


def _discard(out: Path, created: list[Path]) -> None:
    """Removes what a failed start has written, and the folders it made."""
    shutil.rmtree(out / "search", ignore_errors=True)
    with contextlib.suppress(OSError):
        for path in out.iterdir():
            path.unlink()
        for folder in created:
            folder.rmdir()
