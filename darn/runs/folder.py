"""Run folders: training a recipe, and the files that later commands use."""

import contextlib
import dataclasses
import functools
import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from darn import data
from darn.config import Architecture
from darn.devices import check_same, first, in_first, is_first
from darn.errors import DarnError, FormatError
from darn.files import atomic, locked, read_bytes
from darn.jsonable import FieldError, parse
from darn.model import Stack
from darn.model_file import load_model
from darn.runs import defaults, pretrained, search
from darn.runs.fields import fields_of, show_field
from darn.runs.info import MAX_JSON, Info, read_info
from darn.runs.place import WRITTEN, is_new
from darn.runs.provenance import command, commit, device, versions
from darn.runs.recipe import Recipe, override
from darn.zoo import build

if TYPE_CHECKING:  # only training needs it, and it takes a tenth of a command's start
    from darn.training import Fit, Make


@dataclass(frozen=True)
class Run:
    """A trained model with its recipe and provenance."""

    path: Path
    model: Stack
    info: dict  # everything stored with the model
    about: Info  # what darn knows of it, typed

    @property
    def recipe(self) -> Recipe:
        return self.about.recipe

    @property
    def shape(self) -> tuple[int, int] | None:
        """Rows and columns of an image, if the model is over images."""
        return self.about.data.shape

    @property
    def columns(self) -> list[str] | None:
        """The names of the visible units, if they have names."""
        return None if self.about.data.columns is None else list(self.about.data.columns)

    @property
    def schema(self) -> data.Schema | None:
        """How the columns of the model's table became units, if it was trained on one with categories."""
        return self.about.data.schema

    @functools.cached_property
    def _all_data(self) -> data.Splits:
        return read_data(self.recipe, self.schema)

    def splits(self) -> data.Splits:
        """The data that the model was trained on; read once."""
        return limit(self._all_data, self.recipe)

    def rows(
        self,
        source: str | None = None,
        split: str | None = None,
        *,
        delimiter: str | None = None,
        unseen: str = "error",
    ) -> data.Rows:
        """Rows to score or encode.

        Args:
            source: A file or a known set; None for the data that the model was trained on.
            split: "train", "valid" or "test". Default: the test rows of the model's own data or of a known set, and
                all rows of a file.
            delimiter: Between the cells of a text table; None detects it.
            unseen: What a text of a table that no training row had counts as: "error", "missing" or "nearest".

        Returns:
            Rows as wide as the model, with the context it was trained with.

        Raises:
            DarnError: The rows do not suit the model, or its own data have changed.
        """
        if source is None:
            rows = self._own_rows(split or "test")
        else:
            rows = data.load_rows(source, split=split, **self.how(delimiter, unseen))
        self._check_context(rows, source)
        return rows

    def open(
        self,
        source: str | None = None,
        split: str | None = None,
        *,
        delimiter: str | None = None,
        unseen: str = "error",
    ) -> data.RowSource:
        """The rows of `rows`, read in parts where they come from a file: memory does not grow with their number.

        Args:
            source: as for `rows`.
            split: as for `rows`.
            delimiter: as for `rows`.
            unseen: as for `rows`.

        Returns:
            The source.
        """
        if source is None:
            return data.RowSource.held(self.rows(None, split))
        found = data.open_rows(source, split=split, **self.how(delimiter, unseen))

        def read():
            for rows in found.read():
                self._check_context(rows, source)
                yield rows

        return dataclasses.replace(found, read=read)

    def _check_context(self, rows: data.Rows, source: str | None) -> None:
        given = 0 if rows.context is None else rows.context.shape[1]
        if given != self.model.n_context:
            raise DarnError(
                f"{source or self.recipe.data.source} has {given} context columns, but the model was trained "
                f"with {self.model.n_context}: give rows like those it was trained on"
            )

    def _own_rows(self, split: str) -> data.Rows:
        options = self.recipe.data
        if not options.source:
            raise DarnError(f"{self.path} was saved without its data: name the rows to use")
        # The published sets are checked when read; a change of a user's file shows in its checksum only.
        if options.source not in data.names() and self._all_data.sha256 != self.about.data.sha256:
            raise DarnError(
                f"{options.source} has changed since the model was trained on it, so its test rows may be training "
                "rows: restore that file, or score rows that you name (`darn eval RUN ROWS`, `Run.rows(source)`)"
            )
        if split == "train" and self._all_data.train.grey and options.binarize == "dynamic":
            # as bits, although training draws them at every step
            return data.load_rows(options.source, split=split, **self.how())
        if split not in ("train", "valid", "test"):
            raise DarnError(f"there is no split {split!r}: choose train, valid or test")
        rows = getattr(self._all_data, split)
        if rows.n != self.model.n_x:
            raise DarnError(f"{options.source} has {rows.n} columns, but the model has {self.model.n_x}")
        return rows

    def how(self, delimiter: str | None = None, unseen: str = "error") -> dict[str, Any]:
        """How rows for this model are read."""
        options = self.recipe.data
        return {
            "n": self.model.n_x,
            "binarize": options.binarize,
            "threshold": options.threshold,
            "seed": self.recipe.training.seed,
            "labels": options.labels,
            "classes": self.about.data.classes or None,
            "columns": dataclasses.replace(_columns(self.recipe, self.schema), delimiter=delimiter, unseen=unseen),
        }


