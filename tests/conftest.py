"""Settings of every test: JAX on the CPU, no silent promotion of types or ranks, warnings as errors."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import itertools

import jax
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", "error")


@pytest.fixture
def getkey():
    """A function that returns a new random key at every call, the same ones in every run."""
    numbers = itertools.count()
    return lambda: jax.random.fold_in(jax.random.key(2014), next(numbers))
