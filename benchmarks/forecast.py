"""`darn plan` beside what a run takes: `python -m benchmarks.forecast [RECIPE ...] [--out FILE]`.

The recipes are trained for some seconds each and predicted, in turn on the same device, each in a process of its own.
The seconds of a step are those that the run itself counts. Memory is the peak that an accelerator reports in the first
round, compilation included. A CPU has no such record: there it is the arrays that the run holds, and what XLA says of
the run's programs.
"""

import argparse
import gc
import json
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import jax

from benchmarks.measure import ROOT, device_name, environment
from darn.paper.recipes import RECIPES
from darn.runs.dataset import load_data
from darn.runs.forecast import Forecast, forecast
from darn.runs.start import new_model
from darn.training import DeviceRows, Loop

NAMES = ("digits", "dna", "mushrooms", "adult", "mnist-500")
SECONDS = 3.0
WITHIN = 0.25


def alone(f, *given):
    """f(*given) in a process of its own, since a device tells the peak of a whole process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(f, *given).result()


def predicted(name: str) -> Forecast:
    """What `darn plan` says."""
    recipe = RECIPES[name]
    return forecast(recipe, load_data(recipe))


def measured(name: str) -> dict[str, float]:
    """Seconds of a step, and bytes, of a run that is ended after some seconds."""
    recipe, before = RECIPES[name], _reported()
    splits = load_data(recipe)
    dynamic = recipe.data.binarize == "dynamic" and splits.train.grey
    rows = DeviceRows.put(splits.train), DeviceRows.put(splits.valid)
    loop = Loop([new_model(recipe, splits)], [recipe.training], *rows, dynamic=dynamic)
    record, times, began = loop.records[0], [], None
    while loop.running and (began is None or time.perf_counter() - began < SECONDS):
        epoch, seconds = loop.epoch, record.seconds
        loop.advance()
        if record.seconds > seconds:  # the first call, which compiles, is not counted
            times.append((record.seconds - seconds) / (loop.epoch - epoch) / loop.program.steps_per_epoch)
            began = began or time.perf_counter()
    after = _reported()
    if before is None or after is None:
        memory = _by_programs(loop, *rows)
    else:
        memory = after["peak_bytes_in_use"] - before["bytes_in_use"]
    return {"step_seconds": statistics.median(times), "memory_bytes": memory}


def _reported() -> dict | None:
    """What the device says of its memory, without what is no longer in use."""
    gc.collect()
    return jax.local_devices()[0].memory_stats()


def _by_programs(loop: Loop, train: DeviceRows, valid: DeviceRows) -> int:
    """The arrays that the run holds, and the temporary ones of a call into one of its programs."""
    program, given = loop.program, (loop.state, loop.hyper)
    lowered = program.epochs.lower(*given, train, 0, 1), program.bound.lower(*given, valid, n_samples=loop.n_samples)
    temporary = max(one.compile().memory_analysis().temp_size_in_bytes for one in lowered)
    return temporary + sum(v.nbytes for v in jax.tree.leaves((loop.state, loop.best, train, valid)))


def main(argv: list[str] | None = None) -> dict:
    parser = argparse.ArgumentParser("python -m benchmarks.forecast", description=__doc__)
    parser.add_argument("recipes", nargs="*", default=NAMES, metavar="RECIPE")
    parser.add_argument("--rounds", type=int, default=1, help="more on a machine that has other work to do")
    parser.add_argument("--out", type=Path, help="where the JSON goes; default: results/bench/<device>-forecast.json")
    args = parser.parse_args(argv)
    rounds = []
    for _ in range(args.rounds):
        rounds.append({name: (alone(measured, name), alone(predicted, name)) for name in args.recipes})
    command = " ".join(["python -m benchmarks.forecast", *args.recipes, f"--rounds {args.rounds}"])
    record = environment(command, 0) | {
        "seconds": SECONDS,
        "recipes": [compared(name, rounds) for name in args.recipes],
    }
    for one in record["recipes"]:
        print(json.dumps(one), flush=True)
    ratios = [one[key]["ratio"] for one in record["recipes"] for key in ("step_seconds", "memory_bytes")]
    within = [abs(ratio - 1) <= WITHIN for ratio in ratios]
    print(f"{sum(within)} of {len(within)} predictions are within {WITHIN:.0%}")
    out = args.out or ROOT / "results" / "bench" / f"{device_name()}-forecast.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(record, indent=1) + "\n")
    return record


def compared(name: str, rounds: list[dict]) -> dict:
    """Predictions of a recipe and the figures measured: of time, the medians over the rounds and of their ratios."""
    runs, told = zip(*(one[name] for one in rounds))
    steps = [run["step_seconds"] for run in runs], [each.step_seconds for each in told]
    step = {"predicted": statistics.median(steps[1]), "measured": statistics.median(steps[0])}
    step |= {"ratio": statistics.median(p / m for m, p in zip(*steps)), "rounds": steps}
    memory = {"predicted": told[0].memory_bytes, "measured": runs[0]["memory_bytes"]}
    memory["ratio"] = memory["predicted"] / memory["measured"]
    memory |= {
        "compiling": told[0].compiling_bytes,
        "running": told[0].state_bytes + told[0].data_bytes + told[0].activation_bytes,
    }
    return {"recipe": name, "batch": told[0].batch, "step_seconds": step, "memory_bytes": memory}


if __name__ == "__main__":
    main()
