"""`fit`: the training of one model, with its run folder, progress bar and Ctrl-C."""

import json
import math
from dataclasses import astuple, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from tqdm import tqdm

from darn.config import Training
from darn.data import PackedRows, Rows
from darn.devices import (
    Devices,
    agreed_array,
    check_same,
    first,
    is_first,
    size_of,
    training_mesh,
    using,
    weights_are_sharded,
)
from darn.errors import DarnError, InputTypeError
from darn.files import atomic, cannot_write
from darn.model import Stack
from darn.model_file import save_model
from darn.training._loop import Loop, ctrl_c
from darn.training._metrics import selection_bound
from darn.training._rows import on_devices


@dataclass(frozen=True)
class Fit:
    """The result of a finished (or interrupted) training run.

    Attributes:
        model: the model with the best weights by the validation bound.
        bound: its validation bound, nats; with `Training.weighted`, that of as many encodings as a step takes.
        epoch: the epoch it is from.
        epochs: epochs trained.
        seconds: training time, without compilation and validation.
        steps: steps trained.
        interrupted: whether Ctrl-C ended it early.
        history: the metrics of each validation, as in metrics.jsonl.
        search: how the model was chosen, if there were several to choose from; see `darn.runs.search`.
    """

    model: Stack
    bound: float
    epoch: int
    epochs: int
    seconds: float
    steps: int
    interrupted: bool
    history: list[dict] = field(repr=False, default_factory=list)
    search: dict | None = field(repr=False, default=None)


class Journal:
    """metrics.jsonl: one line per validation."""

    def __init__(self, path: Path):
        self.path = path

    def start(self, history: list[dict]) -> None:
        """Begins with the given rows; older content is discarded."""
        with atomic(self.path) as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in history))

    def add(self, row: dict) -> None:
        try:
            with open(self.path, "a") as f:
                f.write(json.dumps(row) + "\n")
        except OSError as e:
            raise DarnError(cannot_write(self.path, e)) from e


