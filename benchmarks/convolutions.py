"""Causal convolutions with columns taken together: `python -m benchmarks.convolutions [--quick] [--out FILE]`.

Seconds of a gradient step of the Atari net (`conv_fold` 1, 2, 4), in turn in one run; one JSON, and a table to read.
"""

import argparse
import json
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp

from benchmarks.atari import seconds
from benchmarks.measure import device_name, environment
from darn.layers import CausalConv

FOLDS = (1, 2, 4)


def step_seconds(fold: int, grid: tuple[int, int, int], channels: int, batch: int) -> float:
    """Of a gradient of the layer's training loss, without a code."""
    sizes = {"channels": channels, "n_blocks": 8, "first": (4, 9, 8), "dilations": (1, 2, 4, 8)}
    layer = CausalConv(grid, **sizes, places=True, fold=fold, key=jax.random.key(0))
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
    grid, batch = ((24, 16, 1), 2) if args.quick else ((209, 159, 1), 24)
    found = {}
    for channels in (8, 48):
        times = {fold: step_seconds(fold, grid, channels, batch) for fold in FOLDS}
        found[channels] = times
        shown = ", ".join(f"{fold}: {1e3 * t / batch:.2f} ms a frame" for fold, t in times.items())
        print(f"{channels} channels, columns taken together {shown}")
    record = {"device": device_name(), "environment": environment(), "grid": grid, "batch": batch, "seconds": found}
    if args.out:
        Path(args.out).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
