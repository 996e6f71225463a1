"""The paper's Atari network on one device: `python -m benchmarks.atari [--quick] [--out FILE]`.

Training: seconds of a step at batch 100, and the useful arithmetic in it (products whose weight is in use and whose
input is on the grid; two operations each; forwards, for the weights, and for the input where it has a gradient) as a
share of what a plain matrix product reaches at the same precision in the same run; in total, for two sizes of the local
maps' tiles, and map by map alone. Sampling: frames a second in wavefronts and pixel by pixel. One JSON, and a table to
read.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.measure import ROOT, device_name, environment
from darn.data import Rows
from darn.nn import CausalDense, CausalLocal, Dense, Local, LocalTranspose
from darn.paper.recipes import RECIPES
from darn.training import DeviceRows, Hyper, Program
from darn.zoo import build


def seconds(run, *args, least: float = 0.5) -> float:
    """Of one call, the best of several once compiled."""
    jax.block_until_ready(run(*args))
    found, spent = [], 0.0
    while spent < least or len(found) < 3:
        start = time.perf_counter()
        jax.block_until_ready(run(*args))
        found.append(time.perf_counter() - start)
        spent += found[-1]
    return min(found)


def products(m) -> int:
    """Multiplications that one forward pass of a map needs for one example."""
    if isinstance(m, LocalTranspose):
        return products(m.of)
    if isinstance(m, Local):
        k, s = m.W.shape[2], m.stride

        def pairs(n, size):  # (output, place of the window) with the place on the grid, along one axis
            first = np.arange(n) * s - max((n - 1) * s + k - size, 0) // 2
            place = first[:, None] + np.arange(k)
            return int(((place >= 0) & (place < size)).sum())

        rows, columns, F = m.out
        return pairs(rows, m.grid[0]) * pairs(columns, m.grid[1]) * m.grid[2] * F
    if isinstance(m, CausalLocal):
        (H, W, _), r, total = m.grid, m.r, 0
        sees = m._sees().sum(axis=(2, 3))
        for a in range(r + 1):
            for b in range(2 * r + 1):
                total += int(sees[a, b]) * max(H - (r - a), 0) * max(W - abs(b - r), 0)
        return total
    if isinstance(m, CausalDense):
        return m.n * (m.n - 1) // 2
    if isinstance(m, Dense):
        return m.W.size
    return 0


def used_maps(model):
    """(name, map, whether its input has a gradient, size of its input) of every linear map of a stack."""
    for part, name in [(p, f"encoder {k + 1}") for k, p in enumerate(model.encoder)] + [
        (p, f"decoder {l}") for l, p in enumerate(model.decoder)
    ]:
        chain = [*(part.net.maps if part.net is not None else ()), *([part.layer.U] if part.layer.U else [])]
        linear = [m for m in chain if products(m)]
        for i, m in enumerate(linear):
            yield f"{name}, map {i + 1} ({type(m).__name__})", m, name != "encoder 1" or i > 0
        W = getattr(part.layer, "W", None)
        if W is not None:
            yield f"{name}, autoregression ({type(W).__name__})", W, name != "decoder 0"


def size_in(m) -> int:
    if isinstance(m, LocalTranspose):
        return int(np.prod(m.of.out))
    if isinstance(m, Local):
        return int(np.prod(m.grid))
    return m.n if isinstance(m, CausalDense | CausalLocal) else m.W.shape[1]


def operations(model) -> int:
    """Useful operations of one example in one training step."""
    return sum(2 * products(m) * (3 if live else 2) for _, m, live in used_maps(model))


def with_tiles(model, local: int, causal: int):
    """The same model with other tiles."""

    def change(m):
        if not isinstance(m, Local | CausalLocal):
            return m
        new = object.__new__(type(m))
        for f in dataclasses.fields(m):
            value = getattr(m, f.name)
            object.__setattr__(new, f.name, (local if isinstance(m, Local) else causal) if f.name == "tile" else value)
        return new

    return jax.tree.map(change, model, is_leaf=lambda m: isinstance(m, Local | CausalLocal))


def plain_product(n: int) -> float:
    """Operations a second of a plain matrix product."""
    a = jax.random.normal(jax.random.key(0), (n, n))
    return 2 * n**3 / seconds(jax.jit(jnp.matmul), a, a)


def one_map(m, live: bool, batch: int) -> float:
    """Seconds of a map alone: forwards, and back to its weights and, where `live`, to its input."""
    x = (jax.random.uniform(jax.random.key(1), (batch, size_in(m))) < 0.1).astype(jnp.float32)

    def loss(m, x, g):
        return jnp.vdot(jax.vmap(m)(x), g)

    g = jax.random.normal(jax.random.key(2), jax.eval_shape(jax.vmap(m), x).shape)
    return seconds(jax.jit(jax.grad(loss, argnums=(0, 1) if live else 0)), m, x, g)


def training_step(model, recipe, batch: int, steps: int) -> float:
    """Seconds of one step, many of them in one program as training runs them."""
    rng = np.random.default_rng(0)
    rows = Rows(rng.integers(0, 256, (batch * steps, -(-model.n_x // 8)), dtype=np.uint8), model.n_x)
    program = Program(model, dataclasses.replace(recipe.training, batch=batch), len(rows))
    hyper, on_device, zero, one = Hyper.of(recipe.training), DeviceRows.put(rows), jnp.asarray(0), jnp.asarray(1)
    state = program.start(model, hyper)
    state, _ = jax.block_until_ready(program.epochs(state, hyper, on_device, zero, one))
    found = []
    for _ in range(3):
        start = time.perf_counter()
        state, _ = jax.block_until_ready(program.epochs(state, hyper, on_device, zero, one))
        found.append(time.perf_counter() - start)
    return min(found) / steps


def pixel_by_pixel(layer, u):
    """One frame from its uniform numbers, each pixel from its own window: the walk that wavefronts replace."""
    W, (H, V, _), r = layer.W, layer.W.grid, layer.W.r
    kernel = W.weights()[..., 0, 0]
    a = layer.start()

    def pixel(y, n):
        i, j = n // V, n % V
        window = lax.dynamic_slice(y, (i, j), (r + 1, 2 * r + 1))
        w = kernel[i % kernel.shape[0], j % kernel.shape[1]]
        total = jnp.vdot(window, w, precision=lax.Precision.HIGHEST)
        bit = (u[n] < jax.nn.sigmoid(a[n] + total)).astype(y.dtype)
        return lax.dynamic_update_slice(y, bit[None, None], (i + r, j + r)), None

    y, _ = lax.scan(pixel, jnp.zeros((H + r, V + 2 * r)), jnp.arange(H * V))
    return y[r:, r : r + V].reshape(-1)


def sampling_rows(model, batch: int) -> dict:
    """Frames a second of the visible layer in wavefronts and pixel by pixel, on the same numbers."""
    layer = eqx.tree_at(lambda v: v.U, model.decoder[0].layer, None)
    u = jax.random.uniform(jax.random.key(3), (batch, layer.n))

    def decide(u):
        return lambda carry, j, a: (carry, (u[j] < jax.nn.sigmoid(a)).astype(a.dtype))

    fronts = jax.jit(jax.vmap(lambda u: layer.chain(decide(u), None)[0]))
    pixels = jax.jit(jax.vmap(lambda u: pixel_by_pixel(layer, u)))
    same = float(jnp.mean(fronts(u) == pixels(u)))
    a, b = seconds(fronts, u), seconds(pixels, u)
    rates = {"wavefront_frames_s": batch / a, "pixel_by_pixel_frames_s": batch / b, "times_faster": b / a}
    return {"batch": batch, **rates, "same_bits": same}


def main(argv: list[str] | None = None) -> dict:
    parser = argparse.ArgumentParser("python -m benchmarks.atari", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small image and network: does it run?")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args(argv)
    recipe = RECIPES["atari/pong"]
    shape, batch, steps, n = (209, 159), 100, 50, 8192
    if args.quick:
        recipe, shape, batch, steps, n = recipe.tiny(), (29, 25), 4, 3, 256
    tiles = [(1, 14), (2, 14)] if not args.quick else [(2, 14)]
    model = build(recipe.architecture, shape[0] * shape[1], shape=shape, key=jax.random.key(0))
    noise = lambda w: 0.1 * jax.random.normal(jax.random.key(w.size), w.shape) if eqx.is_inexact_array(w) else w  # noqa: E731
    model = eqx.tree_at(lambda m: m.decoder[0].layer.W, model, replace_fn=lambda W: jax.tree.map(noise, W))
    record = environment("python -m benchmarks.atari" + (" --quick" if args.quick else ""), 0)
    total = batch * operations(model)
    record |= {
        "shape": shape,
        "batch": batch,
        "useful_operations_a_step": total,
        "sampling": [],
        "training": [],
        "maps": [],
    }
    out = args.out or ROOT / "results" / "bench" / f"{device_name()}-atari{'-quick' if args.quick else ''}.json"
    out.parent.mkdir(parents=True, exist_ok=True)

    def keep(part: str, row: dict) -> None:  # row by row: an interrupted run is not lost
        record[part].append(row)
        out.write_text(json.dumps(record, indent=1) + "\n")

    for size in (2,) if args.quick else (16, 256):
        row = sampling_rows(model, size)
        keep("sampling", row)
        print(json.dumps(row), flush=True)
    plain = {}
    for precision in ("default",) if args.quick else ("highest", "default"):
        with jax.default_matmul_precision(precision):
            plain[precision] = plain_product(n)
            for local, causal in tiles:
                took = training_step(with_tiles(model, local, causal), recipe, batch, steps)
                row = {"precision": precision, "tile": [local, causal], "step_us": 1e6 * took}
                stats = jax.devices()[0].memory_stats() or {}
                row |= {"plain_flops": plain[precision], "share_of_plain": total / took / plain[precision]}
                keep("training", row | {"peak_bytes": stats.get("peak_bytes_in_use")})
                rates = f"{total / took / 1e12:6.2f} of {plain[precision] / 1e12:6.2f} Tflop/s"
                print(
                    f"{precision:8} tiles {local, causal}: {row['step_us']:8.0f} us a step, {rates} = "
                    f"{row['share_of_plain']:.1%}",
                    flush=True,
                )
    for precision, flops in plain.items():
        with jax.default_matmul_precision(precision):
            for name, m, live in used_maps(model):
                took = one_map(m, live, batch)
                useful = batch * 2 * products(m) * (3 if live else 2)
                row = {"map": name, "precision": precision, "us": 1e6 * took, "useful": useful}
                keep("maps", row | {"share_of_plain": useful / took / flops})
                print(f"{precision:8} {name:48} {row['us']:8.0f} us, {useful / took / flops:.1%}", flush=True)
    return record


if __name__ == "__main__":
    main()
