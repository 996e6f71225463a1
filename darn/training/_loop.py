"""The loop around the compiled epochs: validation, early stopping, checkpoints, progress, Ctrl-C."""

import contextlib
import json
import math
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from darn.config import Training
from darn.errors import DarnError
from darn.files import cannot_write
from darn.model import Stack
from darn.model_file import save_model
from darn.training._checkpoint import load_checkpoint, save_checkpoint
from darn.training._step import DeviceRows, Program, excess, goal, to_host

CALL_SECONDS = 0.5  # how long one call into the compiled program should last: short enough for Ctrl-C and the bar


@dataclass(frozen=True)
class Fit:
    """A finished (or interrupted) training: the best model on validation and how it came about."""

    model: Stack
    bound: float  # its validation bound, nats; where encodings are weighted, that of as many as a step takes
    epoch: int  # the epoch it is from
    epochs: int  # epochs trained
    seconds: float  # training time, compilation and validation apart
    steps: int
    interrupted: bool
    history: list[dict] = field(repr=False, default_factory=list)


@contextlib.contextmanager
def _ctrl_c():
    """Yields a flag that the first Ctrl-C raises instead of an exception; the second one interrupts as usual."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return

    def handler(signum, frame):
        pressed.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, handler)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


class _Journal:
    """metrics.jsonl: a line a validation; on resuming, lines that the checkpoint has not seen are dropped."""

    def __init__(self, path: Path | None, keep: int):
        self.path = path
        self.history: list[dict] = []
        if path is None:
            return
        if keep:
            try:
                self.history = [json.loads(line) for line in path.read_text().splitlines()[:keep]]
            except (OSError, ValueError) as e:
                raise DarnError(f"{path} is missing or damaged: start the run again under another --out") from e
            if len(self.history) < keep:
                raise DarnError(f"{path} is shorter than its checkpoint says: start the run again under another --out")
        self._write("w", self.history)

    def _write(self, mode, rows):
        if self.path is None:
            return
        try:
            with open(self.path, mode) as f:
                f.writelines(json.dumps(row) + "\n" for row in rows)
        except OSError as e:
            raise DarnError(cannot_write(self.path, e)) from e

    def add(self, row: dict):
        self.history.append(row)
        self._write("a", [row])


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
    progress: bool = True,
) -> Fit:
    """Trains `model` on the rows of `train` (a `darn.data.Rows`) and keeps the best weights by the bound on `valid`.

    With a `folder`, it will hold metrics.jsonl, the best model so far (model.safetensors, carrying `info`) and the
    latest checkpoint; `resume` goes on from that checkpoint, bit for bit as if never interrupted. `dynamic`: grey rows
    are binarised afresh at every step.
    """
    if folder is not None:
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise DarnError(cannot_write(folder, e)) from e
    program = Program.of(model, config, len(train), dynamic=dynamic)
    seed = jnp.asarray(config.seed)
    train_rows, valid_rows = DeviceRows.put(train), DeviceRows.put(valid)
    # Few validation rows are scored several times over: the choice between epochs should not be a matter of luck.
    # Frames of a game are large enough to speak for themselves.
    n_valid = max(1, min(5000, 200_000_000 // model.row_floats) // len(valid)) if _is_random(model) else 1
    state = program.start(model)
    best = jax.tree.map(jnp.copy, program.kept(state))
    host = {
        "epoch": 0,
        "bound": math.inf,
        "excess": math.inf,
        "best": 0,
        "since": 0,
        "lines": 0,
        "seconds": 0.0,
        "sums": None,
        "seen": 0,
    }
    checkpoint = folder / "checkpoint.safetensors" if folder else None
    if resume and checkpoint is not None and checkpoint.exists():
        (state, best), saved_host = load_checkpoint(checkpoint, (state, best))
        host |= saved_host
    journal = _Journal(folder / "metrics.jsonl" if folder else None, host["lines"])
    metadata = dict(info or {})

    def chosen():
        """The best weights on validation; before the first look at it, the latest."""
        return best if host["lines"] else program.kept(state)

    def keep_model():
        if folder is not None:
            note = {"epoch": host["best"] or host["epoch"], "valid_bound": host["bound"] if host["lines"] else None}
            note |= {"epochs": host["epoch"], "seconds": round(host["seconds"], 2)}
            save_model(folder / "model.safetensors", program.model(chosen()), metadata | {"training": note})

    def save():
        if checkpoint is not None:
            keep_model()
            save_checkpoint(checkpoint, (state, best), host)

    n_steps, group, saved = program.steps_per_epoch, 1, time.monotonic()
    compiled: set[str] = set()
    with _ctrl_c() as pressed, _Bar(config, host["epoch"], n_steps, progress) as bar:
        while host["epoch"] < config.epochs and not (config.patience and host["since"] >= config.patience):
            to_validation = config.validate_every - host["epoch"] % config.validate_every
            count = min(group, to_validation, config.epochs - host["epoch"])
            began = time.monotonic()
            state, metrics = program.epochs(state, train_rows, jnp.asarray(host["epoch"]), jnp.asarray(count), seed)
            metrics = to_host(metrics)  # waits for the device
            took = time.monotonic() - began
            if "epochs" in compiled:
                host["seconds"] += took
                group = max(1, round(count * min(CALL_SECONDS / took, 4)))
            else:
                compiled.add("epochs")
            if not math.isfinite(metrics["bound"]):
                save_best = f"the model of epoch {host['best']} is kept" if host["lines"] else "nothing was learned"
                if host["lines"]:
                    keep_model()
                raise DarnError(
                    f"the loss is no longer a finite number in epoch {host['epoch'] + count}; {save_best}"
                    f"{f' in {folder}' if folder else ''}: try a lower --lr than {config.lr:g}"
                )
            host["epoch"] += count
            host["seen"] += count
            sums = {k: np.multiply(v, count) for k, v in metrics.items()}
            so_far = host["sums"] or {k: 0.0 for k in sums}
            host["sums"] = {k: np.add(so_far[k], v).tolist() for k, v in sums.items()}
            if host["epoch"] % config.validate_every == 0 or host["epoch"] == config.epochs:
                measured = to_host(program.bound(program.kept(state), valid_rows, n_samples=n_valid, seed=seed))
                dense = excess(measured["active"], config.sparsity, model.n_h)
                if (dense, goal(measured)) < (host["excess"], host["bound"]):
                    best = jax.tree.map(jnp.copy, program.kept(state))
                    host.update(bound=goal(measured), excess=dense, best=host["epoch"], since=0)
                else:
                    host["since"] += 1
                mean = {k: np.divide(v, host["seen"]).tolist() for k, v in host["sums"].items()}
                price = np.asarray(state.price).tolist()
                row = {
                    "epoch": host["epoch"],
                    "step": host["epoch"] * n_steps,
                    "train": mean,
                    "valid": measured,
                }
                journal.add(row | ({"price": price} if config.sparsity else {}))
                host.update(lines=host["lines"] + 1, sums=None, seen=0)
            bar.update(host, metrics, count * n_steps / took)
            if time.monotonic() - saved > config.checkpoint_every or pressed.is_set():
                save()
                saved = time.monotonic()
            if pressed.is_set():
                break
        save()
    interrupted = host["epoch"] < config.epochs and pressed.is_set()
    return Fit(
        program.model(chosen()),
        host["bound"],
        host["best"],
        host["epoch"],
        host["seconds"],
        host["epoch"] * n_steps,
        interrupted,
        journal.history,
    )


def _is_random(model: Stack) -> bool:
    """Whether one scoring of a row differs from the next."""
    return bool(model.n_layers) or model.trains_by_estimate


class _Bar:
    """The progress bar: bound in nats, steps a second, time left. Silent where nobody watches."""

    def __init__(self, config: Training, epoch: int, n_steps: int, show: bool):
        form = "{desc}: {percentage:3.0f}%|{bar}| {n}/{total} epochs [{elapsed}<{remaining}{postfix}]"
        self.bar = tqdm(
            desc="training",
            total=config.epochs,
            initial=epoch,
            bar_format=form,
            disable=None if show else True,
            dynamic_ncols=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.bar.close()

    def update(self, host: dict, metrics: dict, rate: float):
        noise = f" + {metrics['noise']:.2f} for weights" if "noise" in metrics else ""
        valid = f", valid {host['bound']:.2f}" if math.isfinite(host["bound"]) else ""
        self.bar.set_postfix_str(f"bound {goal(metrics):.2f}{noise}{valid} nats, {rate:,.0f} steps/s", refresh=False)
        self.bar.update(host["epoch"] - self.bar.n)
