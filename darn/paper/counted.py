"""Counts the work of drawing a sample: every weight that is multiplied, or added because a bit is on.

The samples are those of `Stack.sample`. Each layer and map reports its own work (`work`); bits that are off cost
nothing.
"""

import numpy as np

from darn.inference.sampling import sample
from darn.model import Stack
from darn.nn import Work


def work(model: Stack, x: np.ndarray, h: tuple[np.ndarray, ...]) -> Work:
    """The work of drawing one (x, h) by ancestral sampling."""
    total = Work()
    for l, (part, y) in enumerate(zip(model.decoder, (x, *h))):
        parents = h[l:] if model.skip else h[l : l + 1]
        c = np.concatenate(parents).astype(np.float32) if parents else None
        if c is not None and part.net is not None:
            total += part.net.work(c)
            c = np.asarray(part.net(c))
        total += part.layer.work(y, c)
    return total


def count(model: Stack, n: int = 20, seed: int = 0) -> dict:
    """The mean work per sample over n samples, and how many units were on."""
    drawn = sample(model, n, seed=seed)
    total = sum((work(model, drawn.x[i], tuple(y[i] for y in drawn.h)) for i in range(n)), start=Work())
    return {
        "operations": total.operations / n,
        "multiplied": total.multiplied / n,
        "added": total.added / n,
        "samples": n,
        "visible_on": float(drawn.x.sum() / n),
        "hidden_on": float(sum(y.sum() for y in drawn.h) / n),
    }
