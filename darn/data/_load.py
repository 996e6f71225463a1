"""Loads `Splits` or `Rows` from the name of a set or the path of a file."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from darn.data import _arrays, _atari, _digits, _images, _labels, _store, _table
from darn.data._binarize import check_options, draws, full_scale, to_rows
from darn.data._check import CHOICES, check_bits, check_width, matrix
from darn.data._columns import Columns, column_parts, read_columns
from darn.data._pack import is_pack
from darn.data._pack_rows import PackOptions, load_pack, pack_source
from darn.data._raw import SPLITS, WHOLE, Part, Raw, RawParts, divide, pick_split
from darn.data._row_source import RowSource
from darn.data._rows import Rows, Splits, joined
from darn.data._upstream import KNOWN
from darn.errors import DarnError, InputTypeError, NotFoundError
from darn.files import read_bytes


def names() -> list[str]:
    """The names of the data sets that `load` knows."""
    return [*(k for k in KNOWN if k != "rcv1_valid10k"), "digits", "rcv1_valid10k", *_atari.names()]


def describe() -> list[dict]:
    """Describes each set: name, columns, rows of each split, whether it is on disk, where, and what it is."""
    out = []
    for name in names():
        if _atari.is_atari(name):
            out.append(_atari.describe(name))
            continue
        if name == "digits":
            n, rows, present, where, about = 64, _digits.ROWS, True, "scikit-learn", _digits.ABOUT
        else:
            known, path = KNOWN[name], _store.set_path(name)
            n, rows, present, about = known.n, known.rows, path.is_file(), known.about
            where = str(path) if present else "to be downloaded"
        out.append({"name": name, "columns": n, "rows": rows, "present": present, "where": where, "about": about})
    return out


def load(
    name_or_path,
    *,
    binarize: str | None = None,
    threshold: float = 0.5,
    seed: int = 0,
    download: bool = True,
    labels: str | int | None = None,
    columns: Columns | None = None,
) -> Splits:
    """Loads a data set in three splits.

    Args:
        name_or_path: a known set (see `names`), a file (.npy, .npz, .csv, .parquet, ...) or a folder of images.
        binarize: how grey levels become bits. "threshold": 1 at `threshold` of full scale and above; "static": drawn
            once, with the seed; "dynamic": train stays grey, to be drawn again at every step, valid and test are drawn
            once; "intensity": all three stay grey. Data that are 0/1 are unchanged.
        threshold: a fraction of full scale.
        seed: of the shuffle that divides a file without splits 80/10/10, and of the draws.
        download: whether a known set may be downloaded if it is not on disk.
        labels: the column of class labels (name, or number from 0 with -1 the last), given as one-hot context; "label"
            for labels stored beside the data (mnist, digits, y_train in an npz).
        columns: how to read a table that holds more than bits.

    Returns:
        The three splits and their provenance.

    Raises:
        DarnError: if the data cannot be read or do not fit the options.
    """
    check_options(binarize, threshold, seed)
    name = known_name(name_or_path)
    if name and is_published(name):
        no_columns(name, columns)
        return published(name, download, labels)
    if name is None and is_pack(name_or_path):
        no_columns(str(name_or_path), columns)
        return load_pack(Path(name_or_path).name, name_or_path, PackOptions(binarize, seed, labels is not None))
    if columns is not None:
        columns = replace(columns, seed=seed)
    raw, binarize = source(name_or_path, name, binarize, download, labels, columns=columns)
    full = _full_scale(raw, binarize, threshold)
    raw, classes = _labels.encode(divide(raw, seed), labels is not None)
    rows = {s: to_rows(raw.parts[s], s, full, binarize, threshold, draws(s, seed)) for s in SPLITS}
    mode = None if full is None else binarize
    called = name or Path(name_or_path).stem
    return Splits(called, rows["train"], rows["valid"], rows["test"], mode, classes=classes, **about(raw))


def load_rows(
    path_or_name,
    *,
    n: int | None = None,
    split: str | None = None,
    binarize: str | None = None,
    threshold: float = 0.5,
    seed: int = 0,
    labels: str | int | None = None,
    classes: tuple[str, ...] | None = None,
    columns: Columns | None = None,
) -> Rows:
    """Loads rows to score or encode.

    They are bits, except with "intensity": what "dynamic" draws again at every training step is drawn once here.

    Args:
        path_or_name: as for `load`.
        n: the number of columns they must have.
        split: of a known set, "test" by default; of a file, the rows that `load` puts there, or the array of that name
            in an .npz. All rows of a file by default.
        binarize: as for `load`.
        threshold: as for `load`.
        seed: as for `load`.
        labels: as for `load`.
        classes: the classes that the model was trained with (`Splits.classes`).
        columns: as for `load`, perhaps with the schema of a model.

    Returns:
        The rows, in the order of the file.

    Raises:
        DarnError: if the data cannot be read or do not fit the options.
    """
    check_options(binarize, threshold, seed)
    name = known_name(path_or_name)
    if name:
        split = split or "test"
        if split not in SPLITS:
            raise DarnError(f"{name} has no split {split!r}: choose train, valid or test")
    if split and name and is_published(name):
        rows = getattr(published(name, True, labels), split)
        check_width(rows.n, n, name)
        return rows
    if name is None and is_pack(path_or_name):
        given = {"n": n, "split": split, "binarize": binarize, "seed": seed, "labels": labels, "classes": classes}
        return joined(list(open_rows(path_or_name, **given, columns=columns).read()))
    if columns is not None:
        columns = replace(columns, seed=seed)
    raw, binarize = source(path_or_name, name, binarize, True, labels, split, columns)
    if binarize == "dynamic":
        binarize = "static"
    width = next(iter(raw.parts.values())).X.shape[1]
    check_width(width, n, raw.what, labels)
    full = _full_scale(raw, binarize, threshold)
    raw, split = pick_split(raw, split, seed)
    if classes is not None:
        raw = replace(raw, parts={split: raw.parts[split]})
    # without given classes, all splits are encoded together, so that class numbers agree
    raw, _ = _labels.encode(raw, labels is not None, classes)
    return to_rows(raw.parts[split], split, full, binarize, threshold, draws(split, seed))


def open_rows(
    path_or_name,
    *,
    n: int | None = None,
    split: str | None = None,
    binarize: str | None = None,
    threshold: float = 0.5,
    seed: int = 0,
    labels: str | int | None = None,
    classes: tuple[str, ...] | None = None,
    columns: Columns | None = None,
    scored: bool = True,
) -> RowSource:
    """Opens rows to score or encode without reading them all: the rows of `load_rows`, in parts.

    A known set, a folder of images, rows that must first be divided into splits, and a table whose encoding depends on
    all of its rows are held in memory.

    Args:
        path_or_name: as for `load`.
        n: as for `load_rows`.
        split: as for `load_rows`.
        binarize: as for `load`.
        threshold: as for `load`.
        seed: as for `load`.
        labels: as for `load`.
        classes: as for `load_rows`.
        columns: as for `load_rows`.
        scored: whether row weights do not matter, since the rows are not trained on.

    Returns:
        The rows, in the order of the file.
    """
    check_options(binarize, threshold, seed)
    if known_name(path_or_name) is None and is_pack(path_or_name):
        schema = None if columns is None else columns.schema
        if schema is None:
            no_columns(str(path_or_name), columns)
        own = None if columns is None else columns.names
        how = PackOptions(binarize, seed, labels is not None, classes, schema, own)
        return pack_source(path_or_name, n, split, how)
    known = labels is None or bool(classes)
    raw = _in_parts(path_or_name, labels, split, columns, binarize, scored=scored) if known else None
    if raw is None:
        options = {"n": n, "split": split, "binarize": binarize, "threshold": threshold, "seed": seed}
        return RowSource.held(load_rows(path_or_name, **options, labels=labels, classes=classes, columns=columns))
    check_width(raw.width, n, raw.what, labels)
    label = raw.what if raw.split == WHOLE else f"{raw.what} ({raw.split})"

    def parts() -> Iterator[Part]:
        for part in raw.read():
            X, _ = matrix(part.X, label, raw.columns, part.before)
            yield replace(part, X=X)

    mode = "static" if binarize == "dynamic" else binarize
    full = None if mode is None else full_scale({label: parts()}, raw.what, raw.columns, mode, threshold)

    def read() -> Iterator[Rows]:
        rng = draws(raw.split, seed)
        for part in parts():
            if full is None:
                check_bits(part.X, label, raw.columns, part.before)
            encoded, _ = _labels.encode(Raw(raw.what, {raw.split: part}), labels is not None, classes)
            yield to_rows(encoded.parts[raw.split], raw.split, full, mode, threshold, rng)

    return RowSource(raw.rows, raw.width, read, columns=raw.columns)


def classes_of(paths: Sequence[str | Path], labels, columns: Columns | None) -> tuple[str, ...]:
    """The class labels that occur in these files, in order; they are read in parts."""
    seen: set[str] = set()
    for path in paths:
        name = known_name(path)
        if name:
            seen.update(load(name, binarize="threshold", labels=labels).classes or ())
            continue
        for split in splits_of(path):
            raw = _in_parts(path, labels, split, columns, None, scored=True)
            if raw is None:
                whole = read_path(path, labels, split, columns)
                parts = iter(pick_split(whole, split, 0)[0].parts.values())
            else:
                parts = raw.read()
            for part in parts:
                seen.update(_labels.as_words(part.labels, str(path), part.before))
                _labels.check_few(seen, str(path))
    return tuple(sorted(seen, key=_labels.numbers_first))


def splits_of(path) -> list[str | None]:
    """The splits that a file has; [None] if it has none of its own."""
    path = Path(path)
    if path.suffix.lower() not in _arrays.SUFFIXES or not path.is_file():
        return [None]
    found = dict.fromkeys(_arrays.role(key)[0] for key in _arrays.stored(path, str(path)) if key != "n")
    return [s for s in SPLITS if s in found] or [None]


def _in_parts(path, labels, split, columns: Columns | None, binarize: str | None, *, scored: bool) -> RawParts | None:
    """The user's file in parts; None for what is read whole, or refused there."""
    path = Path(path) if isinstance(path, str | Path) and str(path) and known_name(path) is None else None
    if path is not None and path.is_dir() and labels is None and split is None and not columns:
        return _images.image_parts(path, str(path))
    if path is None or not path.is_file() or not path.stat().st_size:
        return None
    suffix, what = path.suffix.lower(), str(path)
    if suffix in _arrays.SUFFIXES and not (columns and columns.schema is None):
        return _arrays.array_parts(path, what, split, labels, alone=binarize is None)
    if suffix in _table.SUFFIXES and split is None:
        return column_parts(path, what, labels, Columns() if columns is None else columns, scored=scored)
    return None


