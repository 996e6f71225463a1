"""Settings of every test: JAX on the CPU, no silent promotion of types or ranks, warnings as errors."""

import atexit
import gc
import os
import shutil
import sys
import tempfile
from importlib.metadata import version

os.environ.setdefault("JAX_PLATFORMS", "cpu")
worker = os.environ.get("PYTEST_XDIST_WORKER")
if worker is None:  # compiled programs are shared by the commands that this run starts, and by no other run
    os.environ["DARN_CACHE"] = tempfile.mkdtemp(prefix="darn-compiled-")
    atexit.register(shutil.rmtree, os.environ["DARN_CACHE"], ignore_errors=True)
    # So is Python's bytecode, if it is not to be kept: each of a hundred processes would compile JAX and ours again.
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        sys.dont_write_bytecode = False
        sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = os.path.join(os.environ["DARN_CACHE"], "bytecode")
# Most of the time goes into compiling programs that run for a moment.
# `XLA_FLAGS= pytest` optimises them in full.
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
if version("jax").startswith("0.10."):  # later ones refuse a flag that they do not know
    QUICK += " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
os.environ.setdefault("XLA_FLAGS", QUICK)
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")  # nobody reads the lines of these programs
gc.set_threshold(200_000, 50, 100)  # tracing makes many objects that live on: collecting takes a tenth of the time

# A core to each process of pytest-xdist: threads of small programs wait for each other more than they help.
if worker and hasattr(os, "sched_setaffinity"):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})

import itertools  # noqa: E402

import jax  # noqa: E402
import pytest  # noqa: E402
from jaxtyping import install_import_hook  # noqa: E402

# Shapes in annotations are checked at every call; not in inference.sparse, whose loop Numba compiles.
CHECKED = ("nn", "layers", "model", "batching", "gradients", "random")
INFERENCE = ("objective", "likelihood", "enumeration", "importance", "sampling", "completion", "filling")
CHECKED += tuple(f"inference.{module}" for module in INFERENCE)
install_import_hook([f"darn.{room}" for room in CHECKED], "beartype.beartype")

# Here a program is hardly ever compiled twice: to keep it takes longer than to find some again saves.
jax.config.update("jax_enable_compilation_cache", False)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
if os.environ["JAX_PLATFORMS"] != "cpu":  # laws compare sums to five digits, of which a GPU's own precision keeps three
    jax.config.update("jax_default_matmul_precision", "highest")


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", "error")
    config.addinivalue_line("filterwarnings", "ignore:Error (reading|writing) persistent compilation cache")


# The files that take longest, in this order before all others: none of them is to be the last, alone on one core.
LONG = ("products", "layers", "sweep", "report", "reproduce", "docs", "cli", "training", "codec", "gradients", "model")


def pytest_collection_modifyitems(items):
    rank = {f"test_{name}": i for i, name in enumerate(LONG)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))


@pytest.fixture(autouse=True, scope="module")
def _forget_programs():
    """A compiled program holds memory maps, of which Linux gives a process 65,530: all the suite's would not fit."""
    yield
    jax.clear_caches()


@pytest.fixture(autouse=True)
def _forget_programs_of_long_modules(counter=itertools.count(1)):  # noqa: B008
    """After 200 tests, which hold up to 40,000 of them."""
    yield
    if next(counter) % 200 == 0:
        jax.clear_caches()


@pytest.fixture(autouse=True, scope="module")
def _forget_layers():
    """Layers that a test has registered are its own."""
    import darn.zoo  # noqa: F401 (registers ours, which a test may be the first to import)
    from darn.nn import REGISTRY

    known = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(known)


@pytest.fixture
def getkey():
    """A function that returns a new random key at every call, the same ones in every run."""
    numbers = itertools.count()
    return lambda: jax.random.fold_in(jax.random.key(2014), next(numbers))
