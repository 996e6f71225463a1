"""`darn plan` beside what a run takes: `python -m benchmarks.forecast RECIPE ... [--out FILE]`.

Predicted and measured in turn on the same device. A step is measured over whole epochs of the run's own program, its
memory is what XLA says of that program, and the arrays that the run holds.
"""

import argparse
import json
import os
import time
from pathlib import Path

import jax
import numpy as np

from benchmarks.measure import environment
from darn.paper.recipes import RECIPES
from darn.runs.dataset import load_data
from darn.runs.forecast import forecast
from darn.runs.start import new_model
from darn.training import DeviceRows, Loop

NAMES = ("mushrooms", "adult", "dna", "digits", "mnist-500")
SECONDS = 2.0


def compared(name: str) -> dict:
    """One recipe, predicted and measured."""
    recipe = RECIPES[name]
    splits = load_data(recipe)
    told = forecast(recipe, splits)
    dynamic = recipe.data.binarize == "dynamic" and splits.train.grey
    rows = DeviceRows.put(splits.train), DeviceRows.put(splits.valid)
    loop = Loop([new_model(recipe, splits)], [recipe.training], *rows, dynamic=dynamic)
    program = loop.program.epochs.lower(loop.state, loop.hyper, rows[0], 0, 1).compile()
    temporary = program.memory_analysis().temp_size_in_bytes
    held = sum(v.nbytes for v in jax.tree.leaves((loop.state, loop.best, rows)))
    state, steps, began = loop.state, 0, None
    while began is None or time.perf_counter() - began < SECONDS:
        state, _ = jax.block_until_ready(program(state, loop.hyper, rows[0], 0, 1))
        began, steps = (time.perf_counter(), 0) if began is None else (began, steps + loop.program.steps_per_epoch)
    step = (time.perf_counter() - began) / steps
    memory = temporary + held
    return {
        "recipe": name,
        "step_seconds": {"predicted": told.step_seconds, "measured": step, "ratio": told.step_seconds / step},
        "memory_bytes": {"predicted": told.memory_bytes, "measured": memory, "ratio": told.memory_bytes / memory},
        "load": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", default=NAMES)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    found = []
    for name in args.recipes:
        found.append(compared(name))
        print(json.dumps(found[-1]), flush=True)
    within = [bool(np.isclose(r[k]["ratio"], 1, atol=0.25)) for r in found for k in ("step_seconds", "memory_bytes")]
    print(f"{sum(within)} of {len(within)} predictions are within 25%")
    command = " ".join(["python -m benchmarks.forecast", *args.recipes])
    if args.out:
        args.out.write_text(json.dumps(environment(command, 0) | {"runs": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