def _full_scale(raw: Raw, binarize: str | None, threshold: float) -> int | None:
    parts = {raw.label(split): [part] for split, part in raw.parts.items()}
    return full_scale(parts, raw.what, raw.columns, binarize, threshold)


def is_published(name: str) -> bool:
    """Whether the set is stored as packed bits with splits, so that there is nothing to choose."""
    return (name in KNOWN and name != "mnist") or _atari.is_atari(name)


def published(name: str, download: bool, labels) -> Splits:
    """A packed set, straight from its file."""
    if labels is not None:
        raise DarnError(f"{name} has no labels: leave labels out")
    if _atari.is_atari(name):
        return _atari.load(name)
    known = KNOWN[name]
    arrays, sha256 = _store.read_known(name, download=download)
    train, valid, test = (Rows(arrays[s], known.n) for s in SPLITS)
    return Splits(name, train, valid, test, None, shape=known.shape, sha256=sha256, source=known.about)


def about(raw: Raw) -> dict:
    return {k: getattr(raw, k) for k in ("shape", "sha256", "columns", "source", "schema", "delimiter")}


def known_name(name_or_path) -> str | None:
    """The known set of that name, if any. A file of the same name can be given as ./name."""
    return name_or_path if isinstance(name_or_path, str) and name_or_path in names() else None


