"""The codec of one model: compresses rows to a file and decompresses them."""

import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO

import jax
import numpy as np
from threadpoolctl import ThreadpoolController

from darn.batching import recut
from darn.codec import _blocks
from darn.codec._bytes import MalformedError
from darn.codec._container import Block, End, Head, block_bytes, read_blocks, read_head
from darn.codec._members import read_members
from darn.codec._stack import Lengths, StackCodec
from darn.codec._symbols import Writing
from darn.codec._twin import fingerprint, twin
from darn.errors import DarnError
from darn.inference.given import given_rows
from darn.model import Stack

Progress = Callable[[int], object]
# (first row, end) -> which units of these rows are coded; the others are 0
Mask = Callable[[int, int], np.ndarray]


@dataclass(frozen=True)
class Accounts:
    """Where the bytes of a compressed file go."""

    rows: int
    n_x: int
    size: int  # bytes of the file
    head: int  # bytes of the header, including the embedded model
    model: int  # bytes of the embedded model
    p: tuple[float, ...]  # bits spent on each decoder layer, x|h first
    q: tuple[float, ...]  # bits recovered from each encoder layer
    first: int  # rows coded without bits back

    @property
    def ideal(self) -> float:
        """The model's own length in bits of the rows and the codes chosen: log q(h|x) - log p(x,h)."""
        return sum(self.p) - sum(self.q)

    @property
    def overhead(self) -> float:
        """Bits beyond `ideal`, not counting the embedded model."""
        return 8 * (self.size - self.model) - self.ideal


@lru_cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()  # cached: it searches all loaded libraries


class RowCodec:
    """Compresses rows with a model. The bytes depend only on the model and the rows, not on batch, threads or device.

    Args:
        model: a stack without observed context whose layers have an integer twin.
        batch: rows evaluated at once, at most; None chooses.
        workers: blocks coded at once; None takes one per core, at most four.
    """

    def __init__(self, model: Stack, *, batch: int | None = None, workers: int | None = None):
        self.model, self.twin = model, twin(model)
        self.fingerprint = fingerprint(model, self.twin)
        self.batch, self.workers = batch, workers or min(os.cpu_count() or 1, 4)

    def write(
        self,
        file: BinaryIO,
        parts: Iterable[Any],
        rows: int,
        *,
        notes: dict | None = None,
        model: bytes = b"",
        mask: Mask | None = None,
        rest: _blocks.Rest | None = None,
        progress: Progress | None = None,
    ) -> Accounts:
        """Compresses rows into a file.

        Args:
            file: open for writing bytes.
            parts: arrays of 0 and 1 with n_x columns, of any number of rows each; with `rest`, blocks as it allows
                them, each as (array, what `rest` takes).
            rows: the total number of rows in `parts`.
            notes: anything JSON-compatible to store in the header.
            model: bytes of a model to embed in the header.
            mask: which units are coded; None codes all of them.
            rest: codes what the rows hold besides their bits.
            progress: called with the number of rows after each block.

        Returns:
            Where the bytes went.
        """
        head = Head(self.fingerprint, self.model.n_x, rows, notes or {}, model).to_bytes()
        file.write(head)
        lengths, first, size, done = Lengths(self.model.n_layers), 0, len(head), 0
        codec = self._stack_codec(min(rows, _blocks.rows_per_block(self.model.n_x)))

        def encode(item):
            start, x, more = item
            writing = None
            if rest is not None:
                writing = Writing()
                rest.code(writing, x, start, more)
            return len(x), *_blocks.encode(codec, x, None if mask is None else mask(start, start + len(x)), writing)

        def numbered():
            start = 0
            cut = recut(parts, _blocks.rows_per_block(self.model.n_x)) if rest is None else parts
            for x, more in cut if rest is not None else ((x, None) for x in cut):
                yield start, x, more
                start += len(x)

        blocks = numbered()
        for count, data, found, without in self._in_order(encode, blocks):
            block = block_bytes(count, data)
            file.write(block)
            lengths += found
            first, size, done = first + without, size + len(block), done + count
            if progress is not None:
                progress(count)
        if done != rows:
            raise ValueError(f"expected {rows} rows, got {done}")
        p, q = (tuple(float(v) for v in side) for side in (lengths.p, lengths.q))
        end = End(tuple(map(round, p)), tuple(map(round, q)), first).to_bytes()
        file.write(end)
        return Accounts(rows, self.model.n_x, size + len(end), len(head), len(model), p, q, first)

    def read(
        self,
        file: BinaryIO,
        head: Head,
        *,
        keep_going: bool = False,
        mask: Mask | None = None,
        rest: _blocks.Rest | None = None,
        progress: Progress | None = None,
    ) -> Iterator[tuple[int, Any]]:
        """Decompresses a file block by block.

        Args:
            file: open for reading bytes, just after the header.
            head: the header, from `read_head`.
            keep_going: whether to skip damaged blocks.
            mask: as it was for `write`.
            rest: likewise.
            progress: called with the number of rows after each block.

        Yields:
            (number of the first row, rows, or what `rest` makes of them) of each block.

        Raises:
            DarnError: if the file was compressed with another model, or is damaged.
        """
        if head.fingerprint != self.fingerprint or head.n_x != self.model.n_x:
            raise DarnError(
                f"the file was compressed with another model (fingerprint {head.fingerprint.hex()}, {head.n_x} "
                f"columns; this one has {self.fingerprint.hex()}, {self.model.n_x} columns): use that model"
            )
        codec = self._stack_codec(min(head.rows, _blocks.rows_per_block(self.model.n_x)))

        def decode(block: Block):
            if block.data is None:
                return block, None
            there = None if mask is None else mask(block.first_row, block.first_row + block.rows)
            try:
                return block, _blocks.decode(codec, block.data, block.rows, there, rest, block.first_row)
            except MalformedError:
                return block, None

        blocks = (b for b in read_blocks(file, head) if isinstance(b, Block))
        for block, x in self._in_order(decode, blocks):
            if x is not None:
                yield block.first_row, x
            elif not keep_going:
                raise _damaged(block)
            if progress is not None:
                progress(block.rows)

    def _stack_codec(self, most_rows: int) -> StackCodec:
        # No larger than the file, which should not pay for a large program; on an accelerator it costs next to nothing.
        few = next((n for n in (8, 64) if most_rows <= n), None) if jax.default_backend() == "cpu" else None
        return StackCodec(self.twin, min(self.batch or few, few) if few else self.batch)

    def _in_order(self, f, items):
        """f(item) for every item, in order, several at once, with few of them in memory."""
        # One BLAS thread each: the products are small, and more threads would mostly wait for each other.
        with _blas().limit(limits=1, user_api="blas"), ThreadPoolExecutor(self.workers) as pool:
            waiting = deque()
            try:
                for item in items:
                    waiting.append(pool.submit(copy_context().run, f, item))  # with the devices of this thread
                    if len(waiting) > self.workers:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()


