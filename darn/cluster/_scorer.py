"""Scores of batches: those of `darn eval`, in any division."""

from typing import Any

import numpy as np

from darn.cluster._worker import AbstractWorker, Source, numbers_in
from darn.data import UNSEEN, Batch
from darn.errors import InputError
from darn.inference import likelihood

MANY = 1 << 40  # rows: programs have the shape, and rows the precision, that they have in a very large data set


class Scorer(AbstractWorker):
    """Adds log p of every row to a batch: `dataset.map_batches(darn.Scorer("runs/my"))`.

    The score of a row does not depend on the batch that it comes in. It is that of `darn eval --per-row` bit for bit if
    `row` names a column with the row's number in the data set, counted from 0, and `rows` says how many rows there are
    (from about a thousand on, that makes no difference). A model whose codes can be enumerated needs no number. For
    others, the samples of a row follow from its number or, without `row`, from its bits: both are as good.

    Args:
        model: a path or name that all workers can read; or the bytes of a model file, or a model, which are sent along.
        row: the column with row numbers.
        rows: the number of rows in the data set.
        precision: as for `darn.evaluate`.
        n_samples: as for `darn.evaluate`.
        repeats: as for `darn.evaluate`.
        seed: as for `darn.evaluate`.
        unseen: what a category that no training row had counts as: "error", "missing" or "nearest".
        column: the name of the new column, nats.
        keep: whether the result has the columns of the batch as well; otherwise only `row` and the scores.
    """

    def __init__(
        self,
        model: Any,
        *,
        row: str | None = None,
        rows: int | None = None,
        precision: float = likelihood.PRECISION,
        n_samples: int | None = None,
        repeats: int = 10,
        seed: int = 0,
        unseen: str = "error",
        column: str = "log_p",
        keep: bool = True,
    ):
        if unseen not in UNSEEN:
            raise InputError(f"unseen must be one of {', '.join(UNSEEN)}, not {unseen!r}")
        if rows is not None and rows < 1:
            raise InputError(f"rows is how many rows the data set has, at least 1, not {rows}")
        if row == column:
            raise InputError(f"{column!r} cannot be both the row numbers and the scores: name another column")
        self._source = Source(model)
        self.row, self.rows, self.unseen, self.column, self.keep = row, rows, unseen, column, keep
        self.options = {"precision": precision, "n_samples": n_samples, "repeats": repeats, "seed": seed}

    def _of(self, batch: Batch) -> Any:
        numbers = None if self.row is None else numbers_in(batch, self.row)
        log_p = np.zeros(0)
        if len(batch):
            log_p = self._scores(batch.only([n for n in batch.names if n not in (self.row, self.column)]), numbers)
        own = {} if self.row is None or self.keep else {self.row: batch.column(self.row)}
        return batch.beside(own | {self.column: log_p}, self.keep)

    def _scores(self, batch: Batch, numbers: np.ndarray | None) -> np.ndarray:
        run = self.run
        rows = run.rows_of(batch, unseen=self.unseen)
        x, method = rows.unpack(), likelihood.method_for(run.model)
        own = likelihood.own_numbers(x) if numbers is None and method != "exact" else numbers
        how = {"method": method, "numbers": 0 if own is None else own, **self.options}
        parts = likelihood.score_parts(run.model, [(x, rows.context, rows.log_density)], self.rows or MANY, **how)
        return np.concatenate([part.log_p for part in parts]).astype(np.float64)
