"""Training the models of a group, in parallel or one after another, each with its own early stopping."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from darn.config import Training
from darn.devices import training_mesh
from darn.model import Stack
from darn.training._loop import Loop, ctrl_c
from darn.training._pad import pad, unpad
from darn.training._plan import Group
from darn.training._record import Record, read_host
from darn.training._rows import on_devices


def train_group(
    group: Group,
    configs: Sequence[Training],
    fresh: Callable[[int], Stack],
    padded: Stack,
    train: Any,
    valid: Any,
    *,
    finish: Callable[[int, Stack, Record], None],
    finished: Sequence[int] = (),
    width: int | None = None,
    checkpoint: Path | None = None,
    dynamic: bool = False,
    progress: Callable[[dict[int, Record], int], None] | None = None,
) -> bool:
    """Trains the models of a group, with the same result as `fit`.

    Args:
        group: the numbers of its models, and their padded architecture.
        configs: the training configs of all models, by number.
        fresh: returns the untrained model with a given number.
        padded: a model of the architecture `group.padded`; its values do not matter.
        train: the rows to train on, a `darn.data.Rows`.
        valid: the rows to choose the best epochs by, a `darn.data.Rows`.
        finish: called once for every model, with its number, best weights and record.
        finished: numbers of models to leave out.
        width: models trained at once; None trains all.
        checkpoint: where to write checkpoints; an interrupted group continues from there as if never stopped.
        dynamic: whether grey rows are binarised again at every step.
        progress: called after every call into the program, with the records of the models in it and the epoch.

    Returns:
        False if Ctrl-C ended it early.
    """
    members = list(group.members)
    width = len(members) if width is None else width
    mesh = training_mesh()
    rows = on_devices(train, mesh), on_devices(valid, mesh)
    with ctrl_c() as pressed:
        for k in range(0, len(members), width):
            batch = members[k : k + width]
            if set(batch) <= set(finished):
                continue
            models = [fresh(i) for i in batch]
            forms = [jax.tree.map(lambda w: jax.ShapeDtypeStruct(w.shape, w.dtype), m) for m in models]

            def on_stop(at: int, model: Stack, record: Record, batch=batch, forms=forms) -> None:
                finish(batch[at], unpad(model, forms[at]), record)

            loop = Loop(
                [pad(m, padded) for m in models],
                [configs[i] for i in batch],
                *rows,
                dynamic=dynamic,
                mesh=mesh,
                on_stop=on_stop,
            )
            if checkpoint is not None and checkpoint.exists() and read_host(checkpoint).batch == tuple(batch):
                loop.load(checkpoint)

            def save(loop=loop, batch=batch) -> None:
                if checkpoint is not None:
                    loop.save(checkpoint, batch=batch)

            def report(loop=loop, batch=batch) -> None:
                if progress is not None:
                    progress(dict(zip(batch, loop.records)), loop.epoch)

            if not loop.run(pressed, save=save, report=report):
                return False
            if checkpoint is not None:
                checkpoint.unlink(missing_ok=True)
    return True
