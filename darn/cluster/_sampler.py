"""Samples in batches: those of `darn sample`, in any division."""

from typing import Any

import numpy as np

from darn.cluster._worker import AbstractWorker, Source, numbers_in
from darn.data import Batch, Form, usual_tag
from darn.inference import sampling
from darn.runs.classes import label_contexts


class Sampler(AbstractWorker):
    """Draws the rows whose numbers a batch holds: `ray.data.range(10**6).map_batches(darn.Sampler("runs/my"))`.

    A row depends on the seed and its number only. The rows numbered 0 to n - 1 are those of `darn sample -n` with n.

    Args:
        model: as for `darn.Scorer`.
        row: the column with row numbers, from 0 on; Ray and Spark call it "id" in a range.
        rows: how many rows are drawn in all; None if they are many.
        seed: as for `darn.sample`.
        label: for a model trained with labels, the class to draw; None draws all in turn.
    """

    def __init__(
        self, model: Any, *, row: str = "id", rows: int | None = None, seed: int = 0, label: str | None = None
    ):
        self._source = Source(model)
        self.row, self.rows, self.seed, self.label = row, rows, seed, label
        label_contexts(self.run, label)

    def _of(self, batch: Batch) -> Any:
        numbers, run = numbers_in(batch, self.row), self.run
        contexts = label_contexts(run, self.label)
        given = None if contexts is None or not len(numbers) else [((), contexts(numbers))]
        how = {"seed": self.seed, "of": self.rows or max(len(numbers), sampling.CHUNK), "numbers": numbers}
        x = np.concatenate([part.x for part in sampling.sample_parts(run.model, len(numbers), given, **how)])
        own = {self.row: batch.column(self.row)}
        if run.schema is None:
            names = run.columns or [f"x{j + 1}" for j in range(run.model.n_x)]
            found: dict[str, Any] = {name: x[:, j] for j, name in enumerate(names)}
        else:
            texts = run.schema.decode(x, self.seed, numbers=numbers) if len(x) else []
            form = Form(batch.library, run.schema.names, tuple(usual_tag(c) for c in run.schema.columns))
            frame = Batch(form.frame(np.array(texts, object).reshape(len(x), len(form.names)), run.schema.columns))
            found = {name: frame.own(name) for name in frame.names}
        if contexts is not None and run.about.data.classes:
            found["label"] = np.array(run.about.data.classes, object)[contexts(numbers).argmax(axis=1)]
        return batch.beside(own | found, keep=False)
