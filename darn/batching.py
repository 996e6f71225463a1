"""Work over many rows in bounded memory: chunks of one size, padding, a key for every row, one device or several."""

import itertools
import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray, UInt32

from darn.devices import ROWS, placed, row_mesh, size_of

# Floats of the widest array of a program, where nothing better is known: a gigabyte.
FLOATS = 1 << 28
KEYS = 1 << 32  # different keys for rows


def row_keys(key: PRNGKeyArray, numbers: UInt32[Array | np.ndarray, " N"]) -> Key[Array, " N"]:
    """A key for every row, a function of the row's number alone: neither chunks nor devices can change a result."""
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.asarray(numbers))


Numbers = int | np.ndarray  # of rows: that of the first one, where they follow on, or that of every row


def row_numbers(start: int, count: int, numbers: Numbers = 0) -> np.ndarray:
    """The numbers of rows from place `start` on as the keys count them: after `KEYS` rows, they begin again.

    Beyond the last of given numbers, for rows that only pad a program, it is repeated.
    """
    place = start + np.arange(count)
    found = numbers[np.minimum(place, len(numbers) - 1)] if isinstance(numbers, np.ndarray) else numbers + place
    return (found.astype(np.int64) % KEYS).astype(np.uint32)


def rows_within(row_floats: int, n: int, most: int, floats: int = FLOATS, *, digits: int = 2) -> int:
    """How many of n rows to process at once: at most `most`, and as many as fit into `floats`; at least one.

    The number of rows is rounded up to so many binary digits, 2^k or 3 * 2^k for two of them, so that programs have few
    sizes and are found in the cache.
    """
    step = 1 << max((n - 1).bit_length() - digits, 0)
    return max(min(most, -(-n // step) * step, floats // row_floats), 1)


def chunks(n: int, size: int) -> Iterator[tuple[int, int]]:
    """(first row, number of rows) of each chunk."""
    for start in range(0, n, size):
        yield start, min(size, n - start)


def cut(rows: Any, start: int, count: int, size: int, axis: int = 0) -> Any:
    """Rows start .. start + count of every array of a pytree, padded to `size` rows by repeating the last one.

    All chunks then have the same shape and share one compiled program.
    """

    def one(v):
        part = _sliced(v, axis, start, start + count)
        if count == size:
            return part
        last = _sliced(part, axis, count - 1, count)
        return np.concatenate([part, np.repeat(last, size - count, axis=axis)], axis=axis)

    return jax.tree.map(one, rows)


def recut(parts: Iterable[Any], size: int) -> Iterator[Any]:
    """The same rows in parts of `size`, the last one shorter.

    Args:
        parts: pytrees of arrays (or None), with equal numbers of rows within each part.
        size: rows in a part.

    Yields:
        The parts; a part that has the right size already is passed on without a copy.
    """
    held, count = [], 0
    for part in parts:
        length = len(jax.tree.leaves(part)[0])
        done = 0
        while done < length:
            here = min(size - count, length - done)
            held.append(part if here == length else jax.tree.map(operator.itemgetter(slice(done, done + here)), part))
            count, done = count + here, done + here
            if count == size:
                yield join(held)
                held, count = [], 0
    if held:
        yield join(held)


def twice(parts: Iterable[Any]) -> tuple[Iterator[Any], Iterator[Any]]:
    """Two iterators over the same parts, which are held from when one has given them until the other has.

    (`itertools.tee` holds the last 57 of them.)
    """
    source = iter(parts)
    mine, others = deque(), deque()

    def one(mine: deque, others: deque) -> Iterator[Any]:
        while True:
            if not mine:
                for part in itertools.islice(source, 1):
                    mine.append(part)
                    others.append(part)
                    del part
            if not mine:
                return
            yield mine.popleft()

    return one(mine, others), one(others, mine)


def join(parts: list[Any], axis: int = 0) -> Any:
    """One pytree of the rows of several."""
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *v: np.concatenate(v, axis=axis), *parts)


def stream_rows(
    f: Callable[..., Any],
    at_once: int,
    parts: Iterable[tuple],
    *,
    out_axis: int = 0,
    numbered: bool = False,
    numbers: Numbers = 0,
    beside: bool = False,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Any]:
    """Applies f to rows that come in parts, `at_once` at a time, and never holds more than a few results.

    The calls, and so the results, do not depend on how the rows are divided into parts. On several devices
    (`darn.devices`) each call has `at_once` rows for every one of them: a device computes what one alone would.

    Args:
        f: called as f(*rows), or as f(numbers, *rows) if `numbered`, with `at_once` rows of everything in a part for
            each device. Returns a pytree of arrays with one row for each of them. While it computes, the previous
            results are fetched.
        at_once: rows per call and device, see `rows_within`; the last call is padded by repeating the last row.
        parts: tuples of arrays with equal numbers of rows, pytrees of them, or None.
        out_axis: the axis of the rows in the results; in `parts` it is the first.
        numbered: whether f is also given the rows' numbers, see `row_numbers`.
        numbers: what these are; by default, rows are counted from 0 on.
        beside: whether the last entry of every part is not given to f, but returned with its results: (results, entry).
        progress: called with the number of rows done after each call.

    Yields:
        The results of each call as NumPy arrays, without the padding.
    """

    mesh = row_mesh()
    size = at_once * size_of(mesh)

    def pieces():
        start = 0
        for rows in recut(parts, size):
            count = len(jax.tree.leaves(rows)[0])
            if beside:
                *rows, entry = rows
                entries.append(entry)
            yield start, count, cut(rows, 0, count, size)
            start += count

    entries = deque()
    found = _in_turn(f, pieces(), size, mesh, out_axis, numbers if numbered else None, progress)
    return ((v, entries.popleft()) for v in found) if beside else found


def map_rows(
    f: Callable[..., Any],
    n: int,
    at_once: int,
    *rows: Any,
    out_axis: int = 0,
    numbered: bool = False,
    progress: Callable[[int], object] | None = None,
) -> Any:
    """Applies f to n > 0 rows in memory, `at_once` at a time on every device.

    Args:
        f: as for `stream_rows`.
        n: the number of rows.
        at_once: rows per call and device, see `rows_within`.
        *rows: arrays with n rows each, pytrees of them, or None.
        out_axis: the axis of the rows in the results; in `rows` it is the first.
        numbered: whether f is also given the rows' numbers.
        progress: called with the number of rows done after each call.

    Returns:
        The results as NumPy arrays with n rows.
    """
    mesh = row_mesh()
    size = at_once * size_of(mesh)
    pieces = ((start, count, cut(rows, start, count, size)) for start, count in chunks(n, size))
    results = list(_in_turn(f, pieces, size, mesh, out_axis, 0 if numbered else None, progress))
    if not results:
        raise ValueError("there are no rows to work on")
    return join(results, out_axis)


def _in_turn(
    f, pieces: Iterable[tuple[int, int, tuple]], size: int, mesh, out_axis: int, numbers: Numbers | None, progress
) -> Iterator[Any]:
    """The results of f for (first row, number of rows, `size` padded rows), each fetched while the next is computed."""

    def fetch(found, count):
        here = jax.tree.map(lambda v: _sliced(v, out_axis, 0, count), jax.device_get(found))
        if progress is not None:
            progress(count)
        return here

    last = None
    for start, count, rows in pieces:
        given = rows if numbers is None else (row_numbers(start, size, numbers), *rows)
        found = f(*placed(given, mesh, ROWS))
        if last is not None:
            yield fetch(*last)
        last = found, count
    if last is not None:
        yield fetch(*last)


def _sliced(v, axis: int, start: int, stop: int):
    return v[(slice(None),) * (axis % v.ndim) + (slice(start, stop),)]
