"""Causal convolutions: `python -m benchmarks.convolutions dilations|drawing [--out FILE]`.

dilations: milliseconds of a gradient of one convolution of the Atari net at each dilation, in turn in one run: ours,
which takes the grid apart, and the library's own dilation. Then of a training step of the whole net.

drawing: seconds to draw images from mnist-frontier, and to compute one full pass for every pixel, as a net that keeps
nothing from pixel to pixel must. Some of these passes are timed, and stand for all 784.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.atari import seconds
from benchmarks.measure import ROOT, device_name, environment
from darn.inference import sampling
from darn.layers import CausalConv
from darn.nn import CausalConvolution
from darn.runs.run import load

DILATIONS = (1, 2, 4, 8)


def dilated_seconds(dilation: int, x: jax.Array) -> dict[str, float]:
    """Of the convolution of a block's first half over rows of grids, ours and the library's."""
    channels = x.shape[-1]
    ours = CausalConvolution((2, 5), channels, channels, dilation=dilation, key=jax.random.key(0))
    dtype = jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16
    padding = ((ours.above, 0), (ours.before, ours.after))

    def library(W, x):
        out = lax.conv_general_dilated(
            x.astype(dtype),
            W.astype(dtype),
            (1, 1),
            padding,
            rhs_dilation=(dilation, dilation),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return out.astype(jnp.float32)

    def taken_apart(W, x):
        f = eqx.tree_at(lambda f: f.W, ours, W)
        return jax.vmap(lambda x: f(x, dtype))(x)

    def timed(convolution):
        loss = lambda W, x: jnp.sum(jnp.square(convolution(W, x)))  # noqa: E731
        return seconds(jax.jit(jax.grad(loss, argnums=(0, 1))), ours.W, x)

    return {"ours": timed(taken_apart), "library": timed(library)}


def step_seconds(grid: tuple[int, int, int], channels: int, batch: int) -> float:
    """Of a gradient of the layer's training loss, without a code."""
    sizes = {"channels": channels, "n_blocks": 8, "first": (4, 9, 8), "dilations": DILATIONS}
    layer = CausalConv(grid, **sizes, places=True, key=jax.random.key(0))
    weights, static = eqx.partition(layer, eqx.is_inexact_array)
    rows = jax.random.bernoulli(jax.random.key(1), 0.1, (batch, layer.n)).astype(jnp.float32)
    keys = jax.random.split(jax.random.key(2), batch)

    def loss(weights):
        one = lambda y, key: eqx.combine(weights, static).training_log_prob(y, key=key)  # noqa: E731
        return -jnp.mean(jax.vmap(one)(rows, keys))

    return seconds(jax.jit(jax.grad(loss)), weights)


def dilations(args: argparse.Namespace) -> dict:
    grid, batch, channels = ((24, 16, 1), 2, 8) if args.quick else ((209, 159, 1), 24, 48)
    x = jax.random.normal(jax.random.key(3), (batch, *grid[:2], channels))
    found = {}
    for dilation in DILATIONS:
        times = found[dilation] = dilated_seconds(dilation, x)
        shown = ", ".join(f"{name} {1e3 * t / batch:.3f}" for name, t in times.items())
        print(
            f"dilation {dilation}, ms a frame: {shown}; {times['library'] / times['ours']:.1f} times as fast",
            flush=True,
        )
    step = step_seconds(grid, channels, batch)
    print(f"a training step of the net: {1e3 * step / batch:.2f} ms a frame")
    sizes = {"grid": grid, "batch": batch, "channels": channels}
    return {**sizes, "gradient_seconds": found, "step_seconds": step}


def drawing(args: argparse.Namespace) -> dict:
    """Images from the model's own sampler, in turn with full passes of its net over as many images."""
    model = load(args.model).model
    core, n = model.decoder[0].layer.core, args.images

    @jax.jit
    def passes(model, x, h):
        """One pixel after the other, each after a pass over all of them."""

        def pixel(j, x):
            a = jax.vmap(lambda x, h: model.decoder[0].layer.core.logits(x, model.above(0, (h,))))(x, h)
            return x.at[:, j].set((a[:, j] > 0).astype(x.dtype))

        return jax.lax.fori_loop(0, args.passes, pixel, x)

    x, h = jnp.zeros((n, core.n)), jnp.zeros((n, model.n_h[0]))
    ways = {"walk": lambda: sampling.sample(model, n).x, "passes": lambda: passes(model, x, h)}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(1 + args.repeats):
        for name, once in ways.items():
            start = time.perf_counter()
            jax.block_until_ready(once())
            times[name].append(time.perf_counter() - start)
            print(f"{name}, {'first call' if turn == 0 else turn}: {times[name][-1]:.2f} s", flush=True)
    walk = statistics.median(times["walk"][1:])
    full = statistics.median(times["passes"][1:]) * core.n / args.passes
    ratios = [p * core.n / args.passes / w for w, p in zip(times["walk"][1:], times["passes"][1:])]
    print(f"{n} images: {walk:.2f} s, by full passes {full:.1f} s, {statistics.median(ratios):.0f} times as fast")
    return {
        "model": args.model,
        "images": n,
        "passes_timed": args.passes,
        "passes_an_image": core.n,
        "seconds": times,  # the first of each compiles
        "walk_seconds": walk,
        "full_passes_seconds": full,
        "times_as_fast": {"median": statistics.median(ratios), "range": [min(ratios), max(ratios)]},
    }


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.convolutions", description=__doc__)
    commands = parser.add_subparsers(dest="name", required=True)
    p = commands.add_parser("dilations")
    p.add_argument("--quick", action="store_true", help="a small grid, for a trial")
    p = commands.add_parser("drawing")
    p.add_argument("model", nargs="?", default=str(ROOT / "results/models/mnist-frontier.safetensors"))
    p.add_argument("--images", type=int, default=1000)
    p.add_argument("--passes", type=int, default=20, help="full passes to time; the others are taken to last as long")
    p.add_argument("--repeats", type=int, default=5)
    for p in commands.choices.values():
        p.add_argument("--out", type=Path, help="where the JSON goes; default: results/bench/<device>-NAME.json")
    args = parser.parse_args(argv)
    given = [f"--{k} {v}" for k, v in vars(args).items() if k in ("images", "passes", "repeats", "quick")]
    record = environment(" ".join(["python -m benchmarks.convolutions", args.name, *given]), 0)
    record |= {"dilations": dilations, "drawing": drawing}[args.name](args)
    out = args.out or ROOT / "results" / "bench" / f"{device_name()}-{args.name}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
