"""Work over many rows in bounded memory: chunks of one size, a key for every row, padding. Here and nowhere else."""

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
    """How many of n rows to take at once: at most `most`, and at most what `floats` has room for; at least one."""
    return max(min(most, n, floats // row_floats), 1)


def chunks(n: int, size: int) -> Iterator[tuple[int, int]]:
    """(first row, number of rows) of each chunk."""
    for start in range(0, n, size):
        yield start, min(size, n - start)


def cut(rows: Any, start: int, count: int, size: int, axis: int = 0) -> Any:
    """Rows start .. start + count of every array of a pytree, made `size` long by repeating the last one.

    All chunks then have one shape, and run one compiled program.
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
    """f over n > 0 rows, `at_once` at a time; its results as NumPy arrays of n rows.

    Args:
        f: called as f(*parts), or f(start, *parts) where `numbered`, with `at_once` rows of all that is in `rows`;
            returns a pytree of arrays with a row for each of those. While it computes, the last results are fetched.
        n: the number of rows.
        at_once: rows of one call, see `rows_within`.
        *rows: arrays with n rows each, pytrees of them, or None.
        out_axis: where the rows are in the results; in `rows` they come first.
        numbered: whether f is told the number of the part's first row.
        progress: called with the number of rows done after each call.
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
