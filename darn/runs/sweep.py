"""Sweeps: many recipes over one data set, the best by validation bound as an ordinary run folder.

A sweep's folder holds sweep.json (grid, plan, table), models/NNN.safetensors and .jsonl (each model's best weights and
its history), a checkpoint while it runs, and at the end best/, a run like any other.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jax
import numpy as np

from darn import data
from darn.config import Architecture, Training
from darn.devices import Devices, host, using
from darn.errors import DarnError
from darn.files import atomic, locked, read_bytes
from darn.model import Stack
from darn.model_file import load_model, save_model
from darn.runs.dataset import limit, load_data, read_data, training_rows
from darn.runs.grid import expand
from darn.runs.info import MAX_JSON
from darn.runs.place import WRITTEN, is_new
from darn.runs.recipe import Recipe
from darn.runs.start import maker
from darn.runs.sweep_record import how_it_went, new_record, plain, rank, read_record, write_record
from darn.training import Group, Record, plan, shapes, train_group, validation_samples

PROGRAMS = 4  # on an accelerator: programs for each kind of model; more save padding but take longer to compile
FLOATS = 1 << 33  # on an accelerator: of all the arrays of a program, 32 GiB


@dataclass(frozen=True)
class Job:
    """Models that are trained together, and apart from all others."""

    members: tuple[tuple[int, Recipe], ...]  # with their numbers
    padded: Architecture  # large enough for all models of their group


@dataclass(frozen=True)
class Trained:
    """A model of a sweep that is done, with its best weights."""

    number: int
    model: Stack
    record: Record


Spread = Callable[[list[Job], data.Splits], Iterator[list[Trained]]]


def train_job(job: Job, splits: data.Splits) -> list[Trained]:
    """Trains the models of a job: they get the weights that they get among all others.

    Args:
        job: of a sweep.
        splits: the sweep's data.
    """
    make, recipe = maker(splits), job.members[0][1]  # all have the same data
    architectures = {i: r.architecture for i, r in job.members}
    trainings = {i: r.training for i, r in job.members}
    done: list[Trained] = []
    train_group(
        Group(tuple(trainings), job.padded),
        trainings,
        _fresh(architectures, trainings, make),
        shapes(make, job.padded),
        training_rows(splits, recipe),
        splits.valid,
        finish=lambda i, model, record: done.append(Trained(i, jax.tree.map(np.asarray, model), record)),
        dynamic=recipe.data.binarize == "dynamic" and splits.train.grey,
    )
    return done


def _jobs(record: dict, members: list[Recipe]) -> list[Job]:
    """What is left to train, in parts that do not need each other."""
    architectures, jobs = [r.architecture for r in members], []
    for planned in record["plan"]:
        padded, every = Group.of(planned["members"], architectures).padded, planned["members"]
        for k in range(0, len(every), planned["width"]):
            batch = every[k : k + planned["width"]]
            if not all(record["models"][i]["done"] for i in batch):
                jobs.append(Job(tuple((i, members[i]) for i in batch), padded))
    return jobs


def run(
    recipe: Recipe,
    grid: dict[str, tuple],
    out: str | Path,
    *,
    splits: data.Splits | None = None,
    resume: bool = False,
    programs: int | None = None,
    width: int | None = None,
    progress: Callable[[str], None] | None = None,
    devices: Devices = None,
    spread: Spread | None = None,
) -> dict:
    """Trains every model of the grid, each as `darn.fit` would train it, and chooses between them as `fit` does.

    By default a CPU trains one model after another, unpadded (measured to be faster than many at once), and an
    accelerator trains as many as fit.

    Args:
        recipe: what all models have in common.
        grid: values to try, by field of the recipe.
        out: the sweep's folder.
        splits: the recipe's data as `read_data` gave them, if they have been read already.
        resume: whether to continue the sweep in `out`.
        programs: how many programs padding may leave of each kind of model.
        width: models trained at once.
        progress: called with a line of text after every call into a compiled program.
        devices: how many devices share every batch, or "all".
        spread: trains jobs elsewhere, such as on a cluster (`darn.cluster.spread`), and yields the models of each when
            they are done; None trains them here.

    Returns:
        What sweep.json holds, and whether the sweep was interrupted.
    """
    if jax.process_count() > 1:
        raise DarnError("a sweep is for one process: run a part of the grid in each, or train one model in all of them")
    out = Path(out)
    if not resume:
        _check_new(out)
    members = expand(recipe, grid)
    splits = limit(read_data(recipe) if splits is None else splits, recipe)
    _check_seeds(members, splits)
    if resume:
        read_record(out)  # refused before anything is written
    with locked(out, WRITTEN):
        record = read_record(out) if resume else None
        if record is None:
            _check_new(out)  # another process may have started a sweep there meanwhile
            groups = _plan(members, splits, programs, width)
            record = new_record(recipe, grid, members, splits, groups)
            write_record(out, record)
        elif Recipe.from_json(record["recipe"]) != recipe or record["grid"] != plain(grid):
            raise DarnError(f"{out} was started with other fields or another grid: resume it with the same ones")
        elif record["data"].get("sha256") != splits.sha256:
            source = recipe.data.source
            raise DarnError(f"{source} has changed since {out} was started: start another sweep in another folder")
        make = maker(splits)
        architectures, trainings = [r.architecture for r in members], [r.training for r in members]
        fresh = _fresh(architectures, trainings, make)
        began, before = time.monotonic(), record["seconds"]
        rows = record["models"]

        def finish(i: int, model: Stack, outcome: Record) -> None:
            rows[i] |= how_it_went(outcome)
            info = {"recipe": members[i].to_json(), "data": record["data"], "made": record["made"]}
            info["training"] = {k: rows[i][k] for k in ("epoch", "valid_bound", "epochs", "seconds")}
            with atomic(_file(out, i, "jsonl")) as f:
                f.write_text("".join(json.dumps(row) + "\n" for row in outcome.history))
            save_model(_file(out, i, "safetensors"), model, info)
            record["seconds"] = before + time.monotonic() - began
            write_record(out, record)

        if spread is not None:
            for models in spread(_jobs(record, members), splits):
                for trained in models:
                    finish(trained.number, jax.device_put(trained.model), trained.record)
                if progress is not None:
                    progress(f"{sum(r['done'] for r in rows)}/{len(rows)} models trained")
            if not all(r["done"] for r in rows):
                return record | {"interrupted": True}
            return _choose(out, record, before + time.monotonic() - began)
        for at, planned in enumerate(record["plan"]):
            left = [i for i in planned["members"] if not rows[i]["done"]]
            if not left:
                continue
            group = Group.of(planned["members"], architectures)
            with using(devices):
                whole = train_group(
                    group,
                    trainings,
                    fresh,
                    shapes(make, group.padded),
                    training_rows(splits, recipe),
                    splits.valid,
                    finish=finish,
                    finished=[i for i in planned["members"] if rows[i]["done"]],
                    width=planned["width"],
                    checkpoint=out / "checkpoint.safetensors",
                    dynamic=recipe.data.binarize == "dynamic" and splits.train.grey,
                    progress=_reporter(progress, at, len(record["plan"]), rows, trainings[0].epochs),
                )
            if not whole:
                record["seconds"] = before + time.monotonic() - began
                write_record(out, record)
                return record | {"interrupted": True}
        return _choose(out, record, before + time.monotonic() - began)


def _check_new(out: Path) -> None:
    if not is_new(out):
        raise DarnError(f"{out} exists already: choose another folder, or resume the sweep in it")


def _choose(out: Path, record: dict, seconds: float) -> dict:
    """Writes the best model as a run folder; a sparse enough model is preferred to one with a better bound."""
    rows = [r for r in record["models"] if r["valid_bound"] is not None]
    if not rows:
        raise DarnError("every model of the sweep diverged: try lower learning rates")
    best = min(rows, key=rank)
    model, info = load_model(_file(out, best["number"], "safetensors"))
    with atomic(out / "best" / "recipe.json") as f:
        f.write_text(json.dumps({k: info[k] for k in ("recipe", "data", "made")}, indent=1) + "\n")
    with atomic(out / "best" / "metrics.jsonl") as f:
        f.write_bytes(read_bytes(_file(out, best["number"], "jsonl"), MAX_JSON))
    save_model(out / "best" / "model.safetensors", model, info)
    record |= {"best": best["number"], "seconds": seconds}
    write_record(out, record)
    return record | {"interrupted": False}


# ---------------------------------------------------------------- what to train, and how


def _plan(members: list[Recipe], splits: data.Splits, programs: int | None, width: int | None) -> list[dict]:
    make = maker(splits)
    on_cpu = jax.default_backend() == "cpu"
    if programs is None and not on_cpu:
        programs = PROGRAMS
    groups = plan([r.architecture for r in members], [r.training for r in members], make, programs=programs)
    fitting = lambda g: width or (1 if on_cpu else _fits(make, g.padded, splits))  # noqa: E731
    return [{"members": list(g.members), "width": fitting(g)} for g in groups]


def _fits(make, padded: Architecture, splits: data.Splits) -> int:
    """How many models fit into an accelerator's memory at once."""
    stack = shapes(make, padded)
    weights = sum(math.prod(w.shape) for w in jax.tree.leaves(stack))
    widest = max(part.layer.row_floats for part in (*stack.decoder, *stack.encoder))
    widest = max(widest, *(n for w in jax.tree.leaves(stack) for n in w.shape))
    scored = 4 * min(500, len(splits.valid)) * validation_samples(stack, len(splits.valid)) * widest
    return max(1, FLOATS // (8 * weights + scored))


def _fresh(
    architectures: Sequence[Architecture] | Mapping[int, Architecture],
    trainings: Sequence[Training] | Mapping[int, Training],
    build,
):
    """Returns a function that builds the untrained model of a given number; one cheap program for each shape."""
    # A program that runs for a moment should not compile for seconds, so it is built on the CPU if JAX has one.
    place = host()
    cheap = {"xla_backend_optimization_level": 0} if place is not None else None

    @cache
    def make(architecture: Architecture, seed: int) -> Stack:
        program = jax.jit(lambda key: build(architecture, key), compiler_options=cheap)
        with jax.default_device(place):
            return jax.tree.map(np.asarray, program(jax.random.key(seed)))

    return lambda i: make(architectures[i], trainings[i].seed)


def _check_seeds(members: list[Recipe], splits: data.Splits) -> None:
    """Refuses a sweep over seeds if the seed also splits or binarises the data."""
    another = next((r for r in members if r.training.seed != members[0].training.seed), None)
    if another is None:
        return
    other = load_data(another)  # if any seed matters, this one does
    for part in ("train", "valid", "test"):
        if not np.array_equal(getattr(other, part).values, getattr(splits, part).values):
            raise DarnError(
                f"the splits of {splits.name} depend on the seed, so models of different seeds cannot be "
                "compared: leave seed out of the grid"
            )


def _file(out: Path, i: int, ending: str) -> Path:
    return out / "models" / f"{i:03}.{ending}"


def _reporter(progress, at: int, of: int, rows: list[dict], epochs: int):
    if progress is None:
        return None

    def report(records: dict[int, Record], epoch: int) -> None:
        best = min([r.bound for r in records.values()] + [r["valid_bound"] or math.inf for r in rows])
        stopped = sum(r["done"] for r in rows) + sum(r.stopped and not rows[i]["done"] for i, r in records.items())
        seen = f", best validation bound {best:.3f} nats" if math.isfinite(best) else ""
        progress(f"program {at + 1}/{of}, epoch {epoch}/{epochs}, {stopped}/{len(rows)} models stopped{seen}")

    return report
