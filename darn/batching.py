"""Work over many rows in bounded memory: chunks of one size, padding, a key for every row."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PRNGKeyArray

# Floats of the widest array of a program, where nothing better is known: a gigabyte.
FLOATS = 1 << 28


def row_keys(key: PRNGKeyArray, start: int | Int[Array, ""], count: int) -> Key[Array, " count"]:
    """A key for every row, a function of the row's number alone: no chunk size can change a result."""
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(start + jnp.arange(count))


def rows_within(row_floats: int, n: int, most: int, floats: int = FLOATS) -> int:
    """How many of n rows to process at once: at most `most`, and as many as fit into `floats`; at least one.

    The number of rows is rounded up, to 2^k or 3 * 2^k, so that programs have few sizes and are found in the cache.
    """
    step = 1 << max((n - 1).bit_length() - 2, 0)
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


def map_rows(
    f: Callable[..., Any],
    n: int,
    at_once: int,
    *rows: Any,
    out_axis: int = 0,
    numbered: bool = False,
    progress: Callable[[int], object] | None = None,
) -> Any:
    """Applies f to n > 0 rows, `at_once` at a time.

    Args:
        f: called as f(*parts), or as f(start, *parts) if `numbered`, with `at_once` rows of everything in `rows`.
            Returns a pytree of arrays with one row for each of them. While it computes, the previous results are
            fetched.
        n: the number of rows.
        at_once: rows per call, see `rows_within`.
        *rows: arrays with n rows each, pytrees of them, or None.
        out_axis: the axis of the rows in the results; in `rows` it is the first.
        numbered: whether f is also given the number of the part's first row.
        progress: called with the number of rows done after each call.

    Returns:
        The results as NumPy arrays with n rows.
    """
    results, last = [], None

    def fetch(found, count):
        results.append(jax.tree.map(lambda v: _sliced(v, out_axis, 0, count), jax.device_get(found)))
        if progress is not None:
            progress(count)

    for start, count in chunks(n, at_once):
        parts = cut(rows, start, count, at_once)
        found = f(start, *parts) if numbered else f(*parts)
        if last is not None:
            fetch(*last)
        last = found, count
    if last is None:
        raise ValueError("there are no rows to work on")
    fetch(*last)
    return results[0] if len(results) == 1 else jax.tree.map(lambda *v: np.concatenate(v, axis=out_axis), *results)


def _sliced(v, axis: int, start: int, stop: int):
    return v[(slice(None),) * (axis % v.ndim) + (slice(start, stop),)]
