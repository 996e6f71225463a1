"""A trained model as later commands read it: the model, its recipe, its provenance, and rows to put to it."""

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from darn import data
from darn.errors import DarnError, FormatError
from darn.model import Stack
from darn.model_file import load_model
from darn.runs import pretrained
from darn.runs.dataset import columns_of, limit, read_data
from darn.runs.info import Info, read_info
from darn.runs.recipe import Recipe


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
    def file(self) -> Path:
        """The model file."""
        return self.path / "model.safetensors" if self.path.is_dir() else self.path

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

    def rows_of(self, batch: data.Batch, *, unseen: str = "error") -> data.Rows:
        """The rows of a batch in memory, read as those of a file are.

        Args:
            batch: Its columns are the model's, by name or in their order.
            unseen: As for `rows`.
        """
        how = self.how(None, unseen)
        options = {k: how[k] for k in ("n", "columns", "labels", "classes")}
        rows = batch.rows(own=self.columns, intensities=how["binarize"] == "intensity", **options)
        self._check_context(rows, "the batch")
        return rows

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
            what = "columns" if self.schema is None else "units"
            raise DarnError(f"{options.source} has {rows.n} {what}, but the model has {self.model.n_x}")
        return rows

    def how(self, delimiter: str | None = None, unseen: str = "error") -> dict[str, Any]:
        """How rows for this model are read.

        Args:
            delimiter: as for `rows`.
            unseen: as for `rows`.
        """
        options = self.recipe.data
        columns = columns_of(self.recipe, self.schema)
        own = self.columns if self.schema is None else None
        return {
            "n": self.model.n_x,
            "binarize": options.binarize,
            "threshold": options.threshold,
            "seed": self.recipe.training.seed,
            "labels": options.labels,
            "classes": self.about.data.classes or None,
            "columns": dataclasses.replace(columns, delimiter=delimiter, unseen=unseen, names=own),
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
