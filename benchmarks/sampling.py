"""Samples per second from 784 linear-autoregressive units."""

from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.limits import Needs
from benchmarks.measure import Comparison, Way, faster
from darn import zoo
from darn.inference import sampling


def comparisons(quick: bool, seed: int) -> Iterator[Comparison]:
    n = 40 if quick else 784
    k_w, k_b = jax.random.split(jax.random.key(seed))
    model = zoo.fvsbn(n, key=k_w)
    weights = (jax.random.normal(k_w, (n, n)) / n**0.5, jax.random.normal(k_b, (n,)) - 2)
    model = eqx.tree_at(lambda m: (m.decoder[0].layer.W.W, m.decoder[0].layer.b), model, weights)
    layer = model.decoder[0].layer
    batches = (10,) if quick else (100, 1000) if jax.default_backend() == "cpu" else (100, 1000, 10000)
    key = jax.random.key(seed)
    for batch in batches:
        name = "full forward pass a unit (the faster of fori_loop and a Python loop)"
        full = faster(name, full_pass_fori(layer, key, batch), full_pass_loop(layer, key, batch))
        yield Comparison(
            f"sampling, {n} linear-autoregressive units, batch {batch}",
            "samples/s",
            sample(model, batch),
            (many(model, batch), compiled_draw(model, seed, batch), unit_by_unit(layer, key, batch), full),
            sizes={"n_x": n, "batch": batch},
            needs=Needs(products=n * (n - 1) / 2, turns=n / batch),
        )


def repeated(name: str, once, batch: int) -> Way:
    """A way that calls `once` for every batch and waits for the last one."""
    return Way(name, lambda n: jax.block_until_ready([once() for _ in range(n)][-1]), batch)


def sample(model, batch: int) -> Way:
    """Ours, as a user calls it: rows end up in NumPy."""
    return repeated("darn.inference.sampling.sample", lambda: sampling.sample(model, batch), batch)


def many(model, batch: int, times: int = 20) -> Way:
    """The same for many batches in one call: rows are copied while the device draws the next."""
    return repeated(
        f"(ours, {times} batches in a call)", lambda: sampling.sample(model, times * batch, chunk=batch), times * batch
    )


def compiled_draw(model, seed: int, batch: int) -> Way:
    """Our compiled program alone, without the copy to the host: what `sample` adds is the difference."""
    seed, numbers = np.asarray(seed), np.arange(batch, dtype=np.uint32)
    return repeated(
        "(ours, compiled part alone)",
        lambda: sampling._draw(model, seed, numbers, (), None, False),
        batch,
    )


def unit_by_unit(layer, key, batch: int) -> Way:
    """A scan over units that keeps the running logits."""

    @jax.jit
    def draw(layer, key):
        def one(u):
            def unit(a, j):
                y_j = (u[j] < jax.nn.sigmoid(a[j])).astype(a.dtype)
                return a + layer.W.outgoing(j) * y_j, y_j

            return lax.scan(unit, layer.start(), jnp.arange(layer.n))[1]

        return jax.vmap(one)(jax.random.uniform(key, (batch, layer.n)))

    return repeated("scan over units, running logits", lambda: draw(layer, key), batch)


def decide_unit(layer, y, u, j):
    """One full forward pass, of which one unit is used."""
    a = jax.vmap(layer.logits)(y)
    return y.at[:, j].set((u[:, j] < jax.nn.sigmoid(a[:, j])).astype(y.dtype))


def full_pass_fori(layer, key, batch: int) -> Way:
    """The loop over units inside the program."""

    @jax.jit
    def draw(layer, key):
        u = jax.random.uniform(key, (batch, layer.n))
        unit = lambda j, y: decide_unit(layer, y, u, j)  # noqa: E731
        return lax.fori_loop(0, layer.n, unit, jnp.zeros((batch, layer.n)))

    return repeated("fori_loop", lambda: draw(layer, key), batch)


def full_pass_loop(layer, key, batch: int) -> Way:
    """The loop over units in Python."""
    uniform = jax.jit(lambda key: jax.random.uniform(key, (batch, layer.n)))
    step = jax.jit(decide_unit, donate_argnums=1)

    def draw():
        u, y = uniform(key), jnp.zeros((batch, layer.n))
        for j in range(layer.n):
            y = step(layer, y, u, j)
        return y

    return repeated("Python loop", draw, batch)
