"""The training loop: compiled epochs, validation, early stopping and checkpoints, for one model or several."""

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from darn.config import Training, check_values
from darn.data import PackedRows
from darn.devices import WHOLE, agreed, first, gathered, on_one, placed, whole
from darn.errors import DarnError, InputError
from darn.model import Stack
from darn.training._checkpoint import load_checkpoint, save_checkpoint
from darn.training._feed import MemoryFeed, StreamFeed, ValidStream
from darn.training._hyper import Hyper, Terms
from darn.training._metrics import to_host, validation_samples
from darn.training._record import Host, Record, read_host
from darn.training._rows import DeviceRows
from darn.training._step import Program, copied, copied_over

CALL_SECONDS = 0.5  # target duration of one call into the compiled program, so that Ctrl-C and the bar respond


@contextlib.contextmanager
def ctrl_c() -> Iterator[threading.Event]:
    """Yields a flag that the first Ctrl-C sets instead of raising; a second one interrupts as usual."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return

    def handler(*_):
        pressed.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, handler)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def _check(model: Stack, configs: Sequence[Training], train: Any, valid: Any) -> None:
    """Refuses options that cannot be, and rows that are not the model's."""
    for config in configs:
        check_values(config)
        if config.sparsity and not model.n_layers:
            raise InputError("a sparsity target is for stochastic hidden units, but this model has none: leave it out")
    for rows, name in ((train, "training"), (valid, "validation")):
        found = rows.n, 0 if rows.context is None else rows.context.shape[1]
        if found != (model.n_x, model.n_context):
            raise InputError(
                f"the {name} rows have {found[0]} columns and a context of {found[1]}, but the model has {model.n_x} "
                f"and {model.n_context}"
            )
        if not len(rows):
            raise InputError(f"there are no {name} rows: give at least one")


def _feed(
    rows: DeviceRows | PackedRows, program: Program, configs: Sequence[Training], mesh: Mesh | None
) -> MemoryFeed | StreamFeed:
    if isinstance(rows, DeviceRows):
        return MemoryFeed(rows, program)
    if len({config.seed for config in configs}) > 1:
        raise DarnError(
            "a packed set that is not held in memory is trained on in one order: leave seed out of the grid"
        )
    return StreamFeed(rows, program, configs[0].seed, mesh)


