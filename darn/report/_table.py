"""A run's own table as text, and its synthetic rows beside it."""

from itertools import chain

import numpy as np

from darn.data import Layout, Table, is_pack, read_table
from darn.fidelity import FEWEST, Fidelity, evaluate
from darn.inference import sampling
from darn.runs import synthetic
from darn.runs.run import Run

ROWS = 5000  # of training rows, synthetic rows and test rows that are compared, at most


def has_texts(run: Run) -> bool:
    """Whether the cells of the run's table can be read: a packed set does not keep them."""
    return not is_pack(run.recipe.data.source)


def read_split(run: Run, split: str) -> Table:
    """The rows of a split as they are in the file."""
    options = run.recipe.data
    return read_table(options.source, delimiter=options.delimiter, split=split, seed=run.recipe.training.seed)


def fidelity_of(run: Run, target: str | None = None, *, seed: int = 4) -> Fidelity | None:
    """Synthetic rows beside the training rows, with the test rows held out; None where there are too few rows."""
    train = run.splits().train
    if len(train) < FEWEST or not has_texts(run):
        return None
    n = min(max(len(train), 1000), ROWS)
    context = None if train.context is None else train.context[np.arange(n) % len(train)]
    x = sampling.sample(run.model, n, seed=seed, context=context).x
    names, parts = synthetic.table(run, [(x, context)], seed=seed)
    drawn = Table(tuple(names), np.array(list(chain.from_iterable(parts)), dtype=object), Layout())
    real, held_out = (read_split(run, split) for split in ("train", "test"))
    return evaluate(real, drawn, held_out=held_out, target=target, rows=ROWS)
