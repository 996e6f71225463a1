"""Compressed batches, each the content of a .drn file."""

import io
from typing import Any

import numpy as np

from darn.cluster._worker import AbstractWorker, Source
from darn.codec import RowCodec
from darn.data import Batch


class Compressor(AbstractWorker):
    """Compresses every batch without loss: `dataset.map_batches(darn.Compressor("runs/my"))`.

    The result of a batch has one row: `drn` is the content of a .drn file of a table, and `rows` says how many rows are
    in it. `darn cat` makes one file of them.

    Args:
        model: as for `darn.Scorer`.
    """

    def __init__(self, model: Any):
        self._source = Source(model)
        self._codec()

    def _codec(self) -> RowCodec:
        return self._source.made("codec", lambda run: RowCodec(run.model))

    def _of(self, batch: Batch) -> Any:
        made = [self._compressed(batch)] if len(batch) else []
        return batch.beside(
            {"drn": np.array(made, object), "rows": np.array([len(batch)] * len(made), np.int64)}, False
        )

    def _compressed(self, batch: Batch) -> bytes:
        run, file = self.run, io.BytesIO()
        given = batch.source(run.model.n_x, run.columns, run.schema)
        parts = given.bits() if given.blocks is None else given.blocks()
        self._codec().write(file, parts, given.rows, notes=given.notes, rest=given.cells)
        return file.getvalue()
