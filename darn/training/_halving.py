"""Successive halving: several models begin to train, and at each comparison the better half of each kind goes on."""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import jax

from darn.config import Training
from darn.model import Stack
from darn.training._loop import Loop, ctrl_c
from darn.training._record import Record
from darn.training._rows import on_devices

SHARES = (1 / 8, 1 / 4, 1.0)  # of a model's training: where the models of a kind are compared, and the end
LEAST = 2  # models beside the first that train to the end, one for each thread
THREADS = 2  # on a CPU: models trained at once, as the program of one model leaves a second core idle


@dataclass(frozen=True)
class Contest:
    """How the models compared.

    Attributes:
        loops: the training of each model, as far as it went.
        bounds: each model's best validation bound at every comparison it took part in, the last one at its end.
        best: the number of the best model, which is trained to the end.
    """

    loops: list[Loop]
    bounds: list[list[float]]
    best: int


def _pause(config: Training, share: float) -> int:
    """The epoch with a validation that is nearest to this share of the training."""
    every = config.validate_every
    return min(max(round(share * config.epochs / every), 1) * every, config.epochs)


def _better(numbers: Sequence[int], rank, kinds: Sequence[str], *, last: bool) -> list[int]:
    """The better half of the models of each kind, before the last part the best one, and at least `LEAST` in all."""
    order = sorted(numbers, key=rank.__getitem__)
    same = {kind: [i for i in order if kinds[i] == kind] for kind in dict.fromkeys(kinds[i] for i in order)}
    kept = [i for of in same.values() for i in of[: 1 if last else -(-len(of) // 2)]]
    others = [i for i in order if i not in kept]
    return sorted(kept + others[: max(LEAST - len(kept), 0)])


def _as_of(epoch: int, loop: Loop) -> Record:
    """The record as it was at this epoch: a resumed model may be further. That of a diverged model is empty."""
    now, then = loop.records[0], Record()
    if now.diverged and now.epochs <= epoch:
        return then
    for row in now.history:
        if row["epoch"] <= epoch:
            then.add(row, loop.config, loop.program.n_h)
    return then


def halve(
    models: Sequence[Callable[[], Stack]],
    configs: Sequence[Training],
    train,
    valid,
    *,
    kinds: Sequence[str],
    folder: Path | None = None,
    dynamic: bool = False,
    report: Callable[[int, Loop], None] | None = None,
) -> Contest | None:
    """Trains several models, and those that compare well to the end; each as `fit` would train it.

    The first model always goes on: the others have to be better than it in the end.

    Args:
        models: for each model, a function that builds it fresh.
        configs: how each is trained.
        train: the rows to train on, a `darn.data.Rows`.
        valid: the rows to compare by, a `darn.data.Rows`.
        kinds: of each model, by a name: models of one kind learn at about the same pace, so that an early comparison
            tells which of them is the better one in the end.
        folder: where to write checkpoints; an interrupted contest continues from there as if never stopped.
        dynamic: whether grey rows are binarised again at every step.
        report: called after every call into a program, with the model's number and its loop.

    Returns:
        How the models compared, or None if Ctrl-C ended it early.
    """
    rows = on_devices(train), on_devices(valid)
    loops: list[Loop] = []
    lock = threading.Lock()

    def go(i: int, until: int) -> bool:
        loop, path = loops[i], None if folder is None else folder / f"{i:03}.safetensors"

        def tell() -> None:
            if report is not None:
                with lock:
                    report(i, loop)

        if path is not None and path.exists() and not loop.epoch:
            loop.load(path)
        save = (lambda: None) if path is None else (lambda: loop.save(path))
        before = loop.epoch
        whole = loop.run(pressed, save=save, report=tell, until=until)
        if loop.epoch > before:
            save()
        return whole

    for make, config in zip(models, configs, strict=True):
        loops.append(Loop([make()], [config], *rows, dynamic=dynamic))
    bounds: list[list[float]] = [[] for _ in loops]
    rank: dict[int, tuple[float, float]] = {}
    alive = list(range(len(loops)))
    threads = min(THREADS, os.cpu_count() or 1) if jax.default_backend() == "cpu" else 1
    with ctrl_c() as pressed, ThreadPoolExecutor(threads) as pool:
        for share in SHARES:
            if rank:
                alive = [0, *_better(alive[1:], rank, kinds, last=share == SHARES[-1])]
            pauses = [_pause(configs[i], share) for i in alive]
            if not all(list(pool.map(go, alive, pauses))):
                return None
            for i, pause in zip(alive, pauses):
                then = _as_of(pause, loops[i])
                rank[i] = then.excess, then.bound
                bounds[i].append(then.bound)
    return Contest(loops, bounds, min(alive, key=rank.__getitem__))
