"""Dilated convolutions: `python -m benchmarks.convolutions [--quick] [--out FILE]`.

Milliseconds of a gradient of one convolution of the Atari net at each dilation, in turn in one run: ours, which takes
the grid apart, and the library's own dilation. Then of a training step of the whole net. One JSON, and a table to read.
"""

import argparse
import json
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.atari import seconds
from benchmarks.measure import device_name, environment
from darn.layers import CausalConv
from darn.nn import CausalConvolution

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


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small grid, for a trial")
    parser.add_argument("--out", help="write the JSON there")
    args = parser.parse_args(argv)
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
    record = {
        "device": device_name(),
        "environment": environment("python -m benchmarks.convolutions", 0),
        **sizes,
        "gradient_seconds": found,
        "step_seconds": step,
    }
    if args.out:
        Path(args.out).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