def fit(
    model: Stack,
    train: Any,
    valid: Any,
    config: Training,
    *,
    folder: str | Path | None = None,
    info: dict | None = None,
    resume: bool = False,
    dynamic: bool = False,
    progress: bool = False,
    devices: Devices = None,
    shard_weights: bool | None = None,
    started: Loop | None = None,
) -> Fit:
    """Trains a model and keeps the best weights by the bound on the validation rows.

    Ctrl-C ends training after the current call into the compiled program, within about half a second.

    On several devices, each takes a part of every batch; the result differs only by the order of sums. If
    `jax.distributed` has been initialised, all processes call `fit` with the same arguments and train one model on the
    devices of all; the first one writes the files.

    Args:
        model: the fresh model; it is left unchanged.
        train: the rows to train on, a `darn.data.Rows` or an array of 0 and 1.
        valid: the rows to choose the best epoch by, likewise.
        config: how to train.
        folder: where to write metrics.jsonl, the best model so far (model.safetensors) and the latest checkpoint.
        info: additional metadata for the model file.
        resume: whether to continue from the checkpoint in `folder`, if there is one, bit for bit as if never
            interrupted.
        dynamic: whether grey rows are binarised again at every step.
        progress: whether to show a progress bar, if on a terminal.
        devices: how many devices (of each process) to train on, or "all"; by default one, or all of several processes.
        shard_weights: whether each of them holds a part of the weights and of the optimiser's state only.
        started: a loop that has begun to train this model in this way, to continue with.

    Returns:
        The best model, and how training went.

    Raises:
        DarnError: if the arguments do not fit each other, the loss becomes infinite or NaN, the folder cannot be
            written, there are too few devices, or processes were given different arguments.
    """
    for value, kind in ((model, Stack), (config, Training)):
        if not isinstance(value, kind):
            what = f"a {kind.__name__}, not a {type(value).__name__}"
            raise InputTypeError(f"fit takes a model, rows, rows and a Training: give {what}")
    train, valid = (r if isinstance(r, Rows | PackedRows) else Rows.from_array(r) for r in (train, valid))
    with using(devices, shard_weights=shard_weights):
        mesh, sharded = training_mesh(), weights_are_sharded()
    shapes = [(v.shape, str(v.dtype)) for v in jax.tree.leaves(eqx.filter(model, eqx.is_array))]
    how = {"options": astuple(config), "devices": [size_of(mesh), sharded], "weights": [shapes, dynamic]}
    check_same(how | {"training rows": train.identity, "validation rows": valid.identity})
    if started is None:
        rows = on_devices(train, mesh), on_devices(valid, mesh)
        if mesh is not None:  # machines may differ in the last bit of a random start
            model = jax.tree.map(lambda w: jax.device_put(agreed_array(np.asarray(w))), model)
        loop = Loop([model], [config], *rows, dynamic=dynamic, mesh=mesh, shard_weights=sharded)
    else:
        loop = started
    if folder is not None:
        folder = Path(folder)
        first(partial(_make_folder, folder))
    journal = None if folder is None else Journal(folder / "metrics.jsonl")

    def on_validation(_: int, row: dict) -> None:
        if journal is not None:
            first(partial(journal.add, row))

    loop.on_validation = on_validation

    def save_best() -> None:
        if folder is not None:
            record = loop.records[0]
            note = {"epoch": record.epoch or loop.epoch, "valid_bound": record.bound if record.history else None}
            note |= {"epochs": loop.epoch, "seconds": round(record.seconds, 2)}
            about = dict(info or {}) | {"training": note}
            path = folder / "model.safetensors"
            model = loop.chosen()
            first(lambda: save_model(path, model, about))

    def save() -> None:
        if folder is not None:
            save_best()
            loop.save(folder / "checkpoint.safetensors")

    if folder is not None and journal is not None:
        checkpoint = folder / "checkpoint.safetensors"
        if resume and first(checkpoint.exists):
            loop.load(checkpoint)
        first(partial(journal.start, loop.records[0].history))
    with ctrl_c() as pressed, _Bar(loop, progress and is_first()) as bar:
        finished = loop.run(pressed, save=save, report=bar.update)
    record = loop.records[0]
    if record.diverged:
        kept = "nothing was learned"
        if record.history:
            save_best()
            kept = f"the model of epoch {record.epoch} is kept" + (f" in {folder}" if folder else "")
        raise DarnError(
            f"the loss is infinite or NaN in epoch {loop.epoch}; {kept}: try a lower learning rate than {config.lr:g}"
        )
    if finished:
        save()
    return Fit(
        model=loop.chosen(),
        bound=record.bound,
        epoch=record.epoch,
        epochs=loop.epoch,
        seconds=record.seconds,
        steps=loop.epoch * loop.program.steps_per_epoch + loop.feed.step,
        interrupted=not finished,
        history=record.history,
    )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise DarnError(cannot_write(folder, e)) from e


class _Bar:
    """The progress bar: bound in nats, steps per second, time left. Silent without a terminal."""

    def __init__(self, loop: Loop, show: bool):
        form = "{desc}: {percentage:3.0f}%|{bar}| {n:g}/{total} epochs [{elapsed}<{remaining}{postfix}]"
        self.loop = loop
        self.bar = tqdm(
            desc="training",
            total=loop.config.epochs,
            initial=loop.epoch,
            bar_format=form,
            disable=None if show else True,
            dynamic_ncols=True,
        )

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, *_) -> None:
        self.bar.close()

    def update(self) -> None:
        metrics, bound = self.loop.metrics[0], self.loop.records[0].bound
        noise = f" + {metrics['noise']:.2f} for weights" if "noise" in metrics else ""
        valid = f", valid {bound:.2f}" if math.isfinite(bound) else ""
        text = f"bound {selection_bound(metrics):.2f}{noise}{valid} nats, {self.loop.rate:,.0f} steps/s"
        self.bar.set_postfix_str(text, refresh=False)
        done = self.loop.feed.step / self.loop.program.steps_per_epoch
        self.bar.update(round(self.loop.epoch + done, 3) - self.bar.n)
