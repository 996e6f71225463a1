"""What every worker's function has: a model that is loaded once a process, and batches one by one."""

import abc
import hashlib
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from darn.data import Batch
from darn.errors import DarnError, InputError, InputTypeError, NotFoundError
from darn.files import read_bytes
from darn.model import Stack
from darn.model_file import save_model
from darn.runs import pretrained
from darn.runs.run import Run, load

MOST = 4  # models that a process holds

_loaded: dict[str, tuple[Run, dict]] = {}  # by checksum: the model, and what was made of it
_lock = threading.RLock()  # an engine may run several tasks of a process at once


class Source:
    """A model file, by its path or as its bytes: what is sent to the workers instead of the model.

    Args:
        model: a path of a run folder or model file, or a pretrained model's name, which every worker can read; or the
            bytes of a model file, a `Stack` or a `Run`, which travel with the function.
    """

    def __init__(self, model: Any):
        self.path: str | None = None
        self.content: bytes | None = None
        if isinstance(model, Run):
            model = model.path
        if isinstance(model, str | Path):
            path = Path(model) if Path(model).exists() else pretrained.find(str(model))
            path = path / "model.safetensors" if path.is_dir() else path
            self.path, content = str(path.absolute()), read_bytes(path)
        elif isinstance(model, bytes | Stack):
            content = self.content = model if isinstance(model, bytes) else _bytes_of(model)
        else:
            raise InputTypeError(
                f"a model is a path, a name, the bytes of a model file or a Stack, not a {type(model).__name__}"
            )
        self.digest = hashlib.sha256(content).hexdigest()
        self.open()  # what is wrong with the file is said before any work is sent out

    def open(self) -> Run:
        """The model, loaded when a process first asks for it."""
        return self._entry()[0]

    def made(self, name: str, make: Any) -> Any:
        """What `make(run)` returned when a process first asked for it."""
        with _lock:
            run, kept = self._entry()
            if name not in kept:
                kept[name] = make(run)
            return kept[name]

    def _entry(self) -> tuple[Run, dict]:
        with _lock:
            if self.digest not in _loaded:
                while len(_loaded) >= MOST:
                    _loaded.pop(next(iter(_loaded)))
                _loaded[self.digest] = self._load(), {}
            return _loaded[self.digest]

    def _load(self) -> Run:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            path.write_bytes(self._read())
            return load(path)

    def _read(self) -> bytes:
        if self.content is not None:
            return self.content
        assert self.path is not None
        if not Path(self.path).is_file():
            raise NotFoundError(
                f"there is no model at {self.path} on this machine: put it where all workers can read it, or give the "
                "bytes of the file instead of its path"
            )
        content = read_bytes(self.path)
        if hashlib.sha256(content).hexdigest() != self.digest:
            raise DarnError(f"{self.path} has changed since this work was sent out, or differs between machines")
        return content


def _bytes_of(model: Stack) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        save_model(path, model)
        return path.read_bytes()


class AbstractWorker(abc.ABC):
    """A function of a batch, which can be pickled: for Ray Data's `map_batches` and Dask's `map_partitions`.

    Given an iterator of batches, it returns an iterator, as Spark's `mapInPandas` wants.
    """

    _source: Source

    @property
    def run(self) -> Run:
        """The model with its recipe."""
        return self._source.open()

    def __call__(self, batch: Any) -> Any:
        """The results for a batch, in its own type."""
        if isinstance(batch, Iterator):
            return map(self, batch)
        return self._of(Batch(batch))

    @abc.abstractmethod
    def _of(self, batch: Batch) -> Any:
        """The results for one batch, which may be empty."""


def numbers_in(batch: Batch, name: str) -> np.ndarray:
    """The row numbers in a column."""
    found = batch.column(name)
    if found.dtype.kind not in "iu" or found.ndim != 1 or (found < 0).any():
        if len(found):
            raise InputError(f"column {name!r} of the batch must hold row numbers: whole numbers from 0 on")
        found = np.zeros(0, np.int64)
    return found.astype(np.int64)
