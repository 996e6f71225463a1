"""Training steps per second: whole epochs in one program against loops over steps."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks import sizes
from benchmarks.limits import Needs
from benchmarks.measure import Comparison, Way, torch_module
from darn.config import Training
from darn.data import Rows
from darn.training import Batch, DeviceRows, Hyper, Program

BATCH, LR = 100, 2.5e-4


def comparisons(quick: bool, seed: int) -> Iterator[Comparison]:
    for size in sizes.SMALL[:1] if quick else (sizes.UCI, sizes.MNIST):
        model = size.fresh(seed)
        x = size.rows(200 if quick else 5000, seed)
        config = Training(batch=BATCH, lr=LR, seed=seed)
        program, hyper = Program(model, config, len(x)), Hyper.of(config)
        steps = program.steps_per_epoch
        others = [Way("jitted step in a Python loop", step_loop(program, hyper, model, x, seed), steps)]
        skipped = {}
        torch, why = torch_module()
        for name, mode in torch_modes().items():
            if torch is None:
                skipped[name] = why
            elif quick and mode:
                skipped[name] = "quick"  # compiling takes longer than all the rest
            else:
                others.append(Way(name, torch_loop(model, x, mode), steps, optional=mode is not None))
        yield Comparison(
            f"training, {size.name}, batch {BATCH}",
            "steps/s",
            Way("Program.epochs", epochs(program, hyper, model, x), steps),
            others,
            skipped,
            {"n_train": len(x), "batch": BATCH, **vars(size)},
            # Forwards, and backwards to inputs and weights; a step reads and writes weights, and reads gradients and
            # reads and writes the optimiser's three averages.
            Needs(products=3 * BATCH * sum(size.products.values()), bytes=9 * 4 * size.weights),
        )


def epochs(program: Program, hyper: Hyper, model, x: np.ndarray):
    """Ours: bits packed on the device, n epochs in one program."""
    state, rows = program.start(model, hyper), DeviceRows.put(Rows.from_array(x))

    def run(n: int):
        nonlocal state
        state, metrics = program.epochs(state, hyper, rows, 0, n)
        return jax.block_until_ready((state, metrics))

    return run


def step_loop(program: Program, hyper: Hyper, model, x: np.ndarray, seed: int):
    """The same step, jitted alone with its state donated, called for each slice of shuffled float rows."""
    state, rows = program.start(model, hyper), jnp.asarray(x, jnp.float32)
    rng = np.random.default_rng(seed)
    shuffle = jax.jit(lambda rows, key: jax.random.permutation(jax.random.key(key), rows))

    def sliced(state, rows, start):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), state.step), program.batch)
        return program.step(state, hyper, Batch(lax.dynamic_slice_in_dim(rows, start, program.batch), None, keys))

    step = jax.jit(sliced, donate_argnums=0)

    def run(n: int):
        nonlocal state
        for _ in range(n):
            shuffled = shuffle(rows, rng.integers(2**31))
            for i in range(program.steps_per_epoch):
                state, metrics = step(state, shuffled, i * program.batch)
        return jax.block_until_ready((state, metrics))

    return run


def torch_modes() -> dict[str, str | None]:
    """Ways to run PyTorch here: name -> torch.compile's mode."""
    modes = {"PyTorch, eager": None, "PyTorch, torch.compile": "default"}
    if jax.default_backend() == "gpu":
        modes["PyTorch, torch.compile, CUDA graphs"] = "reduce-overhead"
    return modes


def torch_loop(model, x: np.ndarray, mode: str | None):
    """PyTorch's turn; built at the first call, so that what fails does so where it can be left out."""
    trainer = None

    def run(n: int):
        nonlocal trainer
        if trainer is None:
            from benchmarks.torch_twin import Trainer

            trainer = Trainer(model, x, BATCH, LR, mode=mode)
        return trainer.epochs(n)

    return run
