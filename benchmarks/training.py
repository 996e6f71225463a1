"""Training steps per second: whole epochs in one program against loops over steps."""

from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks import sizes
from benchmarks.limits import Needs
from benchmarks.measure import Comparison, Way, torch_module
from darn.config import Training
from darn.data import Rows
from darn.nn import softplus
from darn.random import uniform
from darn.training import Batch, DeviceRows, Hyper, Program

BATCH, LR = 100, 2.5e-4
# What a step is made of, each alone.
PRODUCTS = "(its products alone, XLA)", "(its products alone, PyTorch)"
UPDATE, ACTIVATIONS = "(its update of the weights alone, XLA)", "(its activations alone, XLA)"
DRAWS = "(its random numbers alone, XLA)"
PARTS = PRODUCTS, (UPDATE,), (ACTIVATIONS,), (DRAWS,)


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
        others += floors(size, torch)
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
            PARTS,
        )


def epochs(program: Program, hyper: Hyper, model, x: np.ndarray):
    """Ours: bits packed on the device, n epochs in one program."""
    state, rows = program.start(model, hyper), DeviceRows.put(Rows.from_array(x))

    def run(n: int):
        nonlocal state
        state, metrics = program.epochs(state, hyper, rows, 0, n)
        return jax.block_until_ready((state, metrics))

    return run


def products_of(size: sizes.Size) -> list[tuple[int, int, int]]:
    """(rows, inner, columns) of the matrix products of a step: outputs, inputs' gradients and weights' gradients."""
    n_x, n_h, n_d = size.n_x, size.n_h, size.n_d
    given = [(n_x, n_d)] + [(n_x, n_x)] * (size.visible == "linear")  # of x, which needs no gradient
    drawn = [(n_d, n_h), (n_h, n_d), (n_d, n_x), (n_h, n_h)]
    found = [(BATCH, a, b) for a, b in given + drawn] + [(a, BATCH, b) for a, b in given + drawn]
    return found + [(BATCH, b, a) for a, b in drawn]


def floors(size: sizes.Size, torch) -> Iterator[Way]:
    """What any way of training does at least: a step's products, by both libraries, its pass over the weights, its
    activations with their slopes, and its random numbers. Each alone, as fast as we know how.
    """
    rng = np.random.default_rng(0)
    pairs = [(rng.random((m, k), np.float32), rng.random((k, n), np.float32)) for m, k, n in products_of(size)]
    ours, times = [tuple(map(jnp.asarray, pair)) for pair in pairs], 50

    @jax.jit
    def multiply(pairs):
        left, right = zip(*pairs)

        def again(_, carry):
            right, made = carry
            # Every turn needs the one before: else the products would be made once.
            right = [b.at[0, 0].add(1e-20 * c[0, 0]) for b, c in zip(right, made)]
            return right, [a @ b for a, b in zip(left, right)]

        return lax.fori_loop(0, times, again, (list(right), [jnp.zeros((len(a), b.shape[1])) for a, b in pairs]))

    yield Way(PRODUCTS[0], lambda n: [jax.block_until_ready(multiply(ours)) for _ in range(n)], times)
    if torch is not None:
        device = "cuda" if jax.default_backend() == "gpu" else "cpu"
        theirs = [tuple(torch.tensor(v, device=device) for v in pair) for pair in pairs]

        def multiplied(n: int) -> float:
            made = [[a @ b for a, b in theirs] for _ in range(n)]
            return float(made[-1][-1][0, 0])  # waits for the device

        yield Way(PRODUCTS[1], multiplied, 1)

    @partial(jax.jit, donate_argnums=0)
    def update(held, gradient):
        w, n, m, delta = held
        n, m = 0.95 * n + 0.05 * gradient**2, 0.95 * m + 0.05 * gradient
        delta = 0.9 * delta - LR * gradient * lax.rsqrt(n - m**2 + 1e-4)
        return w + delta, n, m, delta

    held, gradient = tuple(jnp.zeros(size.weights) for _ in range(4)), jnp.ones(size.weights)

    def updated(times: int):
        nonlocal held
        for _ in range(times):
            held = update(held, gradient)
        return jax.block_until_ready(held)

    yield Way(UPDATE, updated, 1)

    @jax.jit
    def activate(logits, inputs):
        def again(_, carry):
            logits, inputs = carry
            logits = [softplus(a) - jax.nn.sigmoid(a) for a in logits]  # log p, and its slope
            return logits, [t * (1 - t * t) for t in map(jnp.tanh, inputs)]

        return lax.fori_loop(0, times, again, (logits, inputs))

    logits = [jnp.ones((BATCH, n)) for n in (size.n_x, size.n_h, size.n_h)]  # p(x|h), p(h), q(h|x)
    inputs = [jnp.ones((BATCH, size.n_d)) for _ in range(2)]  # of the encoder and of the decoder

    def activated(n: int):
        return [jax.block_until_ready(activate(logits, inputs)) for _ in range(n)]

    yield Way(ACTIVATIONS, activated, times)

    @jax.jit
    def draw(key):
        def again(i, total):
            keys = jax.random.split(jax.random.fold_in(key, i), BATCH)  # one for each row
            return total + jax.vmap(lambda k: uniform(k, size.n_h))(keys)

        return lax.fori_loop(0, times, again, jnp.zeros((BATCH, size.n_h)))

    def drawn(n: int):
        return [jax.block_until_ready(draw(jax.random.key(i))) for i in range(n)]

    yield Way(DRAWS, drawn, times)


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
