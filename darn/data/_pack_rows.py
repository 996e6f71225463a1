"""Rows of a packed set that are read when they are needed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from darn.data._binarize import draw, draws
from darn.data._columns import own_places
from darn.data._labels import class_numbers
from darn.data._pack import STEP, Pack
from darn.data._raw import WHOLE, Places, own_split, shares
from darn.data._row_source import RowSource
from darn.data._rows import Moves, Rows, Splits, in_steps, joined, mean_of
from darn.data._schema import Schema
from darn.errors import DarnError

HELD = 64 << 20  # bytes of a split that is read into memory whole, since it is small
AT_ONCE = 1 << 20  # row numbers that are computed at once

Prepare = Callable[[Rows], Rows]  # what is done to rows as they are read


@dataclass(frozen=True)
class Numbers:
    """The numbers of some rows of a set, in some order; no list of them is held if they are very many."""

    stretches: np.ndarray  # of a split, as of `Pack.splits`
    places: Places | None = None  # of the rows in the split; None for all of them in order

    def __len__(self) -> int:
        first, end = self.stretches.T
        return int((end - first).sum()) if self.places is None else len(self.places)

    def __getitem__(self, index: Any) -> np.ndarray:
        """Those with this index, a slice or an array of places: uint32."""
        if isinstance(index, slice):
            index = np.arange(*index.indices(len(self)))
        places = np.atleast_1d(index if self.places is None else np.asarray(self.places[index])).astype(np.int64)
        first, end = self.stretches.T
        before = np.cumsum(end - first) - (end - first)
        at = np.searchsorted(before, places, side="right") - 1
        return (first[at] + places - before[at]).astype(np.uint32)

    def take(self, places: Places | None) -> Numbers:
        """The numbers at these places of a whole split."""
        return replace(self, places=places)

    @property
    def identity(self) -> Any:
        """What equal numbers have in common, for a comparison."""
        how = self.places
        if isinstance(how, np.ndarray):
            how = hashlib.sha256(np.ascontiguousarray(how).data).hexdigest()
        return [self.stretches.tolist(), repr(how)]


@dataclass(frozen=True)
class PackedRows:
    """Some rows of a packed set, in some order; as `Rows`, but not in memory."""

    pack: Pack
    numbers: Numbers  # of the rows in the set
    prepare: Prepare
    moves: Moves | None = None  # as of `Rows`
    in_parts: ClassVar[bool] = True

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def n(self) -> int:
        return self.pack.about.n

    @property
    def grey(self) -> bool:
        return self.pack.about.grey

    @property
    def bytes_a_row(self) -> int:
        return self.pack.about.record.itemsize

    @property
    def context(self) -> np.ndarray | None:
        """The context of the first row only, to see how wide it is."""
        return self.take(slice(0, 1)).context

    @property
    def weights(self) -> np.ndarray | None:
        """All row weights."""
        if not self.pack.about.weighted:
            return None
        return np.concatenate([part.weights for part in self.read()])  # type: ignore[misc]

    @property
    def identity(self) -> list:
        """What two equal sets of rows have in common, for a comparison."""
        return [self.n, self.grey, self.pack.sha256, self.numbers.identity]

    def take(self, index) -> Rows:
        """Reads rows, by a slice or an array of places."""
        return self.numbered(self.numbers[index])

    def numbered(self, numbers: np.ndarray) -> Rows:
        """Reads rows by their numbers in the set."""
        return replace(self.prepare(self.pack.at(numbers)), moves=self.moves)

    def read(self) -> Iterator[Rows]:
        """All rows in order, in pieces of a few megabytes."""
        self.pack.check()
        return in_steps(self, max(STEP // self.bytes_a_row, 1))

    def unpack(self) -> np.ndarray:
        """As `Rows.unpack`, in memory."""
        return self.held().unpack()

    def held(self) -> Rows:
        """All rows, in memory."""
        self.pack.check()
        return self.take(slice(None))

    def held_if_small(self) -> Rows | PackedRows:
        return self.held() if len(self) * self.bytes_a_row <= HELD else self

    def subsample(self, n: int) -> Rows | PackedRows:
        """As `Rows.subsample`."""
        if n >= len(self):
            return self
        index = np.sort(np.random.default_rng(0).choice(len(self), n, replace=False))
        chosen = self.numbers[index].astype(np.int64)
        return replace(self, numbers=Numbers(np.array([[0, len(self.pack)]]), chosen)).held_if_small()

    def mean(self) -> np.ndarray:
        """As `Rows.mean`, the same bits. Sums of bits are exact in any order, so these are read as they are stored."""
        if self.pack.about.weighted:
            self.pack.check()
            return mean_of(self, self.weights)
        wanted = np.zeros(len(self.pack), bool)
        for start in range(0, len(self), AT_ONCE):
            wanted[self.numbers[start : start + AT_ONCE]] = True
        scan = self.pack.scan()
        return mean_of(self, None, (part.take(wanted[first : first + len(part)]) for first, part in scan))


@dataclass(frozen=True)
class PackOptions:
    """How the rows of a packed set are to be read."""

    binarize: str | None = None
    seed: int = 0
    labelled: bool = False  # whether the label is context
    classes: tuple[str, ...] | None = None  # those of a model
    schema: Schema | None = None  # of a model
    names: Sequence[str] | None = None  # of the columns of a model without a schema


def open_pack(path, options: PackOptions) -> tuple[Pack, Prepare]:
    """The set, and what is done to its rows as they are read."""
    pack = Pack(path)
    about = pack.about
    if about.grey and options.binarize not in ("dynamic", "intensity"):
        raise DarnError(
            f"{pack.what} holds grey levels: choose binarize = dynamic or intensity, or pack the data again with "
            "threshold or static"
        )
    if options.labelled and about.classes is None:
        raise DarnError(f"{pack.what} was packed without labels: leave labels out, or pack it again with them")
    other = options.schema is not None and pack.schema is not None and options.schema != pack.schema
    if other or (pack.schema is None and own_places(about.columns, options.names, pack.what) is not None):
        raise DarnError(
            f"{pack.what} was packed with other columns than the model was trained on: pack it again as the model "
            "reads it"
        )
    classes = about.classes or ()
    known = options.classes or classes
    recoded = class_numbers(classes, known) if options.labelled else np.zeros(0, np.int64)

    def prepare(rows: Rows) -> Rows:
        if not options.labelled or rows.labels is None:
            return replace(rows, labels=None)
        labels = recoded[rows.labels]
        if (labels < 0).any():
            strange = classes[int(rows.labels[labels < 0][0])]
            raise DarnError(f"{pack.what} has the label {strange[:40]!r}, which is none of the model's classes")
        context = np.eye(len(known), dtype=np.float32)[labels]
        if rows.context is not None:
            context = np.concatenate([rows.context, context], axis=1)
        return replace(rows, labels=labels, context=context)

    return pack, prepare


def _divided(pack: Pack, seed: int) -> dict[str, Numbers]:
    """The rows of three splits, as `load` divides those of a file."""
    own = {split: Numbers(stretches) for split, stretches in pack.splits().items()}
    found = shares({split: len(numbers) for split, numbers in own.items()}, pack.what, seed)
    return {split: own[name].take(places) for split, (name, places) in found.items()}


def load_pack(name: str, path, options: PackOptions) -> Splits:
    """The splits of a packed set, as `load` divides the rows of a file."""
    pack, prepare = open_pack(path, options)
    about = pack.about
    rows = {s: PackedRows(pack, numbers, prepare) for s, numbers in _divided(pack, options.seed).items()}
    splits: dict[str, Any] = {s: _bits(rows[s], s, options) for s in rows}
    classes = (options.classes or about.classes) if options.labelled else None
    mode = options.binarize if about.grey else about.binarize
    source = f"packed set of {about.source}"
    facts: dict[str, Any] = {"shape": about.shape, "sha256": pack.sha256, "columns": about.columns, "source": source}
    return Splits(name, **splits, binarize=mode, classes=classes, schema=pack.schema, **facts)


def _bits(rows: PackedRows, split: str, options: PackOptions) -> Rows | PackedRows:
    """With "dynamic", validation and test rows are drawn once: they are then in memory, as bits."""
    if not rows.grey or options.binarize == "intensity" or split == "train":
        return rows.held_if_small()
    return _drawn(rows, split, options.seed)


def _drawn(rows: PackedRows, split: str, seed: int) -> Rows:
    return joined(list(_drawing(rows.read(), split, seed)))


def _drawing(parts: Iterator[Rows], split: str, seed: int) -> Iterator[Rows]:
    rng = draws(split, seed)
    for part in parts:
        yield replace(part, values=draw(part.values, 255, rng), grey=False)


def pack_source(path, n: int | None, split: str | None, options: PackOptions) -> RowSource:
    """The rows of a packed set to score, encode or compress, in parts: all of them in order, or a split."""
    pack, prepare = open_pack(path, options)
    if n is not None and pack.about.n != n:
        raise DarnError(f"{pack.what} has {pack.about.n} columns, but {n} are needed: give rows of {n} columns")
    own = own_split(pack.splits(), pack.what, split)
    chosen = own or str(split)
    if own == WHOLE:
        count, read = len(pack), lambda: (prepare(rows) for _, rows in pack.scan())
    else:
        numbers = Numbers(pack.splits()[own]) if own is not None else _divided(pack, options.seed)[chosen]
        rows = PackedRows(pack, numbers, prepare)
        count, read = len(rows), rows.read
    if pack.about.grey and options.binarize != "intensity":
        return RowSource(count, pack.about.n, lambda: _drawing(read(), chosen, options.seed))
    return RowSource(count, pack.about.n, read)