class Loop:
    """Trains one model or several together, advanced call by call into their program.

    Models that have stopped stay in the program, with their best weights kept, until half of them have stopped; then
    the others move into a smaller program. A single model has no model axis.

    Where several processes train together, each runs this loop, and whatever steers it (times, metrics, Ctrl-C) is the
    first process's in all of them.
    """

    def __init__(
        self,
        models: Sequence[Stack],
        configs: Sequence[Training],
        train: DeviceRows | PackedRows,
        valid: DeviceRows | PackedRows,
        *,
        dynamic: bool = False,
        mesh: Mesh | None = None,
        shard_weights: bool = False,
        on_validation: Callable[[int, dict], None] | None = None,
        on_stop: Callable[[int, Stack, Record], None] | None = None,
    ):
        """Prepares training; call `load` to continue from a checkpoint.

        Args:
            models: fresh models of one structure and shape.
            configs: their configs, equal in all but the fields of `Hyper`.
            train: rows to train on, as `on_devices` gives them.
            valid: rows to choose the best epoch by, likewise.
            dynamic: whether grey rows are binarised again at every step.
            mesh: the devices that share every batch, and that the rows are on; None for one.
            shard_weights: whether they also share the weights and the optimiser's state of a single model.
            on_validation: called with a model's index in `models` and its new metrics.
            on_stop: called once for every model, when it has stopped or the run has ended.
        """
        _check(models[0], configs, train, valid)
        self.configs = configs
        self.on_validation, self.on_stop = on_validation, on_stop
        self.config, self.mesh = configs[0], mesh
        self.several = len(models) > 1
        self.program = Program.of(
            models[0],
            self.config,
            len(train),
            terms=Terms.of(configs),
            n_models=len(models) if self.several else None,
            dynamic=dynamic,
            mesh=mesh,
            shard_weights=shard_weights,
        )
        self.feed = _feed(train, self.program, configs, mesh)
        self.valid = valid if isinstance(valid, DeviceRows) else ValidStream(valid, mesh)
        self.n_samples = validation_samples(models[0], len(valid))
        self.records = [Record() for _ in models]
        self.members = list(range(len(models)))  # indices of the models that are still in the program
        self.epoch = 0
        self.sums: list[dict] | None = None  # of the metrics since the last validation, for each member
        self.seen = 0  # epochs in the sums
        self.hyper = self._hyper()
        together = jax.tree.map(lambda *w: np.stack(w), *models) if self.several else models[0]
        self.state = placed(self.program.start(together, self.hyper), mesh, self.program.specs)
        self.hyper = self._placed(self.hyper)
        self.best = copied(self.program.kept(self.state))
        self.rate = 0.0  # steps per second of the last call
        self.metrics: list[dict] = []  # of the last call, for each member
        self._at_once, self._compiled = 1, False

    def _placed(self, tree: Any) -> Any:
        return placed(tree, self.mesh, WHOLE)

    def _hyper(self) -> Hyper:
        return Hyper.stacked([self.configs[i] for i in self.members]) if self.several else Hyper.of(self.config)

    @property
    def running(self) -> bool:
        """Whether there is anything left to train."""
        return self.epoch < self.config.epochs and bool(self._running())

    def _running(self) -> list[int]:
        return [i for i in self.members if not self.records[i].stopped]

    def advance(self) -> None:
        """One call into the program, at most up to the next validation, and that validation if due."""
        config = self.config
        to_validation = config.validate_every - self.epoch % config.validate_every
        most = min(to_validation, config.epochs - self.epoch)
        began = time.monotonic()
        done = self.feed.advance(self.state, self.hyper, self.epoch, self._at_once, most)
        self.state = done.state
        found = self._to_host(done.metrics)  # waits for the device
        took, self.metrics = agreed([time.monotonic() - began, found])
        running = self._running()
        # The first call compiles; a run of one call has no other to tell how long it took.
        if self._compiled or (self.epoch + done.epochs == config.epochs and not any(r.seconds for r in self.records)):
            for i in running:
                self.records[i].seconds += took / len(running)
        if self._compiled:
            self._at_once = max(1, round(done.done * min(CALL_SECONDS / took, 4)))
        self._compiled = True
        self.rate = done.steps / took
        self.epoch += done.epochs
        if done.epochs:
            self._add_up(done.epochs)
        for i, one in zip(self.members, self.metrics):
            record = self.records[i]
            if not record.stopped:
                record.epochs = self.epoch
                record.diverged = record.stopped = not math.isfinite(one["bound"])
        due = self.epoch % config.validate_every == 0 or self.epoch == config.epochs
        if done.epochs and due:
            self._validate()

    def _to_host(self, metrics: dict[str, Any]) -> list[dict]:
        return to_host(metrics, len(self.members) if self.several else None)

    def _add_up(self, count: int) -> None:
        zero = [{k: 0.0 for k in one} for one in self.metrics]
        shapes = lambda sums: [{k: np.shape(v) for k, v in one.items()} for one in sums]  # noqa: E731
        if self.sums is not None and shapes(self.sums) != shapes(self.metrics):
            raise DarnError("the checkpoint's sums are not of these models: start the run again from the beginning")
        self.sums = [
            {k: np.add(before[k], np.multiply(v, count)).tolist() for k, v in one.items()}
            for before, one in zip(self.sums or zero, self.metrics)
        ]
        self.seen += count

    def _validate(self) -> None:
        """Scores the validation rows, keeps the best weights so far, and stops models that are done."""
        if not self._running():
            return
        measured = agreed(self._measured())
        prices = np.asarray(self.state.price).reshape(len(self.members), -1).tolist()
        better = []
        for at, i in enumerate(self.members):
            if self.records[i].stopped:
                better.append(False)
                continue
            mean = {k: np.divide(v, self.seen).tolist() for k, v in self.sums[at].items()}  # type: ignore[index]
            row = {
                "epoch": self.epoch,
                "step": self.epoch * self.program.steps_per_epoch,
                "train": mean,
                "valid": measured[at],
            }
            row |= {"price": prices[at]} if self.configs[i].sparsity else {}
            better.append(self.records[i].add(row, self.configs[i], self.program.n_h))
            self.records[i].check_patience(self.config.patience)
            if self.on_validation is not None:
                self.on_validation(i, row)
        self.sums, self.seen = None, 0
        self._keep(better)
        if self.several and len(self._running()) <= len(self.members) // 2 and self.running:
            self._drop_stopped()

    def _measured(self) -> list[dict]:
        """The metrics of the validation rows, for each member."""
        bound = partial(self.program.bound, self.state, self.hyper, n_samples=self.n_samples)
        if isinstance(self.valid, DeviceRows):
            return self._to_host(bound(self.valid, 0))
        found = [(len(rows), self._to_host(bound(rows, first))) for first, rows in self.valid.parts()]
        weights = [count / len(self.valid) for count, _ in found]
        mean = lambda values: np.tensordot(weights, np.asarray(values), 1).tolist()  # noqa: E731
        each = zip(*(metrics for _, metrics in found), strict=True)
        return [{k: mean([one[k] for one in parts]) for k in parts[0]} for parts in each]

    def _keep(self, better: list[bool]) -> None:
        kept = self.program.kept(self.state)
        if self.several:
            now = jnp.asarray(better)
            mask = lambda w: now.reshape(-1, *[1] * (w.ndim - 1))  # noqa: E731
            self.best = jax.tree.map(lambda new, old: jnp.where(mask(new), new, old), kept, self.best)
        elif better[0]:
            self.best = copied_over(self.best, kept)  # copied because the state is donated to the next call

    def chosen(self, at: int = 0) -> Stack:
        """The model at this position in the program with its best weights (before any validation, the latest)."""
        record = self.records[self.members[at]]
        # Copied, because the next better weights take the place of the best.
        weights = copied(self.best) if record.history or record.diverged else self.program.kept(self.state)
        pick = (lambda w: w[at]) if self.several else (lambda w: w)
        return self.program.model(*on_one(jax.tree.map(pick, (weights, self.state.fixed)), self.mesh))

    def _drop_stopped(self) -> None:
        """Hands over the models that have stopped and continues with the rest in a smaller program."""
        self._hand_over(lambda i: self.records[i].stopped)
        rest = np.asarray([at for at, i in enumerate(self.members) if not self.records[i].stopped])
        kept = jax.device_put(jax.tree.map(lambda w: np.asarray(w)[rest], (self.state, self.best)))
        self.state, self.best = self._placed(kept)
        self.members = [self.members[at] for at in rest]
        self.hyper = self._placed(self._hyper())
        self._compiled = False

    def _hand_over(self, which: Callable[[int], bool]) -> None:
        if self.on_stop is not None:
            for at, i in enumerate(self.members):
                if which(i):
                    self.on_stop(i, self.chosen(at), self.records[i])

    def run(
        self,
        pressed: threading.Event,
        *,
        save: Callable[[], None],
        report: Callable[[], None] | None = None,
        until: int | None = None,
    ) -> bool:
        """Trains to the end; False if `pressed` ended it early.

        Args:
            pressed: a flag that ends training after the current call, in any process.
            save: called every `Training.checkpoint_every` seconds, and before ending early, in all processes.
            report: called after every call into the program.
            until: an epoch with a validation to pause at; None trains to the end.
        """
        try:
            return self._run(pressed, save, report, until)
        finally:
            self.feed.close()

    def _run(self, pressed: threading.Event, save, report, until: int | None) -> bool:
        saved = time.monotonic()
        unfinished = lambda: self.running and (until is None or self.epoch < until)  # noqa: E731
        while unfinished():
            self.advance()
            if report is not None:
                report()
            if not unfinished():
                break
            said = gathered(pressed.is_set(), time.monotonic() - saved > self.config.checkpoint_every)
            ended, due = said[:, 0].any(), said[0, 1]
            if due or ended:
                save()
                saved = time.monotonic()
            if ended:
                return False
        if not self.running:
            self._hand_over(lambda i: True)
        return True

    # ------------------------------------------------------------ checkpoints

    def save(self, path: Path, **notes: Any) -> None:
        """Writes everything that resuming needs, in the first process; `notes` are more plain values of `Host`."""
        host = {"epoch": self.epoch, "sums": self.sums, "seen": self.seen, "members": self.members}
        host |= {"step": self.feed.step, "partial": self.feed.partial}
        host["records"] = [vars(r) for r in self.records]
        arrays = whole((self.state, self.best), self.mesh)
        first(lambda: save_checkpoint(path, arrays, host | notes))

    def load(self, path: Path) -> None:
        """Continues from a checkpoint of the same models, bit for bit as if never interrupted."""
        host = read_host(path)
        shape = (len(host.members),) if self.several else ()
        own = len(host.records) == len(self.records) and self._is_own(host)
        if not own or not self.feed.resume(host.step, host.partial, shape):
            raise DarnError(f"{path} is the checkpoint of another run: resume with the settings it was started with")
        like = (self.state, self.best)
        if self.several and len(host.members) < len(self.members):
            like = jax.tree.map(lambda w: w[: len(host.members)], like)
        state, self.best = load_checkpoint(path, like)
        self.state = placed(state, self.mesh, self.program.specs)
        self.best = placed(self.best, self.mesh, self.program.kept_specs)
        self.members, self.records = list(host.members), list(host.records)
        self.epoch, self.seen = host.epoch, host.seen
        self.sums = None if host.sums is None else [dict(one) for one in host.sums]
        self.hyper = self._placed(self._hyper())
        for record in self.records:
            record.check_patience(self.config.patience)

    def _is_own(self, host: Host) -> bool:
        """Whether the numbers of a checkpoint can be of these models."""
        names = {frozenset(one) for one in host.sums or ()}
        return (
            0 <= host.seen <= host.epoch <= self.config.epochs
            and 0 < len(host.members) == len(set(host.members))
            and set(host.members) <= set(range(len(self.records)))
            and (self.several or len(host.members) == 1)
            and (host.sums is None or (len(host.sums) == len(host.members) and len(names) == 1))
            and (host.sums is None) == (host.seen == 0)
        )