def load(path: str | Path) -> Run:
    """Loads a trained model with its recipe and provenance.

    Args:
        path: a run folder, a model file, or the name of a pretrained model.

    Returns:
        The run. A model file that was saved without a recipe gets a default one, and has no data of its own.
    """
    path = Path(path)
    if not path.exists() and ("runs" / path).is_dir():
        raise DarnError(f"there is no model at {path}: did you mean {'runs' / path}?")
    if not path.exists():
        path = pretrained.find(str(path))
    model, info = load_model(path)
    try:
        return Run(path, model, info, read_info(info, model))
    except DarnError as e:
        raise FormatError(f"{path}: {e}") from e


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
        columns=_columns(recipe, schema),
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


def _columns(recipe: Recipe, schema: data.Schema | None) -> data.Columns:
    options = recipe.data
    columns = data.Columns(options.categorical, options.drop, options.weights, options.delimiter, column=options.column)
    return columns if schema is None else dataclasses.replace(columns, schema=schema)


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
        "binarize": splits.binarize,
    }


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
    check_same({"versions": versions(), "fields": recipe.to_json()})
    before = first(lambda: _read_started(recipe, out, candidates)) if resume else None
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
        rows = splits.train, splits.valid
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
        splits.train,
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


def _read_started(recipe: Recipe, out: Path, candidates: Sequence[Recipe]) -> dict:
    """The recipe.json of the run in `out`, if it was started with this recipe and these candidates."""
    saved = out / "recipe.json"
    if not os.path.lexists(saved):
        if out.exists():
            raise DarnError(f"{out} is not a run folder: there is no recipe.json in it to resume")
        raise DarnError(f"there is no run {out} to resume")
    try:
        read = parse(read_bytes(saved, MAX_JSON), "it", MAX_JSON)
        if not isinstance(read, dict) or not {"recipe", "data", "made"} <= read.keys():
            raise FormatError("it is not the recipe of a run")
    except DarnError as e:
        raise DarnError(f"{saved} is damaged ({e}): start the run again in another folder") from e
    try:
        started = read_info(read)
    except DarnError as e:
        raise DarnError(f"{saved}: {e}") from e
    before = {k: read[k] for k in ("recipe", "data", "made", "search") if k in read}
    _check_same(recipe, started.recipe if started.search is None else started.search.default, out)
    if not search.is_same(started.search, candidates):
        raise DarnError(
            f"{out} was started with other candidates to choose from: resume it with the same fields and budget, or "
            "start another run in another folder"
        )
    return before


def _check_same(recipe: Recipe, before: Recipe, out: Path) -> None:
    """Refuses to resume with a changed field, which would be a different run."""
    if before.data.source != recipe.data.source:
        raise DarnError(
            f"{out} was started on {before.data.source}, not on {recipe.data.source}: choose another folder"
        )
    for f in fields_of():
        old, new = (show_field(r.value(f.name)) for r in (before, recipe))
        if old != new and f.name != "checkpoint_every":
            raise FieldError(
                f"{out} was started with {f.name} {old}, not {new}: resume it with the same fields, "
                "or start another run in another folder",
                f.name,
            )


def scored_rows(rows: data.Rows) -> tuple[np.ndarray, np.ndarray | None]:
    """(x, context) as the evaluation functions take them."""
    return rows.unpack(), rows.context
