"""Packs files of any kind into one set that need not fit into memory."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from darn.data import _arrays, _images
from darn.data._columns import Columns, infer_from_files
from darn.data._load import classes_of, known_name, load, no_columns, open_rows, splits_of
from darn.data._pack import FORMAT, MANIFEST, PART, VERSION, Manifest, PartInfo, is_pack, part_name
from darn.data._raw import SPLITS, WHOLE
from darn.data._row_source import RowSource
from darn.data._rows import Rows
from darn.data._table import is_table
from darn.errors import DarnError
from darn.files import atomic, cannot_write, is_unused, locked

Progress = Callable[[int], object]


def pack_files(
    files: Sequence[str | Path],
    out: str | Path,
    *,
    n: int | None = None,
    binarize: str | None = None,
    threshold: float = 0.5,
    seed: int = 0,
    labels: str | int | None = None,
    classes: tuple[str, ...] | None = None,
    columns: Columns | None = None,
    progress: Callable[[int], Progress] | None = None,
) -> Manifest:
    """Writes the rows of files, one after another, as a packed set; the files are read in parts.

    Args:
        files: paths, or names of known sets.
        out: the folder to write; it must not exist, or be empty.
        n: the number of columns that they must have.
        binarize: as for `load`; with "dynamic" or "intensity" the set holds grey levels; say again which to `load`.
        threshold: as for `load`.
        seed: as for `load`.
        labels: the column of class labels, which are kept beside the rows.
        classes: those of a model, which the labels must be of; by default those that occur.
        columns: as for `load`, perhaps with the schema of a model.
        progress: given the number of rows, returns what is called with the number of rows written each time.

    Returns:
        What the set holds.

    Raises:
        DarnError: if the files cannot be read or do not go together, or the folder cannot be written to.
    """
    out = Path(out)
    _check_free(out)
    for path in files:
        if is_pack(path):
            raise DarnError(f"{path} is a packed set already: give the files it was made of")
    if labels is not None and classes is None:
        classes = classes_of(files, labels, columns)
    if columns is not None and columns.schema is None and (columns.categorical is not None or columns.column):
        for path in files:
            if not is_table(path):
                no_columns(str(path), columns)
        schema = infer_from_files([Path(path) for path in files], labels, replace(columns, seed=seed))
        columns = replace(columns, schema=schema)
    mode = "intensity" if binarize == "dynamic" else binarize
    how: dict[str, Any] = {"binarize": mode, "threshold": threshold, "seed": seed, "labels": labels, "columns": columns}
    inputs = [one for path in files for one in _inputs(path, n, classes, how)]
    _check_alike(inputs)
    table = None if columns is None else columns.schema
    facts = {
        "source": ", ".join(Path(path).name for path in files)[:1000],
        "binarize": binarize,
        "shape": inputs[0].shape,
        "columns": inputs[0].rows.columns if table is None else table.units,
        "classes": None if labels is None else classes,
        "table": None if table is None else table.to_json(),
    }
    tell = (lambda _: None) if progress is None else progress(sum(one.rows.rows for one in inputs))
    created = [p for p in (out, *out.parents) if not p.exists()]
    with locked(out, (MANIFEST,)):
        _check_free(out)  # another process may have packed a set there meanwhile
        _clear(out)
        try:
            about = _write(out, inputs, facts, tell)
            with atomic(out / MANIFEST) as temporary:
                temporary.write_text(about.to_text())
            return about
        except BaseException as e:
            _clear(out)
            with suppress(OSError):
                for path in out.iterdir():  # the lock
                    path.unlink()
                for folder in created:
                    folder.rmdir()
            if isinstance(e, OSError):
                raise DarnError(cannot_write(out, e)) from e
            raise


# ---------------------------------------------------------------- what is read


@dataclass(frozen=True)
class _Input:
    """One split of one file."""

    what: str
    split: str
    rows: RowSource
    shape: tuple[int, int] | None = None


def _inputs(path: str | Path, n: int | None, classes, how: dict[str, Any]) -> Iterator[_Input]:
    name, what, p = known_name(path), str(path), Path(path)
    if name:
        splits = load(name, **how)
        if splits.classes != classes:
            raise DarnError(f"{name} has other classes than the other files: pack it apart")
        for split in SPLITS:
            yield _Input(f"{name} ({split})", split, RowSource.held(getattr(splits, split)), splits.shape)
        return
    shape = _images.image_size(_images.image_files(p, what)[0]) if p.is_dir() else _arrays.shape_of(p, what)
    shape = shape if how["labels"] in (None, "label") else None  # a column is taken out
    for split in splits_of(p):
        rows = open_rows(path, n=n, split=split, classes=classes, **how, scored=False)
        yield _Input(what if split is None else f"{what} ({split})", split or WHOLE, rows, shape)


def _check_alike(inputs: Sequence[_Input]) -> None:
    first = inputs[0]
    for one in inputs[1:]:
        if (one.split == WHOLE) != (first.split == WHOLE):
            raise DarnError(f"{one.what} and {first.what} are not both divided into splits: pack them apart")
        if one.rows.n != first.rows.n:
            raise DarnError(
                f"{one.what} has {one.rows.n} columns but {first.what} has {first.rows.n}: give files of the same ones"
            )
        for a, b in zip(first.rows.columns or (), one.rows.columns or ()):
            if a != b:
                raise DarnError(
                    f"{one.what} has a column {b!r} where {first.what} has {a!r}: give files of the same ones"
                )
        if one.shape != first.shape:
            raise DarnError(f"{one.what} and {first.what} hold images of different shapes: pack them apart")


# ---------------------------------------------------------------- what is written


def _check_free(out: Path) -> None:
    """Refuses a folder that holds anything but the remains of a pack that was killed."""
    parts = [path.name for path in out.iterdir() if _is_part(path)] if out.is_dir() else []
    whole = os.path.lexists(out / MANIFEST)
    if whole or not is_unused(out, (MANIFEST,), besides=parts):
        raise DarnError(f"{out} exists already and is not empty: choose another folder")


def _is_part(path: Path) -> bool:
    return re.fullmatch(r"\d{5,}\.rows", path.name) is not None and path.is_file() and not path.is_symlink()


def _clear(out: Path) -> None:
    """Removes the parts of a set that did not become whole."""
    with suppress(OSError):
        for path in out.iterdir():
            if _is_part(path):
                path.unlink()


class _Parts:
    """Writes records as the parts of a set, each with its checksum."""

    def __init__(self, out: Path, split: str, record: np.dtype, before: int):
        self.out, self.split, self.before = out, split, before
        self.most = max(PART // record.itemsize, 1)
        self.done: list[PartInfo] = []
        self._file, self._rows, self._digest = None, 0, hashlib.sha256()

    def add(self, records: np.ndarray) -> None:
        while len(records):
            if self._file is None:
                path = self.out / part_name(self.before + len(self.done))
                self._file, self._rows = open(path, "xb"), 0  # noqa: SIM115, closed by `__exit__`
                self._digest = hashlib.sha256()
            piece = records[: self.most - self._rows].tobytes()
            self._file.write(piece)
            self._digest.update(piece)
            count = min(len(records), self.most - self._rows)
            self._rows, records = self._rows + count, records[count:]
            if self._rows == self.most:
                self.close()

    def close(self) -> None:
        if self._file is not None:
            with self._file as f:
                f.flush()
                os.fsync(f.fileno())
            self.done.append(PartInfo(self.split, self._rows, self._digest.hexdigest()))
            self._file = None

    def __enter__(self) -> _Parts:
        return self

    def __exit__(self, kind, *_) -> None:
        if kind is None:
            self.close()
        elif self._file is not None:
            self._file.close()


def _write(out: Path, inputs: Sequence[_Input], facts: dict[str, Any], tell: Progress) -> Manifest:
    """Writes all rows; returns the manifest."""
    own, done = len(facts["classes"] or ()), []
    first = next(inputs[0].rows.read())
    about = Manifest(FORMAT, VERSION, first.n, **_form(first, own), **facts, parts=(PartInfo(WHOLE, 1, ""),))
    for split in dict.fromkeys(one.split for one in inputs):
        with _Parts(out, split, about.record, len(done)) as parts:
            for one in (one for one in inputs if one.split == split):
                for rows in one.rows.read():
                    for key, value in _form(rows, own).items():
                        if value != getattr(about, key):
                            raise DarnError(f"{one.what} {_said(key, value)}, unlike the rows before: pack it apart")
                    parts.add(_records(rows, about))
                    tell(len(rows))
        done += parts.done
    return replace(about, parts=tuple(done))


def _form(rows: Rows, classes: int) -> dict[str, Any]:
    """What rows have, as the manifest says it; the one-hot label among their context has `classes` columns."""
    context = 0 if rows.context is None else rows.context.shape[1]
    return {
        "grey": rows.grey,
        "n_context": context - classes,
        "weighted": rows.weights is not None,
        "dense": rows.log_density is not None,
    }


def _said(key: str, value: Any) -> str:
    if key == "n_context":
        return f"has {value} context columns"
    name = {"grey": "grey levels", "weighted": "weights", "dense": "numbers"}[key]
    return f"has {name}" if value else f"has no {name}"


def _records(rows: Rows, about: Manifest) -> np.ndarray:
    records = np.zeros(len(rows), about.record)
    records["values"] = rows.values
    if about.n_context:
        records["context"] = rows.context[:, : about.n_context]  # type: ignore[index]
    sides = {"label": about.classes and rows.labels, "weight": rows.weights, "log_density": rows.log_density}
    for name, side in sides.items():
        if side is not None and name in about.record.names:  # type: ignore[operator]
            records[name] = side
    return records