def no_columns(what: str, columns: Columns | None) -> None:
    if columns and columns.schema is None:
        raise DarnError(f"{what} is not a table: categorical, column, drop, weights, delimiter need .csv or .parquet")


def source(
    name_or_path, name, binarize, download, labels, split=None, columns: Columns | None = None
) -> tuple[Raw, str | None]:
    """The values as read, and how to binarise them (digits has a default, mnist has none)."""
    if name:
        no_columns(name, columns)
    if name == "digits":
        raw, binarize = _digits.read_digits(), binarize or "threshold"
    elif name == "mnist":
        if binarize is None:
            raise DarnError(f"mnist is grey: choose how to make it binary (binarize = {CHOICES})")
        raw = _store.raw_mnist(*_store.read_known(name, download=download))
    else:
        return read_path(name_or_path, labels, split, columns), binarize
    if labels not in (None, "label"):
        raise DarnError(f"the labels of {name} are stored beside the data: give labels = 'label'")
    return raw, binarize


def read_path(path, labels=None, split=None, columns: Columns | None = None) -> Raw:
    """Reads the user's file or folder, by the suffix of its name."""
    what = str(path)
    if not what:
        raise DarnError(f"no data given: give a file, a folder of images, or one of {', '.join(names())}")
    try:
        path = Path(path)
        if path.is_dir():
            no_columns(what, columns)
            if labels is not None:
                raise DarnError(f"{what} is a folder of images, which has no label column: leave labels out")
            return _images.read_images(path, what)
        data = read_bytes(path)
    except DarnError as e:
        if not isinstance(e.__cause__, FileNotFoundError | NotADirectoryError):
            raise
        near = difflib.get_close_matches(what.lower(), names(), n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else "`darn data` lists the sets"
        raise NotFoundError(f"there is no file and no data set {what}: {hint}") from None
    except TypeError:
        raise InputTypeError(
            f"give the name of a set or the path of a file, not a {type(path).__name__}: `Rows.from_array` packs one"
        ) from None
    except ValueError as e:  # not a valid file name
        raise DarnError(f"{what} cannot be read: {e}") from None
    if not data:
        raise DarnError(f"{what} is empty: give a file with rows in it")
    suffix = path.suffix.lower()
    if split not in (None, *SPLITS) and suffix not in _arrays.SUFFIXES:
        raise DarnError(f"{what} has no split {split!r}: choose train, valid or test, or leave it out")
    if suffix in _table.SUFFIXES:
        raw = read_columns(path, data, what, labels, Columns() if columns is None else columns)
    elif suffix in _arrays.SUFFIXES:
        no_columns(what, columns)
        raw = _arrays.read_arrays(path, data, what, split)
        beside = labels == "label" and all(p.labels is not None for p in raw.parts.values())
        if labels is not None and not beside:
            raw = _labels.take_column(raw, labels)
    else:
        kinds = " ".join((*_arrays.SUFFIXES, *_table.SUFFIXES[:-1]))
        raise DarnError(f"{what} has an unknown file type: give {kinds} or a folder of images")
    return replace(raw, sha256=hashlib.sha256(data).hexdigest())
