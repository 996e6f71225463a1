"""Work over many rows in bounded memory: chunks of one size, a key for every row, padding. Here and nowhere else."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np


def row_keys(key, start: int, count: int):
    """A key for every row, a function of the row's number alone: no chunk size can change a result."""
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(start + jnp.arange(count))


def chunks(n: int, size: int) -> Iterator[tuple[int, int]]:
    """(first row, number of rows) of each chunk."""
    for start in range(0, n, size):
        yield start, min(size, n - start)


def pad_rows(rows: np.ndarray, size: int) -> np.ndarray:
    """`rows` made `size` long by repeating the last one, so that every chunk runs the same program."""
    return rows if len(rows) == size else np.concatenate([rows, np.repeat(rows[-1:], size - len(rows), axis=0)])
