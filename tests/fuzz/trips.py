"""Round trips of random tables, as text, and of random rows through random stacks: byte for byte."""

from pathlib import Path
from types import SimpleNamespace

import jax

from benchmarks.codec import trips
from fuzz.mutate import Rng


def table(rng: Rng, folder: Path) -> str:
    """One random table: empty rows, blanks, quotes, line breaks, numbers as text."""
    from test_verbatim import test_random_tables_come_back_byte_for_byte as come_back  # which needs polars

    come_back(int(rng.integers(1 << 30)), folder)
    return "same"


def stack(rng: Rng, _: Path) -> str:
    """A random stack, and fifty sets of rows through it."""
    try:
        assert trips(SimpleNamespace(first=int(rng.integers(1 << 30)), stacks=1, sets=50))["round_trips"] == 50
    finally:
        jax.clear_caches()  # the programs of all stacks together would take more memory than a process may have
    return "same"