def compress(model: Stack, X, *, batch: int | None = None, workers: int | None = None) -> bytes:
    """Compresses rows to the model's own description length.

    Args:
        model: a stack without observed context whose layers have an integer twin.
        X: (N, n_x) of 0 and 1.
        batch: rows evaluated at once, at most; None chooses. Does not change the result.
        workers: blocks coded at once; None takes one per core, at most four.

    Returns:
        The content of a .drn file.

    Raises:
        DarnError: if the model cannot compress, or X does not fit it.
    """
    X = given_rows(model, X, bits=True).astype(np.uint8)
    file = io.BytesIO()
    RowCodec(model, batch=batch, workers=workers).write(file, [X], len(X))
    return file.getvalue()


def decompress(
    model: Stack, data: bytes, *, batch: int | None = None, workers: int | None = None, keep_going: bool = False
) -> np.ndarray:
    """Restores the rows that `compress` was given.

    Args:
        model: the model that the rows were compressed with.
        data: what `compress` returned.
        batch: rows evaluated at once, at most; None chooses. May differ from the one used to compress.
        workers: blocks decoded at once; None takes one per core, at most four.
        keep_going: whether to leave out the rows of damaged blocks instead of raising an error.

    Returns:
        (N, n_x) uint8.

    Raises:
        DarnError: if the data are damaged or of another model.
    """
    file = io.BytesIO(data)
    codec, parts = RowCodec(model, batch=batch, workers=workers), [np.zeros((0, model.n_x), np.uint8)]
    for member in read_members(file):
        parts += [x for _, x in codec.read(file, member.open(file), keep_going=keep_going)]
    return np.concatenate(parts)


def inspect(data: bytes | BinaryIO, *, verify: bool = False) -> Accounts:
    """Says where the bytes of a compressed file go; needs no model.

    Args:
        data: what `compress` returned, or a file open for reading bytes.
        verify: whether to read every block and compare it with its checksum; only the header and the end are checked
            otherwise.

    Returns:
        Sizes of the file and its parts, and bits by layer.

    Raises:
        DarnError: if the file is damaged.
    """
    file = io.BytesIO(data) if isinstance(data, bytes) else data
    members = read_members(file, check=check_block if verify else None)
    file.seek(0)
    add = lambda of: tuple(map(float, np.sum([of(m.end) for m in members], axis=0)))  # noqa: E731
    return Accounts(
        rows=sum(m.rows for m in members),
        n_x=read_head(file).n_x,
        size=sum(m.stop - m.begin for m in members),
        head=sum(m.start - m.begin for m in members),
        model=sum(m.model for m in members),
        p=add(lambda end: end.p),
        q=add(lambda end: end.q),
        first=sum(m.end.first for m in members),
    )


def check_block(block: Block) -> None:
    """Refuses a damaged one."""
    if block.data is None:
        raise _damaged(block)


def _damaged(block: Block) -> DarnError:
    return DarnError(
        f"rows {block.first_row + 1:,} to {block.first_row + block.rows:,} of the file are damaged: get another copy "
        "of it, or keep going and leave them out"
    )
